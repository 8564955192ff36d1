"""Claims: when two are the same, and what is left without some of their messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem.keeping.claims import Claim, Source, read_claim, write_claim
from tests.helpers.examples import examples
from tests.keeping.documents import claim, json_values

FIRST, SECOND, OTHER = Source("t", "m1", 1, 100), Source("t", "m2", 2, 200), Source("u", "m1", 1, 300)


def test_what_a_keeper_says_again_by_the_same_messages_is_the_same_claim() -> None:
    one = claim("/city", "Rome", 200, sources=(FIRST, SECOND), order=3)
    again = claim("/city", "Rome", 200, sources=(SECOND, FIRST), order=5, recorded_at=999)
    assert one.id == again.id


@pytest.mark.parametrize(
    "other",
    [
        {"path": "/home"},
        {"value": "Oslo"},
        {"value": None},
        {"sources": (FIRST,)},
        {"sources": (OTHER,)},
        {"sources": ()},
        {"origin": "tool"},
    ],
)
def test_another_claim_has_another_id(other: dict[str, Any]) -> None:
    given_ = {"path": "/city", "value": "Rome", "sources": (FIRST, SECOND), **other}
    assert claim(said_at=200, **given_).id != claim("/city", "Rome", 200, sources=(FIRST, SECOND)).id


def test_what_a_tool_says_twice_in_a_turn_counts_twice() -> None:
    ids = {claim("/city", "Rome", at, sources=(FIRST,), origin="tool").id for at in (200, 201)}
    assert len(ids) == 2


def test_without_a_message_a_claim_was_said_when_the_newest_other_was() -> None:
    one = claim("/city", "Rome", 200, sources=(FIRST, SECOND))
    left = one.only(lambda source: source != SECOND)
    assert left == claim("/city", "Rome", 100, recorded_at=200, sources=(FIRST,))
    assert one.only(lambda source: source != FIRST) == claim("/city", "Rome", 200, sources=(SECOND,))


def test_what_a_tool_wrote_was_said_when_it_wrote_it_whatever_messages_are_left() -> None:
    untimed = tuple(source._replace(said_at=0) for source in (FIRST, SECOND))
    left = claim("/city", "Rome", 250, origin="tool", sources=untimed).only(lambda source: source.seq == 1)
    assert left
    assert left.said_at == 250


def test_a_claim_goes_with_its_last_message_and_stays_where_it_never_had_one() -> None:
    assert claim("/city", "Rome", 100, sources=(FIRST,)).only(lambda _: False) is None
    alone = claim("/city", "Rome", 100)
    assert alone.only(lambda _: False) is alone


def test_the_messages_of_ranges_and_of_a_whole_thread() -> None:
    assert FIRST.is_in("t", ((0, 1),))
    assert not FIRST.is_in("t", ((2, 9),))
    assert not FIRST.is_in("u", ((0, 9),))
    assert FIRST.is_in("t", None)
    assert not Source("t", "m9", -1).is_in("t", ((0, 9),))


sources = st.lists(
    st.builds(Source, st.sampled_from("tu"), st.text(max_size=2), st.integers(-1, 2**52), st.integers(0, 2**52)),
    max_size=3,
    unique=True,
).map(tuple)


@examples(40)
@given(json_values, sources, st.booleans(), st.integers(0, 2**52), st.sets(st.integers(0, 2)))
def test_a_script_that_drops_sources_leaves_the_claim_as_it_would_be(
    value: Any, given_: tuple[Source, ...], is_set: bool, at: int, gone: set[int]
) -> None:
    one = Claim(
        path="/a/b",
        value=value if is_set else None,
        is_set=is_set,
        said_at=max((source.said_at or at for source in given_), default=at),
        recorded_at=at,
        origin="keeper",
        sources=given_,
        order=7,
        is_line=True,
    )
    assert read_claim(write_claim(one)) == one
    parts = json.loads(write_claim(one))
    assert parts[1:4] == ["/a/b", "1" if is_set else "", "1"]
    parts[0] = [source for place, source in enumerate(parts[0]) if place not in gone]
    left = one.only(lambda source: given_.index(source) not in gone)
    if left:
        assert read_claim(json.dumps(parts)) == left  # written in another way
