"""Ranges of sequence numbers, as scripts write them: "1-9,12" is 1 to 9 and 12."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Ranges: TypeAlias = tuple[tuple[int, int], ...]  # ascending, both ends belong to a range


def parse_ranges(text: str) -> Ranges:
    """Read ranges."""
    pairs = (part.partition("-") for part in text.split(",") if part)
    return tuple((int(first), int(last or first)) for first, _, last in pairs)


def write_ranges(ranges: Ranges) -> str:
    """Write ranges."""
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)


def ranges_of(numbers: Iterable[int]) -> Ranges:
    """Return the ranges of numbers in any order."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return tuple(found)


def numbers_in(ranges: Ranges) -> Iterator[int]:
    """Yield each number of the ranges."""
    for first, last in ranges:
        yield from range(first, last + 1)


def after(ranges: Ranges, number: int) -> Ranges:
    """Return what lies behind a number."""
    return tuple((max(first, number + 1), last) for first, last in ranges if last > number)


def contains(ranges: Ranges, number: int) -> bool:
    """Tell whether a number is in the ranges."""
    at = bisect_right(ranges, (number, float("inf"))) - 1
    return at >= 0 and ranges[at][0] <= number <= ranges[at][1]


def removed_positions(before: Iterable[str], more: Iterable[int] = ()) -> str:
    """Write the positions of messages that memory has taken out of a state because a log covers them, with further ones."""
    return write_ranges(join_ranges([*(one for text in before for one in parse_ranges(text)), *ranges_of(more)]))


def join_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Join ranges that are given in any order."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    return tuple(joined)
