"""Schemas of working memory of every kind: special shapes of models, typed dicts, dataclasses, JSON schemas."""

from __future__ import annotations

import json
import sys
import typing
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, NotRequired, Required

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, SecretStr, computed_field, create_model, field_serializer
from typing_extensions import TypedDict

from langchain_workingmem import OptionError
from langchain_workingmem._documents.schemas import schema_of, shape
from tests.documents.samples import Home, Tree, refused, stored, value

# ---------------------------------------------------------------------- Pydantic: other shapes


def test_a_recursive_model_is_merged_at_every_depth() -> None:
    current = {"name": "a", "left": {"name": "b", "left": {"name": "c", "left": {"name": "d"}}}}
    after = stored(Tree, current, {"left": {"left": {"left": {"children": [{"name": "e"}]}}}})
    assert after["left"]["left"]["left"] == {"name": "d", "children": [{"name": "e"}]}
    assert value(Tree, after).left.left.left.children[0].name == "e"


def test_a_root_model_of_a_mapping_is_merged() -> None:
    schema = RootModel[dict[str, Home]]
    after = stored(schema, {"a": {"city": "Ulm"}}, {"a": {"street": "x"}, "b": {}})
    assert after == {"a": {"city": "Ulm", "street": "x"}, "b": {}}
    assert value(schema, after).root["a"] == Home(city="Ulm", street="x")
    assert refused(schema, {}, {"a": {"city": 3}}).fields == ("a.city",)


@pytest.mark.filterwarnings("ignore:Field name")  # Pydantic's, about what the user does
@pytest.mark.parametrize("name", ["copy", "schema", "json", "dict", "validate", "construct", "self", "cls", "config"])
def test_a_field_may_be_named_like_a_method_of_pydantic(name: str) -> None:
    fields: dict[str, Any] = {name: (str | None, None), "other": (int | None, None)}
    assert stored(create_model("Odd", **fields), {"other": 1}, {name: "b"}) == {"other": 1, name: "b"}


class Computing(BaseModel):
    model_config = ConfigDict(extra="forbid")
    first: str | None = None
    last: str | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def full(self) -> str:
        return f"{self.first} {self.last}"


def test_what_a_model_computes_is_not_stored() -> None:
    after = stored(Computing, {}, {"first": "Ann"})
    assert after == {"first": "Ann"}
    assert stored(Computing, after, {"last": "Lee"}) == {"first": "Ann", "last": "Lee"}


class Keeper(BaseModel):
    pin: SecretStr | None = None
    day: date | None = None
    hidden: str | None = Field(None, exclude=True)

    @field_serializer("day")
    def _as_germans_write(self, day: date | None) -> str | None:
        return f"{day:%d.%m.%Y}" if day else None


@pytest.mark.parametrize("patch", [{"pin": "1234"}, {"day": "2000-02-29"}, {"hidden": "x"}], ids=min)
def test_how_a_model_shows_itself_does_not_change_what_is_stored(patch: dict[str, Any]) -> None:
    assert stored(Keeper, {}, patch) == patch


class ByNameOnly(BaseModel):
    model_config = ConfigDict(validate_by_alias=False, validate_by_name=True)
    first_name: str | None = Field(None, alias="firstName")


def test_a_model_that_reads_names_only_loses_nothing() -> None:
    after = stored(ByNameOnly, {}, {"first_name": "Ann"})
    assert value(ByNameOnly, after).first_name == "Ann"


@dataclass
class Dated:
    born: date | None = None
    home: Home | None = None


@pytest.mark.parametrize(
    "content", [Dated(born=date(2000, 2, 29)), Dated(home=Home(city="Ulm"))], ids=["date", "model"]
)
def test_an_instance_of_a_dataclass_may_hold_what_its_schema_allows(content: Dated) -> None:
    assert value(Dated, stored(Dated, {}, content)) == content


def test_an_instance_of_a_dataclass_brings_no_defaults_into_a_merge() -> None:
    after = stored(Car, {"brand": "Tatra", "doors": 2, "engine": {"power": 3}}, Car("Tatra", owners=["Ann"]))
    assert after == {"brand": "Tatra", "doors": 2, "engine": {"power": 3}, "owners": ["Ann"]}


# ---------------------------------------------------------------------- TypedDict


class OldPlace(typing.TypedDict):
    city: str


@dataclass
class OldTraveller:
    home: OldPlace


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Pydantic takes both kinds")
@pytest.mark.parametrize("schema", [OldPlace, OldTraveller])
def test_a_typed_dict_of_typing_is_refused_with_where_to_take_it_from(schema: Any) -> None:
    with pytest.raises(OptionError, match=r"below Python 3\.12: from typing_extensions import TypedDict$"):
        schema_of(schema)


class Place(TypedDict, total=False):
    city: str
    street: str


class Traveller(TypedDict):
    name: Required[str]
    age: NotRequired[Annotated[int, Field(ge=0)]]
    home: NotRequired[Place]
    trips: NotRequired[list[Place]]


def test_a_nested_typed_dict_is_merged() -> None:
    current = {"name": "Ann", "home": {"city": "Ulm"}, "trips": [{"city": "Rome"}]}
    after = stored(Traveller, current, {"home": {"street": "x"}, "age": 3, "trips": []})
    assert after == {"name": "Ann", "age": 3, "home": {"city": "Ulm", "street": "x"}, "trips": []}
    assert value(Traveller, after) == after


# ---------------------------------------------------------------------- dataclass


@dataclass
class Engine:
    power: int
    fuel: str = "petrol"


@dataclass
class Car:
    brand: str
    doors: int = 4
    engine: Engine | None = None
    owners: list[str] = field(default_factory=list)


def test_a_dataclass_is_merged_and_defaults_are_not_stored() -> None:
    after = stored(Car, {"brand": "Tatra", "engine": {"power": 50}}, {"engine": {"fuel": "diesel"}})
    assert after == {"brand": "Tatra", "engine": {"power": 50, "fuel": "diesel"}}
    assert value(Car, after) == Car("Tatra", engine=Engine(50, "diesel"))


# ---------------------------------------------------------------------- JSON schema

JSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "born": {"type": "string", "format": "date"},
        "mail": {"type": "string", "format": "email"},
        "home": {"$ref": "#/$defs/home"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {
        "home": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "zip": {"type": "string"}},
            "required": ["city"],
        }
    },
}


def test_a_document_along_a_json_schema_is_merged() -> None:
    current = {"name": "Ann", "home": {"city": "Ulm", "zip": "1"}, "tags": ["a"]}
    after = stored(JSON, current, {"home": {"zip": None}, "tags": ["b"]})
    assert after == {"name": "Ann", "home": {"city": "Ulm"}, "tags": ["b"]}
    assert value(JSON, after) == after


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"name": None, "tags": []}, "name"),
        ({"home": {"city": None}}, "home"),
        ({"home": {"city": 3}}, "home.city"),
        ({"born": "yesterday"}, "born"),
        ({"mail": "nobody"}, "mail"),
        ({"tags": ["a", 1]}, "tags[1]"),
        ({"x": 1}, "x"),
    ],
)
def test_a_json_schema_refuses_what_does_not_fit_and_names_it(patch: Any, words: str) -> None:
    assert words in str(refused(JSON, {"name": "Ann", "home": {"city": "Ulm"}}, patch))


def test_the_users_json_schema_stays_as_it_was() -> None:
    before = json.dumps(JSON)
    schema = schema_of(JSON)
    assert "required" not in shape(schema.json_schema, nullable=True)
    schema.patch({"name": "Ann"})
    assert json.dumps(JSON) == before
