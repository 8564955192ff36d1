"""Items of a LangGraph store that belong to a user."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, OptionError
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.archives import unsealed
from tests.helpers.embeddings import WordEmbeddings

Make = Callable[..., RedisMemoryStore]
TEMPLATES = [("memories", "{user_id}"), ("{user_id}", "notes")]


@pytest.fixture
def filled(make_store: Make, plain: Memory, embeddings: WordEmbeddings) -> RedisMemoryStore:
    """Items of maya and tom, with several vectors each, beside their threads."""
    store = make_store(index={"dims": 64, "embed": embeddings, "fields": ["tags[*]"]})
    for name in ("maya", "tom"):
        plain.history.append([HumanMessage("hello", id="1")], thread_id=f"of {name}", user_id=name)
        for namespace in (
            ("memories", name),
            ("memories", name, "deep"),
            (name, "notes"),
            (name, "else"),
            ("other", name),
        ):
            store.put(namespace, "k", {"of": name, "tags": ["red fox", "blue sea"]})
    return store


def test_a_deletion_leaves_the_store_alone_unless_it_is_told(plain: Memory, filled: RedisMemoryStore) -> None:
    report = plain.users.delete("maya")
    assert (report.threads, report.items, report.verified) == (1, 0, True)
    assert len(filled.list_namespaces()) == 10


def test_a_deletion_takes_the_items_below_the_namespaces_of_the_user(
    plain: Memory, filled: RedisMemoryStore, raw: Any, prefix: str
) -> None:
    report = plain.users.delete("maya", namespaces=TEMPLATES)
    assert (report.threads, report.items, report.verified) == (1, 3, True)
    left = filled.list_namespaces()
    assert len(left) == 7
    assert [name for name in left if "maya" in name] == [("maya", "else"), ("other", "maya")]
    assert len(list(raw.scan_iter(f"{prefix}:item*:{{*"))) == 7 * 2
    assert plain.users.delete("maya", namespaces=TEMPLATES).items == 0


def test_items_come_back_as_they_were(plain: Memory, filled: RedisMemoryStore) -> None:
    before = filled.get(("memories", "maya"), "k")
    records = json.loads(json.dumps(unsealed(plain.users.export("maya", namespaces=TEMPLATES))))
    assert [record["kind"] for record in records] == ["header", "thread", "message", "item", "item", "item"]
    plain.users.delete("maya", namespaces=TEMPLATES)
    assert plain.users.load(records, namespaces=TEMPLATES).items == 3
    assert filled.get(("memories", "maya"), "k") == before
    assert plain.users.load(records, namespaces=TEMPLATES).items == 0
    assert [item.score for item in filled.search(("maya", "notes"), query="red fox")] == [None]


def test_an_import_does_not_undo_a_later_change(plain: Memory, filled: RedisMemoryStore) -> None:
    records = unsealed(plain.users.export("maya", namespaces=TEMPLATES))
    filled.put(("memories", "maya"), "k", {"new": True})
    plain.users.load(records, namespaces=TEMPLATES)
    item = filled.get(("memories", "maya"), "k")
    assert item is not None
    assert item.value == {"new": True}


def test_items_of_one_user_can_be_given_to_another(plain: Memory, filled: RedisMemoryStore) -> None:
    records = [
        one for one in unsealed(plain.users.export("maya", namespaces=TEMPLATES)) if one["kind"] in {"header", "item"}
    ]
    assert plain.users.load(records, user_id="eve", namespaces=TEMPLATES).items == 3
    assert filled.get(("memories", "eve"), "k") is not None


@pytest.mark.parametrize("templates", [[("memories",)], [()], ["memories"], [("memories", "maya")], 5])
def test_a_namespace_without_the_user_is_refused_and_nothing_is_deleted(
    plain: Memory, filled: RedisMemoryStore, templates: Any
) -> None:
    with pytest.raises(OptionError, match="namespaces"):
        plain.users.delete("maya", namespaces=templates)
    with pytest.raises(OptionError, match="namespaces"):
        unsealed(plain.users.export("maya", namespaces=templates))
    assert plain.threads.get("of maya") is not None
    assert len(filled.list_namespaces()) == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"namespace": ["memories", "tom"]}, r"for 'maya'.*namespaces=\["),
        ({"namespace": ["memories", "tom", "maya"]}, "namespaces= does not select .* for 'maya'"),
        ({"namespace": ["tom", "notes", "maya"]}, "namespaces= does not select .* for 'maya'"),
        ({"namespace": "memories"}, "namespace"),
        ({"namespace": ["memories", 5]}, r"namespace\.1"),
        ({"key": 5}, "key: "),
        ({"namespace": ["memories", "maya", "a.b"]}, "periods"),
        ({"value": None}, "use a dict"),
        ({"created_at": "yesterday"}, "isoformat"),
        ({"key": ...}, "key: Field required"),
    ],
)
def test_a_record_that_is_no_item_of_the_user_is_refused(
    plain: Memory, filled: RedisMemoryStore, change: dict[str, Any], message: str
) -> None:
    header, *_, item = unsealed(plain.users.export("maya", namespaces=TEMPLATES))
    broken = {name: value for name, value in {**item, **change}.items() if value is not ...}
    with pytest.raises(OptionError, match=f"record 2: .*{message}"):
        plain.users.load([header, broken], namespaces=TEMPLATES)
