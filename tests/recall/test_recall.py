"""Recall: which messages a question brings back."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import IdError, IndexOptions, Memory, OptionError, RecallOptions, RecallResult
from langchain_workingmem._redis.queries import MAX_QUERY_WORDS, distinct_words
from langchain_workingmem._redis.scripts import change_thread
from langchain_workingmem.errors import ThreadOwnershipError
from langchain_workingmem.recall.question import Query
from langchain_workingmem.recall.search import search_messages
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.types import Make

FRUIT = ["apple pie recipe", "banana bread loaf", "cherry cake slice", "plum jam jar", "quince jelly pot"]


def say(memory: Memory, *texts: str, thread: str = "t", user: str = "ann") -> list[str]:
    """Save texts as messages of a person and of a model in turns, and return their ids."""
    kinds: tuple[type[BaseMessage], ...] = (HumanMessage, AIMessage)
    messages = [kinds[at % 2](text, id=f"{thread}-{at}") for at, text in enumerate(texts)]
    memory.history.append(messages, thread_id=thread, user_id=user)
    return [f"{thread}-{at}" for at in range(len(texts))]


def ids(found: RecallResult) -> list[str | None]:
    return [hit.message.id for hit in found.hits]


@pytest.fixture(params=["semantic", "hybrid"])
def either(request: pytest.FixtureRequest, make_memory: Make, embeddings: WordEmbeddings) -> Memory:
    """A memory with recall, once by vectors alone and once with BM25."""
    return make_memory(embeddings=embeddings, recall=RecallOptions(search=request.param))


@pytest.mark.parametrize("count", [25, 1500])
def test_more_hits_than_any_default_of_the_server(either: Memory, count: int) -> None:
    texts = [f"pear number {at}" for at in range(count + 10)]
    say(either, *texts)
    found = either.recall.search("pear", user_id="ann", top_k=count, message_range=0)
    assert len(set(ids(found))) == count


UNUSABLE: list[tuple[str, Any]] = [
    *(("top_k", 0), ("message_range", -1), ("message_range", (1, 2, 3)), ("threshold", 1.1), ("threshold", math.nan)),
    *(("scope", "all"), ("roles", []), ("roles", "robot"), ("exclude_message_ids", 5)),
]


@pytest.mark.parametrize(("name", "value"), UNUSABLE)
def test_arguments_that_cannot_work_are_refused(memory: Memory, name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=name):
        memory.recall.search("pear", user_id="ann", **{name: value})


def test_an_id_that_is_missing_is_named_and_a_thread_of_somebody_else_is_refused(memory: Memory) -> None:
    say(memory, "cherry cake")
    scopes: tuple[Any, ...] = ("user", "thread")
    for scope in scopes:
        with pytest.raises(ThreadOwnershipError):
            memory.recall.search("cherry", thread_id="t", user_id="bob", scope=scope)
    with pytest.raises(IdError, match="user_id"):
        memory.recall.search("cherry")
    with pytest.raises(IdError, match="thread_id"):
        memory.recall.search("cherry", user_id="ann", scope="thread")


@pytest.mark.parametrize("place", ["additional_kwargs", "metadata", "response_metadata"])
def test_metadata_is_found_wherever_it_stands_in_a_message(
    make_memory: Make, embeddings: WordEmbeddings, place: str
) -> None:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions(filterable=("taste",)))

    def tasting(id: str, value: Any) -> BaseMessage:
        data = {"taste": value}
        where = "response_metadata" if place == "response_metadata" else "additional_kwargs"
        return AIMessage("jam", id=id, **{where: {"metadata": data} if place == "metadata" else data})

    messages = [tasting("yes", 7), tasting("no", "sour"), tasting("other", "7"), AIMessage("jam jar", id="none")]
    memory.history.append(messages, thread_id="t", user_id="ann")
    for value, expected in ((7, ["yes"]), (None, ["none"])):  # a missing key is None, as in the store
        assert ids(memory.recall.search("jam", user_id="ann", metadata={"taste": value})) == expected


def test_excluding_hundreds_of_messages_still_fills_top_k(either: Memory) -> None:
    say(either, *["cherry cake"] * 300, *[f"cherry {at}" for at in range(20)])
    gone = [f"t-{at}" for at in range(300)]
    found = either.recall.search("cherry cake", user_id="ann", exclude_message_ids=gone, top_k=15)
    assert len(found) == 15
    assert not set(gone) & set(ids(found))


@pytest.fixture
def chunky(make_memory: Make, embeddings: WordEmbeddings) -> Memory:
    """A memory that cuts after about 40 characters."""
    return make_memory(embeddings=embeddings, recall=RecallOptions(chunk_tokens=10, message_range=0))


def test_the_pieces_of_one_message_do_not_push_others_out(chunky: Memory) -> None:
    say(chunky, "cherry cake cherry cake cherry cake. " * 60, *[f"cherry {at}" for at in range(6)])
    found = chunky.recall.search("cherry cake", user_id="ann", top_k=5)
    assert len(set(ids(found))) == 5
    assert ids(found)[0] == "t-0"


def test_a_vector_of_another_text_is_no_hit(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    say(memory, "cherry cake")
    (key,) = raw.scan_iter(f"{prefix}:vector:*")
    raw.rename(key, key.rsplit(b":", 2)[0] + b":99:!")  # another length
    assert memory.recall.search("cherry cake", user_id="ann").hits == []


@pytest.mark.parametrize("query", ["", "\n\t\u3000"])
def test_a_blank_question_finds_nothing_and_asks_no_model(
    either: Memory, embeddings: WordEmbeddings, query: str
) -> None:
    say(either, *FRUIT)
    embeddings.calls.clear()
    assert not either.recall.search(query, user_id="ann")
    assert embeddings.calls == []


ODD_QUESTIONS = {
    "family emoji": "👩‍👩‍👧‍👦",
    "cjk": "樱桃蛋糕怎么做",
    "stop words": "the a of and is to",
    "punctuation": "?!,.;:-_=+*/\\|()[]{}<>@#$%^&~`'\"",
    "or injection": "cherry) | (@user:{bob})",
    "knn injection": "*=>[KNN 10 @vector $vector]",
    "quotes": "\"cherry' `cake",
    "wildcard": "cherr* %cherry% w'cher?y'",
    "lone surrogate": "cherry \ud83c",
    "10,000 words": " ".join(f"word{at}" for at in range(10_000)),
    "numbers": "2024 -1 1e5 [0 inf]",
}


@pytest.mark.parametrize("query", ODD_QUESTIONS.values(), ids=ODD_QUESTIONS)
def test_any_text_is_a_question(either: Memory, query: str) -> None:
    say(either, *FRUIT)
    say(either, "the secret of bob", thread="b", user="bob")
    found = either.recall.search(query, user_id="ann", top_k=9)
    assert {hit.thread_id for hit in found} == {"t"}
    assert len(found) == 5  # each message has a vector, and all vectors have a distance


def test_a_question_at_either_end_of_a_long_text_is_looked_for() -> None:
    for lines in (200, 100_000):
        log = "\n".join(f"line{at} of the log" for at in range(lines))
        words = distinct_words(f"Why does the gearbox stop?\n{log}\nWhich bearing is it?")
        assert len(words) == MAX_QUERY_WORDS
        assert {"gearbox", "bearing"} <= set(words)


class Blind(WordEmbeddings):
    """All texts look the same to it."""

    def _vector(self, text: str) -> list[float]:
        return super()._vector("anything")


def test_hybrid_finds_a_rare_word_that_the_vectors_miss(make_memory: Make) -> None:
    pears = [f"pear {at}" for at in range(60)]
    searches: list[tuple[Any, bool]] = [("semantic", False), ("hybrid", True)]
    for search, expected in searches:
        memory = make_memory(embeddings=Blind(), recall=RecallOptions(search=search))
        say(memory, *pears[:30], "ticket XK7742 was filed", *pears[30:])
        for query in ("the xk7742", "what about xk7742 _ please"):
            found = memory.recall.search(query, user_id="ann", top_k=5)
            assert ("t-30" in ids(found)) is expected


@pytest.mark.parametrize(("window", "before", "after"), [(0, 0, 0), ((0, 2), 0, 2), (9, 2, 2)])
def test_a_hit_comes_with_its_neighbours_in_order(memory: Memory, window: Any, before: int, after: int) -> None:
    say(memory, *FRUIT)
    (hit,) = memory.recall.search("cherry cake", user_id="ann", top_k=1, message_range=window)
    assert [message.id for message in hit.before] == [f"t-{at}" for at in range(2 - before, 2)]
    assert [message.id for message in hit.after] == [f"t-{at}" for at in range(3, 3 + after)]


def traffic(at: int, calls: int = 2, text: str = "") -> list[BaseMessage]:
    """Give calls of a tool, each with its result, as they stand between a question and its answer."""
    found: list[BaseMessage] = []
    for number in range(calls):
        id = f"{at}-{number}"
        found.append(AIMessage(text, id=f"call{id}", tool_calls=[{"name": "look", "args": {"n": number}, "id": id}]))
        found.append(ToolMessage("seen", id=f"result{id}", tool_call_id=id))
    return found


def talk(*said: str, calls: int = 2) -> list[BaseMessage]:
    """Give questions and answers, the answers after calls of tools."""
    found: list[BaseMessage] = []
    for at, text in enumerate(said):
        if at % 2:
            found += traffic(at, calls)
        found.append((HumanMessage, AIMessage)[at % 2](text, id=str(at)))
    return found


@pytest.mark.parametrize("calls", [1, 40])
@pytest.mark.parametrize(
    ("question", "before", "after"), [("cherry", ["1"], ["3"]), ("plum", ["2"], ["4"]), ("apple", [], ["1"])]
)
def test_a_window_counts_what_was_said(memory: Memory, calls: int, question: str, before: Any, after: Any) -> None:
    said = talk("apple?", "a pie", "cherry?", "plum!", "thanks", "welcome", calls=calls)
    memory.history.append(said, thread_id="t", user_id="ann")
    found = memory.recall.search(question, user_id="ann", top_k=1, message_range=1)
    (hit,) = found.hits
    assert [message.id for message in hit.before] == before
    assert [message.id for message in hit.after] == after
    ((window,),) = found.windows().values()  # no gap is marked where only tool traffic is left out
    assert [row.message.id for row in window] == [*before, hit.message.id, *after]


def test_no_hit_or_window_shows_what_is_superseded_or_was_refused(memory: Memory) -> None:
    say(memory, *FRUIT)
    memory.history.append([HumanMessage("two plums", id="new")], thread_id="t", user_id="ann")
    memory.history.truncate("t", after="t-3")
    (hit,) = memory.recall.search("plum jam jar", user_id="ann", top_k=1).hits
    assert [message.id for message in (*hit.before, *hit.after)] == ["t-2"]
    memory._core.run(change_thread(memory._core.state, "t", "ann", "refuse", refused=["t-2"]))
    (hit,) = memory.recall.search("plum jam jar", user_id="ann", top_k=1).hits
    assert [message.id for message in (*hit.before, *hit.after)] == []
    assert "t-2" not in ids(memory.recall.search("cherry cake slice", user_id="ann"))  # models are given what is found


@pytest.mark.parametrize("algorithm", ["flat", "hnsw"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("distance", ["cosine", "ip", "l2"])
def test_similarities_are_between_0_and_1(make_memory: Make, distance: Any, dtype: Any, algorithm: Any) -> None:
    index = IndexOptions(algorithm=algorithm, distance=distance, dtype=dtype)
    memory = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions(index=index))
    say(memory, *FRUIT, "cherry cake slice and more words")
    found = memory.recall.search("cherry cake slice", user_id="ann", top_k=6)
    assert len(found) == 6
    assert ids(found)[:2] == ["t-2", "t-5"]
    assert found.hits[0].similarity == pytest.approx(1, abs=0.01)
    assert all(0 <= hit.similarity <= 1 for hit in found)


def test_a_hit_has_its_share_of_words(make_memory: Make) -> None:
    shares = {}
    for search in ("hybrid", "semantic"):
        memory = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions(search=search))
        memory.history.append([HumanMessage("plum jam"), HumanMessage("plum")], thread_id="t", user_id="u")
        hits = memory.recall.search("plum jam", user_id="u").hits
        shares[search] = {str(hit.message.text): hit.words for hit in hits}
    assert shares["hybrid"]["plum jam"] == 1
    assert 0 < shares["hybrid"]["plum"] < 1
    assert set(shares["semantic"].values()) == {0}


def test_messages_are_excluded_in_their_thread_alone(memory: Memory) -> None:
    for thread in ("t", "other"):
        memory.history.append([HumanMessage(f"cherry {thread}", id="1")], thread_id=thread, user_id="ann")
    state = memory._core.state
    query = Query.of(state.recalling, "cherry", user_id="ann", exclude_message_ids=["1"])
    found = memory._core.run(search_messages(state, replace(query, exclude_thread="t")))
    assert [hit.thread_id for hit in found.hits] == ["other"]


def test_no_message_beside_a_hit_repeats_another_hit(memory: Memory) -> None:
    say(memory, "cherry tart", "cherry cake", thread="a")
    say(memory, "plum tart", "cherry cake", thread="b")
    found = memory.recall.search("cherry", user_id="ann", top_k=3, message_range=1)
    assert sum(message.text == "cherry cake" for message in found.messages) == 1


@pytest.mark.parametrize("search", ["semantic", "hybrid"])
@pytest.mark.parametrize("newer", ["a", "z"])
def test_of_equal_texts_in_two_threads_the_newest_is_the_hit(
    make_memory: Make, embeddings: WordEmbeddings, search: Any, newer: str
) -> None:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions(search=search))
    for thread in ("z" if newer == "a" else "a", newer):
        memory.history.append([HumanMessage("cherry cake", id=thread)], thread_id=thread, user_id="ann")
    (hit,) = memory.recall.search("cherry cake", user_id="ann", top_k=1)
    assert hit.message.id == newer
