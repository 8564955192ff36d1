"""The vector index and its model: models that fail, models that change, and the number types of vectors."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
import redis

from langchain_workingmem import IndexOptions, Memory, OptionError, RecallOptions, RedisCapabilityError
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import EmbeddingError, EmbeddingSizeError, RedisReplyError
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.types import Make
from tests.recall.test_index import FRUIT, found, heal, ids, say, stored, vectors

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


def of_type(make_memory: Make, dtype: Any, **index: Any) -> Memory:
    return make_memory(embeddings=WordEmbeddings(), recall=RecallOptions(index=IndexOptions(dtype=dtype, **index)))


def sizes(raw: Any, prefix: str, thread: str = "*") -> set[int]:
    """The bytes of a number in the stored vectors."""
    return {raw.hstrlen(key, "vector") // 64 for key in vectors(raw, prefix, thread)}


@pytest.fixture(scope="session")
def has_int8(server: EmbeddedRedis) -> bool:
    name = uuid4().hex
    field = ("VECTOR", "FLAT", 6, "TYPE", "INT8", "DIM", 8, "DISTANCE_METRIC", "COSINE")
    with redis.Redis.from_url(server.url) as client:
        bare: Any = client
        try:
            bare.execute_command("FT.CREATE", name, "PREFIX", 1, name, "SCHEMA", "vector", *field)
        except redis.ResponseError:
            return False
        bare.execute_command("FT.DROPINDEX", name)
    return True


def test_an_existing_index_keeps_its_type_unless_one_is_passed(make_memory: Make, raw: Any, prefix: str) -> None:
    say(of_type(make_memory, "float32"), *FRUIT)
    usual = of_type(make_memory, None)
    assert len(found(usual)) == 5
    say(usual, "cherry tart", thread="later")
    assert heal(usual) == 0
    assert sizes(raw, prefix) == {4}
    assert len(found(usual)) == 6
    assert usual.doctor().level == "ok"


class Interrupting(redis.Redis):
    """A client that dies right before an index is dropped."""

    def execute_command(self, *words: Any, **options: Any) -> Any:
        if words[0] == "FT.DROPINDEX":
            raise KeyboardInterrupt
        return super().execute_command(*words, **options)  # type: ignore[no-untyped-call]


def test_a_change_that_was_interrupted_before_the_index_was_dropped_is_finished_by_the_next(
    make_memory: Make, server: EmbeddedRedis, prefix: str
) -> None:
    say(of_type(make_memory, "float32"), *FRUIT)
    client: Any = Interrupting.from_url(server.url)
    recall = RecallOptions(index=IndexOptions(dtype="float16"))
    with pytest.raises(KeyboardInterrupt):
        heal(Memory(client=client, key_prefix=prefix, embeddings=WordEmbeddings(), recall=recall))
    client.close()
    usual = of_type(make_memory, None)
    assert usual.doctor().level != "ok"
    with pytest.raises(RedisReplyError, match="reindex"):
        found(usual)
    heal(usual)
    assert len(found(usual)) == 5
    assert usual.doctor().level == "ok"


@pytest.mark.parametrize("algorithm", ["flat", "hnsw"])
def test_int8_takes_one_byte_and_finds_the_same(
    make_memory: Make, raw: Any, prefix: str, has_int8: bool, algorithm: Any
) -> None:
    if not has_int8:
        pytest.skip("this engine has no vectors of int8")
    memory = of_type(make_memory, "int8", algorithm=algorithm)
    say(memory, *FRUIT, "")
    assert sizes(raw, prefix) == {1}
    hits = memory.recall.search("cherry cake slice", user_id="ann", top_k=5).hits
    assert hits[0].message.id == "t-2"
    assert hits[0].similarity == pytest.approx(1, abs=0.01)
    assert len(found(of_type(make_memory, None, algorithm=algorithm))) == 5
    assert memory.doctor().level == "ok"


def test_where_the_engine_has_no_int8_the_message_is_stored_and_the_remedy_named(
    make_memory: Make, has_int8: bool
) -> None:
    if has_int8:
        pytest.skip("this engine has vectors of int8")
    memory = of_type(make_memory, "int8")
    with pytest.raises(RedisCapabilityError, match="float16"):
        say(memory, "cherry")
    assert stored(memory) == {"t-0"}
    with pytest.raises(RedisCapabilityError, match="float16"):
        found(memory)
    usual = of_type(make_memory, None)  # nothing of the attempt is left
    assert heal(usual) == 1
    assert ids(usual.recall.search("cherry", user_id="ann")) == {"t-0"}
