"""Work on all vectors of a thread, in slices, so that Redis serves other clients in between.

Deleting, transferring or truncating a thread takes effect at once; its vectors, which may be many, follow. The thread
records how far that is. If a process dies, the next one that writes to the thread continues.
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
_URGENT = 2  # reply of a script: vectors might expire before their thread; 1: slices are left, 0: none


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
        yield Later(_in_background(state, thread_id))


def _in_background(state: MemoryState, thread_id: str) -> Plan[None]:
    """Sweep a thread, unless another task does."""
    if thread_id in (sweeping := state.room(Sweeping)):
        return
    sweeping.add(thread_id)
    try:
        yield from sweep(state, thread_id)
    finally:
        sweeping.discard(thread_id)
