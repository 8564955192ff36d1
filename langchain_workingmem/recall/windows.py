"""What stands around the best candidates: their threads' messages by seq, without a script."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from itertools import count, islice
from typing import TYPE_CHECKING

from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.codec import is_readable, record_of, tell_damage
from langchain_workingmem._redis.facts import STRIDE
from langchain_workingmem._redis.keys import decode, encode
from langchain_workingmem._text.chunks import count_tokens
from langchain_workingmem.errors import RerankerError
from langchain_workingmem.history import with_media as media_in
from langchain_workingmem.models import StoredMessage
from langchain_workingmem.recall.hits import hits_of, near_enough, picked, words_in_row
from langchain_workingmem.recall.reindex import FEWEST, floor_for
from langchain_workingmem.recall.reranking import rerank
from langchain_workingmem.recall.shown import result_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import RecallResult
    from langchain_workingmem.options import OnError
    from langchain_workingmem.recall.hits import Position
    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.ranking import Ranked

_log = logging.getLogger("langchain_workingmem")
FARTHER = 16  # messages on each side that are read in a second step where one beside a hit was deleted or superseded
_SAID, _PLAIN = {"q", "a"}, {"content", "id", "name"}


@dataclass(slots=True)
class Page:
    """The messages around candidates, by thread (encoded as in keys) and seq."""

    titles: dict[bytes, str | None] = field(default_factory=dict)
    ends: dict[bytes, int] = field(default_factory=dict)  # the next seq of each thread
    rows: dict[Position, StoredMessage] = field(default_factory=dict)
    looked: set[Position] = field(default_factory=set)  # what was read, also where nothing is

    def window(self, position: Position, before: int, after: int) -> tuple[list[Position], list[Position]]:
        """Return what was said before and after a message, the nearest first."""
        return self._said(position, before, -1)[0], self._said(position, after, 1)[0]

    def _said(self, position: Position, most: int, step: int) -> tuple[list[Position], bool]:
        """Return what was said on one side, and whether that side was read as far as needed."""
        thread, end, found = position[0], self.ends[position[0]], list["Position"]()
        for seq in _beside(position[1], step):
            if len(found) == most or not 0 <= seq < end:
                break
            if (thread, seq) not in self.looked:
                return found, False
            row = self.rows.get((thread, seq))
            if row is not None and row.record["kind"] in _SAID and not row.refused:
                found.append((thread, seq))
        return found, True

    def missing(self, positions: Iterable[Position], before: int, after: int) -> dict[bytes, set[int]]:
        """Return the seqs to read next: where a message beside a candidate is gone."""
        found: dict[bytes, set[int]] = {}
        for position in positions:
            thread, seq = position
            for most, step in ((before, -1), (after, 1)):
                if not self._said(position, most, step)[1]:
                    more = (one for one in islice(_beside(seq, step), most + FARTHER) if 0 <= one < self.ends[thread])
                    found.setdefault(thread, set()).update(one for one in more if (thread, one) not in self.looked)
        return found

    def content(self, position: Position) -> object:
        """Return who said a message, and what: no message beside a hit repeats another hit."""
        row = self.rows[position]
        content = row.record["data"]["content"]
        return (row.role, content) if isinstance(content, str) else position


def _beside(seq: int, step: int) -> Iterator[int]:
    """Return the seqs of what was said before a message (-1) or after it (1), the nearest first."""
    nearest = seq - seq % STRIDE if step < 0 else seq - seq % STRIDE + STRIDE
    return count(nearest - STRIDE if step < 0 and nearest == seq else nearest, step * STRIDE)


def fetch_hits(
    state: MemoryState,
    query: Query,
    ranked: Sequence[Ranked],
    wanted: Callable[[Ranked], bool] = lambda _: True,
    *,
    on_error: OnError = "raise",
    with_media: bool = False,
) -> Plan[RecallResult]:
    """Fetch the messages around the best. One round trip, none without hits; one more where a message beside a hit was deleted.

    A hit whose message is gone is dropped: vectors outlive a thread that expires, and are deleted in steps behind the messages. With
    on_error="log" a reranker may fail.
    """
    options = state.recalling
    # similarities by l2 are on another scale
    has_floor = query.turn and query.threshold is None and options.index.distance != "l2"
    floor = (yield from floor_for(state, learn=len(ranked) >= FEWEST)) if has_floor else None
    chosen = picked([*filter(wanted, ranked)], query)
    page = yield from read_windows(state, query, chosen)
    hits = hits_of((one for one in chosen if _is_there(one, page)), page)
    if has_floor:
        hits = near_enough(query, hits, page, floor)
    if hits and options.reranker is not None:
        try:
            hits = yield from rerank(options, query, hits[: query.top_k] if query.reranked else hits, page)
        except RerankerError as error:
            if on_error == "raise":
                raise
            _log.warning("%s; this turn goes on without it", error)
    result = result_of(query, hits[: query.keep], page, options.chunk_tokens, ranked)
    if with_media:
        yield from media_in(state, [row for row in page.rows.values() if row in result.rows])
    return result


def _is_there(one: Ranked, page: Page) -> bool:
    """Tell whether a candidate is a current message; its vector may belong to an expired thread of the same id."""
    row = page.rows.get(one[:2])
    return row is not None and count_tokens(words_in_row(row)) == one.tokens


def read_windows(state: MemoryState, query: Query, ranked: Sequence[Ranked]) -> Plan[Page]:
    """Read candidates and what stands around them. One round trip, none without candidates; two where one beside it is gone."""
    page, (before, after) = Page(), query.window
    seqs: dict[bytes, set[int]] = {}
    for one in ranked:
        near = (*islice(_beside(one.seq, -1), before), one.seq, *islice(_beside(one.seq, 1), after))
        seqs.setdefault(one.thread, set()).update([seq for seq in near if seq >= 0])
    owner = None if query.user_id is None else encode(query.user_id).encode()
    if seqs:
        yield from _read(state, page, seqs, owner)
        if more := page.missing((one[:2] for one in ranked if one[:2] in page.rows), before, after):
            yield from _read(state, page, more, owner)
    return page


def _read(state: MemoryState, page: Page, seqs: dict[bytes, set[int]], owner: bytes | None) -> Plan[None]:
    """Add messages of threads to a page. One round trip."""
    commands: list[Command] = []
    for thread, some in seqs.items():
        keys = state.keys.of(decode(thread))
        commands += [("HMGET", keys.thread, "user", "title", "next_seq"), ("HMGET", keys.messages, *some)]
    replies = yield from send(*commands)
    for at, (thread, some) in enumerate(seqs.items()):
        (user, title, end), bodies = replies[2 * at : 2 * at + 2]
        if user is None or owner not in (None, user):  # a thread that Redis has evicted in part belongs to nobody
            continue
        page.titles[thread], page.ends[thread] = title.decode() if title else None, int(end or 0)
        for seq, body in zip(some, bodies, strict=True):
            page.looked.add((thread, seq))
            if body and body[:1] != b"-" and (row := _row(decode(thread), seq, body)) is not None:
                page.rows[thread, seq] = row


def _row(thread_id: str, seq: int, body: bytes) -> StoredMessage | None:
    """Read a body; None for one that cannot be read, which is logged once."""
    try:
        row = StoredMessage.of(record_of(body), thread_id, seq)
    except (LookupError, TypeError, ValueError) as error:
        tell_damage(thread_id, seq, error)
        return None
    return row if row.record["data"].keys() <= _PLAIN or is_readable(row) else None
