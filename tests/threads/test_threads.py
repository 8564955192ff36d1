from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC
from itertools import count, pairwise
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem import Memory, OptionError, Page, Thread, WorkingMemError, WorkingMemoryOptions
from langchain_workingmem._redis.keys import encode
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import ThreadExistsError, ThreadNotFoundError, ThreadOwnershipError
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.examples import examples
from tests.helpers.threads import append, thread_of
from tests.helpers.trips import Trips
from tests.helpers.types import Make


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


def test_create_returns_what_get_reads(plain: Memory) -> None:
    metadata = {"a": [1, {"b": None, "é\0\n": "😀"}], "": 0.5, "x,y|z": True, "n": None, "tuple": [1, 2]}
    thread = plain.threads.create(user_id="u", thread_id="t", title="A\0 title\n", metadata=metadata)
    assert thread == plain.threads.get("t") == plain.threads.get("t", user_id="u")
    assert (thread.id, thread.user_id, thread.title) == ("t", "u", "A\0 title\n")
    assert thread.metadata == metadata
    assert thread.created_at == thread.updated_at
    assert thread.created_at.tzinfo is UTC
    assert (thread.message_count, thread.source_id) == (0, None)


@pytest.mark.parametrize("owner", ["u", "somebody else"])
def test_create_never_overwrites(plain: Memory, owner: str) -> None:
    before = plain.threads.create(user_id="u", thread_id="t", title="T", metadata={"k": 1})
    with pytest.raises(ThreadExistsError, match=r"thread 't' exists: read it with threads\.get\(\)") as caught:
        plain.threads.create(user_id=owner, thread_id="t", title="new")
    assert isinstance(caught.value, ValueError)
    assert caught.value.thread_id == "t"
    assert plain.threads.get("t") == before


def test_a_title_that_is_no_text_is_refused(plain: Memory) -> None:
    plain.threads.create(user_id="u", thread_id="t")
    title: Any = "\ud800"
    with pytest.raises(OptionError, match="title"):
        plain.threads.create(user_id="u", title=title)
    with pytest.raises(OptionError, match="title"):
        plain.threads.update("t", title=title)


def test_update_changes_what_is_given_and_nothing_else(plain: Memory) -> None:
    made = plain.threads.create(user_id="u", thread_id="t", title="T", metadata={"a": {"x": 1}, "b": 2})
    after = plain.threads.update("t", metadata={"a": {"y": 2}, "b": None, "c": [None]})
    assert (after.title, after.metadata) == ("T", {"a": {"y": 2}, "c": [None]})
    assert after.created_at == made.created_at
    assert after.updated_at > made.updated_at
    assert after == plain.threads.get("t")
    assert ids(plain.threads.list(metadata={"c": [None]})) == ["t"]
    assert ids(plain.threads.list(metadata={"b": 2})) == []
    assert plain.threads.update("t", title="New").metadata == after.metadata
    assert plain.threads.update("t", title=None, user_id="u").title is None
    assert plain.threads.update("t", metadata=None).metadata == after.metadata


def test_what_is_not_there_is_an_error_with_the_remedy(plain: Memory) -> None:
    with pytest.raises(ThreadNotFoundError, match="no thread 'nowhere'"):
        plain.threads.transfer("nowhere", user_id="u", to="v")
    with pytest.raises(ThreadNotFoundError, match=r"create it with threads\.create\(\), or append a message") as caught:
        plain.threads.update("nowhere", title="x")
    assert isinstance(caught.value, LookupError)
    assert plain.threads.get("nowhere") is None


@pytest.mark.parametrize("id", ["t", "{a} é*"])
def test_delete_leaves_nothing(memory: Memory, raw: redis.Redis, prefix: str, id: str) -> None:
    memory.threads.create(user_id="u", thread_id=id, metadata={"k": 1})
    append(memory, "a cat", " ".join(f"w{number}" for number in range(2000)), thread_id=id)
    append(memory, "stays", thread_id=f"{id}x")
    assert memory.threads.delete(id, user_id="u") is True
    left = [key.decode() for key in raw.scan_iter(f"{prefix}*", count=1000)]
    assert [key for key in left if f"{{{encode(id)}}}" in key] == []
    assert any(f"{{{encode(id + 'x')}}}" in key for key in left)
    assert memory.threads.get(id) is None
    assert memory.history.messages(id) == []
    assert ids(memory.threads.list(user_id="u")) == [f"{id}x"]
    assert [hit.thread_id for hit in memory.recall.search("cat w1", user_id="u").hits] == [f"{id}x"]
    assert memory.threads.delete(id) is False
    again = memory.threads.create(user_id="other", thread_id=id)
    assert (again.title, again.metadata, again.message_count) == (None, {}, 0)


def test_transfer_moves_the_thread_with_its_vectors(memory: Memory, embeddings: WordEmbeddings) -> None:
    memory.threads.create(user_id="u", thread_id="t", title="T", metadata={"k": 1})
    append(memory, "a cat sat")
    memory.recall.search("cat", user_id="u")
    before, calls = thread_of(memory), len(embeddings.calls)
    after = memory.threads.transfer("t", user_id="u", to=" {U}|u ")
    assert after == thread_of(memory)
    assert (after.user_id, after.title, after.metadata, after.message_count) == (" {U}|u ", "T", {"k": 1}, 1)
    assert after.updated_at > before.updated_at
    assert ids(memory.threads.list(user_id="u")) == []
    assert ids(memory.threads.list(user_id=" {U}|u ")) == ["t"]
    assert memory.recall.search("cat", user_id="u").hits == []
    assert [hit.thread_id for hit in memory.recall.search("cat", user_id=" {U}|u ").hits] == ["t"]
    assert len(embeddings.calls) == calls
    with pytest.raises(ThreadOwnershipError):
        append(memory, "late")


def test_one_of_many_creations_and_clones_of_one_id_wins(server: EmbeddedRedis, plain: Memory, prefix: str) -> None:
    append(plain, "a", "b", thread_id="source")
    with Memory(server.url, key_prefix=prefix) as shared, ThreadPoolExecutor(8) as pool:

        def make(number: int) -> str:
            try:
                if number % 2:
                    return shared.threads.create(user_id="u", thread_id="t", title=f"made {number}").title or ""
                return shared.threads.clone("source", new_thread_id="t", title=f"made {number}").thread.title or ""
            except ThreadExistsError:
                return ""

        winners = [title for title in pool.map(make, range(40)) if title]
    assert winners == [thread_of(plain).title]
    assert thread_of(plain).message_count == len(plain.history.messages("t"))


def test_updates_of_different_keys_at_the_same_time_keep_all(server: EmbeddedRedis, plain: Memory, prefix: str) -> None:
    plain.threads.create(user_id="u", thread_id="t")
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
                return shared.threads.transfer("t", user_id="u", to=f"v{number}").user_id
            except ThreadOwnershipError:
                return ""

        winners = [owner for owner in pool.map(give, range(30)) if owner]
    assert winners == [thread_of(plain).user_id]


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
                    return shared.threads.transfer("t", user_id="u", to="u")
                append(shared, str(number), str(number % 5))
            return None

        list(pool.map(act, range(200)))
    memory.threads.delete("t")
    assert [key for key in raw.scan_iter(f"{prefix}*", count=1000) if b"{t}" in key] == []


_names = st.text(max_size=3).filter(lambda name: not name.startswith("$"))  # which filters take for an operator
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=6,
)
_keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=2).filter(lambda key: not key.startswith("$"))
_changes = st.lists(st.dictionaries(_keys, _json, max_size=3), max_size=4)


@examples(15, server=True)
@given(first=st.dictionaries(_keys, _json.filter(lambda value: value is not None), max_size=4), changes=_changes)
def test_any_metadata_is_kept_merged_and_found(plain: Memory, first: dict[str, Any], changes: list[Any]) -> None:
    name = plain.threads.create(user_id="u", metadata=first).id
    model = dict(first)
    for change in changes:
        model = {key: value for key, value in (model | change).items() if value is not None}
        assert plain.threads.update(name, metadata=change).metadata == model
    assert thread_of(plain, name).metadata == model
    assert name in ids(plain.threads.list(user_id="u", metadata=model))


def test_a_thread_begun_without_a_user_says_how_it_is_handed_over(make_memory: Make) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(template=""))
    memory.chat_history("t").add_user_message("hello")
    memory.working_memory.update("likes tea", user_id="t")
    memory.files.write("/note", "tea", user_id="t")
    with pytest.raises(ThreadOwnershipError, match="begun without a user_id"):
        memory.threads.get("t", user_id="ann")
    with pytest.raises(ThreadOwnershipError, match="begun without a user_id") as refused:
        memory.context("hello", thread_id="t", user_id="ann")
    eval(str(refused.value.remedy).partition("itself: ")[2].partition(" hands")[0], {"memory": memory})
    assert memory.history.messages("t", user_id="ann")[0].text == "hello"
    assert memory.working_memory.get(user_id="ann").text == "likes tea"
    assert memory.files.read("/note", user_id="ann").text == "tea"
    assert memory.working_memory.get(user_id="t").is_empty


def test_each_operation_is_one_round_trip(memory: Memory, trips: Trips) -> None:
    fresh = count()
    for number in range(12):
        append(memory, "a", thread_id=f"t{number}")
    for source, copy in pairwise(["t0", "a", "b", "c"]):
        memory.threads.clone(source, new_thread_id=copy)
    names = iter([f"t{number}" for number in range(2, 12)])
    costs = {
        "create": trips.of(lambda: memory.threads.create(user_id="u", thread_id=f"n{next(fresh)}")),
        "get": trips.of(lambda: memory.threads.get("t0")),
        "list": trips.of(lambda: memory.threads.list(user_id="u", metadata={"k": 1}, limit=3)),
        "update": trips.of(lambda: memory.threads.update("t0", title="x", metadata={"k": None})),
        "delete": trips.of(lambda: memory.threads.delete(next(names), user_id="u")),
        "transfer": trips.of(lambda: memory.threads.transfer("t1", user_id="u", to="u")),
        "lineage": trips.of(lambda: memory.threads.lineage("c")),
        "clone": trips.of(lambda: memory.threads.clone("t0")),
        "for_user": trips.of(lambda: memory.history.for_user("u", limit=3)),
    }
    assert costs == dict.fromkeys(costs, 1) | {"lineage": 4, "clone": 6, "for_user": 3}
