"""Updates that are instances: the fields that were set, and those that tell which kind of a union an object is."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from langchain_workingmem.working_memory.document import JsonFormat
from langchain_workingmem.working_memory.schema import schema_of


class Car(BaseModel):
    kind: Literal["car"] = "car"
    doors: int = 4


class Bike(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    kind: Literal["bike"] = "bike"
    gears: int = Field(default=1, alias="n")


@dataclasses.dataclass
class Cat:
    kind: Literal["cat"] = "cat"


@dataclasses.dataclass
class Dog:
    kind: Literal["dog"] = "dog"


class Owner(BaseModel):
    name: str | None = None
    vehicle: Annotated[Car | Bike, Field(discriminator="kind")] | None = None
    fleet: list[Car | Bike] = []
    pet: Cat | Dog | None = None


@pytest.mark.parametrize(
    ("owner", "stored"),
    [
        (Owner(vehicle=Car(doors=3)), {"vehicle": {"kind": "car", "doors": 3}}),
        (Owner(fleet=[Bike(n=2), Car()]), {"fleet": [{"kind": "bike", "n": 2}, {"kind": "car"}]}),
        (Owner(pet=Dog()), {"pet": {"kind": "dog"}}),
    ],
    ids=["a field", "a list, and an alias", "dataclasses"],
)
def test_an_instance_keeps_the_tag_of_a_union(owner: Owner, stored: Any) -> None:
    form = JsonFormat(schema_of(Owner))
    document = form.apply('{"name": "Ann"}', owner, None)
    assert form.read(document).value == owner.model_copy(update={"name": "Ann"})
    assert document == form.apply('{"name": "Ann"}', stored, None)
