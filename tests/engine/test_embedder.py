"""The cache of vectors: what is asked of the model, and what is not."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings

from langchain_workingmem import LocalEmbeddings
from langchain_workingmem._engine.calls import Embedder

pytestmark = pytest.mark.in_turn("face")


class Counted(Embeddings):
    """A model that embeds questions as documents, or nearly."""

    def __init__(self, apart: float = 0.0, **attributes: Any) -> None:
        self.apart = apart
        self.calls: list[tuple[str, str]] = []
        vars(self).update(attributes)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.calls += [("document", text) for text in texts]
        return [self.vector(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        self.calls.append(("question", text))
        return [value + self.apart for value in self.vector(text)]

    def vector(self, text: str) -> list[float]:
        return [float(bool(text.strip())), float(len(text.strip()))]


@pytest.fixture(params=["sync", "async"])
def both(request: pytest.FixtureRequest) -> Any:
    """Embed by either twin."""

    def embed(embedder: Embedder, *texts: str, query: bool = False) -> Any:
        call: Any = embedder.embed(texts, query=query)
        return call.call() if request.param == "sync" else asyncio.run(call.acall())

    return embed


def needed(both: Any, model: Embeddings, *texts: str, size: int = 100) -> Embedder:
    """Need each text as a question, then as a document, then as a question."""
    embedder = Embedder(model, size)
    for text in texts:
        for query in (True, False, True):
            both(embedder, text, query=query)
    return embedder


def test_a_model_whose_class_says_so_is_asked_once_for_both(both: Any) -> None:
    model = Counted(embeds_alike=True)
    needed(both, model, "one", "two")
    assert model.calls == [("question", "one"), ("question", "two")]


@pytest.mark.parametrize("apart", [0.0, 5e-7])
def test_a_model_that_shows_equal_vectors_is_asked_once_from_then_on(both: Any, apart: float) -> None:
    model = Counted(apart)
    embedder = needed(both, model, "one", "two")
    assert model.calls == [("question", "one"), ("document", "one"), ("question", "two")]
    model.calls.clear()
    both(embedder, "three", "four")
    both(embedder, "three", query=True)
    assert model.calls == [("document", "three"), ("document", "four")]


def test_another_size_is_refused_and_not_taken_for_another_kind(both: Any) -> None:
    class Odd(Counted):
        def embed_query(self, text: str) -> list[float]:
            return [1.0, 2.0, 3.0]

    embedder = Embedder(Odd(), 100)
    both(embedder, "one")
    assert both(embedder, "one", query=True).shape == (1, 3)


def test_the_local_model_says_the_truth() -> None:
    model = LocalEmbeddings()
    assert LocalEmbeddings.embeds_alike
    texts = ["My dog is called Nougat", "what is the name of my dog?"]
    assert np.array_equal(model.embed_documents(texts), [model.embed_query(text) for text in texts])
