"""Vector search in the LangGraph store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis
from langgraph.store.base import PutOp, SearchOp

from langchain_workingmem import EmbeddingError, EmbeddingSizeError, OptionError
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.trips import Trips

Make = Callable[..., RedisMemoryStore]
NS = ("memories", "maya")


@pytest.fixture
def vectors(make_store: Make, embeddings: WordEmbeddings) -> RedisMemoryStore:
    """Embeds the field text."""
    return make_store(index={"dims": 64, "embed": embeddings, "fields": ["text"]})


def keys_of(items: Sequence[Any]) -> list[str]:
    return [item.key for item in items]


SCORES = {"inner_product": [2.0, 0.0, -4.0], "l2": [-1.0, -(5**0.5), -4.0], "cosine": [1, 0, -1]}


@pytest.mark.parametrize("distance", SCORES)
def test_other_distances_score_as_in_postgres(make_store: Make, distance: str) -> None:
    places = {"query": [2.0, 0.0], "east": [1.0, 0.0], "west": [-2.0, 0.0], "north": [0.0, 1.0]}
    index = {"dims": 2, "embed": lambda texts: [places[text] for text in texts], "fields": ["text"]}
    store = make_store(index=index | {"distance_type": distance})
    for text in ("west", "north", "east"):
        store.put(NS, text, {"text": text})
    found = store.search(NS, query="query")
    assert keys_of(found) == ["east", "north", "west"]
    assert [item.score for item in found] == pytest.approx(SCORES[distance], abs=1e-5)


def test_pages_of_equal_scores_hold_each_item_once(make_store: Make) -> None:
    store = make_store(index={"dims": 64, "embed": WordEmbeddings(), "fields": ["text", "tags[*]"]})
    for at in range(30):
        store.put(NS, f"k{at}", {"text": f"dog {at}" if at % 2 else f"tax {at}", "tags": ["x", "y"]})
    pages = [store.search(NS, query="dog", limit=7, offset=offset) for offset in range(0, 40, 7)]
    keys = [item.key for page in pages for item in page]
    assert (len(keys), len(set(keys))) == (30, 30)


def test_a_put_may_name_its_own_paths(vectors: RedisMemoryStore) -> None:
    value = {"text": "green tree", "deep": {"er": "red fox"}, "list": [{"name": "red fox"}, {"name": "fox red"}]}
    vectors.put(NS, "usual", {"text": "green tree"})
    for path in ("deep.er", "list[0].name", "list[-1].name", "list[*].name"):
        vectors.put(NS, "own", value, index=[path])
        assert keys_of(vectors.search(NS, query="red fox", limit=1)) == ["own"], path
        assert keys_of(vectors.search(NS, query="green tree", limit=1)) == ["usual"], path


def test_an_update_replaces_all_vectors(
    make_store: Make, embeddings: WordEmbeddings, raw: redis.Redis, prefix: str
) -> None:
    store = make_store(index={"dims": 64, "embed": embeddings, "fields": ["tags[*]"]})
    store.put(NS, "k", {"tags": ["red fox", "blue sea", "old wine"]})
    store.put(NS, "k", {"tags": ["green tree"]})
    assert store.search(NS, query="red fox")[0].score == pytest.approx(0, abs=0.5)
    assert len(list(raw.scan_iter(f"{prefix}:item*:{{*"))) == 1
    store.put(NS, "k", {"tags": ["red fox", "blue sea"]})
    store.put(NS, "k", {"tags": []})
    assert [item.score for item in store.search(NS, query="red fox")] == [None]
    store.put(NS, "k", {"tags": ["red fox", "blue sea"]})
    store.delete(NS, "k")
    assert store.search(NS, query="red fox") == []
    assert list(raw.scan_iter(f"{prefix}:item*:{{*")) == []


def test_a_search_is_one_round_trip_and_a_hundred_puts_one_call(
    vectors: RedisMemoryStore, embeddings: WordEmbeddings, trips: Trips
) -> None:
    vectors.setup()
    embeddings.calls.clear()
    before = trips.count
    vectors.batch([PutOp(NS, str(number), {"text": f"word {number}"}) for number in range(100)])
    assert (trips.count - before, len(embeddings.calls)) == (1, 1)
    assert trips.of(lambda: vectors.search(NS, query="word 7")) == 1
    embeddings.calls.clear()
    vectors.batch([SearchOp(NS, query=f"word {number} x", limit=3) for number in range(20)])
    assert sum(map(len, embeddings.calls)) == 20


@pytest.mark.both_faces
def test_functions_objects_and_names_embed(make_store: Make, embeddings: WordEmbeddings, face: str) -> None:
    async def alone(texts: Sequence[str]) -> list[list[float]]:
        return embeddings.embed_documents(list(texts))

    embeds: list[Any] = [embeddings, lambda texts: embeddings.embed_documents(list(texts))]
    for embed in [*embeds, alone] if face == "async" else embeds:
        store = make_store(index={"dims": 64, "embed": embed, "fields": ["text"]})
        store.put(NS, "k", {"text": "red fox"})
        assert store.search(NS, query="red fox")[0].score == pytest.approx(1, abs=1e-5)
    local = make_store(key_prefix="local", index={"dims": 256, "embed": "local"})
    local.put(NS, "k", {"text": "a dog"})
    assert local.search(NS, query="puppy")[0].score is not None
    local.delete(NS, "k")


def test_when_the_model_fails_the_old_item_stays_as_it_was(
    vectors: RedisMemoryStore, embeddings: WordEmbeddings
) -> None:
    vectors.put(NS, "k", {"text": "red fox"})
    embeddings.broken = RuntimeError("quota")
    with pytest.raises(EmbeddingError, match="quota"):
        vectors.put(NS, "k", {"text": "blue sea"})
    with pytest.raises(EmbeddingError, match="quota"):
        vectors.search(NS, query="unheard of")
    embeddings.broken = None
    (item,) = vectors.search(NS, query="red fox")
    assert item.value == {"text": "red fox"}
    assert item.score == pytest.approx(1, abs=1e-5)


def test_a_model_or_an_index_of_another_size_or_kind_is_refused(
    make_store: Make, embeddings: WordEmbeddings, prefix: str
) -> None:
    store = make_store(index={"dims": 65, "embed": embeddings}, key_prefix=f"{prefix}b")
    with pytest.raises(EmbeddingSizeError, match=r"65 dimensions, the model gives 64, index\['dims'\]"):
        store.put(NS, "k", {"text": "x"})
    assert store.get(NS, "k") is None
    make_store(index={"dims": 64, "embed": embeddings}).setup()
    with pytest.raises(EmbeddingSizeError, match="another key_prefix"):
        make_store(index={"dims": 32, "embed": WordEmbeddings(32)}).setup()
    with pytest.raises(OptionError, match="use the settings of the index"):
        make_store(index={"dims": 64, "embed": embeddings, "distance_type": "l2"}).setup()
    without_size = make_store(index={"embed": embeddings})
    without_size.put(NS, "k", {"text": "x"})
    assert without_size.search(NS, query="x")[0].score is not None


def test_items_from_before_the_index_are_found_without_a_score(make_store: Make, embeddings: WordEmbeddings) -> None:
    make_store().put(NS, "old", {"text": "red fox"})
    store = make_store(index={"dims": 64, "embed": embeddings})
    store.put(NS, "new", {"text": "blue sea"})
    assert [(item.key, item.score is None) for item in store.search(NS, query="red fox")] == [
        ("new", False),
        ("old", True),
    ]
    assert keys_of(make_store().search(NS, query="red fox")) == ["new", "old"]  # no index, no vector search


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"dims": 64, "embed": 5}, "use an Embeddings object, a function"),
        ({"dims": 0, "embed": len}, r"index\['dims'\]=0"),
        ({"dims": 64, "embed": len, "fields": "text"}, r"index\['fields'\]='text'"),
        ({"dims": 64, "embed": len, "distance_type": "hamming"}, "distance_type"),
    ],
)
def test_an_index_that_cannot_work_is_refused(index: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        RedisMemoryStore(index=index)
