"""The plan that heals vectors, and renews them when their settings change."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from langchain_workingmem._engine.effects import Plan, Progress, Scan, compute, scan
from langchain_workingmem._redis.access import run_script
from langchain_workingmem._redis.codec import draft_stored, index_digest_of
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._redis.state import probe_dimensions
from langchain_workingmem._redis.sweeping import SWEEP_SIZE, sweep
from langchain_workingmem.errors import EmbeddingSizeError, OptionError, RedisReplyError, ThreadNotFoundError
from langchain_workingmem.history import READ, MessageSelection, write_messages
from langchain_workingmem.threads import all_threads, get_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._redis.codec import Draft
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.options import RecallOptions

REINDEX_BATCH = 100  # messages read, embedded and written at a time


def reindex_messages(
    state: MemoryState, resource_id: str | None, thread_id: str | None, *, force: bool = False
) -> Plan[int]:
    """Embed whatever has no vectors of the present model, by force everything; return how many messages that were.

    Per 100 messages one round trip, one call of the model for those that need it, and one round trip to write them.
    It may be interrupted and run again; messages written meanwhile are left as they are. What deletions, transfers and other
    long operations have left undone is done first.
    """
    options = state.recalling
    if thread_id is not None:
        thread = yield from get_thread(state, thread_id, resource_id)
        if thread is None:
            raise ThreadNotFoundError(thread_id)
        threads = [thread]
    else:
        if resource_id is not None:
            check_id(resource_id, "resource_id")
        yield from state.ready()
        threads = yield from all_threads(state, resource_id)
    if resource_id is None and thread_id is None:
        yield from _left_over(state)
    for start in range(0, len(threads), SWEEP_SIZE):
        yield from sweep(state, *(thread.id for thread in threads[start : start + SWEEP_SIZE]))
    dims = yield from (_checked_size(state) if resource_id or thread_id else state.rebuild_index())
    digest = state.index_digest(dims).encode()
    done, healed, total = 0, 0, sum(thread.message_count for thread in threads)
    yield Progress(done, total)
    for thread in threads:
        keys = state.keys.of(thread.id)
        wanted = MessageSelection(limit=REINDEX_BATCH)
        while True:
            (reply,) = yield from run_script(thread.id, None, READ.call(keys.all, "", *wanted.arguments()))
            rows = yield from wanted.reading(reply, thread.id)
            stale = [
                (row.message, value)
                for row, value in zip(rows, reply[3::3], strict=True)
                if force or index_digest_of(value) != digest
            ]
            size = sum(len(value) for _, value in stale)
            prepared = yield from compute(partial(_restored, stale, options), size)
            if prepared:
                try:
                    _, failure = yield from write_messages(state, prepared, thread.id, None, "heal")
                except ThreadNotFoundError:  # deleted meanwhile
                    break
                if failure is not None:
                    raise failure
                healed += sum(1 for draft in prepared if draft.chunks)
            done += len(rows)
            yield Progress(done, max(done, total))
            if len(rows) < REINDEX_BATCH:
                break
            wanted = replace(wanted, above=rows[-1].seq)
    return healed


def _restored(stale: Sequence[tuple[BaseMessage, bytes]], options: RecallOptions) -> list[Draft]:
    return [draft_stored(message, value, options) for message, value in stale]


def _left_over(state: MemoryState) -> Plan[None]:
    """Finish the deletion of threads that somebody has left half-way. A round trip per 1,000 keys of the node.

    A user without the right to SCAN leaves that to the next write to each thread.
    """
    step: Scan | None = Scan(f"{state.keys.trash_prefix}*")
    while step is not None:
        try:
            seen, step = yield from scan(step)
        except RedisReplyError as error:
            if "no permissions" not in str(error).lower():
                raise
            return
        yield from sweep(state, *{state.keys.thread_of(key) for key in seen})


def _checked_size(state: MemoryState) -> Plan[int]:
    dims = yield from probe_dimensions()
    try:
        yield from state.vectors_ready(dims)
    except (EmbeddingSizeError, OptionError) as error:
        error.add_note("a change of the model or of the index concerns everybody: run reindex() without ids")
        raise
    return dims
