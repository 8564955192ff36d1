"""What observations offer to the rooms below (`_redis/rooms.py`)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from langchain_workingmem._engine.effects import Later, send
from langchain_workingmem._redis.keys import decode
from langchain_workingmem._redis.rooms import HOOKS
from langchain_workingmem._redis.scripts import as_told, note_covered
from langchain_workingmem.observations.archive import copy_command, copy_log
from langchain_workingmem.observations.documents import reindex_documents
from langchain_workingmem.observations.log import OBSERVED_WINDOWS, add_to_user, read_observation, remove_from_user
from langchain_workingmem.observations.observing import observe_later, waiting_commands
from langchain_workingmem.observations.reading import named, scope_of
from langchain_workingmem.observations.view import ObservedTurn, note_coverage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.effects import Command, Plan
    from langchain_workingmem._redis.rooms import Room
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import Observation

turn = ObservedTurn
windows = OBSERVED_WINDOWS.call
reindex = reindex_documents
copying = copy_command
copied = copy_log


def saving(
    state: MemoryState,
    thread_id: str,
    resource_id: str | None,
    call: Command,
    removed: str,
    tokens: int | None,
) -> tuple[Command, list[Command]]:
    """Return the call that saves, as the larger variant, and what is sent beside it."""
    options = state.observations
    is_due_here = options is not None and options.background and options.scope == "thread"
    watched = f"t/{options.message_tokens}" if options is not None and is_due_here else "/"
    told = as_told(call, f"{watched}/{removed}")
    return told, [] if tokens is None else waiting_commands(state, thread_id, resource_id, tokens)


def saved(state: MemoryState, thread_id: str, resource_id: str | None, replies: Sequence[Any]) -> Plan[None]:
    """Start the observer if it is due, and make the documents of recall that observations lack."""
    due, lacks_documents, version, *waiting = replies
    note_coverage(state, thread_id, version)
    note_covered(state.keys.of(thread_id).thread)
    if lacks_documents and state.recall is not None:
        yield Later(reindex_documents(state, thread_id))
    if due or any(waiting):
        yield from observe_later(state, thread_id, resource_id)


def deleted(state: MemoryState, thread_id: str, reply: Sequence[Any]) -> Plan[None]:
    """Take a thread out of the index of its user. One round trip, none in scope "thread"."""
    _, owner = reply
    if owner:
        yield from remove_from_user(state, decode(owner), thread_id)


def moved(state: MemoryState, thread_id: str, owner: str, new_owner: str) -> Plan[None]:
    """Move a thread from the index of a user to that of another. Two round trips, one in scope "thread"."""
    (scope,) = yield from send(("HGET", state.keys.of(thread_id).observations, "scope"))
    if scope == b"r":
        yield from add_to_user(state, thread_id, new_owner)
        yield from remove_from_user(state, owner, thread_id)


def found(state: MemoryState, value: bytes) -> Observation:
    """Read an observation by which recall has found a message."""
    one = read_observation(0, value)
    return named(one.positions[0][0], one) if scope_of(state) == "r" else one


HOOKS["observations"] = cast("Room", sys.modules[__name__])
