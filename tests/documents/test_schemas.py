"""Schemas of working memory: what a patch becomes, what is refused, and which type comes back."""

from __future__ import annotations

from datetime import date
from typing import Any, Self

import pytest
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from langchain_workingmem import WorkingMemoryOptions
from langchain_workingmem.errors import WorkingMemoryValidationError
from langchain_workingmem.working_memory.document import JsonFormat
from langchain_workingmem.working_memory.schema import schema_of, update_schema
from tests.documents.samples import Mood, Person, refused, stored, value

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


def test_an_instance_brings_only_the_fields_that_were_set() -> None:
    assert stored(Person, {"age": 3}, Person(name="Ann")) == {"name": "Ann", "age": 3}


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
    assert "nothing was changed" in str(error)


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
    assert JsonFormat(schema_of(Doubtful)).read('{"word": "  yes "}').value.word == "yes"


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


# ---------------------------------------------------------------------- Pydantic: extra


class Allowing(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str | None = None


class Forbidding(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str | None = None
    inner: Strict | None = None


def test_unknown_keys_are_kept_where_the_schema_allows_them() -> None:
    assert stored(Allowing, {"y": [1]}, {"name": "Ann", "x": {"deep": 1}}) == {
        "y": [1],
        "name": "Ann",
        "x": {"deep": 1},
    }
    assert value(Allowing, {"x": 1}).x == 1


@pytest.mark.parametrize(("patch", "field"), [({"x": 1}, "x"), ({"inner": {"x": 1}}, "inner.x")])
def test_unknown_keys_are_refused_where_the_schema_forbids_them(patch: dict[str, Any], field: str) -> None:
    assert refused(Forbidding, {"name": "Ann"}, patch).fields == (field,)


# ---------------------------------------------------------------------- Pydantic: aliases


class Aliased(BaseModel):
    first_name: str | None = Field(None, alias="firstName")


class Lenient(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    first_name: str | None = Field(None, alias="firstName")


class Chosen(BaseModel):
    first_name: str | None = Field(None, validation_alias=AliasChoices("given", "firstName"))


@pytest.mark.parametrize("schema", [Aliased, Lenient, Chosen])
def test_the_names_that_a_model_is_shown_are_those_that_an_update_takes(schema: Any) -> None:
    (name,) = update_schema(schema_of(schema).json_schema)["properties"]
    after = stored(schema, {}, {name: "Ann"})
    assert after == {name: "Ann"}
    assert value(schema, after).first_name == "Ann"


@pytest.mark.parametrize("schema", [Aliased, Lenient])
@pytest.mark.parametrize("name", ["firstName", "first_name"])
def test_an_alias_and_its_field_are_one(schema: Any, name: str) -> None:
    after = stored(schema, {"firstName": "Ann"}, {name: "Bob"})
    assert after == {"firstName": "Bob"}
    assert value(schema, after).first_name == "Bob"


# ---------------------------------------------------------------------- size


def test_a_document_that_is_too_large_is_refused_before_it_is_checked() -> None:
    checked = []

    class Slow(BaseModel):
        text: str

        @field_validator("text")
        @classmethod
        def _slowly(cls, text: str) -> str:
            checked.append(len(text))
            return text

    form = WorkingMemoryOptions(schema=Slow, max_bytes=100).format
    with pytest.raises(WorkingMemoryValidationError, match="the limit is 100"):
        form.apply("", {"text": "x" * 100}, None)
    assert checked == []
    assert form.apply("", {"text": "x"}, None)
