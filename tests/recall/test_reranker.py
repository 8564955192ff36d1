"""A reranker: what it is given, what is taken of what it returns, and what happens when it fails."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler, Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from pydantic import Field

from langchain_workingmem import HistoryOptions, Memory, OptionError, RecallOptions, RecallResult
from langchain_workingmem.errors import ModelError
from langchain_workingmem.recall.question import Query
from langchain_workingmem.recall.search import search_as_run
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import Scripted
from tests.helpers.trips import Trips

pytestmark = pytest.mark.in_turn("face")

Make = Callable[..., Memory]

NEW: dict[str, Any] = {"thread_id": "new", "user_id": "ann"}


def number(text: str) -> int:
    found = re.findall(r"\d+", text)
    return int(found[-1]) if found else -1


class Highest(BaseDocumentCompressor):
    """Prefers high numbers, and copies documents without their ids, as some compressors do."""

    most: int = 1000
    scores: bool = True
    seen: list[list[str]] = Field(default_factory=list)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        self.seen.append([query, *(document.page_content for document in documents)])
        best = sorted(documents, key=lambda document: -number(document.page_content))
        return [self._copy(document) for document in best[: self.most]]

    def _copy(self, document: Document) -> Document:
        more = {"relevance_score": number(document.page_content) / 100} if self.scores else {}
        return Document(page_content="other words", metadata={**document.metadata, **more})


class Listwise(BaseDocumentCompressor):
    """Asks a chat model for the order, as LangChain's `LLMListwiseRerank` does."""

    model: BaseChatModel

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        lines = [f"{at} {document.page_content.splitlines()[-1]}" for at, document in enumerate(documents)]
        answer = self.model.invoke("\n".join([query, *lines]), {"callbacks": callbacks})
        return [documents[int(at)] for at in str(answer.text).split()]


@pytest.fixture
def make(make_memory: Make, embeddings: WordEmbeddings) -> Make:
    """Make a memory with 60 messages in 3 threads, all about the fox."""

    def made(reranker: Any = None, *, model: Any = embeddings, on_error: str = "raise", **options: Any) -> Memory:
        memory = make_memory(
            embeddings=model,
            recall=RecallOptions(reranker=reranker, **options),
            history=HistoryOptions(last_messages=2),
            on_error=on_error,
        )
        for thread in range(3):
            said = [f"red fox {thread * 20 + at:02}" for at in range(20)]
            kinds = (HumanMessage, AIMessage)
            messages = [kinds[at % 2](text, id=text[-2:]) for at, text in enumerate(said)]
            memory.history.append(messages, thread_id=f"t{thread}", user_id="ann")
        return memory

    return made


def ids(found: RecallResult) -> list[str | None]:
    return [hit.message.id for hit in found.hits]


# ---------------------------------------------------------------------- order


@pytest.mark.parametrize("search", ["semantic", "hybrid"])
def test_its_order_decides(make: Make, trips: Trips, search: str) -> None:
    memory = make(Highest(), search=search)
    seen = ids(make(search=search).recall.search("red fox", user_id="ann", top_k=20))
    expected = sorted(seen, key=str, reverse=True)[:4]
    memory.setup()
    assert trips.of(lambda: memory.recall.search("red fox", user_id="ann")) == 2
    assert ids(memory.recall.search("red fox", user_id="ann")) == expected
    assert ids(memory.context("red fox", **NEW).recalled) == expected


@pytest.mark.parametrize(("top_k", "given"), [(1, 20), (5, 20), (8, 32), (30, 60), (60, 60)])
def test_it_is_given_more_hits_than_come_back(make: Make, top_k: int, given: int) -> None:
    reranker = Highest()
    memory = make(reranker)
    found = memory.recall.search("red fox", user_id="ann", top_k=top_k)
    ((question, *texts),) = reranker.seen
    assert question == "red fox"
    assert len(texts) == given
    assert len(found.hits) == top_k


# ---------------------------------------------------------------------- scores


# ---------------------------------------------------------------------- what is taken


class Returns(BaseDocumentCompressor):
    """Returns what a function makes of the documents."""

    call: Callable[[Sequence[Document]], Any]

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        return self.call(documents)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda _: [Document("x", metadata={"thread_id": "t0", "message_id": "other"})], "what is no hit"),
        (lambda _: [Document("x")], "what is no hit"),
        (lambda _: None, "TypeError"),
    ],
)
def test_what_it_was_not_given_is_refused(make: Make, returned: Any, words: str) -> None:
    memory = make(Returns(call=returned))
    with pytest.raises(ModelError, match=words) as error:
        memory.recall.search("red fox", user_id="ann")
    assert error.value.remedy


# ---------------------------------------------------------------------- budget and faces


# ---------------------------------------------------------------------- failures


def overloaded(_: Any) -> Any:
    raise ConnectionError("overloaded")


fails = Returns(call=overloaded)


def test_its_failure_is_an_error_that_names_the_remedy(make: Make) -> None:
    memory = make(fails)
    with pytest.raises(ModelError, match=r"ConnectionError: overloaded\): check it") as error:
        memory.recall.search("red fox", user_id="ann")
    assert isinstance(error.value.__cause__, ConnectionError)
    with pytest.raises(ModelError):
        memory.context("red fox", **NEW)


def test_a_turn_may_go_on_without_it(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    memory = make(fails, on_error="log")
    expected = ids(make().context("red fox 11", **NEW).recalled)
    assert ids(memory.context("red fox 11", **NEW).recalled) == expected
    assert len(expected) == 4
    assert "goes on without it" in caplog.text
    with pytest.raises(ModelError):  # a search says what is wrong
        memory.recall.search("red fox", user_id="ann")


def test_what_cannot_be_a_reranker_is_refused() -> None:
    with pytest.raises(OptionError, match="reranker is of type str"):
        RecallOptions(reranker="cohere")  # type: ignore[arg-type]


# ---------------------------------------------------------------------- traces


class Runs(BaseCallbackHandler):
    """Notes the runs, each with the run around it."""

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}
        self.parents: dict[str, str | None] = {}

    def _note(self, name: str, run_id: Any, parent_run_id: Any) -> None:
        self.names[run_id] = name
        self.parents[name] = self.names.get(parent_run_id)

    def on_retriever_start(self, *_: Any, run_id: Any, parent_run_id: Any = None, **__: Any) -> None:
        self._note("retriever", run_id, parent_run_id)

    def on_chat_model_start(self, *_: Any, run_id: Any, parent_run_id: Any = None, **__: Any) -> None:
        self._note("model", run_id, parent_run_id)

    def on_chain_start(self, *_: Any, run_id: Any, parent_run_id: Any = None, **__: Any) -> None:
        self._note("chain", run_id, parent_run_id)


def test_a_model_that_it_asks_is_part_of_the_run_around_recall(make: Make, face: str) -> None:
    memory = make(Listwise(model=Scripted.says("0 1 2")))
    log = Runs()
    core = memory._core

    def plan() -> Any:
        return search_as_run(core.state, Query.of(core.state.recalling, "red fox", user_id="ann"))

    async def search(_: Any) -> None:
        await core.arun(plan())

    chain: Any = RunnableLambda(lambda _: core.run(plan()) and None, afunc=search)
    if face == "sync":
        chain.invoke(None, {"callbacks": [log]})
    else:
        asyncio.run(chain.ainvoke(None, {"callbacks": [log]}))
    assert log.parents == {"chain": None, "retriever": "chain", "model": "chain"}
