"""Every public operation, and a bench to try it out under a fault."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, RecallOptions, WorkingMemError, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.proxy import Exchange, Fault, Proxy


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
    "history.messages": Operation(
        talk, lambda memory, name: memory.history.messages(name.thread, last=1, superseded=True)
    ),
    "history.page": Operation(talk, lambda memory, name: memory.history.page(name.thread)),
    "history.for_resource": Operation(talk, lambda memory, name: memory.history.for_resource(name.user)),
    "history.delete": Operation(
        talk, lambda memory, name: memory.history.delete(["1", "7"], thread_id=name.thread), once=True
    ),
    "history.truncate": Operation(
        talk, lambda memory, name: memory.history.truncate(name.thread, after="1"), once=True
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


TOOLS = {"update_working_memory": Operation(note, edit)}  # it tells the model about errors, and raises none


@dataclass(frozen=True)
class Outcome:
    answer: str | None  # None for an error
    before: str  # what was stored
    after: str
    error: WorkingMemError | None = field(compare=False)
    exchange: Exchange = field(compare=False)


class FaultBench:
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
        self.memory.setup()

    def close(self) -> None:
        for one in (self.direct, self.bare, self.raw):
            one.close()

    def try_out(
        self, operation: Operation, fault: Fault | None = None, trouble: AbstractContextManager[None] | None = None
    ) -> Outcome:
        """Prepare an operation, call it under a fault of the connection or in trouble of the server, and clean up."""
        name = Name(next(self._numbers))
        operation.prepare(self.bare if operation.bare else self.direct, name)
        before, answer, refused = self._stored(name), None, None
        self.proxy.arm(fault)
        with trouble or nullcontext():
            try:
                answer = name.mask(repr(operation.call(self.memory, name)))
            except WorkingMemError as error:
                refused = error
        exchange = self.proxy.arm(None)
        after = self._stored(name)
        assert self.memory.threads.get("nobody") is None  # the same memory works again
        self._forget(name)
        return Outcome(answer, before, after, refused, exchange)

    def record(self, operation: Operation) -> Outcome:
        """Try an operation without any trouble; the first time the server learns its scripts."""
        self.try_out(operation)
        return self.try_out(operation)

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
