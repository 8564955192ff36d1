"""Updates that are instances: the fields that were set are stored, under the names by which the schema reads them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from langchain_workingmem.errors import WorkingMemoryValidationError
from langchain_workingmem.working_memory.document import JsonFormat
from langchain_workingmem.working_memory.schema import schema_of


class Car(BaseModel):
    kind: Literal["car"] = "car"
    doors: int = 4


class Bike(BaseModel):
    kind: Literal["bike"] = "bike"
    gears: int = Field(default=1, alias="n")


class Owner(BaseModel):
    name: str | None = None
    vehicle: Annotated[Car | Bike, Field(discriminator="kind")] | None = None
    rides: dict[str, Bike] = {}


@pytest.mark.parametrize(
    ("update", "stored"),
    [
        (Owner(vehicle=Car(kind="car", doors=3)), {"vehicle": {"kind": "car", "doors": 3}}),
        (Owner(rides={"old": Bike(n=2)}), {"rides": {"old": {"n": 2}}}),
        ({"rides": {"old": Bike(n=2)}}, {"rides": {"old": {"n": 2}}}),
    ],
    ids=["a field", "an alias", "inside a dict"],
)
def test_an_instance_brings_what_was_set(update: Any, stored: Any) -> None:
    form = JsonFormat(schema_of(Owner))
    document = form.apply('{"name": "Ann"}', update, None)
    assert form.read(document).value == Owner.model_validate({"name": "Ann", **stored})
    assert document == form.apply('{"name": "Ann"}', stored, None)


def test_a_tag_of_a_union_that_was_not_set_is_asked_for() -> None:
    with pytest.raises(
        WorkingMemoryValidationError, match=r"vehicle: Unable to extract tag using discriminator 'kind'"
    ):
        JsonFormat(schema_of(Owner)).apply("", Owner(vehicle=Car(doors=3)), None)
