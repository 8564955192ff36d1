"""Schemas of working memory: what a patch of each kind becomes, what is refused, and which type comes back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Required, Self

import pytest
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    SecretStr,
    computed_field,
    create_model,
    field_serializer,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

from langchain_workingmem.errors import WorkingMemoryValidationError
from langchain_workingmem.text.formats import JsonFormat, Mode
from langchain_workingmem.text.schemas import schema_of, shape


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


class Home(BaseModel):
    city: str | None = None
    street: str | None = None


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int | None = None
    name: str | None = None


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: list[str] = []


class Tree(BaseModel):
    name: str | None = None
    left: Tree | None = None
    children: list[Tree] = []


class Person(BaseModel):
    name: str | None = None
    age: Annotated[int, Field(ge=0, le=150)] | None = None
    home: Home = Home()
    second_home: Home | None = None
    friends: list[Home] = []
    pet: Cat | Dog | None = None
    marked: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None
    mood: Mood | None = None
    born: date | None = None
    seen: datetime | None = None
    homes: dict[str, Home] = {}
    code: Annotated[str, Field(pattern=r"^[A-Z]{2}$")] | None = None
    id: int | str | None = None


def stored(schema: Any, current: dict[str, Any], patch: Any, mode: Mode | None = None) -> Any:
    """Give what a patch makes of a document, as JSON."""
    form = JsonFormat(schema_of(schema))
    after = form.apply(json.dumps(current) if current else "", patch, mode)
    return json.loads(after) if after else {}


def refused(schema: Any, current: dict[str, Any], patch: Any) -> WorkingMemoryValidationError:
    with pytest.raises(WorkingMemoryValidationError) as caught:
        stored(schema, current, patch)
    return caught.value


def value(schema: Any, document: dict[str, Any]) -> Any:
    return JsonFormat(schema_of(schema)).value(json.dumps(document))


# ---------------------------------------------------------------------- Pydantic: what is kept


@pytest.mark.parametrize(
    ("current", "patch", "after"),
    [
        ({"name": "Ann"}, {"age": 3}, {"name": "Ann", "age": 3}),
        ({"home": {"city": "Ulm"}}, {"home": {"street": "x"}}, {"home": {"city": "Ulm", "street": "x"}}),
        ({"home": {"city": "Ulm", "street": "x"}}, {"home": {"city": None}}, {"home": {"street": "x"}}),
        ({"second_home": {"city": "Ulm"}}, {"second_home": {"street": "x"}}, {"second_home": {"city": "Ulm", "street": "x"}}),
        ({"second_home": {"city": "Ulm"}, "age": 1}, {"second_home": None}, {"age": 1}),
        ({"friends": [{"city": "Ulm"}]}, {"friends": [{"city": "Bonn"}]}, {"friends": [{"city": "Bonn"}]}),
        ({"pet": {"kind": "cat", "lives": 9}}, {"pet": {"name": "Molly"}}, {"pet": {"kind": "cat", "lives": 9, "name": "Molly"}}),
        ({"marked": {"kind": "cat", "lives": 9}}, {"marked": {"name": "M"}}, {"marked": {"kind": "cat", "lives": 9, "name": "M"}}),
        ({"homes": {"a": {"city": "Ulm"}}}, {"homes": {"b": {"city": "Bonn"}}}, {"homes": {"a": {"city": "Ulm"}, "b": {"city": "Bonn"}}}),
        ({"homes": {"a": {"city": "Ulm"}}}, {"homes": {"a": {"street": "x"}}}, {"homes": {"a": {"city": "Ulm", "street": "x"}}}),
        ({"homes": {"a": {"city": "Ulm"}, "b": {}}}, {"homes": {"a": None}}, {"homes": {"b": {}}}),
        ({}, {"mood": "good"}, {"mood": "good"}),
        ({}, {"mood": Mood.BAD}, {"mood": "bad"}),
        ({}, {"born": "2000-02-29", "seen": "2026-01-01T10:00:00Z"}, {"born": "2000-02-29", "seen": "2026-01-01T10:00:00Z"}),
        ({}, {"born": date(2000, 2, 29)}, {"born": "2000-02-29"}),
        ({}, {"id": "7"}, {"id": "7"}),
        ({}, {"id": 7}, {"id": 7}),
    ],
    ids=[
        *["other field", "nested", "nested null", "optional nested", "optional nested null", "list of objects"],
        *["union", "discriminated union", "dict of models: new key", "dict of models: merge", "dict of models: null"],
        *["enum", "enum member", "dates", "date object", "str of int | str", "int of int | str"],
    ],
)  # fmt: skip
def test_a_merge_into_a_pydantic_document_gives(
    current: dict[str, Any], patch: dict[str, Any], after: dict[str, Any]
) -> None:
    assert stored(Person, current, patch) == after


def test_defaults_are_not_stored_as_facts() -> None:
    assert stored(Person, {}, {"name": "Ann"}) == {"name": "Ann"}


def test_an_instance_brings_only_the_fields_that_were_set() -> None:
    assert stored(Person, {"age": 3}, Person(name="Ann")) == {"name": "Ann", "age": 3}


def test_the_value_is_an_instance_of_the_users_model() -> None:
    found = value(Person, {"home": {"city": "Ulm"}, "mood": "good", "born": "2000-02-29", "pet": {"kind": "dog"}})
    assert found == Person(home=Home(city="Ulm"), mood=Mood.GOOD, born=date(2000, 2, 29), pet=Dog())
    assert isinstance(found.pet, Dog)


# ---------------------------------------------------------------------- Pydantic: what is refused


@pytest.mark.parametrize(
    ("patch", "fields"),
    [
        ({"name": 3}, {"name"}),
        ({"age": -1}, {"age"}),
        ({"age": 151}, {"age"}),
        ({"age": "old"}, {"age"}),
        ({"home": {"city": 3}}, {"home.city"}),
        ({"home": "Ulm"}, {"home"}),
        ({"friends": [{}, {"city": 3}]}, {"friends.1.city"}),
        ({"friends": {"city": "Ulm"}}, {"friends"}),
        ({"mood": "so so"}, {"mood"}),
        ({"born": "yesterday"}, {"born"}),
        ({"code": "abc"}, {"code"}),
        ({"homes": {"a": {"city": 3}}}, {"homes.a.city"}),
        ({"name": 3, "age": -1}, {"name", "age"}),
    ],
)
def test_what_does_not_fit_is_refused_with_the_name_of_the_field(patch: dict[str, Any], fields: set[str]) -> None:
    error = refused(Person, {"name": "Ann"}, patch)
    assert {name for name in fields if any(found.startswith(name) for found in error.fields)} == fields
    assert all(name in str(error) for name in fields)
    assert "not changed" in str(error)


@pytest.mark.parametrize("patch", [{"pet": {"kind": "bird"}}, {"marked": {"kind": "bird"}}, {"marked": {"lives": 3}}])
def test_what_fits_no_part_of_a_union_is_refused(patch: dict[str, Any]) -> None:
    (name,) = patch
    assert all(found.startswith(name) for found in refused(Person, {}, patch).fields)


def test_a_change_of_the_kind_in_a_union_goes_by_the_merged_document() -> None:
    after = stored(Person, {"marked": {"kind": "cat", "lives": 9}}, {"marked": {"kind": "dog", "lives": None}})
    assert after == {"marked": {"kind": "dog"}}


class Needy(BaseModel):
    name: str
    age: int = 0
    home: Home | None = None


def test_a_patch_may_leave_required_fields_out() -> None:
    assert stored(Needy, {"name": "Ann"}, {"age": 3}) == {"name": "Ann", "age": 3}


def test_the_first_update_must_bring_required_fields() -> None:
    assert refused(Needy, {}, {"age": 3}).fields == ("name",)


def test_null_cannot_delete_a_required_field() -> None:
    assert refused(Needy, {"name": "Ann", "age": 3}, {"name": None}).fields == ("name",)


class Doubtful(BaseModel):
    low: int = 0
    high: int = 10
    word: str | None = None

    @field_validator("word")
    @classmethod
    def _no_shouting(cls, word: str | None) -> str | None:
        if word and word.isupper():
            msg = "do not shout"
            raise ValueError(msg)
        return word.strip() if word else word

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            msg = "low is above high"
            raise ValueError(msg)
        return self


def test_a_model_validator_sees_the_merged_document() -> None:
    assert "low is above high" in str(refused(Doubtful, {"high": 3}, {"low": 5}))
    assert stored(Doubtful, {"high": 30}, {"low": 15}) == {"high": 30, "low": 15}


def test_a_field_validator_refuses_and_normalises() -> None:
    error = refused(Doubtful, {}, {"word": "NO"})
    assert error.fields == ("word",)
    assert "do not shout" in str(error)
    # what was sent is stored, and normalised whenever it is read
    assert stored(Doubtful, {}, {"word": "  yes "}) == {"word": "  yes "}
    assert JsonFormat(schema_of(Doubtful)).value('{"word": "  yes "}').word == "yes"


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    name: str | None = None
    born: date | None = None
    mood: Mood | None = None
    sizes: tuple[int, int] | None = None
    names: set[str] = set()


def test_a_strict_model_takes_dates_enums_tuples_and_sets_as_json_has_them() -> None:
    patch = {"born": "2000-01-01", "mood": "good", "sizes": [1, 2], "names": ["a"]}
    assert stored(Strict, {}, patch) == patch
    assert value(Strict, patch) == Strict(born=date(2000, 1, 1), mood=Mood.GOOD, sizes=(1, 2), names={"a"})


def test_a_strict_model_takes_no_number_for_text() -> None:
    assert refused(Strict, {}, {"name": 3}).fields == ("name",)


# ---------------------------------------------------------------------- Pydantic: extra


class Ignoring(BaseModel):
    name: str | None = None
    home: Home | None = None


class Allowing(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str | None = None


class Forbidding(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str | None = None
    inner: Strict | None = None


def test_unknown_keys_are_dropped_where_the_schema_ignores_them() -> None:
    assert stored(Ignoring, {}, {"name": "Ann", "x": 1, "home": {"city": "Ulm", "y": 2}}) == {
        "name": "Ann",
        "home": {"city": "Ulm"},
    }


def test_unknown_keys_are_kept_where_the_schema_allows_them() -> None:
    assert stored(Allowing, {"y": [1]}, {"name": "Ann", "x": {"deep": 1}}) == {
        "y": [1],
        "name": "Ann",
        "x": {"deep": 1},
    }
    assert value(Allowing, {"x": 1}).x == 1


def test_null_deletes_an_unknown_key_where_the_schema_allows_them() -> None:
    assert stored(Allowing, {"x": 1, "name": "Ann"}, {"x": None}) == {"name": "Ann"}


@pytest.mark.parametrize(("patch", "field"), [({"x": 1}, "x"), ({"inner": {"x": 1}}, "inner.x")])
def test_unknown_keys_are_refused_where_the_schema_forbids_them(patch: dict[str, Any], field: str) -> None:
    assert refused(Forbidding, {"name": "Ann"}, patch).fields == (field,)


def test_an_unknown_null_is_refused_too_where_the_schema_forbids_it() -> None:
    assert refused(Forbidding, {"name": "Ann"}, {"x": None, "name": "Bob"}).fields == ("x",)


# ---------------------------------------------------------------------- Pydantic: aliases


class Aliased(BaseModel):
    first_name: str | None = Field(None, alias="firstName")


class Lenient(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    first_name: str | None = Field(None, alias="firstName")


class TwoNames(BaseModel):
    first_name: str | None = Field(None, validation_alias="inName", serialization_alias="outName")


@pytest.mark.parametrize("schema", [Aliased, Lenient])
@pytest.mark.parametrize("name", ["firstName", "first_name"])
def test_an_alias_and_its_field_are_one(schema: Any, name: str) -> None:
    after = stored(schema, {"firstName": "Ann"}, {name: "Bob"})
    assert after == {"firstName": "Bob"}
    assert value(schema, after).first_name == "Bob"


def test_an_instance_with_aliases_is_merged() -> None:
    assert stored(Aliased, {"firstName": "Ann"}, Aliased(firstName="Bob")) == {"firstName": "Bob"}


def test_names_for_reading_and_writing_may_differ() -> None:
    after = stored(TwoNames, {}, {"inName": "Ann"})
    assert value(TwoNames, after).first_name == "Ann"
    assert value(TwoNames, stored(TwoNames, after, {"inName": "Bob"})).first_name == "Bob"


class Node(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    node_name: str | None = Field(None, alias="nodeName")
    next_node: Node | None = Field(None, alias="nextNode")


def test_a_field_name_deep_in_a_recursive_model_means_its_alias() -> None:
    current = {"nextNode": {"nextNode": {"nodeName": "old"}}}
    after = stored(Node, current, {"next_node": {"next_node": {"node_name": "new"}}})
    assert after == {"nextNode": {"nextNode": {"nodeName": "new"}}}


def test_one_of_several_names_for_reading_is_kept() -> None:
    fields: dict[str, Any] = {"name": (str | None, Field(None, validation_alias=AliasChoices("name", "fullName")))}
    schema = create_model("Choices", **fields)
    assert value(schema, stored(schema, {}, {"fullName": "Ann"})).name == "Ann"


# ---------------------------------------------------------------------- Pydantic: other shapes


def test_a_recursive_model_is_merged_at_every_depth() -> None:
    current = {"name": "a", "left": {"name": "b", "left": {"name": "c", "left": {"name": "d"}}}}
    after = stored(Tree, current, {"left": {"left": {"left": {"children": [{"name": "e"}]}}}})
    assert after["left"]["left"]["left"] == {"name": "d", "children": [{"name": "e"}]}
    assert value(Tree, after).left.left.left.children[0].name == "e"


def test_a_wrong_value_deep_in_a_recursive_model_is_refused() -> None:
    assert refused(Tree, {}, {"left": {"left": {"left": {"name": 3}}}}).fields == ("left.left.left.name",)


def test_a_root_model_of_a_mapping_is_merged() -> None:
    schema = RootModel[dict[str, Home]]
    after = stored(schema, {"a": {"city": "Ulm"}}, {"a": {"street": "x"}, "b": {}})
    assert after == {"a": {"city": "Ulm", "street": "x"}, "b": {}}
    assert value(schema, after).root["a"] == Home(city="Ulm", street="x")
    assert refused(schema, {}, {"a": {"city": 3}}).fields == ("a.city",)


class Fixed(BaseModel):
    model_config = ConfigDict(frozen=True)
    name: str | None = None
    city: str | None = None


def test_a_frozen_model_is_merged() -> None:
    assert stored(Fixed, {"name": "a"}, {"city": "b"}) == {"name": "a", "city": "b"}


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


@dataclass
class Wheel:
    size: int
    kind: str = "steel"


class Cart(BaseModel):
    wheel: Wheel | None = None
    wheels: list[Wheel] = []


@pytest.mark.parametrize("patch", [{"wheel": {"size": 3}}, {"wheels": [{"size": 3}]}], ids=min)
def test_defaults_of_a_dataclass_inside_a_model_are_not_stored(patch: dict[str, Any]) -> None:
    assert stored(Cart, {}, patch) == patch


class Wrapped(BaseModel):
    described: Annotated[Needy, Field(description="x")] | None = None
    outside: Annotated[Needy | None, Field(description="x")] = None
    either: Needy | str | None = None
    by_name: dict[str, Needy] = {}
    maybe_by_name: dict[str, Needy] | None = None
    mapping: Mapping[str, Needy] = {}


@pytest.mark.parametrize("name", ["described", "outside", "either"])
def test_a_patch_of_a_model_may_leave_out_what_it_requires_however_it_is_wrapped(name: str) -> None:
    assert stored(Wrapped, {name: {"name": "Ann"}}, {name: {"age": 3}}) == {name: {"name": "Ann", "age": 3}}


@pytest.mark.parametrize("name", ["by_name", "maybe_by_name", "mapping"])
def test_a_patch_of_a_mapping_of_models_may_leave_out_what_they_require(name: str) -> None:
    after = stored(Wrapped, {name: {"a": {"name": "Ann"}}}, {name: {"a": {"age": 3}}})
    assert after == {name: {"a": {"name": "Ann", "age": 3}}}


@pytest.mark.parametrize("name", ["by_name", "maybe_by_name", "mapping"])
def test_null_deletes_a_key_of_a_mapping_of_models(name: str) -> None:
    current = {name: {"a": {"name": "Ann"}, "b": {"name": "Bob"}}}
    assert stored(Wrapped, current, {name: {"a": None}}) == {name: {"b": {"name": "Bob"}}}


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


class Ship(BaseModel):
    sails: int
    name: str | None = None


class Train(BaseModel):
    wagons: int
    name: str | None = None


class Journey(BaseModel):
    by: Ship | Train | None = None


def test_a_patch_of_a_union_need_not_repeat_what_its_model_requires() -> None:
    assert stored(Journey, {"by": {"wagons": 3}}, {"by": {"name": "Orient"}}) == {"by": {"wagons": 3, "name": "Orient"}}


def test_a_union_may_turn_into_its_other_model() -> None:
    after = stored(Journey, {"by": {"wagons": 3}}, {"by": {"sails": 2, "wagons": None}})
    assert after == {"by": {"sails": 2}}


# ---------------------------------------------------------------------- TypedDict


class Place(TypedDict, total=False):
    city: str
    street: str


class Traveller(TypedDict):
    name: Required[str]
    age: NotRequired[Annotated[int, Field(ge=0)]]
    home: NotRequired[Place]
    trips: NotRequired[list[Place]]


@pytest.mark.parametrize(
    ("current", "patch", "after"),
    [
        ({}, {"city": "Ulm"}, {"city": "Ulm"}),
        ({"city": "Ulm"}, {"street": "x"}, {"city": "Ulm", "street": "x"}),
        ({"city": "Ulm", "street": "x"}, {"city": None}, {"street": "x"}),
    ],
)
def test_a_typed_dict_whose_keys_may_be_absent_is_merged(current: Any, patch: Any, after: Any) -> None:
    assert stored(Place, current, patch) == after


def test_a_nested_typed_dict_is_merged() -> None:
    current = {"name": "Ann", "home": {"city": "Ulm"}, "trips": [{"city": "Rome"}]}
    after = stored(Traveller, current, {"home": {"street": "x"}, "age": 3, "trips": []})
    assert after == {"name": "Ann", "age": 3, "home": {"city": "Ulm", "street": "x"}, "trips": []}
    assert value(Traveller, after) == after


@pytest.mark.parametrize(
    ("patch", "field"),
    [({"name": None, "age": 1}, "name"), ({"age": -1}, "age"), ({"home": {"city": 3}}, "home.city")],
)
def test_a_typed_dict_refuses_what_does_not_fit(patch: Any, field: str) -> None:
    assert refused(Traveller, {"name": "Ann"}, patch).fields == (field,)


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


def test_defaults_inside_lists_of_dataclasses_are_not_stored() -> None:
    assert stored(Garage, {}, {"engines": [{"power": 3}]}) == {"engines": [{"power": 3}]}


@dataclass
class Garage:
    engines: list[Engine] = field(default_factory=list)


def test_an_instance_of_a_dataclass_replaces_the_document() -> None:
    after = stored(Car, {"brand": "Skoda", "doors": 2}, Car("Tatra", owners=["Ann"]), "replace")
    assert value(Car, after) == Car("Tatra", owners=["Ann"])


@pytest.mark.parametrize(
    ("patch", "field"),
    [({"brand": None, "doors": 1}, "brand"), ({"doors": "x"}, "doors"), ({"engine": {"power": "x"}}, "engine.power")],
)
def test_a_dataclass_refuses_what_does_not_fit(patch: Any, field: str) -> None:
    assert refused(Car, {"brand": "Tatra"}, patch).fields == (field,)


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


def test_a_json_schema_names_the_required_field_that_is_missing() -> None:
    assert "name" in refused(JSON, {}, {"tags": []}).fields[0] + str(refused(JSON, {}, {"tags": []}))


def test_the_users_json_schema_stays_as_it_was() -> None:
    before = json.dumps(JSON)
    schema = schema_of(JSON)
    assert "required" not in shape(schema.json_schema, nullable=True)
    schema.patch({"name": "Ann"})
    assert json.dumps(JSON) == before
