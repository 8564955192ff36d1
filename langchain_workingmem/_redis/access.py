"""Access to a thread: only for its owner, and no writes while the owner is being deleted."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.plan import Plan, Sleep, Spawn, send
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import check_id, decode, encode
from langchain_workingmem._redis.scripts import CREATE, DELETE, RESEND, SWEEP
from langchain_workingmem.errors import (
    MessageNotFoundError,
    OptionError,
    RedisReplyError,
    ThreadExistsError,
    ThreadNotFoundError,
    ThreadOwnershipError,
    UserDeletedError,
    WorkingMemError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState

# Of error replies that only the scripts of an optional room give, by their code: how they are converted, given the thread
ERRORS: dict[str, Callable[[RedisReplyError, str], WorkingMemError]] = {}
REFUSED_PAUSE = 0.05  # seconds at most: a writer that retries at once would slow the deletion
_log = logging.getLogger("langchain_workingmem")

SWEEP_SIZE = 500  # vectors of one round trip at most; a slice ends after 10 ms anyway
_LEFT = (b"renew_vectors_from", b"drop_vectors_from", b"trash")  # fields of a thread that has slices left
_URGENT = 2  # reply of a script: vectors might expire before their thread; 1: slices are left, 0: none


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

    If there is one, `undo` (of reply and owner) removes what the call may have written, and `UserDeletedError` is
    raised. The tombstone is in another slot, so it is read after the write: the deletion finds what was written before
    the tombstone, and a later write sees the tombstone. A call without an owner changes only what the deletion finds.
    The replies to commands `beside` the call are added to its reply.
    """
    known = [owner for owner in owners if owner is not None]
    checks = [("GET", state.keys.of_user(owner)[0]) for owner in known]
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
            yield Sleep(REFUSED_PAUSE, jitter=True)
            raise UserDeletedError(owner)
    return [*reply, *others[: len(beside)]] if beside else reply


def run_script(
    thread_id: str,
    user_id: str | None,
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
        if change := RESEND.get(error.code):
            again = [change(command) if command[0] == "EVALSHA" else command for command in commands]
            return (
                yield from run_script(
                    thread_id,
                    user_id,
                    *again,
                    message_ids=message_ids,
                    at_most_once=at_most_once,
                    in_order=in_order,
                )
            )
        raise script_error(error, thread_id, user_id, message_ids) from None


def script_error(
    error: RedisReplyError, thread_id: str, user_id: str | None, message_ids: Mapping[str, str] | None = None
) -> WorkingMemError:
    """Convert an error reply of a script."""
    match error.code:
        case "WMOWNER":
            return ThreadOwnershipError(thread_id, user_id or "")
        case "WMEXISTS":
            return ThreadExistsError(thread_id)
        case "WMDELETED":
            return UserDeletedError(user_id or "")
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


def create_thread_document(state: MemoryState, thread_id: str, user_id: str, fields: Sequence[str] = ()) -> Plan[Any]:
    """Create a thread, and return its HGETALL. One round trip; `ThreadExistsError` if it exists."""
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    owner = encode(check_id(user_id, "user_id"))
    call = CREATE.call(keys.all, owner, *fields, *state.ttl_fields)
    yield from state.indexes.ready()

    def undo(reply: Any, _: str) -> Command:
        return DELETE.call(keys.all, owner, SWEEP_SIZE, "undo", as_dict(reply)[b"updated_at"])

    reply = yield from guarded_write(state, thread_id, [user_id], call, undo, at_most_once=True)
    yield from continue_sweep(state, thread_id, sweep_left(as_dict(reply)))
    return reply


def owner_of(state: MemoryState, thread_id: str | None, user_id: str | None) -> Plan[tuple[str, str]]:
    """Return thread and user; without a user, read the owner of the thread. A new thread owns itself.

    One round trip without a user, else none.
    """
    thread_id = check_id(thread_id, "thread_id")
    if user_id is not None:
        return thread_id, check_id(user_id, "user_id")
    (tag,) = yield from send(("HGET", state.keys.of(thread_id).thread, "user"))
    return thread_id, thread_id if tag is None else decode(tag)


def owner_tag(user_id: str | None) -> str:
    """Return the owner as scripts take it; empty: any owner."""
    return "" if user_id is None else encode(check_id(user_id, "user_id"))


def check_owner(tag: bytes | None, thread_id: str, user_id: str | None) -> None:
    """Raise `ThreadOwnershipError` if the `user` field of a thread is not the given owner."""
    if tag is not None and user_id is not None and decode(tag) != user_id:
        raise ThreadOwnershipError(thread_id, user_id)


def check_thread(state: MemoryState, thread_id: str, user_id: str) -> Plan[None]:
    """Raise `ThreadOwnershipError` if the thread belongs to another user. One round trip."""
    (tag,) = yield from send(("HGET", state.keys.of(thread_id).thread, "user"))
    check_owner(tag, thread_id, user_id)


# ---------------------------------------------------------------------- sweeping
# Work on all vectors of a thread is done in slices, so that Redis serves other clients in between. Deleting, transferring or
# truncating a thread takes effect at once; its vectors, which may be many, follow. The thread records how far that is. If a
# process dies, the next one that writes to the thread continues.


class Sweeping(set[str]):
    """Threads whose vectors are being swept in the background."""


def has_sweep_left(row: Mapping[bytes, bytes]) -> bool:
    """Tell whether slices are left for a thread, given its HGETALL."""
    return any(name in row for name in _LEFT)


def sweep_left(row: Mapping[bytes, bytes]) -> int:
    """Return 2, 1 or 0 for a thread, given its HGETALL, as scripts do."""
    return _URGENT if b"vectors_expire_first" in row else int(has_sweep_left(row))


def sweep(state: MemoryState, *thread_ids: str) -> Plan[int]:
    """Do all slices that are left for threads; return how many vectors were deleted. One round trip a slice."""
    waiting, dropped = thread_ids, 0
    while waiting:
        most = max(1, SWEEP_SIZE // len(waiting))
        replies = yield from send(*(SWEEP.call(state.keys.of(id).all, most) for id in waiting))
        dropped += sum(int(gone) for _, gone in replies)
        waiting = tuple(id for id, (left, _) in zip(waiting, replies, strict=True) if left)
    return dropped


def sweep_now(state: MemoryState, thread_id: str, what: str, remedy: str) -> Plan[int]:
    """Sweep a thread before the call returns; a note on an error says `what` is done already, and how to go on."""
    try:
        return (yield from sweep(state, thread_id))
    except WorkingMemError as error:
        error.add_note(f"{what}, but some of its vectors are left: {remedy}")
        raise


def continue_sweep(state: MemoryState, thread_id: str, left: int) -> Plan[None]:
    """Sweep after a write: at once if vectors might expire before the thread, else in the background.

    The background task may be lost with its event loop or process, so nothing depends on it.
    """
    try:
        while left == _URGENT:
            ((left, _),) = yield from send(SWEEP.call(state.keys.of(thread_id).all, SWEEP_SIZE))
    except WorkingMemError as error:  # the write itself has succeeded
        _log.warning("the vectors of thread %r may expire before it, unless it is written to: %s", thread_id, error)
        return
    if left and thread_id not in state.room(Sweeping):
        yield Spawn(_in_background(state, thread_id))


def _in_background(state: MemoryState, thread_id: str) -> Plan[None]:
    """Sweep a thread, unless another task does."""
    if thread_id in (sweeping := state.room(Sweeping)):
        return
    sweeping.add(thread_id)
    try:
        yield from sweep(state, thread_id)
    finally:
        sweeping.discard(thread_id)
