"""Schemas of working memory: what a patch becomes, what is refused, and which type comes back."""

from __future__ import annotations

from datetime import date
from typing import Any, Self

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    model_validator,
)

from tests.documents.samples import Mood, Person, refused, stored

# ---------------------------------------------------------------------- Pydantic: what is kept


@pytest.mark.parametrize(
    ("current", "patch", "after"),
    [
        ({"home": {"city": "Ulm"}}, {"home": {"street": "x"}}, {"home": {"city": "Ulm", "street": "x"}}),
        ({"home": {"city": "Ulm", "street": "x"}}, {"home": {"city": None}}, {"home": {"street": "x"}}),
        ({"second_home": {"city": "Ulm"}, "age": 1}, {"second_home": None}, {"age": 1}),
        ({"friends": [{"city": "Ulm"}]}, {"friends": [{"city": "Bonn"}]}, {"friends": [{"city": "Bonn"}]}),
        ({"pet": {"kind": "cat", "lives": 9}}, {"pet": {"name": "Molly"}}, {"pet": {"kind": "cat", "lives": 9, "name": "Molly"}}),
        ({"marked": {"kind": "cat", "lives": 9}}, {"marked": {"name": "M"}}, {"marked": {"kind": "cat", "lives": 9, "name": "M"}}),
        ({"homes": {"a": {"city": "Ulm"}}}, {"homes": {"a": {"street": "x"}}}, {"homes": {"a": {"city": "Ulm", "street": "x"}}}),
        ({"homes": {"a": {"city": "Ulm"}, "b": {}}}, {"homes": {"a": None}}, {"homes": {"b": {}}}),
        ({}, {"mood": Mood.BAD}, {"mood": "bad"}),
        ({}, {"born": "2000-02-29", "seen": "2026-01-01T10:00:00Z"}, {"born": "2000-02-29", "seen": "2026-01-01T10:00:00Z"}),
        ({}, {"born": date(2000, 2, 29)}, {"born": "2000-02-29"}),
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
        ({"home": {"city": 3}}, {"home.city"}),
        ({"friends": [{}, {"city": 3}]}, {"friends.1.city"}),
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

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            msg = "low is above high"
            raise ValueError(msg)
        return self


def test_a_model_validator_sees_the_merged_document() -> None:
    assert "low is above high" in str(refused(Doubtful, {"high": 3}, {"low": 5}))
    assert stored(Doubtful, {"high": 30}, {"low": 15}) == {"high": 30, "low": 15}


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    name: str | None = None
    born: date | None = None
    mood: Mood | None = None
    sizes: tuple[int, int] | None = None
    names: set[str] = set()


# ---------------------------------------------------------------------- Pydantic: extra


class Forbidding(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str | None = None
    inner: Strict | None = None


@pytest.mark.parametrize(("patch", "field"), [({"x": 1}, "x"), ({"inner": {"x": 1}}, "inner.x")])
def test_unknown_keys_are_refused_where_the_schema_forbids_them(patch: dict[str, Any], field: str) -> None:
    assert refused(Forbidding, {"name": "Ann"}, patch).fields == (field,)
