"""Messages that a second model is about to read, as the user's hook `before_observing` leaves them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage

from langchain_workingmem._engine.effects import Hook
from langchain_workingmem._redis.access import owner_of
from langchain_workingmem.errors import ModelError
from langchain_workingmem.options import Ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.state import MemoryState


def redacted(
    state: MemoryState, messages: Sequence[BaseMessage], thread_id: str, resource_id: str | None
) -> Plan[Sequence[BaseMessage]]:
    """Return what a model may read of messages, in their order; all of them without a hook.

    `ModelError` if the hook fails, or returns what it was not given: then nothing is to be sent. No round trip; one where the
    owner of the thread has to be looked up for the hook.
    """
    options = state.observations
    hook = None if options is None else options.before_observing
    if options is None or hook is None or not messages:
        return messages
    _, owner = yield from owner_of(state, thread_id, resource_id)
    copies = [one.model_copy(deep=True) for one in messages]
    found = yield from Hook(partial(hook, copies, Ids(thread_id, owner)), options.timeout.total_seconds())
    kept = _checked(found, {one.id: one.type for one in messages})
    return [kept[one.id] for one in messages if one.id in kept]


def _checked(found: Any, given: dict[str | None, str]) -> dict[str | None, BaseMessage]:
    """Return the messages by their ids."""
    kept: dict[str | None, BaseMessage] = {}
    seen = None if isinstance(found, list | tuple) else f"a value of type {type(found).__name__}"
    for one in () if seen else found:
        if not isinstance(one, BaseMessage):
            seen = f"a {type(one).__name__} among the messages"
        elif given.get(one.id) != one.type or one.id in kept:
            seen = "a message whose id and type are not those of one that it was given, or one of them twice"
        kept[getattr(one, "id", None)] = one
    if seen:
        raise ModelError(
            f"before_observing returned {seen}, so nothing was sent",
            remedy="return a list of the messages that it gets: with other content, or without some; ids stay",
        )
    return kept
