"""What held at each path, one value after the other. Pure functions.

For each path the claim that was said last holds. A claim of a JSON document also ends what held below its path; one that sets a
value ends a value that held above, which then is an object or a list. Order of arrival has no part in it.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem.keeping.paths import above

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from langchain_workingmem.keeping.claims import Claim, Source


class Said(NamedTuple):
    """A claim at its place in time: when it was said, and where in its write; the rest makes the order of one moment certain."""

    said_at: int
    order: int
    is_set: bool
    text: str  # of the value: equal ones have the same
    path: str
    sources: tuple[Source, ...]
    origin: str
    claim: Claim


class Event(NamedTuple):
    """A claim and what it does at a path; one of another path only ends what held."""

    one: Said
    is_set: bool

    def is_same(self, other: Event) -> bool:
        """Tell whether both say the same."""
        return self.is_set == other.is_set and (not self.is_set or self.one.text == other.one.text)


@dataclass(slots=True)
class Span:
    """Claims that say the same about a path, with no other between."""

    says: Event  # the first of them
    claims: list[Claim]  # the newest first

    @property
    def is_set(self) -> bool:
        """Tell whether something held."""
        return self.says.is_set

    @property
    def first(self) -> Said:
        """Return the first claim."""
        return self.says.one

    @property
    def value(self) -> Any:
        """Return the value, None where it was removed."""
        return self.first.claim.value if self.is_set else None


class Timeline:
    """The claims of a document in the order in which they were said."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        self.said: dict[str, list[Said]] = defaultdict(list)  # by path
        for claim in claims:
            self.said[claim.path].append(said(claim))
        for some in self.said.values():
            some.sort()

    @cached_property
    def over(self) -> dict[str, list[list[Said]]]:
        """The claims above each path that has some; they end what holds there."""
        found = {path: some for path, some in self.said.items() if not some[0].claim.is_line}
        all_over = {path: [found[one] for one in above(path) if one in found] for path in found}
        return {path: some for path, some in all_over.items() if some}

    @cached_property
    def below(self) -> dict[str, list[Said]]:
        """The claims that set something below each path; they end a value there."""
        found: dict[str, list[Said]] = defaultdict(list)
        for path, over in self.over.items():
            setting = [one for one in self.said[path] if one.is_set]
            for some in over:
                found[some[0].claim.path] += setting
        for below in found.values():
            below.sort()
        return dict(found)

    def spans(self, path: str) -> Iterator[Span]:
        """Yield what held at a path, and when it was removed, the newest first; nothing where nothing ever held."""
        span = None
        for event in self._counted(path):
            if span and span.says.is_same(event):
                span.says = event
                span.claims.append(event.one.claim)
                continue
            if span:
                yield span
            span = Span(event, [event.one.claim])
        if span and span.is_set:
            yield span

    def _counted(self, path: str) -> Iterator[Event]:
        """Yield what counts, the newest first: of one moment the last, and those just before it that say the same."""
        after = None
        is_over = False
        for event in self._events(path):
            if after is None or after.one.said_at != event.one.said_at:
                is_over = False
            elif is_over or not after.is_same(event):
                is_over = True
                continue
            after = event
            yield event

    def _events(self, path: str) -> Iterator[Event]:
        """Yield the claims at a path, the newest first, and before each value what ended it before the next claim there."""
        ending = self.over.get(path, [])
        if path in self.below:
            ending = [*ending, self.below[path]]
        after = None
        for one in reversed(self.said.get(path, ())):
            if one.is_set and ending:
                later = (others[at] for others in ending if (at := bisect_right(others, one)) < len(others))
                end = min(later, default=None)
                if end and (after is None or end < after):
                    yield Event(end, is_set=False)
            yield Event(one, one.is_set)
            after = one

    def emptied(self) -> Iterator[str]:
        """Yield what was removed by a claim of its own, with nothing above said later: its list or object is still there."""
        for path, some in self.said.items():
            last = some[-1]
            if last.is_set or last.claim.is_line or not path:
                continue
            floor = max((others[-1] for others in self.over.get(path, ())), default=None)
            if floor is None or floor < last:
                setting = (one for one in (*some, *self.below.get(path, ())) if one.is_set)
                if any((floor is None or floor < one) and one < last for one in setting):
                    yield path


def said(claim: Claim) -> Said:
    """Place a claim in time."""
    value = claim.value
    text = f'"{value}' if isinstance(value, str) else as_text(value) if claim.is_set else ""
    return Said(claim.said_at, claim.order, claim.is_set, text, claim.path, claim.sources, claim.origin, claim)


def as_text(value: Any) -> str:
    """Return a text that equal values have in common: true and 1 differ, unlike in Python."""
    return json.dumps(value, sort_keys=True)
