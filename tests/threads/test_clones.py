from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_workingmem import (
    IdError,
    Memory,
    OptionError,
    ThreadExistsError,
    ThreadNotFoundError,
    ThreadOwnershipError,
    WorkingMemError,
)
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.threads import Threads
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.plans import meanwhile, plan_of
from tests.helpers.threads import append, rows_of, said, texts, thread_of, vectors
from tests.threads.test_threads import all_threads, ids

HEIR = {"user_id": "u", "to": "v"}


@pytest.fixture
def source(memory: Memory) -> Memory:
    """A thread t of 450 messages, some of them long, with tools, deleted or edited."""
    memory.threads.create(user_id="u", thread_id="t", title="T", metadata={"a": 1, "b": {"c": [2]}})
    call = AIMessage("", id="call", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "c"}])
    messages = [*said(*(f"{number} words" for number in range(447))), HumanMessage("long " * 1000, id="long")]
    memory.history.append(
        [*messages, call, ToolMessage("42", id="result", tool_call_id="c")], thread_id="t", user_id="u"
    )
    memory.history.append(said("gone"), thread_id="t", user_id="u")
    memory.history.delete(["gone", "7 words"], thread_id="t")
    memory.history.append(said("at last a cat"), thread_id="t", user_id="u")
    return memory


def test_clone_copies_everything_in_batches_without_the_model(
    source: Memory, embeddings: WordEmbeddings, raw: redis.Redis, prefix: str
) -> None:
    before, rows, calls = thread_of(source), rows_of(source), len(embeddings.calls)
    clone = source.threads.clone("t", new_thread_id="c")
    copies = rows_of(source, "c")
    assert len(embeddings.calls) == calls
    assert [row.stored_at for row in copies] == [row.stored_at for row in rows]
    said = [[one.message.model_copy(update={"id": None}) for one in found] for found in (rows, copies)]
    assert said[0] == said[1]
    assert [*clone.message_ids.values()] == [copy.message.id for copy in copies]
    assert list(clone.message_ids) == [row.message.id for row in rows]
    assert len(set(clone.message_ids.values()) | set(clone.message_ids)) == 900
    assert clone.thread == source.threads.get("c")
    assert (clone.thread.user_id, clone.thread.title, clone.thread.metadata) == ("u", "T", before.metadata)
    assert (clone.thread.message_count, clone.thread.source_id) == (450, "t")
    assert thread_of(source) == before
    found = vectors(raw, prefix).items()
    assert sorted(text for key, text in found if "{c}" in key) == sorted(text for key, text in found if "{t}" in key)
    source.threads.delete("t")
    (hit,) = source.recall.search("cat", user_id="u", top_k=1).hits
    assert (hit.thread_id, hit.message.id) == ("c", clone.message_ids["at last a cat"])


def test_clone_copies_the_part_that_is_chosen(source: Memory) -> None:
    rows = rows_of(source)
    old = [str(row.message.id) for row in rows]
    since, until = rows[100].stored_at, rows[400].stored_at
    step = timedelta(microseconds=1)
    for choice, expected in [
        ({"last_messages": 200}, old[-200:]),  # a step
        ({"last_messages": 0}, []),
        ({"last_messages": 401}, old[-401:]),
        ({"last_messages": 1000}, old),
        ({"since": since, "until": until}, old[100:401]),
        ({"since": since + step, "until": until - step}, old[101:400]),
        ({"until": until, "last_messages": 2}, old[399:401]),
        ({"message_ids": [old[440], old[3], "unknown"]}, [old[3], old[440]]),
        ({"message_ids": []}, []),
        ({"message_ids": {old[0], old[200]}, "since": since}, [old[200]]),
    ]:
        clone = source.threads.clone("t", user_id="u", **choice)  # type: ignore[arg-type]
        assert list(clone.message_ids) == expected
        copies = rows_of(source, clone.thread.id)
        assert [row.message.id for row in copies] == list(clone.message_ids.values())
        assert clone.thread.message_count == len(expected)


def test_clone_changes_title_and_metadata_as_it_is_told(plain: Memory) -> None:
    plain.threads.create(user_id="u", thread_id="t", title="T", metadata={"a": 1, "b": 2})
    clone = plain.threads.clone("t", title="New", metadata={"b": None, "c": [3]})
    assert (clone.thread.title, clone.thread.metadata, clone.message_ids) == ("New", {"a": 1, "c": [3]}, {})
    assert ids(plain.threads.list(metadata={"c": [3], "a": 1})) == [clone.thread.id]
    assert thread_of(plain).metadata == {"a": 1, "b": 2}


def test_an_impossible_clone_is_refused(plain: Memory) -> None:
    append(plain, "a", "b")
    append(plain, "mine", thread_id="c", user_id="v")
    refusals: list[tuple[str, dict[str, Any], type[Exception], str]] = [
        ("t", {"new_thread_id": "c"}, ThreadExistsError, "thread 'c' exists"),
        ("t", {"new_thread_id": "t"}, IdError, "new_thread_id is the thread itself"),
        ("nowhere", {}, ThreadNotFoundError, "no thread 'nowhere'"),
        ("t", {"last_messages": -1}, OptionError, "use an int of at least 0"),
        ("t", {"message_ids": "abc"}, OptionError, "use a list of ids"),
        ("t", {"message_ids": 5}, OptionError, "use a list of ids"),
    ]
    for source, choice, error, words in refusals:
        with pytest.raises(error, match=words):
            plain.threads.clone(source, **choice)
    assert texts(plain.history.messages("c", user_id="v")) == ["mine"]
    assert sorted(all_threads(plain)) == ["c", "t"]


@pytest.mark.parametrize("way", ["transfer", "delete"])
def test_a_clone_that_fails_on_the_way_is_deleted_again(server: EmbeddedRedis, prefix: str, way: str) -> None:
    with Memory(server.url, key_prefix=prefix) as memory:
        append(memory, *map(str, range(450)))

        def event(_: object) -> None:
            if memory.threads.get("c"):  # the first batch is there
                with suppress(WorkingMemError):
                    memory.threads.delete("t") if way == "delete" else memory.threads.transfer("t", **HEIR)

        with pytest.raises(ThreadNotFoundError if way == "delete" else ThreadOwnershipError):
            memory._core.run(meanwhile(plan_of(Threads.clone, memory, "t", new_thread_id="c"), event))
        assert memory.threads.get("c") is None


def test_lineage_leads_from_the_first_source_of_the_same_owner_to_the_thread(plain: Memory) -> None:
    plain.threads.create(user_id="u", thread_id="a}|,b")
    plain.threads.clone("a}|,b", new_thread_id="b")
    plain.threads.clone("b", new_thread_id="c")
    plain.threads.clone("a}|,b", new_thread_id="d")
    assert ids(plain.threads.lineage("c", user_id="u")) == ["a}|,b", "b", "c"]
    assert ids(plain.threads.lineage("a}|,b")) == ["a}|,b"]
    plain.threads.transfer("a}|,b", user_id="u", to="v")
    assert ids(plain.threads.lineage("c", user_id="u")) == ["b", "c"]
