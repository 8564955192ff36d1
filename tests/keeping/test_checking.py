"""What a keeper answers: each operation is checked alone, and what fails is left out and counted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem._documents.formats import Format
from langchain_workingmem.keeping.checking import Checked, Given, check, problems
from langchain_workingmem.keeping.claims import Source
from langchain_workingmem.keeping.values import Values
from tests.helpers.examples import examples
from tests.keeping.documents import DEFAULT, FREE, PERSON, after_write, json_values

AUTHORS = {1: "human", 2: "ai", 3: "tool", 4: "human", 5: "system"}
MESSAGES = {at: Given(Source("t", f"m{at}", at, 100 * at), author) for at, author in AUTHORS.items()}
KNOWN = {
    "city": "Rome",
    "home": {"city": "Rome"},
    "pets": [{"name": "Rex", "age": 3}, {"name": "Ida"}],
    "allergies": ["nuts", "milk"],
    "trips": [{"to": "Oslo"}],
}


def known(document: dict[str, Any] | str, form: Format = PERSON, said_at: int = 10) -> Values:
    text = document if isinstance(document, str) else json.dumps(document)
    return after_write(form, Values(), text, said_at=said_at)


def checked(values: Values, *operations: Any, form: Format = PERSON, **more: Any) -> Checked:
    given_ = [{"messages": [1], **one} if isinstance(one, dict) else one for one in operations]
    return check(form, values, given_, MESSAGES, recorded_at=999, **more)


def after(values: Values, found: Checked) -> Values:
    return Values(values.adding(found.claims, 20).claims, values.layout if found.layout is None else found.layout)


def changed(*operations: Any, before: dict[str, Any] = KNOWN) -> dict[str, Any]:
    """Return the fields of a document that operations change; None: it is gone."""
    values = known(before)
    found = checked(values, *operations)
    assert found.left_out == {}
    now = json.loads(after(values, found).render(PERSON) or "{}")
    return {name: now.get(name) for name in {**before, **now} if now.get(name) != before.get(name)}


def put(path: str, value: Any = None, op: str = "set", **more: Any) -> dict[str, Any]:
    return {"op": op, "path": path, **({} if op == "remove" and value is None else {"value": value}), **more}


def edit(find: str, replace: str, **more: Any) -> dict[str, Any]:
    return {"find": find, "replace": replace, **more}


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (put("/city", "Oslo"), {"city": "Oslo"}),
        (put("/age", 3), {"age": 3}),
        (put("/city", None), {"city": None}),
        (put("/home/street", "Via"), {"home": {"city": "Rome", "street": "Via"}}),
        (put("/home", {"street": "Via"}), {"home": {"street": "Via"}}),
        (put("/home", {"street": "Via"}, "add"), {"home": {"city": "Rome", "street": "Via"}}),
        (put("/home", op="remove"), {"home": None}),
        (put("/home/city", op="remove"), {"home": {}}),
        (put("/pets/Rex/age", 4), {"pets": [{"name": "Rex", "age": 4}, {"name": "Ida"}]}),
        (put("/pets/Rex", {"tricks": ["sit"]}), {"pets": [{"name": "Rex", "tricks": ["sit"]}, {"name": "Ida"}]}),
        (put("/pets", {"name": "Bo"}, "add"), {"pets": [*KNOWN["pets"], {"name": "Bo"}]}),
        (put("/pets/-", {"name": "Bo"}, "add"), {"pets": [*KNOWN["pets"], {"name": "Bo"}]}),
        (put("/pets", {"name": "Rex", "age": 9}, "add"), {"pets": [{"name": "Rex", "age": 9}, {"name": "Ida"}]}),
        (put("/pets/Bo/age", 1), {"pets": [*KNOWN["pets"], {"name": "Bo", "age": 1}]}),
        (put("/pets/Rex", op="remove"), {"pets": [{"name": "Ida"}]}),
        (put("/pets/Rex/name", op="remove"), {"pets": [{"name": "Ida"}]}),
        (put("/pets", "Rex", "remove"), {"pets": [{"name": "Ida"}]}),
        (put("/pets", {"name": "Rex"}, "remove"), {"pets": [{"name": "Ida"}]}),
        (put("/allergies", "soy", "add"), {"allergies": ["nuts", "milk", "soy"]}),
        (put("/allergies", ["soy", "nuts"], "add"), {"allergies": ["nuts", "milk", "soy"]}),
        (put("/allergies/nuts", op="remove"), {"allergies": ["milk"]}),
        (put("/allergies", "nuts", "remove"), {"allergies": ["milk"]}),
        (put("/allergies/nuts", "soy"), {"allergies": ["milk", "soy"]}),
        (put("/allergies", ["soy"]), {"allergies": ["soy"]}),
        (put("/allergies", []), {"allergies": []}),
        (put("/trips", {"to": "Bonn"}, "add"), {"trips": [{"to": "Oslo"}, {"to": "Bonn"}]}),
        (put("/trips", {"to": "Oslo"}, "add"), {}),
        (put("/trips", {"to": "Oslo"}, "remove"), {"trips": []}),
        (put("/friends/Bo/city", "Bonn"), {"friends": {"Bo": {"city": "Bonn"}}}),
    ],
)
def test_an_operation_changes_its_value(operation: dict[str, Any], expected: dict[str, Any]) -> None:
    assert changed({**operation, "messages": [1]}) == expected


DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        ("remove everything", "operation"),
        ({"op": "empty", "path": "/city"}, "operation"),
        ({"op": "set", "path": ["city"], "value": 1}, "operation"),
        ({"op": "set", "path": "/city"}, "operation"),
        (put("/city", "x", messages=[]), "messages"),
        (put("/city", "x", messages=None), "messages"),
        (put("/city", "x", messages="1"), "messages"),
        (put("/city", "x", messages=[True]), "messages"),
        (put("/city", "x", messages=[1, 99]), "messages"),
        (put("/city", "x", messages=[1] * 500), "messages"),
        (put("/city", "x", messages=[2]), "author"),
        (put("/city", "x", messages=[2, 5]), "author"),
        (put("", {"city": "x"}), "path"),
        (put("city", "x"), "path"),
        (put("/unknown", "x"), "path"),
        (put("/__proto__", "x"), "path"),
        (put("/friends/__proto__/city", "x"), "path"),
        (put("/friends/Ann", {"__proto__": {"city": "x"}}), "value"),
        (put("/-", "x", "add"), "path"),
        (put("/city/-", "x", "add"), "path"),
        (put("/city/below", "x"), "path"),
        (put("/allergies/nuts/below", "x"), "path"),
        (put("/pets/0/age", 4), "path"),
        (put("/pets/0", op="remove"), "path"),
        (put("/trips/0/to", "Bonn"), "path"),
        (put("/pets/Rex/name", "Bo"), "path"),
        (put("/home" + "/x" * 10_000, "x"), "path"),
        (put("/" + "x" * 1_000_000, "x"), "path"),
        (put("/\ud800", "x"), "path"),
        (put("/age", "old"), "value"),
        (put("/age", float("nan")), "value"),
        (put("/city", "\ud800"), "value"),
        (put("/city", {"name": "Rome"}), "value"),
        (put("/trips", DEEP), "value"),
        (put("/pets/Rex", "a dog"), "value"),
        (put("/pets", {"age": 3}, "add"), "value"),
        (put("/pets", [[1]], "remove"), "value"),
        (put("/allergies", [{"a": 1}], "add"), "value"),
        (put("/city", "x" * 1_000_000), "size"),
    ],
)
def test_what_does_not_hold_is_left_out_and_the_others_are_taken(operation: Any, reason: str) -> None:
    values = known(KNOWN)
    found = checked(values, put("/age", 7), operation, put("/city", "Oslo"))
    assert found.left_out == {reason: 1}
    assert {one.path: one.value for one in found.claims} == {"/age": 7, "/city": "Oslo"}


def test_a_claim_was_said_when_the_newest_trusted_message_was_and_stands_on_trusted_ones() -> None:
    values = known(KNOWN)
    (one,) = checked(values, put("/city", "Oslo", messages=[4, 1, 2, 1])).claims
    assert (one.said_at, [source.seq for source in one.sources], one.origin, one.recorded_at) == (
        400,
        [1, 4],
        "keeper",
        999,
    )
    (late,) = checked(values, put("/city", "Oslo", messages=[1, 2])).claims
    assert late.said_at == 100
    (trusted,) = checked(values, put("/city", "Oslo", messages=[2]), trust=("human", "tool", "ai")).claims
    assert [source.seq for source in trusted.sources] == [2]


def test_a_document_has_a_limit_and_one_that_is_too_large_already_may_shrink() -> None:
    values = known({"city": "x" * 500, "age": 3})
    assert checked(values, put("/home/city", "Rome"), max_bytes=100).left_out == {"size": 1}
    assert checked(values, put("/city", "Rome"), max_bytes=100).left_out == {}


# ---------------------------------------------------------------------- emptying


def test_an_answer_that_takes_more_than_half_away_says_so_and_the_same_again_says_the_same() -> None:
    values = known(KNOWN)
    all_gone = [put(f"/{name}", op="remove") for name in KNOWN]
    first = checked(values, *all_gone).emptied
    assert first
    assert checked(values, *all_gone[::-1]).emptied == first
    assert checked(values, *all_gone[1:]).emptied not in {first, ""}
    assert "Rome" not in first


# ---------------------------------------------------------------------- texts


def test_edits_of_a_text_are_claims_about_its_lines() -> None:
    found = checked(
        Values(),
        edit("- **Location**:", "- **Location**: Rome"),
        edit("- **Facts**:\n", "- **Facts**:\n- is tall\n", messages=[3]),
        form=DEFAULT,
    )
    assert {one.path: (one.value, one.said_at) for one in found.claims} == {
        "/Location": ("Rome", 100),
        "/is tall": ("is tall", 300),
    }
    now = after(Values(), found)
    assert now.render(DEFAULT) == DEFAULT.template.replace("Location**:", "Location**: Rome").replace(
        "Facts**:\n", "Facts**:\n- is tall\n"
    )
    late = checked(now, edit("is tall", "is small", messages=[1]), edit("Rome", "Oslo", messages=[4]), form=DEFAULT)
    then = after(now, late)
    assert {"/Location": "Oslo", "/is tall": "is tall"}.items() <= {
        path: one.value for path, one in then.present(DEFAULT).items()
    }.items()


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (edit("not there", "x"), "find"),
        (edit("- ", "x"), "find"),
        ({"find": "likes x"}, "operation"),
        ({"find": "likes x", "replace": 3}, "operation"),
        (edit("likes x", "\ud800"), "value"),
        (edit("likes x", "x" * 1_000_000), "size"),
    ],
)
def test_an_edit_that_does_not_hold_is_left_out(operation: dict[str, Any], reason: str) -> None:
    values = known("- likes x\n- likes y", FREE)
    found = checked(values, operation, edit("likes y", "likes z"), form=FREE)
    assert found.left_out == {reason: 1}
    assert after(values, found).render(FREE) == "- likes x\n- likes z"


# ---------------------------------------------------------------------- whatever is answered

numbers = st.lists(st.sampled_from([1, 2, 3, 4, 99]), max_size=3)
anything = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["set", "set", "add", "remove", "x"]),
        "path": st.sampled_from(
            ["/city", "/home", "/home/city", "/pets", "/pets/Rex", "/pets/Bo/age", "/allergies", "/allergies/nuts"]
        )
        | st.lists(st.sampled_from(["city", "pets", "Rex", "-", "0", "~", "", "trips"]), max_size=3).map("/".join),
        "messages": numbers,
    },
    optional={"value": json_values, "find": st.just("x"), "replace": st.just("y")},
)


@examples(300)
@given(st.lists(anything | json_values, max_size=6))
def test_any_answer_leaves_a_valid_document_and_is_counted_whole(operations: list[Any]) -> None:
    values = known(KNOWN)
    found = check(PERSON, values, operations, MESSAGES, recorded_at=999)
    text = after(values, found).render(PERSON)
    assert problems(PERSON, text) == set()
    assert sum(found.left_out.values()) <= len(operations)
    assert all(one.sources and {source.seq for source in one.sources} <= {1, 3, 4} for one in found.claims)
    again = check(PERSON, after(values, found), operations, MESSAGES, recorded_at=1000)
    assert after(after(values, found), again).render(PERSON) == text
