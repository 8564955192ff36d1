"""Back-pressure: what a step does when a prompt grows faster than the observer works."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from langchain_workingmem._engine.plan import Sleep
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem.observations.log import COVERAGE
from langchain_workingmem.observations.observer.runs import POLL
from langchain_workingmem.observations.observing import is_observing, observe_later, observe_now
from langchain_workingmem.observations.reading import log_key, observing, of_thread, read

if TYPE_CHECKING:
    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.state import MemoryState

BUSY = Script("observations/busy", *COVERAGE)


def shorten(state: MemoryState, thread_id: str, user_id: str) -> Plan[None]:
    """Observe a thread now, the finished steps of a running turn included, because its prompt has become too long.

    In a pause after failures the observer is asked one time.
    """
    yield from observe_now(state, thread_id, user_id, is_pressed=True)


def wait(state: MemoryState, thread_id: str, user_id: str) -> Plan[bool]:
    """Wait while a thread has more than `block_after` tokens that are not covered, and its log is being observed.

    The observer is started if nobody observes, and again as long as that helps; with `background=False` only others are waited
    for. The wait ends after `timeout`, or when the observer pauses after failures. Two round trips for each look. Returns
    whether more may be covered than the caller knows.
    """
    options, where = observing(state), log_key(state, thread_id, user_id)
    most, seconds, waited, before = options.block_after or 0, options.timeout.total_seconds(), 0.0, inf
    while waited < seconds and not state.closing:
        pending = (yield from read(state, of_thread(state, thread_id, user_id))).pending_tokens
        ((leased, paused),) = yield from where.run(BUSY.call(where.keys))
        if pending <= most:
            return True
        if paused:
            break
        if not leased and not is_observing(state, where):
            if not options.background or pending >= before:
                break
            before = pending
            yield from observe_later(state, thread_id, user_id)
        yield Sleep(POLL)
        waited += POLL
    return waited > 0
