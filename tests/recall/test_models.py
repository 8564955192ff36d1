"""The vector index and its model: models that fail, models that change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from langchain_workingmem import IndexOptions, Memory, OptionError, RecallOptions
from langchain_workingmem.errors import EmbeddingError, EmbeddingSizeError
from tests.helpers.embeddings import WordEmbeddings
from tests.recall.test_index import FRUIT, Make, found, heal, say, stored, vectors

# ---------------------------------------------------------------------- a model that fails


class Faulty(WordEmbeddings):
    """Answers with whatever `answer` makes of the vectors, once it is set."""

    answer: Callable[[list[list[float]]], Any] | None = None

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        vectors = super().embed_documents(texts)
        return self.answer(vectors) if self.answer else vectors


FAULTS: dict[str, Callable[[list[list[float]]], Any]] = {
    "nan": lambda rows: [[float("nan")] * len(row) for row in rows],
    "ragged": lambda rows: [rows[0][:-1], *rows[1:]],
    "too few": lambda rows: rows[:-1],
    "None": lambda rows: None,
    "words": lambda rows: [["a", "b"] for _ in rows],
}


@pytest.fixture
def faulty() -> Faulty:
    return Faulty()


@pytest.fixture
def on_faulty(make_memory: Make, faulty: Faulty) -> Memory:
    memory = make_memory(embeddings=faulty, recall=RecallOptions())
    say(memory, "hello", thread="first")
    return memory


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_useless_vectors_are_an_error_and_the_messages_are_stored(
    on_faulty: Memory, faulty: Faulty, fault: Callable[[list[list[float]]], Any]
) -> None:
    faulty.answer = fault
    with pytest.raises(EmbeddingError):
        say(on_faulty, *FRUIT)
    assert len(stored(on_faulty)) == 5


def longer(rows: list[list[float]]) -> list[list[float]]:
    return [[*row, 0.1] for row in rows]


@pytest.mark.parametrize("texts", [["cherry"], ["cherry", "pear"], ["hello"]])
def test_reindex_heals_whatever_sizes_are_remembered(make_memory: Make, faulty: Faulty, texts: list[str]) -> None:
    memory = make_memory(embeddings=faulty, recall=RecallOptions())
    faulty.answer = longer  # from the beginning
    say(memory, "hello", thread="first")
    heal(memory)
    faulty.answer = None
    with pytest.raises((EmbeddingError, EmbeddingSizeError)):
        say(memory, "plum", *texts)
    assert heal(memory) == 2 + len(texts)
    assert len(found(memory)) == len({"hello", "plum", *texts})


def test_a_change_of_text_while_the_model_fails_removes_the_stale_vectors(
    memory: Memory, embeddings: WordEmbeddings, raw: Any, prefix: str
) -> None:
    say(memory, "cherry")
    embeddings.broken = RuntimeError("down")
    with pytest.raises(EmbeddingError):
        say(memory, "a pear instead")
    assert vectors(raw, prefix) == []
    embeddings.broken = None
    assert found(memory) == set()
    assert heal(memory) == 1
    assert memory.recall.search("pear", user_id="ann").hits[0].message.content == "a pear instead"


# ---------------------------------------------------------------------- a model that changes


def test_reindex_rebuilds_for_another_size(make_memory: Make, memory: Memory) -> None:
    say(memory, *FRUIT)
    changed = make_memory(embeddings=WordEmbeddings(32), recall=RecallOptions())
    with pytest.raises(EmbeddingSizeError):
        say(changed, "cherry", thread="new")
    assert heal(changed) == 6
    assert len(found(changed)) == 6
    assert heal(changed) == 0
    with pytest.raises(EmbeddingSizeError):  # the old model notices too
        found(memory)


def test_reindex_by_force_embeds_everything_again(make_memory: Make, memory: Memory, raw: Any, prefix: str) -> None:
    say(memory, *FRUIT)
    say(memory, "cherry", thread="other")
    before = [raw.hget(key, "vector") for key in vectors(raw, prefix)]
    changed = Other()
    memory = make_memory(embeddings=changed, recall=RecallOptions())  # under the same name
    assert heal(memory) == 0
    assert heal(memory, thread_id="other", force=True) == 1
    assert heal(memory, force=True) == 6
    after = [raw.hget(key, "vector") for key in vectors(raw, prefix)]
    assert len(after) == len(before) == 6
    assert not set(after) & set(before)
    assert len(found(memory)) == 6


class Other(WordEmbeddings):
    """Other weights under the same name."""

    def _vector(self, text: str) -> list[float]:
        return super()._vector(text)[::-1]


def test_another_model_of_the_same_size_is_said_in_the_log(
    make_memory: Make, memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    say(memory, *FRUIT)
    changed = make_memory(embeddings=WordEmbeddings(model="better words"), recall=RecallOptions())
    with caplog.at_level(logging.WARNING, "langchain_workingmem"):
        found(changed)
    assert "better words" in caplog.text
    assert "reindex" in caplog.text


OTHER_INDEXES: list[dict[str, Any]] = [{"algorithm": "hnsw"}, {"distance": "l2"}, {"dtype": "float32"}]


@pytest.mark.parametrize("index", OTHER_INDEXES, ids=str)
def test_other_index_options_need_reindex_which_finds_all(
    make_memory: Make, memory: Memory, index: dict[str, Any]
) -> None:
    say(memory, *FRUIT)
    changed = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions(index=IndexOptions(**index)))
    with pytest.raises(OptionError, match="reindex"):
        found(changed)
    heal(changed)
    assert len(found(changed)) == 5
