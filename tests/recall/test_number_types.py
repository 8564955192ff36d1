"""The number types of vectors: a new index takes float16, an existing one keeps its own, and int8 needs an engine that has it."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
import redis

from langchain_workingmem import IndexOptions, Memory, OptionError, RecallOptions, RedisCapabilityError
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import RedisReplyError
from tests.helpers.embeddings import WordEmbeddings
from tests.recall.test_index import FRUIT, Make, found, heal, ids, say, stored, vectors

pytestmark = pytest.mark.in_turn("face")


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
    changed = of_type(make_memory, "float16")
    with pytest.raises(OptionError, match=r"float32.*reindex"):
        found(changed)
    assert heal(changed) == 6
    assert sizes(raw, prefix) == {2}
    assert len(found(changed)) == 6


class Interrupting(redis.Redis):
    """A client that dies right before an index is dropped."""

    def execute_command(self, *words: Any, **options: Any) -> Any:
        if words[0] == "FT.DROPINDEX":
            raise KeyboardInterrupt
        return super().execute_command(*words, **options)  # type: ignore[no-untyped-call]


def test_a_change_that_was_interrupted_before_the_index_was_dropped_is_finished_by_the_next(
    make_memory: Make, server: EmbeddedRedis, face: str, prefix: str
) -> None:
    if face == "async":
        pytest.skip("the client of this test is sync, and what it interrupts is one plan for both faces")
    say(of_type(make_memory, "float32"), *FRUIT)
    client: Any = Interrupting.from_url(server.url)
    recall = RecallOptions(index=IndexOptions(dtype="float16"))
    with pytest.raises(KeyboardInterrupt):
        heal(Memory(client=client, key_prefix=prefix, embeddings=WordEmbeddings(), recall=recall))
    client.close()
    usual = of_type(make_memory, None)
    assert usual.doctor().level == "error"
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
