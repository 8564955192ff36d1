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
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from langchain_workingmem.keeping.claims import Claim, Source
from langchain_workingmem.keeping.paths import above

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


# When it was said, its place in its write; the rest only makes the order of claims of one moment certain.
Key: TypeAlias = tuple[int, int, bool, str, str, tuple[Source, ...], str]


class Said(NamedTuple):
    """A claim, and its place in time."""

    key: Key
    claim: Claim

    @property
    def says(self) -> tuple[bool, str]:
        """Return what claims that say the same about a path have in common."""
        return self.key[2], self.key[3]


class Event(NamedTuple):
    """A claim and what it does at a path; one of another path only ends what held."""

    one: Said
    is_set: bool

    def is_same(self, other: Event) -> bool:
        """Tell whether both say the same."""
        return self.is_set == other.is_set and (not self.is_set or self.one.key[3] == other.one.key[3])


@dataclass(slots=True)
class Span:
    """Claims that say the same about a path, with no other between."""

    says: Event  # the first
    claims: list[Claim]

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
            setting = [one for one in self.said[path] if one.claim.is_set]
            for some in over:
                found[some[0].claim.path] += setting
        for below in found.values():
            below.sort()
        return dict(found)

    @cached_property
    def spans(self) -> dict[str, list[Span]]:
        """What held at each path, the oldest first; a path where nothing ever held has no entry."""
        found: dict[str, list[Span]] = {}
        for path, some in self.said.items():
            spans: list[Span] = []
            for event in _last_of_moments(self._events(path, some)):
                if spans and spans[-1].says.is_same(event):
                    spans[-1].claims.append(event.one.claim)
                elif spans or event.is_set:
                    spans.append(Span(event, [event.one.claim]))
            if spans:
                found[path] = spans
        return found

    def _events(self, path: str, some: list[Said]) -> list[Event]:
        """Return the claims at a path, and after each value what ended it before the next claim there."""
        ending = self.over.get(path, [])
        if path in self.below:
            ending = [*ending, self.below[path]]
        if not ending:
            return [Event(one, one.claim.is_set) for one in some]
        events: list[Event] = []
        for at, one in enumerate(some):
            events.append(Event(one, one.claim.is_set))
            if one.claim.is_set:
                later = (others[place] for others in ending if (place := bisect_right(others, one)) < len(others))
                end = min(later, default=None)
                if end and (at + 1 == len(some) or end < some[at + 1]):
                    events.append(Event(end, is_set=False))
        return events

    def emptied(self) -> Iterator[str]:
        """Yield what was removed by a claim of its own, with nothing above said later: its list or object is still there."""
        for path, some in self.said.items():
            last = some[-1]
            if last.claim.is_set or last.claim.is_line or not path:
                continue
            floor = max((others[-1] for others in self.over.get(path, ())), default=None)
            if floor is None or floor < last:
                setting = (one for one in (*some, *self.below.get(path, ())) if one.claim.is_set)
                if any((floor is None or floor < one) and one < last for one in setting):
                    yield path


def _last_of_moments(events: list[Event]) -> list[Event]:
    """Return the events that count: of what is said at one moment the last, and those just before it that say the same."""
    found: list[Event] = []
    is_over = False
    for event in reversed(events):
        if not found or found[-1].one.key[0] != event.one.key[0]:
            is_over = False
        elif is_over or not found[-1].is_same(event):
            is_over = True
            continue
        found.append(event)
    return found[::-1]


def said(claim: Claim) -> Said:
    """Place a claim in time."""
    value = claim.value
    text = f'"{value}' if isinstance(value, str) else as_text(value) if claim.is_set else ""
    key = (claim.said_at, claim.order, claim.is_set, text, claim.path, claim.sources, claim.origin)
    return Said(key, claim)


def as_text(value: Any) -> str:
    """Return a text that equal values have in common: true and 1 differ, unlike in Python."""
    return json.dumps(value, sort_keys=True)
