"""The values of a document: what holds, since when, by which messages, and what held before. Pure functions of its claims."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from langchain_workingmem._documents.formats import JsonFormat
from langchain_workingmem.keeping import fields, lines
from langchain_workingmem.keeping.bounds import bounded
from langchain_workingmem.keeping.claims import Claim, Source
from langchain_workingmem.keeping.paths import above, with_above
from langchain_workingmem.keeping.timeline import Span, Timeline, as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Self

    from langchain_workingmem._documents.formats import Format
    from langchain_workingmem._text.ranges import Ranges


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
        return {path: _held(self._last[path]) for path in paths if not path.endswith("/")}

    @property
    def paths(self) -> list[str]:
        """Return the paths where something holds or held."""
        return [path for path in self._timeline.said if next(self._timeline.spans(path), None)]

    @property
    def set_paths(self) -> set[str]:
        """Return the paths that claims set something at or below."""
        return _set_paths(self.claims.values())

    def history(self, path: str) -> list[Held]:
        """Return what held at a path and when it was removed, the newest first, the present value included."""
        found: list[Held] = []
        for span in self._timeline.spans(path):
            found.append(_held(span, found[-1].since if found else None))
        return found

    # ------------------------------------------------------------------ what changes

    def adding(self, claims: Iterable[Claim], keep: int) -> Self:
        """Return these and further claims, and of the history what `bounded` leaves of it."""
        return replace(self, claims=bounded(_by_id(claims, self.claims), keep))

    def without(self, thread_id: str, ranges: Ranges | None) -> Self:
        """Return what is left when messages are deleted; None: all of the thread.

        Claims lose these sources, and those that had no other are gone; so is a removal of what nothing sets any more, because its
        path may hold words of the deleted message.
        """
        left = _only(self.claims, lambda one: not one.is_in(thread_id, ranges))
        lost = _set_paths(self.claims.values()) - _set_paths(left.values())
        return replace(self, claims={name: one for name, one in left.items() if one.is_set or one.path not in lost})

    # ------------------------------------------------------------------ how it follows from the claims

    @cached_property
    def _counted(self) -> Mapping[str, Claim]:
        """The claims that stand on a message which is not hidden, or on none."""
        if not self.hidden:
            return self.claims
        return _only(self.claims, lambda one: (one.thread_id, one.seq) not in self.hidden)

    @cached_property
    def _timeline(self) -> Timeline:
        return Timeline(self._counted.values())

    @cached_property
    def _last(self) -> dict[str, Span]:
        """What held last at each path, or when it was removed."""
        spans = ((path, next(self._timeline.spans(path), None)) for path in self._timeline.said)
        return {path: span for path, span in spans if span}

    def _written(self, form: Format) -> tuple[str, list[str]]:
        is_line = not isinstance(form, JsonFormat)
        # what was kept in another format is not shown
        ends = (
            (span.first, path)
            for path, span in self._last.items()
            if span.is_set and span.first.claim.is_line == is_line
        )
        values = {path: first.claim.value for first, path in sorted(ends)}
        if isinstance(form, JsonFormat):
            return fields.write(form, values, self.layout, self._timeline.emptied())
        return lines.write(form, values, self.layout)


def _held(span: Span, until: int | None = None) -> Held:
    first = span.first.claim
    sources = {source[:2]: source for claim in reversed(span.claims) for source in claim.sources}
    return Held(
        value=span.value,
        since=span.first.said_at,
        until=until,
        sources=(*sources.values(),),
        origin=first.origin,
        recorded_at=first.recorded_at,
        is_set=span.is_set,
    )


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
    new = [path for path, value in now.items() if path not in before or as_text(before[path]) != as_text(value)]
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


def _set_paths(claims: Iterable[Claim]) -> set[str]:
    """Return the paths that claims set something at or, of a JSON document, below."""
    setting = [claim for claim in claims if claim.is_set]
    return {one.path for one in setting if one.is_line} | with_above(one.path for one in setting if not one.is_line)


def _only(claims: Mapping[str, Claim], stays: Callable[[Source], bool]) -> dict[str, Claim]:
    """Return what is left of claims when only some of their messages had been said."""
    left = [(name, claim, claim.only(stays)) for name, claim in claims.items()]
    same = {name: claim for name, claim, now in left if now is claim}
    return _by_id((now for _, claim, now in left if now and now is not claim), same)


def _by_id(claims: Iterable[Claim], known: Mapping[str, Claim] | None = None) -> dict[str, Claim]:
    """Return claims by id, with the known ones; of those that are the same, the one that was recorded first counts."""
    found = dict(known or {})
    for claim in claims:
        name = claim.id
        if name not in found or _rank(claim) < _rank(found[name]):
            found[name] = claim
    return found


def _rank(claim: Claim) -> tuple[int, int, int, tuple[Source, ...]]:
    return len(claim.sources), claim.recorded_at, claim.order, claim.sources
