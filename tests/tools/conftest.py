"""Fixtures that several files here need."""

from __future__ import annotations

import pytest

from langchain_workingmem import Memory
from tests.helpers.types import Make
from tests.tools.samples import TEMPLATE, Person
from tests.working_memory.samples import with_memory


@pytest.fixture
def person(make_memory: Make) -> Memory:
    return with_memory(make_memory, schema=Person)


@pytest.fixture
def markdown(make_memory: Make) -> Memory:
    return with_memory(make_memory, template=TEMPLATE)
