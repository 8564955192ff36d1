"""Fixtures that several files here need."""

from __future__ import annotations

import pytest

from langchain_workingmem import Memory
from tests.helpers.types import Make
from tests.working_memory.samples import Person, with_memory


@pytest.fixture
def person(make_memory: Make) -> Memory:
    return with_memory(make_memory, schema=Person)


@pytest.fixture
def notes(make_memory: Make) -> Memory:
    """Free text, one for each thread."""
    return with_memory(make_memory, template="", scope="thread")


@pytest.fixture
def shared(make_memory: Make) -> Memory:
    """Free text, one for each user."""
    return with_memory(make_memory, template="")
