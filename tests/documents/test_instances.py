"""Updates that are instances: the fields that were set, and those that tell which kind of a union an object is."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Discriminator, Field, RootModel

from langchain_workingmem._documents.formats import JsonFormat
from langchain_workingmem._documents.schemas import schema_of
from tests.helpers.types import Make
from tests.tools.samples import known, update_tool, with_memory


class Car(BaseModel):
    kind: Literal["car", "van"] = "car"  # more than one value: only the union says that it is a tag
    doors: int = 4
    size: Literal["small", "large"] = "small"


class Bike(BaseModel):
    kind: Literal["bike"] = "bike"
    gears: int = 1


Vehicle = Annotated[Car | Bike, Field(discriminator="kind")]


class Paper(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    kind: Literal["paper"] = Field(default="paper", alias="type")
    pages: int = Field(default=1, alias="n")


class Film(BaseModel):
    kind: Literal["film"] = Field(default="film", alias="type")


class Works(RootModel[list[Annotated[Paper | Film, Field(discriminator="kind")]]]):
    pass


@dataclasses.dataclass
class Cat:
    kind: Literal["cat"] = "cat"
    lives: int = 9


@dataclasses.dataclass
class Dog:
    kind: Literal["dog"] = "dog"


class Owner(BaseModel):
    name: str | None = None
    vehicle: Vehicle | None = None
    at_once: Car | Bike | None = Field(default=None, discriminator="kind")
    fleet: list[Vehicle] = []
    by_place: dict[str, list[Annotated[Car | Bike, Discriminator("kind")]]] = {}
    works: Works | None = None
    pet: Cat | Dog | None = None


OWNERS = {
    "a field": (Owner(vehicle=Car(doors=3)), {"vehicle": {"kind": "car", "doors": 3}}),
    "a field that names the tag itself": (Owner(at_once=Bike()), {"at_once": {"kind": "bike"}}),
    "a list": (Owner(fleet=[Bike(), Car()]), {"fleet": [{"kind": "bike"}, {"kind": "car"}]}),
    "a list in a dict": (Owner(by_place={"Ulm": [Car(), Bike(gears=2)]}), None),
    "aliases, in a root model": (
        Owner(works=Works([Paper(n=3), Film()])),
        {"works": [{"type": "paper", "n": 3}, {"type": "film"}]},
    ),
    "dataclasses": (Owner(pet=Dog()), {"pet": {"kind": "dog"}}),
}


@pytest.mark.parametrize(("owner", "stored"), OWNERS.values(), ids=OWNERS)
def test_an_instance_keeps_the_tag_of_a_union(owner: Owner, stored: Any) -> None:
    form = JsonFormat(schema_of(Owner))
    document = form.apply('{"name": "Ann"}', owner, None)
    assert form.value(document) == owner.model_copy(update={"name": "Ann"})
    if stored:
        assert document == form.apply('{"name": "Ann"}', stored, None)


def test_a_default_that_is_no_tag_is_not_stored_over_a_value(make_memory: Make) -> None:
    memory = with_memory(make_memory, schema=Owner)
    facts = memory.working_memory
    facts.update(Owner(vehicle=Car(kind="van", size="large", doors=2)), resource_id="ann")
    facts.update(Owner(vehicle=Car(kind="van", doors=5)), resource_id="ann")
    assert known(memory) == {"vehicle": {"kind": "van", "size": "large", "doors": 5}}
    facts.update(Owner(vehicle=Bike()), resource_id="ann")  # another kind takes its place
    assert known(memory) == {"vehicle": {"kind": "bike"}}


def test_the_tool_changes_what_an_instance_has_stored(make_memory: Make) -> None:
    memory = with_memory(make_memory, schema=Owner)
    memory.working_memory.update(Owner(vehicle=Car(), fleet=[Bike()]), resource_id="ann")
    update = update_tool(memory)
    update.invoke({"memory": {"vehicle": {"doors": 5}}})
    update.invoke({"memory": {"fleet": [{"kind": "bike", "gears": 8}, {"kind": "car"}]}})
    assert known(memory) == {
        "vehicle": {"kind": "car", "doors": 5},
        "fleet": [{"kind": "bike", "gears": 8}, {"kind": "car"}],
    }
    assert "kind" in update.invoke({"memory": {"at_once": {"gears": 2}}})  # the answer names the tag that is missing
