from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_workingmem import (
    EmbeddingError,
    IdError,
    Memory,
    OptionError,
    Page,
    Thread,
    ThreadExistsError,
    ThreadNotFoundError,
    ThreadOwnershipError,
    WorkingMemError,
)
from langchain_workingmem.io.embedder import Embedder
from langchain_workingmem.io.runners import Runner
from langchain_workingmem.plans import threads as plans
from langchain_workingmem.plans.keys import Keys, encode
from langchain_workingmem.plans.rows import Wanted
from langchain_workingmem.plans.threads import CLONE_BATCH
from tests.server.test_history import append, rows_of, said, texts, thread_of, vectors
from tests.unit.test_keys import BAD_IDS, NASTY_IDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workingmem.embedded import EmbeddedRedis
    from tests.conftest import Trips, WordEmbeddings

OrderBy = Literal["updated_at", "created_at"]


def ids(threads: Page[Thread] | list[Thread]) -> list[str]:
    return [thread.id for thread in threads]


def all_threads(memory: Memory, **choice: Any) -> list[str]:
    page = memory.threads.list(**choice)
    found, totals = ids(page), {page.total}
    while page.next_cursor is not None:
        page = memory.threads.list(cursor=page.next_cursor, **choice)
        assert page.items
        assert len(page) <= choice.get("limit", 100)
        found += ids(page)
        totals.add(page.total)
    assert totals == {len(found)}
    return found


# ---------------------------------------------------------------------- create, get


def test_create_returns_what_get_reads(plain: Memory) -> None:
    metadata = {"a": [1, {"b": None, "é\0\n": "😀"}], "": 0.5, "x,y|z": True, "n": None, "tuple": [1, 2]}
    thread = plain.threads.create(resource_id="u", thread_id="t", title="A\0 title\n", metadata=metadata)
    assert thread == plain.threads.get("t") == plain.threads.get("t", resource_id="u")
    assert (thread.id, thread.resource_id, thread.title) == ("t", "u", "A\0 title\n")
    assert thread.metadata == metadata
    assert thread.created_at == thread.updated_at
    assert thread.created_at.tzinfo is UTC
    assert (thread.message_count, thread.clone_of) == (0, None)


def test_create_without_an_id_gives_each_thread_its_own(plain: Memory) -> None:
    made = [plain.threads.create(resource_id="u") for _ in range(3)]
    assert len(set(ids(made))) == 3
    assert sorted(all_threads(plain, resource_id="u")) == sorted(ids(made))


@pytest.mark.parametrize("owner", ["u", "somebody else"])
def test_create_never_overwrites(plain: Memory, owner: str) -> None:
    before = plain.threads.create(resource_id="u", thread_id="t", title="T", metadata={"k": 1})
    with pytest.raises(ThreadExistsError, match=r"thread 't' exists: read it with threads\.get\(\)") as caught:
        plain.threads.create(resource_id=owner, thread_id="t", title="new")
    assert isinstance(caught.value, ValueError)
    assert caught.value.thread_id == "t"
    assert plain.threads.get("t") == before


def test_create_keeps_to_a_thread_that_a_message_made(plain: Memory) -> None:
    append(plain, "a")
    with pytest.raises(ThreadExistsError):
        plain.threads.create(resource_id="u", thread_id="t")


def test_get_of_no_thread_is_none(plain: Memory) -> None:
    assert plain.threads.get("nowhere") is None
    assert plain.threads.get("nowhere", resource_id="u") is None


@pytest.mark.parametrize("metadata", [{"a": object()}, {"a": {1, 2}}, {"a": b"x"}, {1: "a"}, {"\ud800": 1}])
def test_metadata_that_is_not_json_is_refused_with_the_remedy(plain: Memory, metadata: Any) -> None:
    for write in (plain.threads.create, lambda **given: plain.threads.update("t", **given)):
        with pytest.raises(OptionError, match=r"use strings, numbers, booleans|use a str of valid Unicode"):
            write(resource_id="u", metadata=metadata)
    assert all_threads(plain) == []


@pytest.mark.parametrize("key", [1, "\ud800"])
def test_a_key_to_delete_is_checked_like_one_to_set(plain: Memory, key: Any) -> None:
    plain.threads.create(resource_id="u", thread_id="t", metadata={"1": "kept"})
    with pytest.raises(OptionError, match="use a str of valid Unicode"):
        plain.threads.update("t", metadata={key: None})
    assert thread_of(plain).metadata == {"1": "kept"}


@pytest.mark.parametrize("title", [5, b"x", "\ud800"])
def test_a_title_that_is_no_text_is_refused(plain: Memory, title: Any) -> None:
    with pytest.raises(OptionError, match="title"):
        plain.threads.create(resource_id="u", title=title)
    plain.threads.create(resource_id="u", thread_id="t")
    with pytest.raises(OptionError, match="title"):
        plain.threads.update("t", title=title)
    with pytest.raises(OptionError, match="title"):
        plain.threads.clone("t", title=title)


# ---------------------------------------------------------------------- list


def test_list_shows_the_newest_first(plain: Memory) -> None:
    for name in "abc":
        plain.threads.create(resource_id="u", thread_id=name)
    append(plain, "hi", thread_id="a")
    assert ids(plain.threads.list(resource_id="u")) == ["a", "c", "b"]
    assert ids(plain.threads.list(resource_id="u", descending=False)) == ["b", "c", "a"]
    assert ids(plain.threads.list(resource_id="u", order_by="created_at")) == ["c", "b", "a"]
    assert ids(plain.threads.list(order_by="created_at", descending=False)) == ["a", "b", "c"]


def test_list_gives_whole_threads(plain: Memory) -> None:
    made = plain.threads.create(resource_id="u", thread_id="t {x}", title="T", metadata={"k": {"n": [1]}})
    append(plain, "a", "b", thread_id="t {x}")
    page = plain.threads.list(resource_id="u")
    assert page.items == [plain.threads.get("t {x}")]
    assert (page.items[0].metadata, page.items[0].message_count) == (made.metadata, 2)
    assert (page.total, page.next_cursor) == (1, None)


@pytest.mark.parametrize("order_by", ["updated_at", "created_at"])
@pytest.mark.parametrize("descending", [True, False])
def test_list_pages_through_every_thread_in_order(plain: Memory, order_by: OrderBy, descending: bool) -> None:
    made = [plain.threads.create(resource_id="u").id for _ in range(130)]
    plain.threads.create(resource_id="other")
    expected = made[::-1] if descending else made
    for limit in (1, 7, 100, 130, 131):
        assert all_threads(plain, resource_id="u", limit=limit, order_by=order_by, descending=descending) == expected


def _same_time(raw: redis.Redis, prefix: str, names: list[str]) -> None:
    for name in names:
        at = {"created_at": 1_700_000_000_000_000, "updated_at": 1_700_000_000_000_000}
        raw.hset(Keys(prefix).of(name).thread, mapping=at)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [1, 4, 7, 20])
@pytest.mark.parametrize("descending", [True, False])
def test_list_pages_through_threads_of_one_time(
    plain: Memory, raw: redis.Redis, prefix: str, limit: int, descending: bool
) -> None:
    names = [f"t{number}" for number in range(25)]
    for name in names:
        plain.threads.create(resource_id="u", thread_id=name)
    _same_time(raw, prefix, names[3:20])
    found = all_threads(plain, resource_id="u", limit=limit, order_by="created_at", descending=descending)
    assert sorted(found) == sorted(names)


@pytest.mark.parametrize("descending", [True, False])
def test_list_by_creation_sees_each_thread_once_while_threads_of_one_time_change(
    plain: Memory, raw: redis.Redis, prefix: str, descending: bool
) -> None:
    names = [f"t{number:02}" for number in range(12)]
    for name in names:
        plain.threads.create(resource_id="u", thread_id=name)
    _same_time(raw, prefix, names)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = plain.threads.list(resource_id="u", limit=3, order_by="created_at", cursor=cursor, descending=descending)
        seen += ids(page)
        cursor = page.next_cursor
        if cursor is None:
            break
        plain.threads.update(seen[0], metadata={"changed": True})
        plain.threads.update(min(set(names) - set(seen)), metadata={"changed": True})
    assert sorted(seen) == names


def test_list_by_creation_sees_each_thread_once_while_others_come_and_go(plain: Memory) -> None:
    made = [plain.threads.create(resource_id="u").id for _ in range(10)]
    page = plain.threads.list(resource_id="u", limit=4, order_by="created_at")
    plain.threads.create(resource_id="u", thread_id="late")
    for name in ids(page):
        plain.threads.delete(name)
    rest = plain.threads.list(resource_id="u", limit=100, order_by="created_at", cursor=page.next_cursor)
    assert ids(page) + ids(rest) == made[::-1]
    assert rest.total == 7


@pytest.mark.parametrize("descending", [True, False])
def test_list_by_change_skips_no_thread_that_stays_when_a_seen_one_moves(plain: Memory, descending: bool) -> None:
    made = [plain.threads.create(resource_id="u").id for _ in range(10)]
    expected = made[::-1] if descending else made
    page = plain.threads.list(resource_id="u", limit=4, descending=descending)
    append(plain, "hi", thread_id=page.items[-1].id)
    rest = plain.threads.list(resource_id="u", limit=100, descending=descending, cursor=page.next_cursor)
    moved = [] if descending else [expected[3]]  # to the end, which this order has not reached yet
    assert ids(page) + ids(rest) == expected + moved


def test_list_is_isolated_by_resource_whatever_the_ids(plain: Memory) -> None:
    for id in NASTY_IDS:
        plain.threads.create(resource_id=id, thread_id=id)
    for id in NASTY_IDS:
        page = plain.threads.list(resource_id=id)
        assert (ids(page), page.total) == ([id], 1)
    assert sorted(all_threads(plain)) == sorted(NASTY_IDS)
    assert ids(plain.threads.list(resource_id="nobody")) == []


def test_list_filters_by_every_pair_of_metadata(plain: Memory) -> None:
    threads: dict[str, dict[str, Any]] = {
        "both": {"topic": "a|b", "n": {"x": [1, 2], "y": None}},
        "topic": {"topic": "a|b"},
        "none": {"topic": "a", "n": {"x": [2, 1], "y": None}},
        "true": {"topic": True, "1": "x"},
        "one": {"topic": 1, "n": None},
    }
    for name, metadata in threads.items():
        plain.threads.create(resource_id="u", thread_id=name, metadata=metadata)
    plain.threads.create(resource_id="other", metadata={"topic": "a|b"})

    def found(**metadata: Any) -> set[str]:
        page = plain.threads.list(resource_id="u", metadata=metadata)
        assert page.total == len(page)
        return set(ids(page))

    assert found(topic="a|b") == {"both", "topic"}
    assert found(topic="a|b", n={"y": None, "x": (1, 2)}) == {"both"}  # order of keys and kind of list are no JSON
    assert found(n={"x": [1, 2]}) == set()
    assert found(topic="A|b") == found(topic="a*") == found(topic=["a|b"]) == found(nothing=None) == set()
    assert found(topic=True) == {"true"}
    assert found(topic=1) == {"one"}
    assert found(topic="1") == set()
    assert found() == {"both", "topic", "none", "true", "one"}


def test_list_follows_changes_of_metadata(plain: Memory) -> None:
    plain.threads.create(resource_id="u", thread_id="t", metadata={"a": 1, "b": 2})
    plain.threads.update("t", metadata={"a": None, "b": 3, "c": "new"})
    assert ids(plain.threads.list(metadata={"a": 1})) == []
    assert ids(plain.threads.list(metadata={"b": 2})) == []
    assert ids(plain.threads.list(metadata={"b": 3, "c": "new"})) == ["t"]


@pytest.mark.parametrize(
    "cursor", ["", "x", "1", "1:", ":1", "-1:0", "1:0:0", "1.5:0", "1:" + "9" * 20, "9" * 5000 + ":0"]
)
def test_a_bad_cursor_of_threads_is_refused_with_the_remedy(plain: Memory, cursor: str) -> None:
    with pytest.raises(OptionError, match="pass the next_cursor of the page before, unchanged"):
        plain.threads.list(cursor=cursor)


@pytest.mark.parametrize("choice", [{"limit": 0}, {"limit": True}, {"order_by": "title"}, {"limit": 2_000_000}])
def test_an_impossible_list_is_refused(plain: Memory, choice: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="use "):
        plain.threads.list(**choice)


# ---------------------------------------------------------------------- update


def test_update_changes_what_is_given_and_nothing_else(plain: Memory) -> None:
    made = plain.threads.create(resource_id="u", thread_id="t", title="T", metadata={"a": {"x": 1}, "b": 2})
    after = plain.threads.update("t", metadata={"a": {"y": 2}, "b": None, "c": [None]})
    assert (after.title, after.metadata) == ("T", {"a": {"y": 2}, "c": [None]})
    assert after.created_at == made.created_at
    assert after.updated_at > made.updated_at
    assert after == plain.threads.get("t")
    assert plain.threads.update("t", title="New").metadata == after.metadata
    assert plain.threads.update("t", title=None, resource_id="u").title is None
    assert plain.threads.update("t", metadata=None).metadata == after.metadata


def test_update_of_no_thread_is_an_error_with_the_remedy(plain: Memory) -> None:
    with pytest.raises(ThreadNotFoundError, match=r"create it with threads\.create\(\), or append a message") as caught:
        plain.threads.update("nowhere", title="x")
    assert isinstance(caught.value, LookupError)
    assert plain.threads.get("nowhere") is None


# ---------------------------------------------------------------------- delete


@pytest.mark.parametrize("id", ["t", "{a} b", "é*"])
def test_delete_leaves_nothing(memory: Memory, raw: redis.Redis, prefix: str, id: str) -> None:
    memory.threads.create(resource_id="u", thread_id=id, metadata={"k": 1})
    append(memory, "a cat", " ".join(f"w{number}" for number in range(2000)), thread_id=id)
    append(memory, "stays", thread_id=f"{id}x")
    assert memory.threads.delete(id, resource_id="u") is True
    left = [key.decode() for key in raw.scan_iter(f"{prefix}*", count=1000)]
    assert [key for key in left if f"{{{encode(id)}}}" in key] == []
    assert any(f"{{{encode(id + 'x')}}}" in key for key in left)
    assert memory.threads.get(id) is None
    assert memory.history.messages(id) == []
    assert ids(memory.threads.list(resource_id="u")) == [f"{id}x"]
    assert [hit.thread_id for hit in memory.recall.search("cat w1", resource_id="u").hits] == [f"{id}x"]
    assert memory.threads.delete(id) is False


def test_a_deleted_thread_may_be_created_anew_by_anybody(plain: Memory) -> None:
    plain.threads.create(resource_id="u", thread_id="t", title="T", metadata={"k": 1})
    append(plain, "a")
    plain.threads.delete("t")
    again = plain.threads.create(resource_id="other", thread_id="t")
    assert (again.title, again.metadata, again.message_count) == (None, {}, 0)
    append(plain, "b", resource_id="other")
    assert texts(plain.history.messages("t")) == ["b"]


# ---------------------------------------------------------------------- transfer


def test_transfer_moves_the_thread_with_its_vectors(memory: Memory, embeddings: WordEmbeddings) -> None:
    memory.threads.create(resource_id="u", thread_id="t", title="T", metadata={"k": 1})
    append(memory, "a cat sat")
    memory.recall.search("cat", resource_id="u")
    before, calls = thread_of(memory), len(embeddings.calls)
    after = memory.threads.transfer("t", resource_id="u", to=" {U}|u ")
    assert after == thread_of(memory)
    assert (after.resource_id, after.title, after.metadata, after.message_count) == (" {U}|u ", "T", {"k": 1}, 1)
    assert after.updated_at > before.updated_at
    assert ids(memory.threads.list(resource_id="u")) == []
    assert ids(memory.threads.list(resource_id=" {U}|u ")) == ["t"]
    assert memory.recall.search("cat", resource_id="u").hits == []
    assert [hit.thread_id for hit in memory.recall.search("cat", resource_id=" {U}|u ").hits] == ["t"]
    assert len(embeddings.calls) == calls
    with pytest.raises(ThreadOwnershipError):
        append(memory, "late")


def test_transfer_of_no_thread_is_an_error(plain: Memory) -> None:
    with pytest.raises(ThreadNotFoundError, match="no thread 'nowhere'"):
        plain.threads.transfer("nowhere", resource_id="u", to="v")


@pytest.mark.parametrize("id", BAD_IDS)
def test_transfer_to_nobody_is_refused(plain: Memory, id: Any) -> None:
    plain.threads.create(resource_id="u", thread_id="t")
    with pytest.raises(IdError, match="to "):
        plain.threads.transfer("t", resource_id="u", to=id)
    assert thread_of(plain).resource_id == "u"


# ---------------------------------------------------------------------- clone


@pytest.fixture
def source(memory: Memory) -> Memory:
    """A thread t of 450 messages, some of them long, with tools, deleted or edited."""
    memory.threads.create(resource_id="u", thread_id="t", title="T", metadata={"a": 1, "b": {"c": [2]}})
    call = AIMessage("", id="call", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "c"}])
    messages = [*said(*(f"{number} words" for number in range(447))), HumanMessage("long " * 1000, id="long")]
    memory.history.append(
        [*messages, call, ToolMessage("42", id="result", tool_call_id="c")], thread_id="t", resource_id="u"
    )
    memory.history.append(said("gone"), thread_id="t", resource_id="u")
    memory.history.delete(["gone", "7 words"], thread_id="t")
    memory.history.append(said("at last a cat"), thread_id="t", resource_id="u")
    return memory


def test_clone_copies_everything_in_batches_without_the_model(
    source: Memory, embeddings: WordEmbeddings, raw: redis.Redis, prefix: str
) -> None:
    before, rows, calls = thread_of(source), rows_of(source), len(embeddings.calls)
    clone = source.threads.clone("t", new_thread_id="c")
    copies = rows_of(source, "c")
    assert len(embeddings.calls) == calls
    assert [row.stored_at for row in copies] == [row.stored_at for row in rows]
    assert [row.message.model_copy(update={"id": None}) for row in copies] == [
        row.message.model_copy(update={"id": None}) for row in rows
    ]
    assert clone.message_ids == {
        str(row.message.id): str(copy.message.id) for row, copy in zip(rows, copies, strict=True)
    }
    assert list(clone.message_ids) == [row.message.id for row in rows]
    assert len(set(clone.message_ids.values()) | set(clone.message_ids)) == 900
    assert clone.thread == source.threads.get("c")
    assert (clone.thread.resource_id, clone.thread.title, clone.thread.metadata) == ("u", "T", before.metadata)
    assert (clone.thread.message_count, clone.thread.clone_of) == (450, "t")
    assert thread_of(source) == before
    found = vectors(raw, prefix).items()
    assert sorted(text for key, text in found if "{c}" in key) == sorted(text for key, text in found if "{t}" in key)


def test_recall_finds_a_clone_and_leaves_its_source_alone(source: Memory) -> None:
    clone = source.threads.clone("t", new_thread_id="c")
    (hit,) = source.recall.search("cat", thread_id="c", scope="thread", top_k=1).hits
    assert (hit.thread_id, hit.message.content) == ("c", "at last a cat")
    assert hit.message.id == clone.message_ids["at last a cat"]
    source.threads.delete("t")
    assert {hit.thread_id for hit in source.recall.search("cat", resource_id="u").hits} == {"c"}


def test_a_clone_lives_on_by_itself(source: Memory) -> None:
    clone = source.threads.clone("t", new_thread_id="c", last_messages=2)
    append(source, "new", thread_id="c")
    rows = rows_of(source, "c")
    assert [row.message.content for row in rows] == ["42", "at last a cat", "new"]
    assert [row.seq for row in rows] == [0, 1, 2]
    assert rows[1].stored_at < rows[2].stored_at
    source.history.delete(list(clone.message_ids.values()), thread_id="c")
    assert thread_of(source, "c").message_count == 1
    assert thread_of(source).message_count == 450


def test_clone_copies_the_part_that_is_chosen(source: Memory) -> None:
    rows = rows_of(source)
    old = [str(row.message.id) for row in rows]
    since, until = rows[100].stored_at, rows[400].stored_at
    step = timedelta(microseconds=1)
    for choice, expected in [
        ({"last_messages": 3}, old[-3:]),
        ({"last_messages": 0}, []),
        ({"last_messages": 430}, old[-430:]),
        ({"last_messages": 1000}, old),
        ({"since": since, "until": until}, old[100:401]),
        ({"since": since + step, "until": until - step}, old[101:400]),
        ({"until": until, "last_messages": 2}, old[399:401]),
        ({"message_ids": [old[440], old[3], "unknown"]}, [old[3], old[440]]),
        ({"message_ids": []}, []),
        ({"message_ids": {old[0], old[200]}, "since": since}, [old[200]]),
    ]:
        clone = source.threads.clone("t", resource_id="u", **choice)  # type: ignore[arg-type]
        assert list(clone.message_ids) == expected
        copies = rows_of(source, clone.thread.id)
        assert [row.message.id for row in copies] == list(clone.message_ids.values())
        assert clone.thread.message_count == len(expected)


def test_clone_changes_title_and_metadata_as_it_is_told(plain: Memory) -> None:
    plain.threads.create(resource_id="u", thread_id="t", title="T", metadata={"a": 1, "b": 2})
    clone = plain.threads.clone("t", title="New", metadata={"b": None, "c": [3]})
    assert (clone.thread.title, clone.thread.metadata) == ("New", {"a": 1, "c": [3]})
    assert clone.message_ids == {}
    assert ids(plain.threads.list(metadata={"c": [3], "a": 1})) == [clone.thread.id]
    assert thread_of(plain).metadata == {"a": 1, "b": 2}


def test_clone_onto_a_thread_that_exists_is_refused(plain: Memory) -> None:
    append(plain, *map(str, range(450)))
    append(plain, "mine", thread_id="c", resource_id="v")
    with pytest.raises(ThreadExistsError, match="thread 'c' exists"):
        plain.threads.clone("t", new_thread_id="c")
    assert texts(plain.history.messages("c", resource_id="v")) == ["mine"]
    with pytest.raises(IdError, match="new_thread_id is the thread itself"):
        plain.threads.clone("t", new_thread_id="t")
    assert thread_of(plain).message_count == 450


@pytest.mark.parametrize("size", [199, 200, 201, 400])
def test_clone_is_exact_where_batches_end(plain: Memory, size: int) -> None:
    append(plain, *map(str, range(size)))
    clone = plain.threads.clone("t", new_thread_id="c")
    assert texts(plain.history.messages("c")) == [str(number) for number in range(size)]
    assert clone.thread.message_count == size


@pytest.mark.parametrize("way", ["transfer", "delete"])
def test_a_clone_that_fails_on_the_way_is_deleted_again(
    server: EmbeddedRedis, raw: redis.Redis, prefix: str, way: str
) -> None:
    with Memory(server.url, key_prefix=prefix) as memory:
        append(memory, *map(str, range(450)))
        runner = Runner(lambda: raw, Embedder(None, 0), borrowed=raw)
        names = map(str, count())
        wanted = Wanted.of(limit=CLONE_BATCH)
        plan = plans.clone(memory._space, "t", "c", None, None, None, wanted, None, lambda: next(names))

        def drive() -> None:
            effect = next(plan)
            while True:
                reply = runner._perform(effect, None)
                if memory.threads.get("c"):  # the first batch is there
                    with suppress(WorkingMemError):
                        memory.threads.delete("t") if way == "delete" else memory.threads.transfer(
                            "t", resource_id="u", to="v"
                        )
                effect = plan.send(reply)

        with pytest.raises(ThreadNotFoundError if way == "delete" else ThreadOwnershipError):
            drive()
        assert memory.threads.get("c") is None


def test_clone_of_no_thread_is_an_error(plain: Memory) -> None:
    with pytest.raises(ThreadNotFoundError, match="no thread 'nowhere'"):
        plain.threads.clone("nowhere")
    assert all_threads(plain) == []


@pytest.mark.parametrize("choice", [{"last_messages": -1}, {"last_messages": True}, {"message_ids": "abc"}])
def test_an_impossible_clone_is_refused(plain: Memory, choice: dict[str, Any]) -> None:
    append(plain, "a", "b", "c")
    with pytest.raises(OptionError, match=r"use an int of at least 0|pass a list of ids"):
        plain.threads.clone("t", **choice)
    assert all_threads(plain) == ["t"]


def test_clone_copies_as_much_metadata_as_create_takes(plain: Memory) -> None:
    metadata = {f"key {number}": number for number in range(5000)}
    plain.threads.create(resource_id="u", thread_id="t", metadata=metadata)
    assert plain.threads.clone("t").thread.metadata == metadata


def test_clone_copies_messages_whose_vectors_were_evicted(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    append(memory, "a", "b")
    raw.delete(next(iter(vectors(raw, prefix))))
    clone = memory.threads.clone("t")
    assert texts(memory.history.messages(clone.thread.id)) == ["a", "b"]


def test_clone_copies_messages_that_have_no_vectors_yet(memory: Memory, embeddings: WordEmbeddings) -> None:
    embeddings.broken = RuntimeError("down")
    with suppress(EmbeddingError):
        append(memory, "a cat")
    embeddings.broken = None
    clone = memory.threads.clone("t", new_thread_id="c")
    assert texts(memory.history.messages("c")) == ["a cat"]
    memory.recall.reindex(thread_id="c", progress=False)
    (hit,) = memory.recall.search("cat", thread_id="c", scope="thread").hits
    assert hit.message.id == clone.message_ids["a cat"]


# ---------------------------------------------------------------------- where clones come from


def test_lineage_leads_from_the_first_source_to_the_thread(plain: Memory) -> None:
    plain.threads.create(resource_id="u", thread_id="a}|,b")
    plain.threads.clone("a}|,b", new_thread_id="b")
    plain.threads.clone("b", new_thread_id="c")
    plain.threads.clone("a}|,b", new_thread_id="d")
    assert ids(plain.threads.lineage("c", resource_id="u")) == ["a}|,b", "b", "c"]
    assert ids(plain.threads.lineage("a}|,b")) == ["a}|,b"]
    assert ids(plain.threads.clones_of("a}|,b")) == ["b", "d"]
    assert ids(plain.threads.clones_of("c", resource_id="u")) == []
    assert plain.threads.source_of("c") == plain.threads.get("b")
    assert plain.threads.source_of("a}|,b") is None


def test_lineage_ends_where_a_source_is_gone(plain: Memory) -> None:
    plain.threads.create(resource_id="u", thread_id="a")
    plain.threads.clone("a", new_thread_id="b")
    plain.threads.clone("b", new_thread_id="c")
    plain.threads.delete("a")
    assert ids(plain.threads.lineage("c")) == ["b", "c"]
    assert plain.threads.source_of("b") is None
    assert ids(plain.threads.clones_of("a")) == ["b"]


def test_lineage_ends_where_a_thread_took_the_id_of_its_source(
    plain: Memory, server: EmbeddedRedis, prefix: str
) -> None:
    plain.threads.create(resource_id="u", thread_id="a")
    plain.threads.clone("a", new_thread_id="b")
    plain.threads.delete("a")
    plain.threads.clone("b", new_thread_id="a")

    def end_it() -> None:
        with redis.Redis.from_url(server.url) as client:
            client.delete(*(Keys(prefix).of(name).thread for name in "ab"))

    watchdog = threading.Timer(0.5, end_it)
    watchdog.start()
    try:
        assert ids(plain.threads.lineage("a")) == ["b", "a"]
    finally:
        watchdog.cancel()
        watchdog.join()


def test_lineage_ends_where_a_source_belongs_to_somebody_else(plain: Memory) -> None:
    plain.threads.create(resource_id="u", thread_id="a")
    plain.threads.clone("a", new_thread_id="b")
    plain.threads.transfer("a", resource_id="u", to="v")
    assert ids(plain.threads.lineage("b", resource_id="u")) == ["b"]
    assert plain.threads.source_of("b", resource_id="u") is None


def test_the_source_of_no_thread_is_an_error(plain: Memory) -> None:
    with pytest.raises(ThreadNotFoundError, match="no thread 'nowhere'"):
        plain.threads.source_of("nowhere")


# ---------------------------------------------------------------------- ids and owners

CALLS: dict[str, Callable[[Memory, Any, Any], object]] = {
    "get": lambda memory, thread, owner: memory.threads.get(thread, resource_id=owner),
    "update": lambda memory, thread, owner: memory.threads.update(thread, resource_id=owner, title="new"),
    "delete": lambda memory, thread, owner: memory.threads.delete(thread, resource_id=owner),
    "transfer": lambda memory, thread, owner: memory.threads.transfer(thread, resource_id=owner, to="v"),
    "clone": lambda memory, thread, owner: memory.threads.clone(thread, resource_id=owner),
    "source_of": lambda memory, thread, owner: memory.threads.source_of(thread, resource_id=owner),
    "clones_of": lambda memory, thread, owner: memory.threads.clones_of(thread, resource_id=owner),
    "lineage": lambda memory, thread, owner: memory.threads.lineage(thread, resource_id=owner),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("owner", ["U", "u ", "*"])
def test_another_owner_is_refused_and_nothing_happens(plain: Memory, name: str, owner: str) -> None:
    append(plain, "a")
    before = thread_of(plain)
    with pytest.raises(ThreadOwnershipError, match=r"or hand the thread over with threads\.transfer\(\)") as caught:
        CALLS[name](plain, "t", owner)
    assert isinstance(caught.value, PermissionError)
    assert (caught.value.thread_id, caught.value.resource_id) == ("t", owner)
    assert "'u'" not in str(caught.value)  # who owns it is not said
    assert (thread_of(plain), all_threads(plain)) == (before, ["t"])


@pytest.mark.parametrize("id", BAD_IDS)
@pytest.mark.parametrize("name", CALLS)
def test_bad_thread_ids_are_refused(plain: Memory, name: str, id: Any) -> None:
    with pytest.raises(IdError, match="thread_id"):
        CALLS[name](plain, id, "u")


@pytest.mark.parametrize("id", [id for id in BAD_IDS if id is not None])
def test_bad_resource_ids_are_refused(plain: Memory, id: Any) -> None:
    append(plain, "a")
    for call in CALLS.values():
        with pytest.raises(IdError, match=r"resource.id"):
            call(plain, "t", id)
    with pytest.raises(IdError, match=r"resource.id"):
        plain.threads.list(resource_id=id)
    assert all_threads(plain) == ["t"]


@pytest.mark.parametrize("id", BAD_IDS)
def test_create_refuses_bad_ids(plain: Memory, id: Any) -> None:
    with pytest.raises(IdError, match="resource_id"):
        plain.threads.create(resource_id=id)
    if id is not None:  # then it gets one
        with pytest.raises(IdError, match="thread_id"):
            plain.threads.create(resource_id="u", thread_id=id)
    assert all_threads(plain) == []


def test_transfer_needs_to_know_the_present_owner(plain: Memory) -> None:
    append(plain, "a")
    with pytest.raises(IdError, match="resource_id is missing"):
        plain.threads.transfer("t", resource_id=None, to="v")  # type: ignore[arg-type]
    assert thread_of(plain).resource_id == "u"


@pytest.mark.parametrize("id", [id for id in BAD_IDS if id is not None])
def test_clone_refuses_bad_new_ids(plain: Memory, id: Any) -> None:
    append(plain, "a")
    with pytest.raises(IdError, match="new_thread_id"):
        plain.threads.clone("t", new_thread_id=id)


# ---------------------------------------------------------------------- at the same time


def test_one_of_many_creations_and_clones_of_one_id_wins(server: EmbeddedRedis, plain: Memory, prefix: str) -> None:
    append(plain, "a", "b", thread_id="source")
    with Memory(server.url, key_prefix=prefix) as shared, ThreadPoolExecutor(8) as pool:

        def make(number: int) -> str:
            try:
                if number % 2:
                    return shared.threads.create(resource_id="u", thread_id="t", title=f"made {number}").title or ""
                return shared.threads.clone("source", new_thread_id="t", title=f"made {number}").thread.title or ""
            except ThreadExistsError:
                return ""

        winners = [title for title in pool.map(make, range(40)) if title]
    assert winners == [thread_of(plain).title]
    assert thread_of(plain).message_count == len(plain.history.messages("t"))


def test_updates_of_different_keys_at_the_same_time_keep_all(server: EmbeddedRedis, plain: Memory, prefix: str) -> None:
    plain.threads.create(resource_id="u", thread_id="t")
    with Memory(server.url, key_prefix=prefix) as shared, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: shared.threads.update("t", metadata={str(number): number}), range(100)))
    assert thread_of(plain).metadata == {str(number): number for number in range(100)}
    for number in range(100):
        assert ids(plain.threads.list(metadata={str(number): number})) == ["t"]


def test_one_of_many_transfers_wins(server: EmbeddedRedis, plain: Memory, prefix: str) -> None:
    append(plain, "a")
    with Memory(server.url, key_prefix=prefix) as shared, ThreadPoolExecutor(8) as pool:

        def give(number: int) -> str:
            try:
                return shared.threads.transfer("t", resource_id="u", to=f"v{number}").resource_id
            except ThreadOwnershipError:
                return ""

        winners = [owner for owner in pool.map(give, range(30)) if owner]
    assert winners == [thread_of(plain).resource_id]


def test_writers_beside_deletions_leave_no_orphan(
    server: EmbeddedRedis, memory: Memory, raw: redis.Redis, prefix: str
) -> None:
    memory.setup()
    with Memory(server.url, key_prefix=prefix) as shared, ThreadPoolExecutor(8) as pool:

        def act(number: int) -> object:
            with suppress(WorkingMemError):
                if number % 3 == 0:
                    return shared.threads.delete("t")
                if number % 3 == 1:
                    return shared.threads.transfer("t", resource_id="u", to="u")
                append(shared, str(number), str(number % 5))
            return None

        list(pool.map(act, range(200)))
    memory.threads.delete("t")
    assert [key for key in raw.scan_iter(f"{prefix}*", count=1000) if b"{t}" in key] == []


# ---------------------------------------------------------------------- cost


def test_each_operation_is_one_round_trip(memory: Memory, trips: Trips) -> None:
    fresh = count()
    for number in range(12):
        append(memory, "a", thread_id=f"t{number}")
    memory.threads.clone("t0", new_thread_id="c")
    names = iter([f"t{number}" for number in range(2, 12)])
    costs = {
        "create": trips.of(lambda: memory.threads.create(resource_id="u", thread_id=f"n{next(fresh)}")),
        "get": trips.of(lambda: memory.threads.get("t0")),
        "list": trips.of(lambda: memory.threads.list(resource_id="u", metadata={"k": 1}, limit=3)),
        "update": trips.of(lambda: memory.threads.update("t0", title="x", metadata={"k": None})),
        "delete": trips.of(lambda: memory.threads.delete(next(names))),
        "transfer": trips.of(lambda: memory.threads.transfer("t1", resource_id="u", to="u")),
        "clones_of": trips.of(lambda: memory.threads.clones_of("t0")),
        "source_of": trips.of(lambda: memory.threads.source_of("c")),
        "lineage": trips.of(lambda: memory.threads.lineage("c")),
        "clone": trips.of(lambda: memory.threads.clone("t0")),
    }
    assert costs == dict.fromkeys(costs, 1) | {"clones_of": 2, "source_of": 2, "lineage": 2, "clone": 3}


def test_a_server_that_forgot_the_scripts_is_taught_them_again(plain: Memory, raw: redis.Redis) -> None:
    for call in (
        lambda: plain.threads.create(resource_id="u", thread_id="t", title="T"),
        lambda: plain.threads.update("t", metadata={"k": 1}),
        lambda: plain.threads.transfer("t", resource_id="u", to="v"),
        lambda: plain.threads.clone("t", new_thread_id="c"),
        lambda: plain.threads.delete("t"),
    ):
        raw.script_flush()
        assert call()
    assert ids(plain.threads.list(resource_id="v", metadata={"k": 1})) == ["c"]


# ---------------------------------------------------------------------- against a dict

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=2)
_changes = st.lists(st.dictionaries(_keys, _json, max_size=3), max_size=4)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.dictionaries(_keys, _json.filter(lambda value: value is not None), max_size=4), changes=_changes)
def test_any_metadata_is_kept_merged_and_found(plain: Memory, first: dict[str, Any], changes: list[Any]) -> None:
    name = plain.threads.create(resource_id="u", metadata=first).id
    model = dict(first)
    for change in changes:
        model = {key: value for key, value in (model | change).items() if value is not None}
        assert plain.threads.update(name, metadata=change).metadata == model
    assert thread_of(plain, name).metadata == model
    assert name in ids(plain.threads.list(resource_id="u", metadata=model))
