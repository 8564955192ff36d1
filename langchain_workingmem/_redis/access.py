"""Who may touch a thread: its owner, unless all that the owner has is being deleted."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.effects import Pause, Plan, send
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import check_id, decode, encode
from langchain_workingmem._redis.scripts import CREATE, DELETE
from langchain_workingmem._redis.sweeping import SWEEP_SIZE, continue_sweep, sweep, sweep_left
from langchain_workingmem.errors import (
    MessageNotFoundError,
    RedisReplyError,
    ResourceDeletedError,
    ThreadExistsError,
    ThreadNotFoundError,
    ThreadOwnershipError,
    WorkingMemError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from langchain_workingmem._engine.effects import Command
    from langchain_workingmem._redis.state import MemoryState

REFUSED_PAUSE = 0.05  # seconds at most: a refused writer that tries again at once would be in the way of the deletion


def guarded_write(
    state: MemoryState,
    thread_id: str,
    owners: Sequence[str | None],
    call: Command,
    undo: Callable[[Any, str], Command] | None = None,
    message_ids: Mapping[str, str] | None = None,
    *,
    at_most_once: bool = False,
) -> Plan[Any]:
    """Send a call that writes into a thread, and learn in the same round trip whether its owner is being deleted.

    Then `ResourceDeletedError`, after `undo` (of reply and owner) has taken away what the call may have made. The tombstone
    is in another slot than the thread, so it is looked at after the write: what is written before it appears the deletion
    finds, what is written later sees it. A call that names no owner only changes what exists, and that the deletion finds.
    """
    known = [owner for owner in owners if owner is not None]
    checks = [("GET", state.keys.of_resource(owner)[0]) for owner in known]
    reply, *tombstones = yield from run_script(
        thread_id,
        known[0] if known else None,
        call,
        *checks,
        message_ids=message_ids,
        at_most_once=at_most_once,
        in_order=True,
    )
    for owner, tombstone in zip(known, tombstones, strict=True):
        if tombstone is not None:
            if undo is not None:
                with suppress(ThreadOwnershipError):  # somebody else's thread by now
                    yield from run_script(thread_id, owner, undo(reply, owner))
                yield from sweep(state, thread_id)
            yield Pause(REFUSED_PAUSE, jitter=True)
            raise ResourceDeletedError(owner)
    return reply


def run_script(
    thread_id: str,
    resource_id: str | None,
    *commands: Command,
    message_ids: Mapping[str, str] | None = None,
    at_most_once: bool = False,
    in_order: bool = False,
) -> Plan[list[Any]]:
    """Send calls of scripts about one thread; their refusals become our errors.

    A script names a missing message by what `message_ids` maps to its id, because a reply of Redis alters the id.
    """
    try:
        return (yield from send(*commands, at_most_once=at_most_once, in_order=in_order))
    except RedisReplyError as error:
        raise script_error(error, thread_id, resource_id, message_ids) from None


def script_error(
    error: RedisReplyError, thread_id: str, resource_id: str | None, message_ids: Mapping[str, str] | None = None
) -> WorkingMemError:
    """Say in our words why a script refused."""
    match error.code:
        case "WMOWNER":
            return ThreadOwnershipError(thread_id, resource_id or "")
        case "WMEXISTS":
            return ThreadExistsError(thread_id)
        case "WMDELETED":
            return ResourceDeletedError(resource_id or "")
        case "WMNOTHREAD":
            return ThreadNotFoundError(thread_id)
        case "WMNOMESSAGE":
            return MessageNotFoundError((message_ids or {})[str(error).partition(" ")[2]], thread_id)
    return error


def create_thread_document(
    state: MemoryState, thread_id: str, resource_id: str, fields: Sequence[str] = ()
) -> Plan[Any]:
    """Create a thread, and return its document as HGETALL gives it. One round trip; `ThreadExistsError` if it exists."""
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    owner = encode(check_id(resource_id, "resource_id"))
    call = CREATE.call(keys.all, owner, *fields, *state.ttl_fields)
    yield from state.ready()

    def undo(reply: Any, _: str) -> Command:
        return DELETE.call(keys.all, owner, SWEEP_SIZE, "undo", as_dict(reply)[b"updated_at"])

    reply = yield from guarded_write(state, thread_id, [resource_id], call, undo, at_most_once=True)
    yield from continue_sweep(state, thread_id, sweep_left(as_dict(reply)))
    return reply


def owner_of(state: MemoryState, thread_id: str | None, resource_id: str | None) -> Plan[tuple[str, str]]:
    """Complete ids: with only a thread known its stored owner counts, and a new thread owns itself.

    No round trip when both are known, else one.
    """
    thread_id = check_id(thread_id, "thread_id")
    if resource_id is not None:
        return thread_id, check_id(resource_id, "resource_id")
    (tag,) = yield from send(("HGET", state.keys.of(thread_id).thread, "resource"))
    return thread_id, thread_id if tag is None else decode(tag)


def owner_tag(resource_id: str | None) -> str:
    """Write the owner as scripts expect it; empty: whoever it is."""
    return "" if resource_id is None else encode(check_id(resource_id, "resource_id"))


def check_owner(tag: bytes | None, thread_id: str, resource_id: str | None) -> None:
    """Raise `ThreadOwnershipError` when the `resource` field of a thread names another owner than the one given."""
    if tag is not None and resource_id is not None and decode(tag) != resource_id:
        raise ThreadOwnershipError(thread_id, resource_id)


def check_thread(state: MemoryState, thread_id: str, resource_id: str) -> Plan[None]:
    """Raise `ThreadOwnershipError` when the thread belongs to another resource. One round trip."""
    (tag,) = yield from send(("HGET", state.keys.of(thread_id).thread, "resource"))
    check_owner(tag, thread_id, resource_id)
