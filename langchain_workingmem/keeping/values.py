"""The values of a document: what holds, since when, by which messages, and what held before. Pure functions of its claims.

For each path the claim that was said last holds. A claim of a JSON document also ends what held below its path; one that sets a
value ends a value that held above, which then is an object or a list. Order of arrival has no part in it.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from langchain_workingmem._documents.formats import JsonFormat
from langchain_workingmem._documents.merging import shorten
from langchain_workingmem.keeping import fields, lines
from langchain_workingmem.keeping.claims import Claim, Source
from langchain_workingmem.keeping.paths import above, label, with_above

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Self

    from langchain_workingmem._documents.formats import Format
    from langchain_workingmem._text.ranges import Ranges

MOST_ENDED = 200  # marks for recall of values that no longer hold
LAST = 3  # of the claims that repeat a value these are kept, and the first
PATHS = 10  # times as many paths that no longer hold are kept as entries of one
WIDEST = 200  # characters of a value in a mark for recall

# When it was said, its place in its write; the rest only makes the order of claims of one moment certain.
_Key: TypeAlias = tuple[int, int, bool, str]
Row: TypeAlias = tuple[str, str, str, int, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Held:
    """A value, and the time for which it held."""

    value: Any  # JSON; None where it was removed
    since: int  # microseconds since the epoch
    until: int | None  # None: it holds now
    sources: tuple[Source, ...]  # the messages that said so, the oldest first
    origin: str  # of the first claim: "keeper", "tool", "program" or "person"
    recorded_at: int  # microseconds since the epoch: of the first claim
    is_set: bool  # False: it was removed


class _Said(NamedTuple):
    key: _Key
    claim: Claim


@dataclass(slots=True)
class _Span:
    """Claims that say the same, with no other between."""

    first: _Said
    is_set: bool
    text: str
    claims: list[Claim]

    def held(self, until: int | None) -> Held:
        first = self.claims[0]
        sources = {source[:2]: source for claim in self.claims for source in claim.sources}
        value = first.value if self.is_set else None
        return Held(value, self.first.key[0], until, (*sources.values(),), first.origin, first.recorded_at, self.is_set)


@dataclass(frozen=True)
class Values:
    """The claims of one document. It never changes: what changes it returns another."""

    claims: Mapping[str, Claim] = field(default_factory=dict)  # by id
    layout: tuple[str, ...] = ()  # the order of values where it is not the natural one, and blank lines; no words
    hidden: frozenset[tuple[str, int]] = frozenset()  # messages on other branches: thread id and position

    # ------------------------------------------------------------------ what holds

    def render(self, form: Format) -> str:
        """Return the document."""
        return self._written(form)[0]

    def present(self, form: Format) -> dict[str, Held]:
        """Return what holds now by path, in the order of the document."""
        paths = self._written(form)[1]
        return {path: self._spans[path][-1].held(None) for path in paths if not path.endswith("/")}

    @property
    def paths(self) -> Iterable[str]:
        """Return the paths where something holds or held."""
        return self._spans.keys()

    def history(self, path: str) -> list[Held]:
        """Return what held at a path and when it was removed, the newest first, the present value included."""
        found: list[Held] = []
        for span in reversed(self._spans.get(path, ())):
            found.append(span.held(found[-1].since if found else None))
        return found

    def at(self, micros: int) -> Values:
        """Return what had been said up to a moment, by the messages that are not hidden now."""
        said = {name: claim for name, claim in self._counted.items() if claim.said_at <= micros}
        return Values(said, self.layout)

    def ended(self, form: Format) -> list[Row]:
        """Return marks for recall: messages that said what no longer holds, and what holds instead, the newest first.

        Each is thread and message, what holds, since when, and the thread and message that said that, None without one.
        """
        found: list[tuple[int, Row]] = []
        for path, spans in self._spans.items():
            *before, last = spans
            if last.first.claim.is_line == isinstance(form, JsonFormat):
                continue
            now = last.held(None)
            holds = {source[:2] for source in now.sources}
            shown = now.value if isinstance(now.value, str) else json.dumps(now.value, ensure_ascii=False)
            text = shorten(f"{label(path)}: {shown if now.is_set else 'no longer'}", WIDEST)
            by = now.sources[-1][:2] if now.sources else (None, None)
            for span in before:
                if span.is_set and (span.text != last.text or not last.is_set):
                    found += [
                        (now.since, (*source[:2], text, now.since, *by))
                        for source in span.held(None).sources
                        if source[:2] not in holds
                    ]
        found.sort(key=lambda one: (-one[0], one[1][:3]))
        return [*dict.fromkeys(row for _, row in found)][:MOST_ENDED]

    # ------------------------------------------------------------------ what changes

    def adding(self, claims: Iterable[Claim], keep: int) -> Self:
        """Return these and further claims, with at most `keep` entries of history for each path.

        Of the claims that repeat a value the first and the last three stay. Of the paths where nothing holds any more, ten times
        `keep` stay, those that ended last. The present values never depend on what is left out.
        """
        known = dict(self.claims)
        for claim in claims:
            _note(known, claim)
        return replace(self, claims=_bounded(known, keep))

    def without(self, thread_id: str, ranges: Ranges | None) -> Self:
        """Return what is left when messages are deleted; None: all of the thread.

        Claims lose these sources, and those that had no other are gone; so is a removal of what nothing sets any more, because its
        path may hold words of the deleted message.
        """
        left = (claim.only(lambda one: not one.is_in(thread_id, ranges)) for claim in self.claims.values())
        stay = [claim for claim in left if claim]
        lost = _set_paths(self.claims.values()) - _set_paths(stay)
        known: dict[str, Claim] = {}
        for claim in stay:
            if claim.is_set or claim.path not in lost:
                _note(known, claim)
        return replace(self, claims=known)

    # ------------------------------------------------------------------ how it follows from the claims

    @cached_property
    def _counted(self) -> Mapping[str, Claim]:
        """The claims that stand on a message which is not hidden, or on none."""
        if not self.hidden:
            return self.claims
        counted = (
            (name, claim.only(lambda one: (one.thread_id, one.seq) not in self.hidden))
            for name, claim in self.claims.items()
        )
        return {name: claim for name, claim in counted if claim}

    @cached_property
    def _said(self) -> dict[str, list[_Said]]:
        """The claims by path, in the order in which they were said."""
        found: dict[str, list[_Said]] = defaultdict(list)
        for claim in self._counted.values():
            found[claim.path].append(_Said((claim.said_at, claim.order, claim.is_set, _text(claim)), claim))
        for said in found.values():
            said.sort(key=_key)
        return dict(found)

    @cached_property
    def _over(self) -> dict[str, list[list[_Said]]]:
        """The claims above each path that has some; they end what holds there."""
        said = {path: some for path, some in self._said.items() if not some[0].claim.is_line}
        found = {path: [said[one] for one in above(path) if one in said] for path in said}
        return {path: some for path, some in found.items() if some}

    @cached_property
    def _below(self) -> dict[str, list[_Said]]:
        """The claims that set something below each path, in the order in which they were said; they end a value there."""
        found: dict[str, list[_Said]] = defaultdict(list)
        for path, over in self._over.items():
            setting = [one for one in self._said[path] if one.claim.is_set]
            for some in over:
                found[some[0].claim.path] += setting
        for some in found.values():
            some.sort(key=_key)
        return dict(found)

    @cached_property
    def _spans(self) -> dict[str, list[_Span]]:
        """What held at each path, the oldest first; paths where nothing ever held are not there."""
        found: dict[str, list[_Span]] = {}
        for path, said in self._said.items():
            around = self._over.get(path, [])
            if path in self._below:
                around = [*around, self._below[path]]
            spans: list[_Span] = []
            events = _with_ends(said, around) if around else [(one.key, one.claim.is_set, one) for one in said]
            for at, (key, is_set, one) in enumerate(events):
                if at + 1 < len(events) and events[at + 1][0][0] == key[0]:
                    continue  # of what is said at one moment the last counts
                text = key[3] if is_set else ""
                if spans and spans[-1].is_set == is_set and spans[-1].text == text:
                    spans[-1].claims.append(one.claim)
                elif spans or is_set:
                    spans.append(_Span(one, is_set, text, [one.claim]))
            if spans:
                found[path] = spans
        return found

    def _written(self, form: Format) -> tuple[str, list[str]]:
        is_line = not isinstance(form, JsonFormat)
        ends = [(path, spans[-1]) for path, spans in self._spans.items() if spans[-1].is_set]
        held = [(path, span.claims[0]) for path, span in sorted(ends, key=_since)]
        # what was kept in another format is not shown
        values = {path: claim.value for path, claim in held if claim.is_line == is_line}
        if isinstance(form, JsonFormat):
            return fields.write(form, values, self.layout, self._emptied())
        return lines.write(form, values, self.layout)

    def _emptied(self) -> Iterator[str]:
        """Yield what was removed by a claim of its own, with nothing above said later: its list or object is still there."""
        for path, said in self._said.items():
            last = said[-1]
            if last.claim.is_set or last.claim.is_line or not path:
                continue
            floor = max((some[-1].key for some in self._over.get(path, ())), default=None)
            if floor is None or floor < last.key:
                setting = (one.key for one in (*said, *self._below.get(path, ())) if one.claim.is_set)
                if any((floor is None or floor < key) and key < last.key for key in setting):
                    yield path


def changes(
    form: Format,
    values: Values,
    after: str,
    *,
    said_at: int,
    recorded_at: int,
    origin: str,
    sources: tuple[Source, ...] = (),
) -> tuple[list[Claim], tuple[str, ...]]:
    """Return the claims and the layout that make a document what a writer wrote, byte for byte.

    That holds if they are said later than all that holds; what was said later stays as it is.
    """
    is_json = isinstance(form, JsonFormat)
    now, layout = read(form, after)
    claims = [
        Claim(
            path=path,
            value=value,
            is_set=is_set,
            said_at=said_at,
            recorded_at=recorded_at,
            origin=origin,
            sources=sources,
            order=order,
            is_line=not is_json,
        )
        for order, (path, value, is_set) in enumerate(differences(form, read(form, values.render(form))[0], now))
    ]
    if is_json and layout:
        natural = replace(values, claims={**values.claims, **{one.id: one for one in claims}}, layout=())
        layout = () if natural.render(form) == after else layout
    return claims, layout


def seed(form: Format, text: str, said_at: int) -> tuple[list[Claim], tuple[str, ...]]:
    """Return the claims of a document that existed before its values were kept."""
    return changes(form, Values(), text, said_at=said_at, recorded_at=said_at, origin="program")


def read(form: Format, text: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the values of a document by path, in its order, and its layout."""
    return fields.read(form, text) if isinstance(form, JsonFormat) else lines.read(form, text)


def differences(form: Format, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, bool]]:
    """Return what is removed, then what is set anew: path, value, whether it is set."""
    removed = _removed(before, now) if isinstance(form, JsonFormat) else [path for path in before if path not in now]
    new = [path for path, value in now.items() if path not in before or _dump(before[path]) != _dump(value)]
    return [*((path, None, False) for path in removed), *((path, now[path], True) for path in new)]


def _removed(before: Iterable[str], now: Iterable[str]) -> list[str]:
    """Return the highest paths of which nothing is left; what a new value above or below ends is not among them."""
    inside = {one for path in now for one in above(path)}
    leaves = {*now}
    found: dict[str, None] = {}
    for path in before:
        if path in leaves or path in inside:
            continue
        over = [*above(path)]
        if not leaves.isdisjoint(over):
            continue
        gone = path
        for one in over:
            if one in inside:
                break
            gone = one
        found[gone] = None
    return [*found]


def _with_ends(said: list[_Said], around: list[list[_Said]]) -> list[tuple[_Key, bool, _Said]]:
    """Return the claims at a path, and after each value what ended it before the next claim there."""
    events: list[tuple[_Key, bool, _Said]] = []
    for at, one in enumerate(said):
        events.append((one.key, one.claim.is_set, one))
        if one.claim.is_set:
            until = said[at + 1].key if at + 1 < len(said) else None
            next_ones = (some[place] for some in around if (place := bisect_right(some, one.key, key=_key)) < len(some))
            end = min(next_ones, key=_key, default=None)
            if end and (until is None or end.key < until):
                events.append((end.key, False, end))
    return events


def _bounded(claims: dict[str, Claim], keep: int) -> dict[str, Claim]:
    by_path: dict[str, list[tuple[_Key, str]]] = defaultdict(list)
    for name, claim in claims.items():
        by_path[claim.path].append(((claim.said_at, claim.order, claim.is_set, _text(claim)), name))
    left_out: set[str] = set()
    for some in by_path.values():
        if len(some) > keep:
            left_out.update(_too_old(sorted(some), keep))
    if len(by_path) > PATHS * keep:
        left_out.update(_long_gone(claims, by_path, PATHS * keep))
    return {name: claim for name, claim in claims.items() if name not in left_out} if left_out else claims


def _too_old(some: list[tuple[_Key, str]], keep: int) -> Iterable[str]:
    runs: list[list[str]] = []
    last = None
    for key, name in some:
        if key[2:] != last:
            runs.append([])
        last = key[2:]
        runs[-1].append(name)
    for run in runs[:-keep]:
        yield from run
    for run in runs[-keep:]:
        yield from run[1:-LAST]


def _long_gone(claims: dict[str, Claim], by_path: dict[str, list[tuple[_Key, str]]], most: int) -> Iterable[str]:
    values = Values(claims)
    gone: list[tuple[_Key, str]] = []
    for path, some in by_path.items():
        spans = values._spans.get(path)  # noqa: SLF001 - its own module
        if not spans or not spans[-1].is_set:
            newest = max(some)[0]
            gone.append((max(spans[-1].first.key, newest) if spans else newest, path))
    for _, path in sorted(gone)[:-most]:
        yield from (name for _, name in by_path[path])


def _set_paths(claims: Iterable[Claim]) -> set[str]:
    """Return the paths that claims set something at or, of a JSON document, below."""
    setting = [claim for claim in claims if claim.is_set]
    return {one.path for one in setting if one.is_line} | with_above(one.path for one in setting if not one.is_line)


def _note(claims: dict[str, Claim], claim: Claim) -> None:
    """Add a claim; of two that are the same, the one that was recorded first counts."""
    known = claims.setdefault(claim.id, claim)
    if _rank(claim) < _rank(known):
        claims[claim.id] = claim


def _rank(claim: Claim) -> tuple[int, int, int]:
    return len(claim.sources), claim.recorded_at, claim.order


def _key(said: _Said) -> _Key:
    return said.key


def _since(end: tuple[str, _Span]) -> _Key:
    return end[1].first.key


def _text(claim: Claim) -> str:
    """Return a text that equal values have in common: true and 1 differ, unlike in Python."""
    value = claim.value
    return f'"{value}' if isinstance(value, str) else _dump(value) if claim.is_set else ""


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
