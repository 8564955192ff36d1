"""Fetching the messages around what recall has found."""

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
    """Fetch the messages around each candidate, and say which threads are gone. One round trip, none without any."""
    threads: dict[bytes, list[int]] = {}
    asked = {one.thread for one in ranked if may_repeat(one, query)}
    for one in ranked:
        threads.setdefault(one.thread, []).extend((one.seq, one.tokens))
    before, after = query.window
    owner = encode(query.resource_id or "")
    ids = {thread: decode(thread) for thread in threads}
    calls = [
        WINDOWS.call(
            state.keys.of(ids[thread]).all[:3], owner, before, max(after, REACH) if thread in asked else after, *places
        )
        for thread, places in threads.items()
    ]
    replies = (yield from send(*calls)) if calls else []
    size = sum(sum(map(len, reply[5::4])) for reply in replies)
    page = yield from compute(partial(_page, ids, replies, size), size)
    return page, [ids[thread] for thread in threads if thread not in page.titles]


def _page(ids: Mapping[bytes, str], replies: Sequence[Any], size: int) -> Fetched:
    """Read what came for each thread."""
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
