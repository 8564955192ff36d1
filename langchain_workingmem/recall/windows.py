"""What stands around the best candidates: their threads' messages by seq, without a script."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from langchain_workingmem._documents.messages import PLAIN
from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.codec import is_readable, read_rows
from langchain_workingmem._redis.keys import STRIDE, decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import StoredMessage
    from langchain_workingmem.recall.ranking import Ranked

Position: TypeAlias = tuple[bytes, int]  # of a message: thread (encoded as in keys), sequence number
FARTHER = 16  # messages on each side that are read in a second step where one beside a hit was deleted or superseded
_SAID = {"q", "a"}


@dataclass(slots=True)
class Page:
    """The messages around candidates, by thread (encoded as in keys) and seq."""

    titles: dict[bytes, str | None] = field(default_factory=dict)
    ends: dict[bytes, int] = field(default_factory=dict)  # the next seq of each thread
    rows: dict[Position, StoredMessage] = field(default_factory=dict)
    looked: set[Position] = field(default_factory=set)  # what was read, also where nothing is
    windows: dict[Position, tuple[list[Position], list[Position]]] = field(default_factory=dict)  # the nearest first

    def measure(self, positions: Iterable[Position], before: int, after: int) -> dict[bytes, set[int]]:
        """Find what was said before and after messages; return the seqs to read where a message beside one is gone."""
        more: dict[bytes, set[int]] = {}
        for position in positions:
            thread, end = position[0], self.ends[position[0]]
            sides = self.windows[position] = list["Position"](), list["Position"]()
            farther = _beside(position[1], before + FARTHER, after + FARTHER)
            for side, seqs, most in zip(sides, farther, (before, after), strict=True):
                for seq in seqs:
                    if len(side) == most or seq >= end:
                        break
                    if (thread, seq) not in self.looked:
                        more.setdefault(thread, set()).update(one for one in seqs if (thread, one) not in self.looked)
                        break
                    row = self.rows.get((thread, seq))
                    if row is not None and row.record["kind"] in _SAID and not row.refused:
                        side.append((thread, seq))
        return more


def _beside(seq: int, before: int, after: int) -> tuple[range, range]:
    """Return the seqs of what was said before and after a message, the nearest first."""
    own = seq - seq % STRIDE
    last = own - STRIDE if own == seq else own
    return range(last, max(last - before * STRIDE, -1), -STRIDE), range(
        own + STRIDE, own + STRIDE * (after + 1), STRIDE
    )


def read_windows(
    state: MemoryState, ranked: Sequence[Ranked], window: tuple[int, int], user_id: str | None
) -> Plan[Page]:
    """Read messages and what stands around them. One round trip, none without any; two where one beside it is gone."""
    page, wanted = Page(), dict[bytes, set[int]]()
    for one in ranked:
        front, back = _beside(one.seq, *window)
        wanted.setdefault(one.thread, set()).update((one.seq, *front, *back))
    owner = None if user_id is None else encode(user_id).encode()
    for _ in range(2):
        if wanted:
            yield from _fill(state, page, wanted, owner)
            wanted = page.measure([one[:2] for one in ranked if one[:2] in page.rows], *window)
    return page


def _fill(state: MemoryState, page: Page, seqs: dict[bytes, set[int]], owner: bytes | None) -> Plan[None]:
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
        page.looked.update((thread, seq) for seq in some)
        # a superseded message begins with -
        found = [(seq, 0, body) for seq, body in zip(some, bodies, strict=True) if body and body[:1] != b"-"]
        for row in read_rows(found, decode(thread), make=False):
            if row.record["data"].keys() <= PLAIN or is_readable(row):
                page.rows[thread, row.place] = row
