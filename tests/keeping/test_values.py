"""A working memory as values by path, and back: what is left when values go, and where one does not fit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from langchain_workingmem.keeping.values import Leaf, leaves, with_values
from langchain_workingmem.working_memory.document import JsonFormat, TextFormat
from langchain_workingmem.working_memory.schema import schema_of

TEXT: Any = {"type": "string"}
HOME: Any = {"type": "object", "properties": {"city": TEXT, "zip": TEXT}}
PETS: Any = {"type": "array", "items": TEXT}
SCHEMA: Any = {"type": "object", "properties": {"name": TEXT, "home": HOME, "pets": PETS, "a~1/b": TEXT}}
WHOLE = {"name": "Ann", "home": {"city": "Oslo", "zip": "1"}, "pets": ["cat", "dog"], "a~1/b": "x"}
GONE = Leaf(None)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"/pets/cat": GONE}, WHOLE | {"pets": ["dog"]}),
        ({"/pets/cat": GONE, "/pets/dog": GONE}, {name: WHOLE[name] for name in ("name", "home", "a~1/b")}),
        ({"/home/city": GONE}, WHOLE | {"home": {"zip": "1"}}),
        ({"/home/city": GONE, "/home/zip": GONE}, {name: WHOLE[name] for name in ("name", "pets", "a~1/b")}),
        ({"/a~01~1b": GONE}, {name: WHOLE[name] for name in ("name", "home", "pets")}),
        ({"/pets/fish": GONE, "/home/land": GONE, "/pets/cat/x": GONE, "/name/x": GONE}, WHOLE),
        ({"/pets/fish": Leaf("fish", is_item=True)}, WHOLE | {"pets": ["cat", "dog", "fish"]}),
        ({"/pets/cat": Leaf("cat", is_item=True)}, WHOLE),
        ({"/name": Leaf("Bo"), "/home/city": Leaf(5)}, WHOLE | {"name": "Bo"}),  # a number is no text
        ({"/name": Leaf("Bo"), "/name/first": Leaf("B")}, WHOLE | {"name": "Bo"}),  # no object is there
        ({"/name": Leaf("Bo"), "/home/x": Leaf("B", is_item=True)}, WHOLE | {"name": "Bo"}),  # nor a list
    ],
)
def test_values_of_a_schema(wanted: dict[str, Leaf], expected: dict[str, Any]) -> None:
    form = JsonFormat(schema_of(SCHEMA))
    after = with_values(form, json.dumps(WHOLE), wanted)
    assert json.loads(after) == expected
    # what is told of a document makes it again
    assert json.loads(with_values(form, "", leaves(form, after))) == expected


def test_what_does_not_fit_without_a_value_goes_with_it() -> None:
    form = JsonFormat(
        schema_of(SCHEMA | {"properties": SCHEMA["properties"] | {"home": HOME | {"required": ["city"]}}})
    )
    after = with_values(form, json.dumps(WHOLE), {"/home/city": GONE})
    assert json.loads(after) == {name: WHOLE[name] for name in ("name", "pets", "a~1/b")}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"/Name": GONE}, "# About\n- **Name**:\n- **City**: Oslo\nlikes tea\n"),
        ({"/Name": Leaf("Bo"), "/likes tea": GONE}, "# About\n- **Name**: Bo\n- **City**: Oslo\n"),
        ({"/has a dog": Leaf("has a dog")}, "# About\n- **Name**: Ann\n- **City**: Oslo\nlikes tea\nhas a dog\n"),
    ],
)
def test_values_of_a_template(wanted: dict[str, Leaf], expected: str) -> None:
    form = TextFormat("# About\n- **Name**:\n- **City**:\n")
    assert with_values(form, "# About\n- **Name**: Ann\n- **City**: Oslo\nlikes tea\n", wanted) == expected
