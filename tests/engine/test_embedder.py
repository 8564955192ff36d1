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


def ask(face: str, embedder: Embedder, *texts: str, query: bool = False) -> None:
    call: Any = embedder.embed(texts, query=query)
    call.call() if face == "sync" else asyncio.run(call.acall())


def test_a_model_whose_class_says_so_is_asked_once_for_both(face: str) -> None:
    model = Counted(embeds_alike=True)
    embedder = Embedder(model, 100)
    for text in ("one", "two"):
        for query in (True, False, True):
            ask(face, embedder, text, query=query)
    assert model.calls == [("question", "one"), ("question", "two")]


@pytest.mark.parametrize("apart", [0.0, 5e-7])
def test_a_model_that_shows_equal_vectors_is_asked_once_from_then_on(face: str, apart: float) -> None:
    model = Counted(apart)
    embedder = Embedder(model, 100)
    for text, query in (("one", True), ("one", False), ("two", True), ("two", False)):
        ask(face, embedder, text, query=query)
    ask(face, embedder, "three", "four")
    ask(face, embedder, "three", query=True)
    asked = [("question", "one"), ("document", "one"), ("question", "two"), ("document", "three"), ("document", "four")]
    assert model.calls == asked


def test_the_local_model_says_the_truth() -> None:
    model = LocalEmbeddings()
    assert LocalEmbeddings.embeds_alike
    texts = ["My dog is called Nougat", "what is the name of my dog?"]
    assert np.array_equal(model.embed_documents(texts), [model.embed_query(text) for text in texts])
