"""Three-way merge of texts of which every character counts, such as programs. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from langchain_workingmem._documents.lines import Lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Clash(NamedTuple):
    """A passage that both sides have changed, and differently."""

    base: str
    theirs: str
    ours: str


def merge_lines(base: str, theirs: str, ours: str) -> tuple[str, list[Clash]]:
    """Apply what both sides have changed in `base`, line by line, and return the text and where they clash.

    Changes that touch each other clash, unless they are equal; there the text has `theirs`.
    """
    if ours in (base, theirs):
        return theirs, []
    if theirs == base:
        return ours, []
    old, one, other = (text.splitlines(keepends=True) for text in (base, theirs, ours))
    merged: list[str] = []
    clashes: list[Clash] = []
    at = 0
    for (start, end), mine, yours in _places(_changes(old, one), _changes(old, other)):
        merged += old[at:start]
        left, right = _side(old, one, start, end, mine), _side(old, other, start, end, yours)
        if mine and yours and left != right:
            clashes.append(Clash("".join(old[start:end]), "".join(left), "".join(right)))
        merged += left if mine else right
        at = end
    return "".join([*merged, *old[at:]]), clashes


class _Change(NamedTuple):
    start: int  # lines of the base that are replaced
    end: int
    first: int  # lines of the other text instead of them
    last: int


def _changes(base: Sequence[str], text: Sequence[str]) -> list[_Change]:
    return [_Change(*change) for kind, *change in Lines(base, text).get_opcodes() if kind != "equal"]


def _places(one: list[_Change], other: list[_Change]) -> Iterator[tuple[tuple[int, int], list[_Change], list[_Change]]]:
    """Join changes of both sides that touch each other into places, in order."""
    left, right = list(one), list(other)
    while left or right:
        mine: list[_Change] = []
        yours: list[_Change] = []
        start = end = min(side[0].start for side in (left, right) if side)
        is_open = True
        while is_open:
            is_open = False
            for side, taken in ((left, mine), (right, yours)):
                while side and side[0].start <= end:
                    taken.append(side.pop(0))
                    end = max(end, taken[-1].end)
                    is_open = True
        yield (start, end), mine, yours


def _side(base: Sequence[str], text: Sequence[str], start: int, end: int, changes: list[_Change]) -> list[str]:
    """Return what one side has instead of lines `start` to `end` of the base."""
    if not changes:
        return list(base[start:end])
    found, at = [], start
    for change in changes:
        found += [*base[at : change.start], *text[change.first : change.last]]
        at = change.end
    return [*found, *base[at:end]]
