"""Access to a thread: only for its owner, and no writes while the owner is being deleted."""

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
    OptionError,
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

# Of error replies that only the scripts of an optional room give, by their code: how they are converted, given the thread
ERRORS: dict[str, Callable[[RedisReplyError, str], WorkingMemError]] = {}
REFUSED_PAUSE = 0.05  # seconds at most: a writer that retries at once would slow the deletion


def guarded_write(
    state: MemoryState,
    thread_id: str,
    owners: Sequence[str | None],
    call: Command,
    undo: Callable[[Any, str], Command] | None = None,
    message_ids: Mapping[str, str] | None = None,
    *,
    at_most_once: bool = False,
    beside: Sequence[Command] = (),
) -> Plan[Any]:
    """Send a call that writes into a thread, and in the same round trip read the tombstones of its owners.

    If there is one, `undo` (of reply and owner) removes what the call may have written, and `ResourceDeletedError` is
    raised. The tombstone is in another slot, so it is read after the write: the deletion finds what was written before
    the tombstone, and a later write sees the tombstone. A call without an owner changes only what the deletion finds.
    The replies to commands `beside` the call are added to its reply.
    """
    known = [owner for owner in owners if owner is not None]
    checks = [("GET", state.keys.of_resource(owner)[0]) for owner in known]
    reply, *others = yield from run_script(
        thread_id,
        known[0] if known else None,
        call,
        *beside,
        *checks,
        message_ids=message_ids,
        at_most_once=at_most_once,
        in_order=True,
    )
    for owner, tombstone in zip(known, others[len(beside) :], strict=True):
        if tombstone is not None:
            if undo is not None:
                with suppress(ThreadOwnershipError):  # it has another owner by now
                    yield from run_script(thread_id, owner, undo(reply, owner))
                yield from sweep(state, thread_id)
            yield Pause(REFUSED_PAUSE, jitter=True)
            raise ResourceDeletedError(owner)
    return [*reply, *others[: len(beside)]] if beside else reply


def run_script(
    thread_id: str,
    resource_id: str | None,
    *commands: Command,
    message_ids: Mapping[str, str] | None = None,
    at_most_once: bool = False,
    in_order: bool = False,
) -> Plan[list[Any]]:
    """Send calls of scripts for one thread, and convert their error replies.

    `message_ids` maps what a script names a missing message by to its id: an error reply may alter an id.
    """
    try:
        return (yield from send(*commands, at_most_once=at_most_once, in_order=in_order))
    except RedisReplyError as error:
        raise script_error(error, thread_id, resource_id, message_ids) from None


def script_error(
    error: RedisReplyError, thread_id: str, resource_id: str | None, message_ids: Mapping[str, str] | None = None
) -> WorkingMemError:
    """Convert an error reply of a script."""
    match error.code:
        case "WMOWNER":
            return ThreadOwnershipError(thread_id, resource_id or "")
        case "WMEXISTS":
            return ThreadExistsError(thread_id)
        case "WMDELETED":
            return ResourceDeletedError(resource_id or "")
        case "WMOLDER":
            return OptionError(
                f"the messages begin with some that are older than thread {thread_id!r}, which grows only at its end",
                remedy="save only those that are new; an older conversation is stored whole if its thread is new to memory",
            )
        case "WMNOTHREAD":
            return ThreadNotFoundError(thread_id)
        case "WMNOMESSAGE":
            return MessageNotFoundError((message_ids or {})[str(error).partition(" ")[2]], thread_id)
    return ERRORS[error.code](error, thread_id) if error.code in ERRORS else error


def create_thread_document(
    state: MemoryState, thread_id: str, resource_id: str, fields: Sequence[str] = ()
) -> Plan[Any]:
    """Create a thread, and return its HGETALL. One round trip; `ThreadExistsError` if it exists."""
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    owner = encode(check_id(resource_id, "resource_id"))
    call = CREATE.call(keys.all, owner, *fields, *state.ttl_fields)
    yield from state.indexes.ready()

    def undo(reply: Any, _: str) -> Command:
        return DELETE.call(keys.all, owner, SWEEP_SIZE, "undo", as_dict(reply)[b"updated_at"])

    reply = yield from guarded_write(state, thread_id, [resource_id], call, undo, at_most_once=True)
    yield from continue_sweep(state, thread_id, sweep_left(as_dict(reply)))
    return reply


def owner_of(state: MemoryState, thread_id: str | None, resource_id: str | None) -> Plan[tuple[str, str]]:
    """Return thread and resource; without a resource, read the owner of the thread. A new thread owns itself.

    One round trip without a resource, else none.
    """
    thread_id = check_id(thread_id, "thread_id")
    if resource_id is not None:
        return thread_id, check_id(resource_id, "resource_id")
    (tag,) = yield from send(("HGET", state.keys.of(thread_id).thread, "resource"))
    return thread_id, thread_id if tag is None else decode(tag)


def owner_tag(resource_id: str | None) -> str:
    """Return the owner as scripts take it; empty: any owner."""
    return "" if resource_id is None else encode(check_id(resource_id, "resource_id"))


def check_owner(tag: bytes | None, thread_id: str, resource_id: str | None) -> None:
    """Raise `ThreadOwnershipError` if the `resource` field of a thread is not the given owner."""
    if tag is not None and resource_id is not None and decode(tag) != resource_id:
        raise ThreadOwnershipError(thread_id, resource_id)


def check_thread(state: MemoryState, thread_id: str, resource_id: str) -> Plan[None]:
    """Raise `ThreadOwnershipError` if the thread belongs to another resource. One round trip."""
    (tag,) = yield from send(("HGET", state.keys.of(thread_id).thread, "resource"))
    check_owner(tag, thread_id, resource_id)
