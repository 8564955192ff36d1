"""Every operation over a connection that breaks at any byte: the right answer or a typed error, whole or not at all."""

from __future__ import annotations

import inspect
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, get_args

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, RecallOptions, RedisConnectionError, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.io.server import socket_of
from langchain_workingmem.parts.history import History
from langchain_workingmem.parts.recall import Recall
from langchain_workingmem.parts.threads import Threads
from langchain_workingmem.parts.working_memory import WorkingMemory
from langchain_workingmem.plans import effects, scripts
from langchain_workingmem.plans.keys import Keys
from tests.conftest import WordEmbeddings
from tests.server.proxy import Exchange, Fault, Kind, Proxy, Stream
from tests.unit.test_layers import NO_IO, public

TIMEOUT = timedelta(milliseconds=300)  # where somebody is silent
EVERY_BYTE = 80  # of exchanges up to so many bytes; of longer ones the boundaries, and a sample of the rest
SAMPLE = 20


@dataclass(frozen=True)
class Name:
    """The ids of one trial; all trials exchange the same number of bytes."""

    number: int

    @property
    def thread(self) -> str:
        return f"t-{self.number:05d}-"

    @property
    def copy(self) -> str:
        return f"c-{self.number:05d}-"

    @property
    def user(self) -> str:
        return f"u-{self.number:05d}-"

    @property
    def heir(self) -> str:
        return f"h-{self.number:05d}-"

    def mask(self, text: str) -> str:
        """Take out what differs from trial to trial: the number, times and new ids."""
        text = text.replace(f"-{self.number:05d}-", "-#-")
        text = re.sub(r"datetime\.datetime\(.*?utc\)|\b\d{16}\b|\d{4}-\d\d-\d\d \d\d:\d\d", "<time>", text)
        return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>", text)


TURN = [HumanMessage("where is the red bicycle", id="1"), AIMessage("in the garage", id="2")]


def talk(memory: Memory, name: Name) -> None:
    memory.history.append(TURN, thread_id=name.thread, resource_id=name.user)


def note(memory: Memory, name: Name) -> None:
    memory.working_memory.update("likes tea", resource_id=name.user)
    memory.working_memory.update("rides a bicycle", resource_id=name.user)


def talk_and_note(memory: Memory, name: Name) -> None:
    talk(memory, name)
    note(memory, name)


def edit(memory: Memory, name: Name) -> Any:
    (tool,) = memory.tools(resource_id=name.user, include=["update_working_memory"])
    return tool.invoke({"edits": [{"find": "tea", "replace": "coffee"}]})


def nothing(memory: Memory, name: Name) -> None:
    """Start from nothing."""


def talk_and_clone(memory: Memory, name: Name) -> None:
    talk(memory, name)
    memory.threads.clone(name.thread, new_thread_id=name.copy)


@dataclass(frozen=True)
class Operation:
    prepare: Callable[[Memory, Name], None]
    call: Callable[[Memory, Name], Any]
    once: bool = False  # a lost reply is an error, because nothing may happen twice
    bare: bool = False  # prepared without vectors


OPERATIONS = {
    "context": Operation(
        talk_and_note,
        lambda memory, name: memory.context(
            [HumanMessage("which bicycle", id="9")], thread_id=name.thread, resource_id=name.user
        ),
    ),
    "save_turn": Operation(
        nothing, lambda memory, name: memory.save_turn(TURN, thread_id=name.thread, resource_id=name.user)
    ),
    "threads.create": Operation(
        nothing,
        lambda memory, name: memory.threads.create(
            resource_id=name.user, thread_id=name.thread, title="a", metadata={"b": 1}
        ),
        once=True,
    ),
    "threads.get": Operation(talk, lambda memory, name: memory.threads.get(name.thread)),
    "threads.list": Operation(talk, lambda memory, name: memory.threads.list(resource_id=name.user)),
    "threads.update": Operation(
        talk, lambda memory, name: memory.threads.update(name.thread, title="b", metadata={"c": [1], "d": None})
    ),
    "threads.delete": Operation(talk, lambda memory, name: memory.threads.delete(name.thread), once=True),
    "threads.transfer": Operation(
        talk,
        lambda memory, name: memory.threads.transfer(name.thread, resource_id=name.user, to=name.heir),
        once=True,
    ),
    "threads.clone": Operation(
        talk, lambda memory, name: memory.threads.clone(name.thread, new_thread_id=name.copy, title="copy")
    ),
    "threads.source_of": Operation(talk_and_clone, lambda memory, name: memory.threads.source_of(name.copy)),
    "threads.clones_of": Operation(talk_and_clone, lambda memory, name: memory.threads.clones_of(name.thread)),
    "threads.lineage": Operation(talk_and_clone, lambda memory, name: memory.threads.lineage(name.copy)),
    "history.append": Operation(
        talk,
        lambda memory, name: memory.history.append(
            [HumanMessage("thanks a lot", id="3"), TURN[0]], thread_id=name.thread, resource_id=name.user
        ),
    ),
    "history.update": Operation(
        talk, lambda memory, name: memory.history.update([HumanMessage("hidden", id="1")], thread_id=name.thread)
    ),
    "history.messages": Operation(talk, lambda memory, name: memory.history.messages(name.thread, last=1)),
    "history.page": Operation(talk, lambda memory, name: memory.history.page(name.thread)),
    "history.for_resource": Operation(talk, lambda memory, name: memory.history.for_resource(name.user)),
    "history.delete": Operation(
        talk, lambda memory, name: memory.history.delete(["1", "7"], thread_id=name.thread), once=True
    ),
    "history.clear": Operation(talk, lambda memory, name: memory.history.clear(name.thread), once=True),
    "recall.search": Operation(talk, lambda memory, name: memory.recall.search("which bicycle", resource_id=name.user)),
    "recall.reindex": Operation(
        talk, lambda memory, name: memory.recall.reindex(thread_id=name.thread, progress=False), bare=True
    ),
    "working_memory.get": Operation(note, lambda memory, name: memory.working_memory.get(resource_id=name.user)),
    "working_memory.update": Operation(
        note, lambda memory, name: memory.working_memory.update("sings", resource_id=name.user)
    ),
    "update_working_memory": Operation(note, edit),
    "working_memory.clear": Operation(
        note, lambda memory, name: memory.working_memory.clear(resource_id=name.user), once=True
    ),
    "working_memory.revisions": Operation(
        note, lambda memory, name: memory.working_memory.revisions(resource_id=name.user)
    ),
    "working_memory.revert": Operation(
        note, lambda memory, name: memory.working_memory.revert(1, resource_id=name.user), once=True
    ),
}


def test_every_operation_is_tried() -> None:
    parts = {"threads.": Threads, "history.": History, "recall.": Recall, "working_memory.": WorkingMemory, "": Memory}
    names = {
        part + name
        for part, kind in parts.items()
        for name in public(kind)
        if not inspect.iscoroutinefunction(getattr(kind, name))
    }
    assert names - {"setup", "close"} - NO_IO == set(OPERATIONS) - {"update_working_memory"}


class Bench:
    """A memory behind a proxy, one that is not, and what is stored."""

    def __init__(
        self, server: EmbeddedRedis, proxy: Proxy, make_memory: Callable[..., Memory], **timeout: timedelta
    ) -> None:
        options: dict[str, Any] = {
            "embeddings": WordEmbeddings(),
            "recall": RecallOptions(),
            "working_memory": WorkingMemoryOptions(template=""),
            "key_prefix": "f",
        }
        self.proxy = proxy
        self.memory = make_memory(proxy.url, **timeout, **options)
        self.direct = Memory(server.url, **options)
        self.bare = Memory(server.url, key_prefix="f")
        self.raw: Any = redis.Redis.from_url(server.url)
        self._numbers = count()
        self.exchange = Exchange()  # of the last trial
        self.error: RedisConnectionError | None = None
        self.memory.setup()

    def close(self) -> None:
        for one in (self.direct, self.bare, self.raw):
            one.close()

    def try_out(self, operation: Operation, fault: Fault | None) -> tuple[str | None, str, str]:
        """Return the answer, None for an error, and what was stored before and after."""
        name = Name(next(self._numbers))
        operation.prepare(self.bare if operation.bare else self.direct, name)
        before = self._stored(name)
        self.proxy.arm(fault)
        try:
            answer = name.mask(repr(operation.call(self.memory, name)))
        except RedisConnectionError as error:
            answer = None
            self.error = error
        self.exchange = self.proxy.arm(None)
        after = self._stored(name)
        assert self.memory.threads.get("nobody") is None  # the same memory works again
        self._forget(name)
        return answer, before, after

    def _keys(self, name: Name) -> list[bytes]:
        self.raw.ping()  # what was sent before this has been carried out
        return sorted(self.raw.keys(f"f:*-{name.number:05d}-*"))

    def _stored(self, name: Name) -> str:
        found = []
        for key in self._keys(name):
            match self.raw.type(key):
                case b"hash":
                    rows = list(self.raw.hgetall(key).items())
                case b"zset":
                    rows = self.raw.zrange(key, 0, -1, withscores=True)
                case b"stream":
                    rows = self.raw.xrange(key)
            found += [name.mask(f"{key!r} {row}") for row in rows]
        return "\n".join(sorted(found))

    def _forget(self, name: Name) -> None:
        if keys := self._keys(name):
            self.raw.unlink(*keys)


@pytest.fixture(scope="module")
def private() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture(scope="module")
def proxy(private: EmbeddedRedis) -> Iterator[Proxy]:
    assert private.path is not None
    place = str(socket_of(private.path))

    def connect() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(place)
        return connection

    with Proxy(connect) as proxy:
        yield proxy


@pytest.fixture
def make_bench(
    private: EmbeddedRedis, proxy: Proxy, make_memory: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Bench]]:
    monkeypatch.setattr(effects, "PAUSES", (0.001, 0.001, 0.001))
    with ExitStack() as stack:
        yield lambda **timeout: stack.enter_context(closing(Bench(private, proxy, make_memory, **timeout)))


def places(passed: bytes) -> list[int]:
    """Choose where to break: at every byte of a short exchange, else around each line and in a sample of the rest."""
    size = len(passed)
    if size <= EVERY_BYTE:
        return list(range(size + 1))
    lines = [match.end() for match in re.finditer(rb"\r\n", passed)]
    around = [place + shift for place in lines[:: len(lines) // SAMPLE + 1] for shift in (-1, 0, 1)]
    return sorted({0, 1, *around, *range(0, size, size // SAMPLE), size - 1, size} - {size + 1})


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_a_broken_connection_is_a_typed_error_or_the_right_answer(
    make_bench: Callable[..., Bench], operation: Operation
) -> None:
    bench = make_bench()
    expected, start, end = bench.try_out(operation, None)
    assert expected is not None
    exchange = bench.exchange
    for stream in get_args(Stream):
        for place in places(bytes(exchange.of(stream))):
            kind: Kind = "reset" if place % 2 else "close"
            answer, before, after = bench.try_out(operation, Fault(kind, stream, place))
            assert before == start
            assert after in (start, end), f"half done at byte {place} of the {stream}"
            if answer is None:
                assert operation.once, f"not repeated at byte {place} of the {stream}"
                assert after == (start if stream == "request" and place < len(exchange.request) else end)
            else:
                assert (answer, after) == (expected, end)


def test_a_lost_reply_to_a_seeded_thread_says_what_may_be_missing(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    memory = bench.memory
    bench.proxy.arm(Fault("close", "reply", 1))
    with pytest.raises(RedisConnectionError, match="may have taken effect") as caught:
        memory.threads.create(resource_id="seeded", thread_id="seeded", working_memory="likes tea")
    assert "working_memory.update() sets it" in caught.value.__notes__[0]
    assert memory.threads.get("seeded") is not None
    assert memory.working_memory.get(resource_id="seeded").is_empty


def test_a_write_of_working_memory_is_recognised_even_after_a_rival_came(raw: redis.Redis, prefix: str) -> None:
    def write(expected: int, document: str) -> int:
        call = scripts.REMEMBER.call(Keys(prefix).of_resource("u"), "", expected, 20, "update", "write", document)
        return int(raw.execute_command(*scripts.as_eval(call))[0])  # type: ignore[no-untyped-call]

    assert [write(0, "mine"), write(1, "the rival's"), write(0, "mine"), write(0, "too late")] == [1, 1, 1, 0]
    assert raw.hget(Keys(prefix).of_resource("u")[0], "document") == b"the rival's"


@pytest.mark.parametrize(
    "name", ["context", "history.append", "threads.clone", "threads.delete", "recall.reindex", "working_memory.update"]
)
def test_a_slow_or_silent_connection_is_waited_for_as_long_as_the_timeout_says(
    make_bench: Callable[..., Bench], name: str
) -> None:
    operation, bench = OPERATIONS[name], make_bench(timeout=TIMEOUT)
    expected, start, end = bench.try_out(operation, None)
    middle = {stream: len(bench.exchange.of(stream)) // 2 for stream in get_args(Stream)}
    for stream, place in middle.items():
        assert bench.try_out(operation, Fault("delay", stream, place)) == (expected, start, end)
        began = time.monotonic()
        answer, _, after = bench.try_out(operation, Fault("silence", stream, place))
        assert time.monotonic() - began < 10 * TIMEOUT.total_seconds()
        assert (answer, after) == ((None, start if stream == "request" else end) if operation.once else (expected, end))


def test_a_server_that_stays_silent_is_an_error_in_time(make_memory: Callable[..., Memory]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        memory = make_memory(f"redis://127.0.0.1:{mute.getsockname()[1]}", timeout=timedelta(milliseconds=50))
        for call in (lambda: memory.threads.get("t"), lambda: memory.threads.delete("t")):
            began = time.monotonic()
            with pytest.raises(RedisConnectionError, match="Timeout"):
                call()
            assert time.monotonic() - began < 2


def test_setting_up_over_a_broken_connection_works(
    proxy: Proxy, private: EmbeddedRedis, make_memory: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handshake of the client, and the making of the indexes."""
    monkeypatch.setattr(effects, "PAUSES", (0.001, 0.001, 0.001))

    def set_up(fault: Fault | None) -> Exchange:
        memory = make_memory(proxy.url, key_prefix="s", embeddings=WordEmbeddings(), recall=RecallOptions())
        proxy.arm(fault)
        memory.setup()
        passed = proxy.arm(None)
        assert memory.threads.list().total == 0
        assert not memory.recall.search("x", resource_id="u").hits
        memory.close()
        return passed

    with redis.Redis.from_url(private.url) as raw:

        def start_again() -> None:
            raw.delete("s:vectors:settings")
            for index in ("s:threads", "s:vectors"):
                raw.execute_command("FT.DROPINDEX", index)

        whole = set_up(None)
        start_again()
        for stream in get_args(Stream):
            for place in places(bytes(whole.of(stream))):
                set_up(Fault("reset" if place % 2 else "close", stream, place))
                start_again()
