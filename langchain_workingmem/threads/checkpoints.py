"""A LangGraph checkpointer, and the conversations in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from langchain_core.messages import messages_from_dict
from langgraph.checkpoint.base import BaseCheckpointSaver

from langchain_workingmem._engine.plan import Call
from langchain_workingmem._redis.codec import as_messages, is_storable
from langchain_workingmem._text.clock import to_micros
from langchain_workingmem.checks import LARGEST, wrong_type
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.messages import BaseMessage
    from langgraph.checkpoint.base import CheckpointTuple

    from langchain_workingmem._engine.plan import Plan

CHANNEL = "messages"  # of the state
MOST = 1_000_000  # checkpoints that are listed: RedisSaver lists 10,000 unless it is asked for more, and Search never more than this


@dataclass(slots=True)
class Conversation:
    """A thread as its checkpoints tell it. `add` takes them from the newest to the oldest, and keeps none."""

    thread_id: str
    messages: list[BaseMessage] = field(default_factory=list)  # with ids
    times: dict[str, int] = field(default_factory=dict)  # by id: when the first checkpoint with the message was made
    metadata: dict[str, Any] = field(default_factory=dict)  # of the checkpoints, the newest value of each key
    _next: Any = ...  # id of the checkpoint to take next: others are of branches that were left

    def add(self, one: CheckpointTuple) -> None:
        """Take a checkpoint: the newest one has the state, older ones what was trimmed from its front, and when messages came."""
        is_newest = self._next is ...
        if not is_newest and one.checkpoint["id"] != self._next:
            return
        self._next = (one.parent_config or {}).get("configurable", {}).get("checkpoint_id")
        self.metadata = {**one.metadata, **self.metadata}
        try:
            held = self._read(one)
        except (OptionError, ValueError) as error:
            if is_newest:
                seen = f"its channel {CHANNEL!r} holds no messages ({error})"
                raise OptionError(seen, remedy="leave it out") from error
            held = []  # an older program stored other things there
        self.times |= {message.id or "": _micros(one.checkpoint["ts"]) for message in held}
        if is_newest:
            self.messages = held
        first = self.messages[0].id if self.messages else None
        trimmed = next((at for at, message in enumerate(held) if message.id == first), 0)
        known = {message.id for message in self.messages}
        self.messages[:0] = [message for message in held[:trimmed] if message.id not in known]

    def _read(self, one: CheckpointTuple) -> list[BaseMessage]:
        """Return the messages of a state, each with an id."""
        value = one.checkpoint["channel_values"].get(CHANNEL) or []
        messages = as_messages([_revived(item) for item in value])
        for position, message in enumerate(messages):
            if not message.id:  # as in states that add_messages does not make
                said = f"{self.thread_id}\0{position}\0{message.type}\0{message.content}"
                message.id = sha256(said.encode(errors="surrogatepass")).hexdigest()[:32]
        return [*{message.id: message for message in messages if is_storable(message)}.values()]


class Saver:
    """A checkpointer as plans use it: by its methods, or by their async twins. Its errors are raised in the plan."""

    def __init__(self, saver: object, method: str, callers: tuple[str, str], *, is_async: bool, needed: bool) -> None:
        """Raise `OptionError` for what is no checkpointer, and where another one of the `callers` has to be used.

        That is where only the async twin of a method exists, or only the method, or, if it is `needed`, none of them.
        """
        if not isinstance(saver, BaseCheckpointSaver):
            raise wrong_type(saver, "checkpointer", "pass the checkpointer of your graph, such as InMemorySaver()")
        names = method, f"a{method}"
        has = [getattr(type(saver), name) is not getattr(BaseCheckpointSaver, name) for name in names]
        if not has[is_async] and (needed or has[not is_async]):
            other = f"call {callers[0]} in a thread" if is_async else f"await {callers[1]} in async code"
            raise OptionError(f"{type(saver).__name__} has no {names[is_async]}()", remedy=other)
        self._saver, self._is_async = saver, is_async

    def call(self, method: str, *arguments: Any, **options: Any) -> Plan[Any]:
        """Call a method, and return what it returns."""
        named = getattr(self._saver, f"a{method}" if self._is_async else method)
        call = partial(named, *arguments, **options)
        return (yield from Call(call, call))

    def each(self, take: Callable[[CheckpointTuple], None], config: Any, **options: Any) -> Plan[None]:
        """Give each checkpoint of a listing to `take`."""

        def listed() -> None:
            for one in self._saver.list(config, **options):
                take(one)

        async def alisted() -> None:
            async for one in self._saver.alist(config, **options):
                take(one)

        yield from Call(listed, alisted)


def list_threads(saver: Saver) -> Plan[list[Any]]:
    """Return the ids of the threads of all checkpoints, the one that was used last first."""
    names: dict[Any, None] = {}
    number = 0

    def take(one: CheckpointTuple) -> None:
        nonlocal number
        number += 1
        if not one.config["configurable"].get("checkpoint_ns"):  # others are of subgraphs
            names[one.config["configurable"]["thread_id"]] = None

    yield from saver.each(take, None, limit=MOST)
    if number >= MOST:
        raise OptionError(f"the checkpointer has {MOST:,} checkpoints or more", remedy="pass thread_ids, in parts")
    return list(names)


def read_conversation(saver: Saver, name: Any) -> Plan[Conversation]:
    """Read the conversation of a thread."""
    found = Conversation(str(name))
    yield from saver.each(found.add, {"configurable": {"thread_id": name, "checkpoint_ns": ""}})
    return found


def _revived(item: Any) -> Any:
    """Return the message that RedisSaver lists as LangChain's JSON of it; other items as they are."""
    if isinstance(item, dict) and item.get("lc") == 1 and isinstance(item.get("kwargs"), dict):
        return messages_from_dict([{"type": item["kwargs"].get("type"), "data": item["kwargs"]}])[0]
    return item


def _micros(time: str) -> int:
    """Convert the time of a checkpoint; 0, which scripts read as now, if it is none."""
    try:
        micros = to_micros(datetime.fromisoformat(time))
    except (TypeError, ValueError):
        return 0
    return micros if 0 < micros < LARGEST else 0
