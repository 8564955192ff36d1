"""The vector index: healing, rebuilding, caches, borrowed clients."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, OptionError, RecallOptions, RecallResult
from langchain_workingmem._redis.queries import threads_schema
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import ThreadNotFoundError
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.types import Make

FRUIT = ["apple pie recipe", "banana bread loaf", "cherry cake slice", "plum jam jar", "quince jelly pot"]


def say(memory: Memory, *texts: str, thread: str = "t", user: str = "ann") -> None:
    messages = [HumanMessage(text, id=f"{thread}-{at}") for at, text in enumerate(texts)]
    memory.history.append(messages, thread_id=thread, user_id=user)


def ids(found: RecallResult) -> set[str | None]:
    return {hit.message.id for hit in found.hits}


def found(memory: Memory, query: str = "cherry", top_k: int = 50) -> set[str | None]:
    return ids(memory.recall.search(query, user_id="ann", top_k=top_k, message_range=0))


def stored(memory: Memory, thread: str = "t") -> set[str | None]:
    return {message.id for message in memory.history.messages(thread)}


def vectors(raw: Any, prefix: str, thread: str = "*") -> list[bytes]:
    pattern = "*" if thread == "*" else f"{{{thread}}}:*"
    return sorted(raw.scan_iter(match=f"{prefix}:vector:{pattern}", count=1000))


def heal(memory: Memory, **only: Any) -> int:
    return memory.recall.reindex(progress=False, **only)


@pytest.mark.parametrize("model", [None, WordEmbeddings()])
def test_without_recall_there_is_no_vector_index_and_what_needs_it_names_the_remedy(
    make_memory: Make, raw: Any, prefix: str, model: Any
) -> None:
    memory = make_memory(embeddings=model, recall=False)
    memory.setup()
    say(memory, *FRUIT)
    assert f"{prefix}:threads".encode() in raw.execute_command("FT._LIST")
    assert f"{prefix}:vectors".encode() not in raw.execute_command("FT._LIST")
    assert vectors(raw, prefix) == []
    for call in (lambda: memory.recall.search("cherry", user_id="ann"), lambda: heal(memory)):
        with pytest.raises(OptionError, match=r"recall=RecallOptions\(\)"):
            call()


def test_reindex_of_a_part_touches_only_that_and_there_must_be_one(plain: Memory, memory: Memory) -> None:
    say(plain, "cherry", thread="a")
    say(plain, "cherry", thread="b")
    say(plain, "cherry", thread="c", user="bob")
    with pytest.raises(ThreadNotFoundError):
        heal(memory, thread_id="nowhere")
    parts: list[tuple[dict[str, str], set[str]]] = [({"thread_id": "b"}, {"b-0"}), ({"user_id": "bob"}, {"b-0", "c-0"})]
    for only, wanted in parts:
        assert heal(memory, **only) == 1
        assert found(memory) | ids(memory.recall.search("cherry", user_id="bob")) == wanted


def test_reindex_beside_writers_loses_nothing(
    plain: Memory, memory: Memory, server: EmbeddedRedis, prefix: str, raw: Any
) -> None:
    say(plain, *[f"cherry {at}" for at in range(300)])
    edited = [f"t-{at}" for at in range(0, 300, 3)]
    deleted = [f"t-{at}" for at in range(1, 300, 3)]

    def write() -> None:
        with Memory(server.url, embeddings=WordEmbeddings(), recall=RecallOptions(), key_prefix=prefix) as other:
            for at, (edit, delete) in enumerate(zip(edited, deleted, strict=True)):
                other.history.update([HumanMessage(f"plum {at}", id=edit)], thread_id="t")
                other.history.delete([delete], thread_id="t")
                other.history.append([HumanMessage(f"quince {at}", id=f"n-{at}")], thread_id="t", user_id="ann")

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done():
            heal(memory)
        writing.result()
    heal(memory)
    assert heal(memory) == 0
    left = {message.id: message.content for message in plain.history.messages("t")}
    assert len(left) == 300
    hits = memory.recall.search("plum quince", user_id="ann", top_k=400, message_range=0).hits
    assert {hit.message.id: hit.message.content for hit in hits} == left
    assert len(vectors(raw, prefix)) == 300


@pytest.mark.parametrize("search", ["semantic", "hybrid"])
def test_a_dropped_index_heals_itself(make_memory: Make, raw: Any, prefix: str, search: Any) -> None:
    memory = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions(search=search))
    say(memory, *FRUIT)
    assert len(found(memory)) == 5
    raw.execute_command("FT.DROPINDEX", f"{prefix}:vectors")
    assert len(found(memory)) == 5
    raw.execute_command("FT.DROPINDEX", f"{prefix}:vectors")
    context = memory.context("cherry", thread_id="u", user_id="ann")
    assert len(context.recalled) == 4


def test_an_index_that_another_process_builds_is_whole_for_everybody(make_memory: Make, raw: Any, prefix: str) -> None:
    pipe = raw.pipeline(transaction=False)
    for number in range(20_000):
        fields = {"user": "ann", "created_at": number, "updated_at": number, "count": 0, "labels": ""}
        pipe.hset(f"{prefix}:thread:{{t{number}}}", mapping=fields)
    pipe.execute()
    memory = make_memory()
    raw.execute_command(*threads_schema(memory._core.state.keys))  # it returns while the server still reads
    assert memory.users.list().total == 1
    assert memory.threads.list(user_id="ann", limit=1).total == 20_000


def test_recall_that_is_new_says_once_that_older_messages_have_no_vectors(
    make_memory: Make, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    say(make_memory(), *FRUIT)
    recalling = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions())
    for _ in range(2):
        assert found(recalling) == set()
    assert [record.message for record in caplog.records] == [
        "recall is new, and older messages have no vectors: memory.recall.reindex() adds them"
    ]
    assert recalling.recall.reindex(progress=False) == len(FRUIT)
    assert "t-2" in found(recalling)
    caplog.clear()
    fresh = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions(), key_prefix=f"{prefix}x")
    say(fresh, *FRUIT)  # from the beginning there is nothing to say
    assert "t-2" in found(fresh)
    assert caplog.records == []
