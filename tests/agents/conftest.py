"""Fixtures that several files here need."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from langchain_workingmem import Memory
from tests.agents.tools_samples import TEMPLATE, Invoke, Make, Person, with_memory


@pytest.fixture
def invoke(face: str, loop_runner: asyncio.Runner) -> Invoke:
    """Call a tool, an agent or a graph by `invoke` or by `ainvoke`."""

    def call(target: Any, *arguments: Any, **more: Any) -> Any:
        if face == "sync":
            return target.invoke(*arguments, **more)
        return loop_runner.run(target.ainvoke(*arguments, **more))

    return call


@pytest.fixture
def person(make_memory: Make) -> Memory:
    return with_memory(make_memory, schema=Person)


@pytest.fixture
def markdown(make_memory: Make) -> Memory:
    return with_memory(make_memory, template=TEMPLATE)
