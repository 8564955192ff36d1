"""Line differences of two texts, in a time that does not grow with the square of their lengths."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from difflib import Match, SequenceMatcher
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LARGEST = 10_000  # product of the lengths of two runs that difflib compares; its time grows with the product


def unified(before: Sequence[str], after: Sequence[str], context: int = 3) -> Iterator[str]:
    """Yield the lines of a unified diff, without its header."""
    for group in Lines(before, after).get_grouped_opcodes(context):
        (_, start, _, first, _), (_, _, end, _, last) = group[0], group[-1]
        yield f"@@ -{_range(start, end)} +{_range(first, last)} @@"
        for kind, low, high, left, right in group:
            if kind == "equal":
                yield from (f" {line}" for line in before[low:high])
                continue
            yield from (f"-{line}" for line in before[low:high])
            yield from (f"+{line}" for line in after[left:right])


def _range(start: int, end: int) -> str:
    """Write a range of lines as `diff -u` does."""
    length = end - start
    return str(start + 1) if length == 1 else f"{start + bool(length)},{length}"


class Lines(SequenceMatcher[str]):
    """difflib's comparison, but lines that occur once in both are paired first; only short runs between go to difflib."""

    def __init__(self, one: Sequence[str], other: Sequence[str]) -> None:
        super().__init__()
        self._texts = one, other

    def get_matching_blocks(self) -> list[Match]:
        """Return the runs of equal lines, in order; the first and the last may be empty."""
        blocks = [Match(0, 0, 0)]
        for at, to in _pairs(*self._texts):
            start, first, size = blocks[-1]
            if (at, to) == (start + size, first + size):
                blocks[-1] = Match(start, first, size + 1)
            else:
                blocks.append(Match(at, to, 1))
        one, other = self._texts
        return [*blocks, Match(len(one), len(other), 0)]


def _pairs(one: Sequence[str], other: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Pair equal lines, in order on both sides."""
    start = first = 0
    for end, last in [*_anchors(one, other), (len(one), len(other))]:
        while start < end and first < last and one[start] == other[first]:
            yield start, first
            start, first = start + 1, first + 1
        tail = 0
        while start < end - tail and first < last - tail and one[end - tail - 1] == other[last - tail - 1]:
            tail += 1
        run, others = one[start : end - tail], other[first : last - tail]
        if len(run) * len(others) <= LARGEST:
            for low, left, size in SequenceMatcher(None, run, others).get_matching_blocks():
                yield from ((start + low + at, first + left + at) for at in range(size))
        yield from ((end - at, last - at) for at in range(tail, 0, -1))
        if end < len(one):
            yield end, last
        start, first = end + 1, last + 1


def _anchors(one: Sequence[str], other: Sequence[str]) -> list[tuple[int, int]]:
    """Pair the lines that occur once in both: the longest series of such pairs that is in order on both sides."""
    counts, others = Counter(one), Counter(other)
    where = {item: at for at, item in enumerate(other) if others[item] == 1}
    tails: list[int] = []  # for each length of a series: the smallest index in `other` that ends one
    ends: list[Any] = []  # and its pairs as links: the last pair, and the link before it
    for at, item in enumerate(one):
        if counts[item] == 1 and item in where:
            length = bisect_left(tails, where[item])
            tails[length : length + 1] = [where[item]]
            ends[length : length + 1] = [((at, where[item]), ends[length - 1] if length else None)]
    found = []
    link = ends[-1] if ends else None
    while link:
        pair, link = link
        found.append(pair)
    return found[::-1]
