"""Fetch the messages around the candidates of a search."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.effects import Plan, compute, send
from langchain_workingmem._redis.codec import decode_message
from langchain_workingmem._redis.keys import decode, encode
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem.recall.hits import REACH, Fetched, may_repeat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.ranking import Ranked

WINDOWS = Script("recall/windows", "header")


def fetch_windows(state: MemoryState, query: Query, ranked: Sequence[Ranked]) -> Plan[tuple[Fetched, list[str]]]:
    """Fetch the messages around each candidate; return them and the threads that are gone. One round trip, or none."""
    threads: dict[bytes, list[int]] = {}
    with_answers = {one.thread for one in ranked if may_repeat(one, query)}
    for one in ranked:
        threads.setdefault(one.thread, []).extend((one.seq, one.tokens))
    before, after = query.window
    ids = {thread: decode(thread) for thread in threads}
    calls = []
    for thread, wanted in threads.items():
        reach = max(after, REACH) if thread in with_answers else after
        keys = state.keys.of(ids[thread]).all[:3]
        calls.append(WINDOWS.call(keys, encode(query.resource_id or ""), before, reach, *wanted))
    replies = (yield from send(*calls)) if calls else []
    size = sum(sum(map(len, reply[5::4])) for reply in replies)
    page = yield from compute(partial(_page, ids, replies, size), size)
    return page, [ids[thread] for thread in threads if thread not in page.titles]


def _page(ids: Mapping[bytes, str], replies: Sequence[Any], size: int) -> Fetched:
    page = Fetched(size=size)
    for thread, reply in zip(ids, replies, strict=True):
        if not reply:
            continue
        page.titles[thread] = reply[0].decode() or None
        page.found.update((thread, int(seq)) for seq in reply[1])
        for rank, seq, id, value in zip(*(reply[start::4] for start in range(2, 6)), strict=True):
            page.rows[thread, rank] = row = decode_message(id, seq, value, ids[thread])
            page.ranks[thread, row.seq] = rank
    return page
