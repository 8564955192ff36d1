"""Ranges of sequence numbers, beside plain sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem._text.ranges import after, contains, numbers_in, parse_ranges, ranges_of, write_ranges

NUMBERS = st.sets(st.integers(1, 60))


@given(NUMBERS, st.integers(0, 61))
def test_ranges_hold_what_sets_of_their_numbers_hold(numbers: set[int], number: int) -> None:
    ranges = ranges_of(numbers)
    assert parse_ranges(write_ranges(ranges)) == ranges
    assert contains(ranges, number) == (number in numbers)
    assert after(ranges, number) == ranges_of(one for one in numbers if one > number)
    assert {*numbers_in(after(ranges, number))} == {one for one in numbers if one > number}
