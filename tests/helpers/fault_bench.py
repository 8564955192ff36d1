"""A bench to try an operation out under a fault."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

import redis

from langchain_workingmem import Memory, RecallOptions, WorkingMemError
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.operations import ALONE, Caller, Operation, note, options, talk
from tests.helpers.proxy import Exchange, Fault, Proxy
from tests.helpers.types import Make


def masked(text: str) -> str:
    """Take out times, new ids, digests of times, and the size of the server, which a repeated call makes anew."""
    text = re.sub(r"[\d.]+ MiB", "<size>", text)
    text = re.sub(r"\b[0-9a-f]{64}\b|(?<='mac': ')[0-9a-f]{32}", "<digest>", text)  # of an export, or of ids in a mark
    # twice where a reply is lost
    text = re.sub(r"((?:calls|input_tokens|output_tokens|version)(?:=|', b'))\d+", r"\1<count>", text)
    text = re.sub(
        r"datetime\.datetime\(.*?utc\)|\b\d{16}\b|\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d[\d.]*\+00:00)?", "<time>", text
    )
    return re.sub(r"\b[0-9a-f]{32}\b", "<id>", text)


def _edit(caller: Caller) -> Any:
    (tool,) = caller.memory.tools(user_id=caller.user, include=["update_working_memory"])
    return tool.invoke({"edits": [{"find": "tea", "replace": "coffee"}]})


TOOLS = {
    "update_working_memory": Operation(_edit, note),  # it tells the model about errors, and raises none
    # a named copy exists if repeated
    "threads.clone": Operation(lambda c: c.memory.threads.clone(c.thread, title=c.secret), talk),
}
# Every operation is tried by the sync face. What the async runner makes of a fault does not depend on the operation.
SEVERAL = ["context", "history.append", "threads.clone", "threads.delete", "recall.reindex", "working_memory.update"]
BY_FACES = [("sync", name) for name in ALONE | TOOLS] + [("async", name) for name in SEVERAL]


@dataclass(frozen=True)
class Outcome:
    answer: str | None  # None for an error
    before: str  # what was stored
    after: str
    error: WorkingMemError | None = field(compare=False)
    exchange: Exchange = field(compare=False)


class FaultBench:
    """A memory behind a proxy, one that is not, and what is stored."""

    def __init__(self, server: EmbeddedRedis, proxy: Proxy, make_memory: Make, **timeout: timedelta) -> None:
        own: dict[str, Any] = {
            "embeddings": WordEmbeddings(),
            "recall": RecallOptions(),
            **{name: options()[name] for name in ("working_memory", "observations")},
            "key_prefix": "f",
        }
        self.proxy = proxy
        self.memory = make_memory(f"{proxy.url}?protocol=2", **timeout, **own)
        self.direct = Memory(server.url, **own)
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
        trial = f"-{next(self._numbers):05d}-"  # stands in its ids: all trials exchange the same number of bytes
        assert operation.prepare
        operation.prepare(_caller(self.bare if operation.bare else self.direct, trial))
        before, answer, refused = self._stored(trial), None, None
        self.proxy.arm(fault)
        with trouble or nullcontext():
            try:
                answer = _without(trial, repr(operation.call(_caller(self.memory, trial))))
            except WorkingMemError as error:
                refused = error
        exchange = self.proxy.arm(None)
        after = self._stored(trial)
        assert self.memory.threads.get("nobody") is None  # the same memory works again
        self._forget(trial)
        return Outcome(answer, before, after, refused, exchange)

    def record(self, operation: Operation) -> Outcome:
        """Try an operation without any trouble; the first time the server learns its scripts."""
        self.try_out(operation)
        return self.try_out(operation)

    def _keys(self, trial: str) -> list[bytes]:
        self.raw.ping()  # what was sent before this has been carried out
        return sorted(self.raw.keys(f"f:*{trial}*"))

    def _stored(self, trial: str) -> str:
        reads = {
            b"hash": lambda key: self.raw.hgetall(key).items(),
            b"zset": lambda key: self.raw.zrange(key, 0, -1, withscores=True),
            b"stream": self.raw.xrange,
        }
        keys = self._keys(trial)
        return "\n".join(
            sorted(_without(trial, f"{key!r} {row}") for key in keys for row in reads[self.raw.type(key)](key))
        )

    def _forget(self, trial: str) -> None:
        keys = self._keys(trial)
        for thread in self.raw.keys("f:thread:*"):  # copies under new ids
            if self.raw.hget(thread, "user") == f"u{trial}".encode():
                keys += self.raw.keys(thread.replace(b":thread:", b":*:") + b"*")
        if keys:
            self.raw.unlink(*keys)


def _caller(memory: Memory, trial: str) -> Caller:
    return Caller(memory=memory, thread=f"t{trial}", user=f"u{trial}")


def _without(trial: str, text: str) -> str:
    """Take out what differs from trial to trial: the number, times and new ids."""
    return masked(text.replace(trial, "-#-"))
