"""What callbacks, and so LangSmith, see of memory."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda

from langchain_workingmem import EmbeddingError, Memory
from tests.helpers.models import Bench

pytestmark = pytest.mark.both_faces


class Log(BaseCallbackHandler):
    """Notes the runs of memory, with the run around each."""

    def __init__(self) -> None:
        self.runs: dict[UUID, tuple[str, UUID | None]] = {}
        self.documents: list[Document] = []
        self.errors: list[BaseException] = []

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self.runs[run_id] = (kwargs["name"], kwargs.get("parent_run_id"))

    def on_retriever_start(self, serialized: Any, query: str, *, run_id: UUID, **kwargs: Any) -> None:
        self.runs[run_id] = (f"{kwargs['name']}({query})", kwargs.get("parent_run_id"))

    def on_retriever_end(self, documents: Any, **kwargs: Any) -> None:
        self.documents += documents

    def on_retriever_error(self, error: BaseException, **kwargs: Any) -> None:
        self.errors.append(error)

    @property
    def paths(self) -> list[str]:
        return [self._path(run_id) for run_id in self.runs]

    def _path(self, run_id: UUID) -> str:
        name, parent = self.runs[run_id]
        return f"{self._path(parent)} > {name}" if parent else name


@pytest.fixture
def memory(bench: Bench) -> Memory:
    memory = bench.recalling()
    memory.save_turn([HumanMessage("my dog is Nougat"), AIMessage("nice")], thread_id="old", user_id="u")
    return memory


def run(runner: asyncio.Runner | None, log: Log, call: Any, acall: Any) -> None:
    """Call memory from inside of a chain that has callbacks."""

    async def astep(_: Any) -> None:
        await acall()

    chain = RunnableLambda(lambda _: call(), astep, name="chain")
    if runner is None:
        chain.invoke(None, {"callbacks": [log]})
    else:
        runner.run(chain.ainvoke(None, {"callbacks": [log]}))


def test_recall_is_a_retriever_run_with_its_hits(memory: Memory, runner: asyncio.Runner | None) -> None:
    who: Any = {"thread_id": "new", "user_id": "u"}
    calls: list[tuple[Any, Any]] = [
        (lambda: memory.recall.search("dog", user_id="u"), lambda: memory.recall.asearch("dog", user_id="u")),
        (lambda: memory.context("dog", **who), lambda: memory.acontext("dog", **who)),
    ]
    for call, acall in calls:
        log = Log()
        run(runner, log, call, acall)
        assert log.paths == ["chain", "chain > semantic_recall(dog)"]
        assert log.documents[0].metadata["thread_id"] == "old"
        assert "my dog is Nougat" in log.documents[0].page_content


def test_a_failing_recall_ends_its_run_with_the_error(
    memory: Memory, runner: asyncio.Runner | None, bench: Bench
) -> None:
    bench.embeddings.broken = RuntimeError("down")
    log, search = Log(), memory.recall
    with pytest.raises(EmbeddingError):
        run(runner, log, lambda: search.search("cat", user_id="u"), lambda: search.asearch("cat", user_id="u"))
    assert [type(error) for error in log.errors] == [EmbeddingError]
