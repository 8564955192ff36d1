"""The plans that make missing vectors, and all of them anew when the settings change."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from langchain_workingmem._engine.plan import Plan, scan, send
from langchain_workingmem._redis.access import SWEEP, sweep
from langchain_workingmem._redis.keys import Facts, check_id
from langchain_workingmem.errors import RedisReplyError, ThreadNotFoundError
from langchain_workingmem.history import heal
from langchain_workingmem.recall.floors import learn_scale
from langchain_workingmem.threads import all_threads, get_existing_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workingmem._redis.state import MemoryState

PAGE, BATCH = 1000, 100  # messages that are looked at, and embedded and written, at a time


def reindex_messages(
    state: MemoryState,
    user_id: str | None,
    thread_id: str | None,
    *,
    force: bool = False,
    progress: Callable[[int, int], object] = lambda _done, _total: None,
) -> Plan[int]:
    """Embed messages without vectors of the present model, by `force` all of them; return how many were embedded.

    `progress` is told how many messages were looked at, of how many.
    Messages written meanwhile stay as they are, and those that cannot be read are left out. What deletions have left
    is deleted first.
    A round trip per 1,000 messages; two and one call of the model per 100 that are embedded.
    """
    state.recalling  # noqa: B018 - raises where recall is off
    is_whole = user_id is None and thread_id is None
    if thread_id is not None:
        threads = [(yield from get_existing_thread(state, thread_id, user_id))]
    else:
        if user_id is not None:
            check_id(user_id, "user_id")
        yield from state.indexes.ready()
        threads = yield from all_threads(state, user_id)
    if not is_whole or not (yield from _sweep_all(state)):
        for start in range(0, len(threads), SWEEP):
            yield from sweep(state, *(thread.id for thread in threads[start : start + SWEEP]))
    if is_whole:
        yield from state.indexes.rebuild_index()
        yield from learn_scale(state)
    else:
        dims = state.indexes.dims or (yield from state.embedder.dimensions())
        yield from state.indexes.vectors_ready(dims)
    settings = state.indexes.digest
    done, embedded, total = 0, 0, sum(thread.message_count for thread in threads)
    progress(done, total)
    for thread in threads:
        above = "-inf"
        while True:
            keys = state.keys.of(thread.id)
            (found,) = yield from send(("ZRANGE", keys.order, above, "+inf", "BYSCORE", "LIMIT", 0, PAGE))
            facts = [Facts.read(one.decode()) for one in found]
            stale = [one for one in facts if force or one.settings != settings]
            for start in range(0, len(stale), BATCH):
                some = stale[start : start + BATCH]
                (bodies,) = yield from send(("HMGET", keys.messages, *(one.seq for one in some)))
                with suppress(ThreadNotFoundError):  # deleted meanwhile
                    embedded += yield from heal(state, thread.id, zip(some, bodies, strict=True))
                progress(done + start + len(some), max(done + start + len(some), total))
            done += len(facts)
            progress(done, max(done, total))
            if len(facts) < PAGE:
                break
            above = f"({facts[-1].seq}"
    return embedded


def _sweep_all(state: MemoryState) -> Plan[bool]:
    """Delete what deletions have left, also of threads that are gone; return whether that was possible. One round trip per 1,000 keys."""
    cursors: dict[str, int] | None = None
    while cursors != {}:
        try:
            seen, cursors = yield from scan(f"{state.keys.dropped_prefix}*", cursors)
        except RedisReplyError as error:
            if error.code == "NOPERM":  # without the right to SCAN
                return False
            raise
        yield from sweep(state, *{state.keys.thread_of(key) for key in seen})
    return True
