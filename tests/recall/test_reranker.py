"""A reranker: what it is given, what is taken of what it returns, and what happens when it fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import HistoryOptions, Memory, RecallOptions, RecallResult
from langchain_workingmem.errors import ModelError
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.trips import Trips
from tests.helpers.types import Make

pytestmark = pytest.mark.in_turn("face")

NEW: dict[str, Any] = {"thread_id": "new", "user_id": "ann"}


class Returns(BaseDocumentCompressor):
    """Returns what a function makes of the documents."""

    call: Callable[[Sequence[Document]], Any]

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        return self.call(documents)  # type: ignore[no-any-return]


def highest(documents: Sequence[Document]) -> list[Document]:
    """Prefer high numbers, and copy documents without their ids, as some compressors do."""

    def number(document: Document) -> int:
        assert document.page_content.endswith(str(document.id))  # behind it nothing is told
        return int(str(document.id))

    best = sorted(documents, key=number, reverse=True)
    return [Document("other words", metadata={**one.metadata, "relevance_score": number(one) / 100}) for one in best]


def overloaded(_: Any) -> Any:
    raise ConnectionError("overloaded")


@pytest.fixture
def make(make_memory: Make, embeddings: WordEmbeddings) -> Make:
    """Make a memory with 60 messages in 3 threads, all about the fox."""

    def made(call: Any = None, *, on_error: str = "raise", **options: Any) -> Memory:
        recall = RecallOptions(reranker=call and Returns(call=call), **options)
        history = HistoryOptions(last_messages=2)
        memory = make_memory(embeddings=embeddings, recall=recall, history=history, on_error=on_error)
        for thread in range(3):
            said = [f"red fox {thread * 20 + at:02}" for at in range(20)]
            kinds = (HumanMessage, AIMessage)
            messages = [kinds[at % 2](text, id=text[-2:]) for at, text in enumerate(said)]
            memory.history.append(messages, thread_id=f"t{thread}", user_id="ann")
        return memory

    return made


def ids(found: RecallResult) -> list[str | None]:
    return [hit.message.id for hit in found.hits]


@pytest.mark.parametrize("search", ["semantic", "hybrid"])
def test_its_order_decides(make: Make, trips: Trips, search: str) -> None:
    memory = make(highest, search=search)
    seen = ids(make(search=search).recall.search("red fox", user_id="ann", top_k=20))
    expected = sorted(seen, key=str, reverse=True)[:4]
    memory.setup()
    assert trips.of(lambda: memory.recall.search("red fox", user_id="ann")) == 2
    assert ids(memory.recall.search("red fox", user_id="ann")) == expected
    assert ids(memory.context("red fox", **NEW).recalled) == expected


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda _: [Document("x", metadata={"thread_id": "t0", "message_id": "other"})], "what is no hit"),
        (lambda _: [Document("x")], "what is no hit"),
        (lambda _: None, "TypeError"),
    ],
)
def test_what_it_was_not_given_is_refused(make: Make, returned: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words) as error:
        make(returned).recall.search("red fox", user_id="ann")
    assert error.value.remedy


def test_a_turn_may_go_on_without_it(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    memory = make(overloaded, on_error="log")
    expected = ids(make().context("red fox 11", **NEW).recalled)
    assert ids(memory.context("red fox 11", **NEW).recalled) == expected
    assert len(expected) == 4
    assert "goes on without it" in caplog.text
    with pytest.raises(ModelError):  # a search says what is wrong
        memory.recall.search("red fox", user_id="ann")
