"""Schemas that the tests of schemas share, and what becomes of a patch."""

from __future__ import annotations

import json
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from langchain_workingmem.errors import WorkingMemoryValidationError
from langchain_workingmem.working_memory.document import JsonFormat, Mode
from langchain_workingmem.working_memory.schema import schema_of


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
    return JsonFormat(schema_of(schema)).read(json.dumps(document)).value
