"""Values against a small bitemporal model: order of arrival never matters, and what is deleted was never there."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem._text.ranges import ranges_of
from langchain_workingmem.keeping.values import Values
from tests.helpers.examples import examples
from tests.keeping.bitemporal import SAID, SEQS, Message, Model, Op, Told, unordered
from tests.keeping.documents import PERSON

LEAVES = [
    "/city",
    "/home/city",
    "/home/street",
    "/pets/Rex/name",
    "/pets/Rex/age",
    "/pets/Ida/age",
    "/allergies/nuts",
    "/allergies/milk",
]
PARENTS = ["", "/home", "/pets", "/pets/Rex", "/pets/Ida", "/allergies"]
PATHS = [*LEAVES, *PARENTS]
ALL = 10**6  # entries of history

values_of = st.sampled_from(["Rome", "Oslo", "", 3, True, None, 1.0])
messages = st.lists(st.sampled_from([*SAID]), min_size=1, max_size=3, unique=True).map(tuple)


@st.composite
def operations(draw: st.DrawFn) -> Op:
    """Draw what a keeper, a tool, a program or a person says; the first two cite messages."""
    path = draw(st.sampled_from(PATHS))
    is_set = path != "" and draw(st.booleans())
    value = draw(values_of) if path in LEAVES else draw(st.sampled_from([{}, [], "x"]))
    origin = draw(st.sampled_from(["keeper", "keeper", "tool", "program", "person"]))
    cited = draw(messages) if origin in {"keeper", "tool"} else ()
    return Op(path, value, is_set, cited, draw(st.integers(0, 90)), draw(st.integers(0, 2)), origin)


histories = st.lists(operations(), max_size=14)


def arrived(ops: list[Op]) -> Values:
    values = Values()
    for op in ops:
        values = values.adding([op.claim()], ALL)
    return values


def document(values: Values) -> Any:
    """Return the document; lists of items have no order here."""
    found = json.loads(values.render(PERSON) or "{}")
    for name in ("pets", "allergies"):
        if isinstance(found.get(name), list):
            found[name] = unordered(found[name])
    return found


def told(values: Values, path: str) -> list[Told]:
    return [
        Told(one.value, one.is_set, one.since, one.until, frozenset(source[:2] for source in one.sources))
        for one in values.history(path)
    ]


def check_same(values: Values, model: Model) -> None:
    assert document(values) == model.document()
    for path in LEAVES:
        assert told(values, path) == model.history(path)


@examples(500)
@given(histories, st.randoms(use_true_random=False))
def test_order_doubling_and_interleaving_change_nothing(ops: list[Op], random: Any) -> None:
    first = arrived(ops)
    check_same(first, Model(ops))
    again = [*ops, *random.choices(ops, k=3)] if ops else []
    random.shuffle(again)
    second = arrived(again)
    assert second.claims == first.claims
    assert second.render(PERSON) == first.render(PERSON)
    half = len(again) // 2
    assert (
        Values().adding((op.claim() for op in again[:half]), ALL).adding(arrived(again[half:]).claims.values(), ALL)
        == first
    )


@examples(500)
@given(histories, st.sets(st.sampled_from([*SAID]), max_size=6))
def test_what_is_deleted_was_never_there(ops: list[Op], gone: set[Message]) -> None:
    values = arrived(ops)
    for thread_id in ("t", "u"):
        values = values.without(thread_id, ranges_of(SEQS[one] for one in gone if one[0] == thread_id))
    check_same(values, Model(ops, gone))
    assert not {source[:2] for claim in values.claims.values() for source in claim.sources} & gone


@examples(500)
@given(histories, st.sets(st.sampled_from([*SAID]), max_size=6))
def test_what_is_hidden_does_not_count_until_it_is_back(ops: list[Op], away: set[Message]) -> None:
    values = arrived(ops)
    hidden = Values(values.claims, hidden=frozenset((one[0], SEQS[one]) for one in away))
    check_same(hidden, Model(ops, away))
    check_same(Values(hidden.claims), Model(ops))
