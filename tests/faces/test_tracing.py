"""What callbacks, and so LangSmith, see of memory."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda

from langchain_workingmem import EmbeddingError, Memory, RecallOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embeddings import WordEmbeddings

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
def memory(server: EmbeddedRedis, prefix: str, embeddings: WordEmbeddings) -> Memory:
    memory = Memory(server.url, key_prefix=prefix, embeddings=embeddings, recall=RecallOptions(top_k=1))
    memory.save_turn([HumanMessage("my dog is Nougat"), AIMessage("nice")], thread_id="old", user_id="u")
    return memory


def run(memory: Memory, face: str, log: Log, call: str, *args: Any, **kwargs: Any) -> None:
    """Call memory from inside of a chain that has callbacks."""

    def step(_: Any, config: RunnableConfig) -> None:
        part, _, name = call.rpartition(".")
        getattr(getattr(memory, part) if part else memory, name)(*args, **kwargs)

    async def astep(_: Any, config: RunnableConfig) -> None:
        part, _, name = call.rpartition(".")
        await getattr(getattr(memory, part) if part else memory, f"a{name}")(*args, **kwargs)

    chain = RunnableLambda(step, astep, name="chain")
    if face == "sync":
        chain.invoke(None, {"callbacks": [log]})
    else:

        async def main() -> None:
            await chain.ainvoke(None, {"callbacks": [log]})
            await memory.aclose()

        asyncio.run(main())
    memory.close()


def test_recall_is_a_retriever_run_with_its_hits(memory: Memory, face: str) -> None:
    log = Log()
    run(memory, face, log, "recall.search", "dog", user_id="u")
    assert log.paths == ["chain", "chain > semantic_recall(dog)"]
    assert log.documents[0].metadata["thread_id"] == "old"


def test_the_recall_of_a_context_is_a_retriever_run(memory: Memory, face: str) -> None:
    log = Log()
    run(memory, face, log, "context", "dog", thread_id="new", user_id="u")
    assert log.paths == ["chain", "chain > semantic_recall(dog)"]
    assert "my dog is Nougat" in log.documents[0].page_content


def test_a_failing_recall_ends_its_run_with_the_error(memory: Memory, face: str, embeddings: WordEmbeddings) -> None:
    embeddings.broken = RuntimeError("down")
    log = Log()
    with pytest.raises(EmbeddingError):
        run(memory, face, log, "recall.search", "cat", user_id="u")
    assert [type(error) for error in log.errors] == [EmbeddingError]
    memory.close()


def test_outside_of_a_chain_nothing_is_traced(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any, **kwargs: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("langchain_core.callbacks.CallbackManager.configure", never)
    assert memory.recall.search("dog", user_id="u").hits
    memory.close()
