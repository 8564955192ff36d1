"""Search by meaning."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from langchain_core.embeddings import Embeddings
from langgraph.store.base import PutOp, SearchOp

from tests.items.suite.calls import at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langgraph.store.base import BaseStore, SearchItem

    from langchain_workingmem.store import RedisMemoryStore

pytestmark = pytest.mark.in_turn("face")
NS = ("users", "maya")
WORDS = ("red", "fox", "blue", "sea", "old", "wine", "green", "tree")


class WordVectors(Embeddings):
    """A model that counts some words, and everything else as one more: texts with the same words are alike."""

    dims = len(WORDS) + 1

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed each text."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Count the words of a text."""
        words = re.findall(r"\w+", text)
        return [*(float(words.count(word)) for word in WORDS), 0.1]


def keys_of(items: Sequence[SearchItem]) -> list[str]:
    """Return the keys of items that have a score."""
    return [item.key for item in items if item.score is not None]


@pytest.fixture
def store(make_store: Callable[..., RedisMemoryStore]) -> BaseStore:
    """The text has a vector, and each of the tags."""
    return make_store(index={"dims": WordVectors.dims, "embed": WordVectors(), "fields": ["text", "tags[*]"]})


def test_the_most_alike_comes_first(store: BaseStore) -> None:
    for text in ("blue sea", "red fox", "red tree"):
        store.put(NS, text, {"text": text})
    found = store.search(NS, query="red fox")
    assert keys_of(found) == ["red fox", "red tree", "blue sea"]
    scores = [item.score or 0 for item in found]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(1, abs=0.01)


def test_without_a_query_there_is_no_score(store: BaseStore) -> None:
    store.put(NS, "k", {"text": "red fox"})
    assert [item.score for item in store.search(NS)] == [None]


def test_a_query_stays_below_its_prefix(store: BaseStore) -> None:
    for name in (NS, (*NS, "deep"), ("users", "tom"), ("users", "maya2")):
        store.put(name, "k", {"text": "red fox"})
    assert {item.namespace for item in store.search(NS, query="red fox")} == {NS, (*NS, "deep")}


def test_a_query_goes_with_a_filter(store: BaseStore) -> None:
    for number, text in enumerate(("red fox", "red fox", "blue sea", "blue sea")):
        store.put(NS, str(number), {"text": text, "even": number % 2 == 0})
    assert keys_of(store.search(NS, query="red fox", filter={"even": True})) == ["0", "2"]


def test_pages_put_together_are_the_whole(store: BaseStore) -> None:
    store.batch([PutOp(NS, str(n), {"text": f"{' '.join(WORDS[: n % 8 + 1])} {n}"}) for n in range(20)])
    whole = store.search(NS, query="red", limit=100)
    pages = [store.search(NS, query="red", limit=6, offset=start) for start in (0, 6, 12, 18)]
    assert [len(page) for page in pages] == [6, 6, 6, 2]
    assert {item.key for page in pages for item in page} == {item.key for item in whole}
    paged = [item.score for page in pages for item in page]
    assert paged == pytest.approx([item.score for item in whole], abs=1e-3)


def test_items_with_the_same_text_may_be_put_together(store: BaseStore) -> None:
    store.batch([PutOp(NS, str(n), {"text": "red fox", "tags": ["red fox"]}) for n in range(3)])
    assert set(keys_of(store.search(NS, query="red fox"))) == {"0", "1", "2"}


def test_each_element_of_a_list_counts(store: BaseStore) -> None:
    store.put(NS, "many", {"text": "green tree", "tags": ["red fox", "blue sea"]})
    store.put(NS, "one", {"text": "old wine"})
    for query in ("green tree", "red fox", "blue sea"):
        found = store.search(NS, query=query)
        assert (len(found), found[0].key) == (2, "many")
        assert found[0].score == pytest.approx(1, abs=0.01)


def test_an_item_that_is_not_indexed_has_no_score(store: BaseStore) -> None:
    store.put(NS, "off", {"text": "red fox"}, index=False)
    store.put(NS, "blank", {"other": "red fox"})
    store.put(NS, "on", {"text": "blue sea"})
    found = store.search(NS, query="red fox")
    assert found[0].key == "on"
    assert keys_of(found) == ["on"]
    assert store.get(NS, "off") is not None
    assert {item.key for item in store.search(NS)} == {"off", "blank", "on"}


@pytest.mark.parametrize(
    "path", ["other", "deep.er", "list[0].name", "list[-1].name", "list[*].name"], ids=lambda path: path
)
def test_a_put_may_name_its_own_paths(store: BaseStore, path: str) -> None:
    value = {
        "text": "green tree",
        "other": "red fox",
        "deep": {"er": "red fox"},
        "list": [{"name": "red fox"}, {"name": "fox red"}],
    }
    store.put(NS, "own", value, index=[path])
    store.put(NS, "usual", {"text": "green tree"})
    assert keys_of(store.search(NS, query="red fox", limit=1)) == ["own"]
    assert keys_of(store.search(NS, query="green tree", limit=1)) == ["usual"]


def test_an_update_replaces_the_vectors(store: BaseStore) -> None:
    store.put(NS, "k", {"text": "red fox", "tags": ["blue sea", "old wine"]})
    store.put(NS, "k", {"text": "green tree"})
    for query, score in (("green tree", 1), ("red fox", 0), ("blue sea", 0)):
        assert [item.score for item in store.search(NS, query=query)] == pytest.approx([score], abs=0.05)


def test_a_deleted_item_is_not_found(store: BaseStore) -> None:
    store.put(NS, "k", {"text": "red fox", "tags": ["blue sea"]})
    store.put(NS, "other", {"text": "old wine"})
    store.delete(NS, "k")
    assert keys_of(store.search(NS, query="red fox")) == ["other"]


def test_each_search_of_a_batch_has_its_own_query(store: BaseStore) -> None:
    texts = ["red fox", "blue sea", "old wine", "green tree"]
    store.batch([PutOp(NS, text, {"text": text}) for text in texts])
    found = store.batch([SearchOp(NS, query=text, limit=1) for text in texts])
    assert [keys_of(each) for each in found] == [[text] for text in texts]  # type: ignore[arg-type]


def test_texts_of_other_languages_are_embedded(store: BaseStore) -> None:
    store.put(NS, "k", {"text": "red 狐 🦊 лиса"})
    assert keys_of(store.search(NS, query="red 狐")) == ["k"]


def test_puts_at_once_are_all_found(store: BaseStore) -> None:
    at_once(store, [("put", NS, str(n), {"text": WORDS[n % 8]}) for n in range(48)])
    found = store.search(NS, query="fox", limit=6)
    assert {item.key for item in found} == {str(n) for n in range(48) if n % 8 == 1}
