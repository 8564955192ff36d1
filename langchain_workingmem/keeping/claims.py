"""Claims: what was said about the values of a document, and when. The document follows from them. Pure functions.

A claim sets or removes one value. Of all claims about a value the one that was said last holds, whatever the order in which they
were recorded; the others are the history of the value.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, NamedTuple


class Source(NamedTuple):
    """A message behind a claim."""

    thread_id: str
    message_id: str
    seq: int  # position in the thread; -1: the message was not stored yet


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

    @property
    def id(self) -> str:
        """Return a name that the same claim has again when a run is repeated."""
        said = [self.path, self.value, self.is_set, sorted(one[:2] for one in self.sources)]
        if not self.sources:
            said += [self.said_at, self.order, self.origin]
        return hashlib.sha1(json.dumps(said, sort_keys=True).encode(), usedforsecurity=False).hexdigest()[:16]
