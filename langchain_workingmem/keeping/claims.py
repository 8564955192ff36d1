"""Claims: what was said about the values of a document, and when. The document follows from them. Pure functions.

A claim sets or removes one value. Of all claims about a value the one that was said last holds, whatever the order in which they
were recorded; the others are the history of the value.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._text.ranges import contains

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workingmem._text.ranges import Ranges


class Source(NamedTuple):
    """A message behind a claim."""

    thread_id: str
    message_id: str
    seq: int  # position in the thread; -1: the message was not stored yet
    said_at: int = (
        0  # microseconds since the epoch; 0: as late as the claim, which then does not depend on the message's time
    )

    def is_in(self, thread_id: str, ranges: Ranges | None) -> bool:
        """Tell whether the message is one of these of a thread; None: any of it."""
        return self.thread_id == thread_id and (ranges is None or contains(ranges, self.seq))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one operation says about one value."""

    path: str  # JSON Pointer
    value: Any = None  # JSON; None where the value is removed
    is_set: bool = True  # False: it no longer holds
    said_at: int  # microseconds since the epoch: of the newest source, else of the write
    recorded_at: int  # microseconds since the epoch
    origin: str  # "keeper", "tool", "program" or "person"
    sources: tuple[Source, ...] = ()
    order: int = 0  # among the claims of one write
    is_line: bool = False  # of a text, where no value is part of another; else it ends what holds below and above it

    @property
    def id(self) -> str:
        """Return a name that the same claim has again when a keeper's run is repeated.

        What others write twice counts twice: a tool may set a value, another one, and the first again in one turn.
        """
        said: list[Any] = [self.path, self.value, self.is_set, sorted(one[:2] for one in self.sources)]
        if self.origin != "keeper" or not self.sources:
            said += [self.said_at, self.order, self.origin]
        return hashlib.sha1(json.dumps(said, sort_keys=True).encode(), usedforsecurity=False).hexdigest()[:16]

    def only(self, stays: Callable[[Source], bool]) -> Claim | None:
        """Return the claim as if only some of its messages had been said; None when it has none any more.

        It counts as said when the newest of these was. A claim without sources stays as it is.
        """
        left = tuple(filter(stays, self.sources))
        if len(left) == len(self.sources):
            return self
        return replace(self, sources=left, said_at=max(one.said_at or self.said_at for one in left)) if left else None


def write_claim(claim: Claim) -> str:
    """Write a claim: a list of its sources, path, "1" (set) or "", "1" (of a text) or "", and all else as one text.

    Scripts read it, drop sources, and write it again. Lua would spoil long numbers and empty lists, so there are only texts.
    """
    rest = [claim.value, claim.said_at, claim.recorded_at, claim.origin, claim.order]
    sources = [[*map(str, one)] for one in claim.sources]
    return _dump([sources, claim.path, "1" if claim.is_set else "", "1" if claim.is_line else "", _dump(rest)])


def read_claim(text: str | bytes) -> Claim:
    """Read what `write_claim` wrote, also when a script has dropped sources: then it was said when the newest left was."""
    found, path, is_set, is_line, rest = json.loads(text)
    value, said_at, recorded_at, origin, order = json.loads(rest)
    sources = tuple(Source(thread_id, name, int(seq), int(said)) for thread_id, name, seq, said in found)
    return Claim(
        path=path,
        value=value,
        is_set=bool(is_set),
        said_at=max((one.said_at or said_at for one in sources), default=said_at),
        recorded_at=recorded_at,
        origin=origin,
        sources=sources,
        order=order,
        is_line=bool(is_line),
    )


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
