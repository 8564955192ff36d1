"""Paths of JSON documents: what has a name, and the order in which a document is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from langchain_workingmem._documents.formats import JsonFormat
from langchain_workingmem._documents.schemas import schema_of
from langchain_workingmem.keeping.claims import Source
from langchain_workingmem.keeping.fields import read
from langchain_workingmem.keeping.values import Values
from tests.keeping.documents import PERSON, after_write, claim, held


def paths(document: dict[str, Any], schema: Any = None) -> dict[str, Any]:
    form = PERSON if schema is None else JsonFormat(schema_of(schema))
    return read(form, json.dumps(document, ensure_ascii=False))[0]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"city": "Rome", "home": {"street": "Via"}}, {"/city": "Rome", "/home/street": "Via"}),
        ({"pets": [{"name": "Rex", "age": 3}]}, {"/pets/Rex/name": "Rex", "/pets/Rex/age": 3}),
        ({"pets": [{"name": "Rex", "tricks": ["sit"]}]}, {"/pets/Rex/name": "Rex", "/pets/Rex/tricks/sit": "sit"}),
        ({"allergies": ["nuts", "a/b~"]}, {"/allergies/nuts": "nuts", "/allergies/a~1b~0": "a/b~"}),
        ({"numbers": [1, 2]}, {"/numbers/1": 1, "/numbers/2": 2}),
        ({"friends": {"Ida": {"city": "Bonn"}}}, {"/friends/Ida/city": "Bonn"}),
        ({"home": {}, "pets": []}, {"/home": {}, "/pets": []}),
        ({"trips": [{"to": "Rome"}]}, {'/trips/{"to": "Rome"}': {"to": "Rome"}}),
        # what has no name, or not one of its own
        ({"allergies": ["nuts", "nuts"]}, {"/allergies": ["nuts", "nuts"]}),
        ({"pets": [{"age": 3}]}, {"/pets": [{"age": 3}]}),
        ({"pets": [{"name": "Rex"}, {"name": "Rex"}]}, {"/pets": [{"name": "Rex"}, {"name": "Rex"}]}),
        ({"pets": {"name": "Rex"}}, {"/pets": {"name": "Rex"}}),
    ],
)
def test_a_value_has_a_path_that_a_person_can_read(document: dict[str, Any], expected: dict[str, Any]) -> None:
    assert paths(document) == expected


def test_an_item_goes_with_its_message_also_where_nothing_names_it() -> None:
    first, second = Source("t", "m1", 1, 10), Source("t", "m2", 2, 20)
    values = after_write(PERSON, Values(), '{"trips": [{"to": "Rome"}]}', said_at=10, sources=(first,))
    values = after_write(PERSON, values, '{"trips": [{"to": "Rome"}, {"to": "Oslo"}]}', said_at=20, sources=(second,))
    assert values.without("t", ((1, 1),)).render(PERSON) == '{"trips": [{"to": "Oslo"}]}'
    assert values.without("t", ((2, 2),)).render(PERSON) == '{"trips": [{"to": "Rome"}]}'


def test_fields_have_the_order_of_the_schema_and_items_that_in_which_they_were_said() -> None:
    claims = [
        claim("/pets/Rex/age", 3, 30),
        claim("/allergies/b", "b", 10),
        claim("/allergies/a", "a", 20),
        claim("/pets/Ida/age", 1, 5),
        claim("/city", "Rome", 90),
        claim("/further", 1, 1),
    ]
    expected = {
        "city": "Rome",
        "pets": [{"name": "Ida", "age": 1}, {"name": "Rex", "age": 3}],
        "allergies": ["b", "a"],
        "further": 1,
    }
    assert held(Values(), *claims).render(PERSON) == json.dumps(expected)
    assert next(iter(held(Values(), *claims).present(PERSON))) == "/city"
