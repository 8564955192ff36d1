"""Fixtures that several files here need."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import HistoryOptions, Memory, RecallOptions, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.agents.models import Bench
from tests.agents.nodes_samples import Recording
from tests.agents.tools_samples import TEMPLATE, Invoke, Make, Person, with_memory
from tests.conftest import WordEmbeddings


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


@pytest.fixture
def bench(server: EmbeddedRedis, prefix: str, face: str, loop_runner: asyncio.Runner) -> Iterator[Bench]:
    bench = Bench(server.url, prefix, face, loop_runner)
    yield bench
    bench.close()


@pytest.fixture(params=["checkpointer", "no checkpointer"])
def saver(request: pytest.FixtureRequest) -> InMemorySaver | None:
    return InMemorySaver() if request.param == "checkpointer" else None


@pytest.fixture
def model() -> Recording:
    return Recording()


@pytest.fixture
def remembering(make_memory: Make, embeddings: WordEmbeddings) -> Memory:
    """A memory of two messages, with recall and working memory."""
    return make_memory(
        embeddings=embeddings,
        history=HistoryOptions(last_messages=2, step=1),
        recall=RecallOptions(top_k=1, message_range=0),
        working_memory=WorkingMemoryOptions(),
    )


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """Run the page of recipes, and return its names."""
    names: dict[str, Any] = {}
    path = Path(__file__).parents[2] / "docs/how-to/recipes.md"
    blocks = re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile("\n".join(blocks), str(path), "exec", dont_inherit=True), names)
    return names
