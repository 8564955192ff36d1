"""What the tests of working memory on a server share."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from langchain_workingmem import Memory, WorkingMemoryOptions, WorkingMemoryState
from tests.helpers.types import Make


class Home(BaseModel):
    city: str | None = None
    street: str | None = None


class Person(BaseModel):
    name: str | None = None
    age: int | None = Field(default=None, ge=0)
    home: Home | None = None
    facts: dict[str, Any] = {}


def with_memory(make: Make, **options: Any) -> Memory:
    return make(working_memory=WorkingMemoryOptions(**options))


def texts(states: list[WorkingMemoryState]) -> list[str]:
    return [state.text for state in states]
