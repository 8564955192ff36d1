"""Writers at work while everything of their user is deleted."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from itertools import count

import redis
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import UserDeletedError
from tests.helpers.programs import Forked


class Writer(threading.Thread):
    """Writes into threads of one user until it is stopped, and remembers what became of it."""

    def __init__(self, url: str, prefix: str, number: int, stop: threading.Event) -> None:
        super().__init__()
        self.url, self.prefix, self.number, self.stopped = url, prefix, number, stop
        self.told: dict[str, tuple[float, float]] = {}  # id -> begin and end of what was acknowledged
        self.refused: set[str] = set()

    def run(self) -> None:
        with Memory(self.url, key_prefix=self.prefix) as memory:
            for place in count():
                if self.stopped.is_set():
                    return
                id, begin = f"{self.number}-{place}", time.monotonic()
                try:
                    memory.history.append([HumanMessage("x", id=id)], thread_id=f"t{place % 7}", user_id="u")
                except UserDeletedError:
                    self.refused.add(id)
                else:
                    self.told[id] = (begin, time.monotonic())


def test_writers_at_work_lose_what_was_before_and_keep_what_came_after(server: EmbeddedRedis, prefix: str) -> None:
    stop = threading.Event()
    writers = [Writer(server.url, prefix, number, stop) for number in range(4)]
    with Memory(server.url, key_prefix=prefix) as memory:
        for place in range(300):
            memory.threads.create(user_id="u", thread_id=f"old{place}")
        for writer in writers:
            writer.start()
        while any(len(writer.told) < 50 for writer in writers):
            time.sleep(0.001)
        for _ in range(5):
            begin = time.monotonic()
            assert memory.users.delete("u").verified
            end = time.monotonic()
            seen = [len(writer.told) for writer in writers]
            while any(len(writer.told) < known + 10 for writer, known in zip(writers, seen, strict=True)):
                time.sleep(0.001)
        stop.set()
        for writer in writers:
            writer.join()
        stored = {row.message.id for place in range(7) for row in memory.history.page(f"t{place}", limit=100_000)}
        for writer in writers:
            assert not writer.refused & stored
            for id, (first, last) in writer.told.items():
                assert id in stored or first < end, "acknowledged after the deletion, and lost"
                assert id not in stored or last > begin, "acknowledged before the deletion, and still there"
        assert memory.users.delete("u").verified
        assert memory.threads.list(user_id="u").total == 0


WRITER = """
import sys
from langchain_core.messages import HumanMessage
from langchain_workingmem import Memory, UserDeletedError
with Memory(sys.argv[1], key_prefix=sys.argv[2]) as memory:
    print("ready", flush=True)
    for place in range(1_000_000):
        try:
            memory.threads.create(user_id="u", thread_id=f"{sys.argv[3]}-{place}")
            memory.history.append([HumanMessage("x")], thread_id=f"{sys.argv[3]}-{place}", user_id="u")
        except UserDeletedError:
            pass
"""


def test_processes_that_are_killed_leave_nothing_behind_the_next_deletion(
    server: EmbeddedRedis, raw: redis.Redis, prefix: str
) -> None:
    writers = [
        Forked([sys.executable, "-c", WRITER, server.url, prefix, str(number)], of="library", stdout=subprocess.PIPE)
        for number in range(3)
    ]
    with Memory(server.url, key_prefix=prefix) as memory:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert memory.users.delete("u").verified
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
        assert memory.users.delete("u").verified
    assert list(raw.scan_iter(f"{prefix}:*{{*")) == []
