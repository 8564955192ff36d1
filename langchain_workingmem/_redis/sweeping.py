"""What takes long over a thread is decided in one step, and carried out in slices: nobody waits longer than for one of them.

The vectors of a thread may be many. Who deletes, transfers or truncates it decides at once what every reader sees from then
on; the vectors follow. What a process leaves undone when it dies stands in the store, and the next one that writes to the
thread or deletes something of it goes on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from langchain_workingmem._engine.effects import Later, Plan, send
from langchain_workingmem._redis.scripts import SWEEP
from langchain_workingmem.errors import WorkingMemError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_workingmem._redis.state import MemoryState

_log = logging.getLogger("langchain_workingmem")

SWEEP_SIZE = 500  # vectors of one round trip at most; a slice ends after 10 ms anyway
_LEFT = (b"renew_vectors_from", b"drop_vectors_from", b"trash")  # fields of a thread that has slices left
_LATE = 2  # what a script says when vectors might expire before their thread; 1: slices are left, and there is time


def has_sweep_left(row: Mapping[bytes, bytes]) -> bool:
    """Tell whether a thread, as HGETALL gives it, has slices left to be done."""
    return any(name in row for name in _LEFT)


def sweep_left(row: Mapping[bytes, bytes]) -> int:
    """Tell what is left to be done in a thread, as HGETALL gives it, in the way that scripts do."""
    return _LATE if b"vectors_expire_first" in row else int(has_sweep_left(row))


def sweep(state: MemoryState, *thread_ids: str) -> Plan[int]:
    """Do what is left to be done about the vectors of threads; return how many were deleted. One round trip a slice."""
    waiting, dropped = thread_ids, 0
    while waiting:
        most = max(1, SWEEP_SIZE // len(waiting))
        calls = [SWEEP.call(state.keys.of(id).all, most) for id in waiting]
        replies = yield from send(*calls)
        dropped += sum(int(gone) for _, gone in replies)
        waiting = tuple(id for id, (left, _) in zip(waiting, replies, strict=True) if left)
    return dropped


def sweep_now(state: MemoryState, thread_id: str, what: str, remedy: str) -> Plan[int]:
    """Sweep a thread for a caller who waits; an error says `what` holds already, and how to go on."""
    try:
        return (yield from sweep(state, thread_id))
    except WorkingMemError as error:
        error.add_note(f"{what}, its vectors are left over in part: {remedy}")
        raise


def continue_sweep(state: MemoryState, thread_id: str, left: int) -> Plan[None]:
    """Go on behind a write with what its script says is left: in the background, unless vectors might expire before the thread.

    The background may be gone before it has begun, with its event loop or its process, so nobody may depend on it.
    """
    try:
        while left == _LATE:
            ((left, _),) = yield from send(SWEEP.call(state.keys.of(thread_id).all, SWEEP_SIZE))
    except WorkingMemError as error:  # what the caller wanted is written
        _log.warning("the vectors of thread %r may expire before it, unless it is written to: %s", thread_id, error)
        return
    if left and thread_id not in state.sweeping:
        yield Later(_in_background(state, thread_id))


def _in_background(state: MemoryState, thread_id: str) -> Plan[None]:
    """Sweep a thread, once at a time. What is cancelled before it has begun leaves no mark."""
    if thread_id in state.sweeping:
        return
    state.sweeping.add(thread_id)
    try:
        yield from sweep(state, thread_id)
    finally:
        state.sweeping.discard(thread_id)
