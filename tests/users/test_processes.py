"""Other processes at work while everything of their user is deleted or merged, and those that are killed half way."""

from __future__ import annotations

import signal
import subprocess
import sys
from time import monotonic
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, UserDeletedError, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.archives import unsealed
from tests.helpers.canaries import keys_with
from tests.helpers.embedded import read
from tests.helpers.programs import Forked
from tests.helpers.threads import thread_of
from tests.helpers.types import Make
from tests.users.guests import GUEST, USER

U: Any = {"user_id": USER}
NOTES = WorkingMemoryOptions(template="")
# it writes as fast as it can, and tells when each write began and was acknowledged
WRITER = """
import sys
from time import monotonic
from langchain_core.messages import HumanMessage
from langchain_workingmem import Memory, UserDeletedError
url, prefix, name = sys.argv[1:]
with Memory(url, key_prefix=prefix) as memory:
    print("ready", flush=True)
    for number in range(1_000_000):
        id, begin = f"/{name}/{number}.md", monotonic()
        try:
            memory.threads.create(user_id="maya", thread_id=f"{name}-{number}")
            memory.history.append([HumanMessage("x", id=id)], thread_id=f"{name} {number % 7}", user_id="maya")
            memory.files.write(id, "first", user_id="maya")
            memory.files.edit(id, "first", "second", user_id="maya", by=name)
        except (UserDeletedError, LookupError):  # the deletion came between two of them
            continue
        print(id, begin, monotonic(), flush=True)
"""
MERGER = """
import sys
from langchain_workingmem import Memory, WorkingMemoryOptions
with Memory(sys.argv[1], key_prefix=sys.argv[2], working_memory=WorkingMemoryOptions(template="")) as memory:
    print("ready", flush=True)
    memory.users.merge("anon-7f3", into="maya")
"""


def program(source: str, *words: str) -> Forked:
    started = Forked([sys.executable, "-c", source, *words], stdout=subprocess.PIPE)
    assert read(started) == "ready"
    return started


def stored(memory: Memory, owner: str = USER) -> tuple[dict[str, str], set[str]]:
    """Return the files of a user with their texts, and the ids of the messages."""
    records = unsealed(memory.users.export(owner))
    return (
        {one["path"]: one["content"] for one in records if one["kind"] == "file" and "content" in one},
        {one["message"]["data"]["id"] for one in records if one["kind"] == "message"},
    )


def test_two_processes_that_write_lose_what_was_before_a_deletion_and_nothing_else(
    make_memory: Make, server: EmbeddedRedis, raw: redis.Redis, prefix: str
) -> None:
    memory = make_memory()
    writers = [program(WRITER, server.url, prefix, name) for name in ("ann", "bob")]
    told: list[list[str]] = []

    def listen() -> None:
        for writer in writers:
            told.extend(read(writer).split() for _ in range(5))

    for _ in range(2):  # some are written between the deletions
        listen()
        begin = monotonic()
        assert memory.users.delete(USER).verified
        end = monotonic()
    listen()
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
        told += [line.split() for line in writer.communicate()[0].splitlines() if line.count(" ") == 2]
    files, messages = stored(memory)
    assert {*files.values()} <= {"first", "second"}
    for id, first, last in told:
        if float(first) > end:
            assert (files[id], id in messages) == ("second", True), "acknowledged after the deletion, and lost"
        elif float(last) < begin:
            assert {id}.isdisjoint({*files} | messages), "acknowledged before the deletion, and still there"
    assert memory.users.delete(USER).verified
    assert keys_with(raw, prefix, "second") == []


def test_processes_that_are_killed_leave_nothing_behind_the_next_deletion(
    make_memory: Make, server: EmbeddedRedis, raw: redis.Redis, prefix: str
) -> None:
    memory = make_memory()
    writers = [program(WRITER, server.url, prefix, str(number)) for number in range(3)]
    for writer in writers:
        assert memory.users.delete(USER).verified
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
    assert memory.users.delete(USER).verified
    assert list(raw.scan_iter(f"{prefix}:*{{*")) == []


@pytest.mark.parametrize("half", ["threads", "files"])
def test_a_process_that_is_killed_half_way_leaves_what_the_next_call_ends(
    make_memory: Make, server: EmbeddedRedis, raw: redis.Redis, prefix: str, half: str
) -> None:
    memory = make_memory(working_memory=NOTES)
    for place in range(300 if half == "threads" else 3):
        said = [HumanMessage(f"word {place}", id=f"m{place}"), AIMessage("noted")]
        memory.history.append(said, thread_id=f"t{place}", user_id=GUEST)
    for place in range(250 if half == "files" else 3):
        memory.files.write(f"/{place:03}.md", f"text {place}", user_id=GUEST)
    memory.working_memory.update("likes tea", user_id=GUEST)
    memory.working_memory.update("is Maya", **U)
    before, victim = stored(memory, GUEST), program(MERGER, server.url, prefix)
    while thread_of(memory, "t20").user_id == GUEST if half == "threads" else not memory.files.list("/", **U):
        pass
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    if half == "threads":
        assert thread_of(memory, "t299").user_id == GUEST  # it was half-way
        with pytest.raises(UserDeletedError):
            memory.history.append([HumanMessage("x")], thread_id="t299", user_id=GUEST)
    else:
        assert 0 < len(memory.files.list("/", **U)) < 250
    report = memory.users.merge(GUEST, into=USER)
    assert 0 < (report.threads if half == "threads" else report.files) < 300
    assert report.files_renamed == {}
    assert stored(memory) == before
    assert memory.working_memory.get(**U).text == "is Maya\n\nlikes tea"
    assert keys_with(raw, prefix, GUEST) == []
