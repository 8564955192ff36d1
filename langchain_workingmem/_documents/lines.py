"""Line differences of two texts, in a time that does not grow with the square of their lengths."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LARGEST = 10_000  # product of the lengths of two runs that difflib compares; its time grows with the product
Run: TypeAlias = tuple[str, int, int, int, int]  # one of difflib's opcodes
_Link: TypeAlias = "tuple[int, int, _Link | None]"  # a pair of equal lines, and the pair before it


def unified(before: Sequence[str], after: Sequence[str], context: int = 3) -> Iterator[str]:
    """Yield the lines of a unified diff, without its header."""
    for group in _Grouped(before, after).get_grouped_opcodes(context):
        (_, start, _, first, _), (_, _, end, _, last) = group[0], group[-1]
        yield f"@@ -{_range(start, end)} +{_range(first, last)} @@"
        for kind, low, high, left, right in group:
            if kind == "equal":
                yield from (f" {line}" for line in before[low:high])
                continue
            yield from (f"-{line}" for line in before[low:high])
            yield from (f"+{line}" for line in after[left:right])


class _Grouped(SequenceMatcher[str]):
    """difflib's grouping of what `matches` finds."""

    def __init__(self, before: Sequence[str], after: Sequence[str]) -> None:
        super().__init__()
        self._texts = before, after

    def get_opcodes(self) -> list[Run]:  # type: ignore[override]
        runs: list[Run] = []
        for run in matches(*self._texts):
            if runs and runs[-1][0] == run[0]:
                kind, start, _, first, _ = runs.pop()
                runs.append((kind, start, run[2], first, run[4]))
            else:
                runs.append(run)
        return runs


def _range(start: int, end: int) -> str:
    """Write a range of lines as `diff -u` does."""
    length = end - start
    return str(start + 1) if length == 1 else f"{start + bool(length)},{length}"


def matches(one: Sequence[str], other: Sequence[str]) -> Iterator[Run]:
    """Compare two lists, as difflib's opcodes do.

    Lines that occur exactly once in both are matched first; only short runs between them are given to difflib.
    """
    start = first = 0
    for at, to in [*_anchors(one, other), (len(one), len(other))]:
        yield from _between(one, other, (start, at, first, to))
        if at < len(one):
            yield "equal", at, at + 1, to, to + 1
        start, first = at + 1, to + 1


def _between(one: Sequence[str], other: Sequence[str], run: tuple[int, int, int, int]) -> Iterator[Run]:
    start, end, first, last = run
    while start < end and first < last and one[start] == other[first]:
        yield "equal", start, start + 1, first, first + 1
        start, first = start + 1, first + 1
    tail = 0
    while start < end - tail and first < last - tail and one[end - tail - 1] == other[last - tail - 1]:
        tail += 1
    end, last = end - tail, last - tail
    if (end - start) * (last - first) > LARGEST:
        yield "replace", start, end, first, last
    else:
        for name, low, high, left, right in SequenceMatcher(None, one[start:end], other[first:last]).get_opcodes():
            yield name, start + low, start + high, first + left, first + right
    if tail:
        yield "equal", end, end + tail, last, last + tail


def _anchors(one: Sequence[str], other: Sequence[str]) -> list[tuple[int, int]]:
    """Pair the lines that occur once in both: the longest series of such pairs that is in order on both sides."""
    counts, others = Counter(one), Counter(other)
    where = {item: at for at, item in enumerate(other) if others[item] == 1}
    tails: list[int] = []  # for each length of a series: the smallest index in `other` that ends one
    ends: list[_Link] = []
    for at, item in enumerate(one):
        if counts[item] == 1 and item in where:
            length = bisect_left(tails, where[item])
            link = (at, where[item], ends[length - 1] if length else None)
            tails[length : length + 1] = [where[item]]
            ends[length : length + 1] = [link]
    found = []
    last = ends[-1] if ends else None
    while last is not None:
        found.append(last[:2])
        last = last[2]
    return found[::-1]
