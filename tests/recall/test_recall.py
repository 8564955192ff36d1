"""Recall: which messages a question brings back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic import BaseModel

from langchain_workingmem import IdError, Memory, OptionError, RecallOptions, RecallResult
from langchain_workingmem.errors import ThreadOwnershipError
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.trips import Trips

Make = Callable[..., Memory]

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


# ---------------------------------------------------------------------- what is found


def test_the_nearest_message_comes_first(either: Memory) -> None:
    say(either, *FRUIT)
    assert ids(either.recall.search("cherry cake slice", user_id="ann"))[0] == "t-2"


def test_a_threshold_is_the_least_similarity(either: Memory) -> None:
    say(either, *FRUIT)
    best = either.recall.search("cherry cake slice", user_id="ann").hits[0]
    found = either.recall.search("cherry cake slice", user_id="ann", threshold=best.similarity)
    assert ids(found) == [best.message.id]


def test_a_hit_is_the_message_that_was_stored(memory: Memory) -> None:
    message = AIMessage("cherry cake", id="m", name="baker", additional_kwargs={"oven": {"hot": True}})
    memory.history.append([message], thread_id="t", user_id="ann")
    assert memory.recall.search("cherry", user_id="ann").hits[0].message == message


@pytest.mark.parametrize("count", [25, 1500])
def test_more_hits_than_any_default_of_the_server(either: Memory, count: int) -> None:
    texts = [f"pear number {at}" for at in range(count + 10)]
    say(either, *texts)
    found = either.recall.search("pear", user_id="ann", top_k=count, message_range=0)
    assert len(set(ids(found))) == count


UNUSABLE: list[tuple[str, Any]] = [
    *[("top_k", value) for value in (0, -1, 1.5, "x", True)],
    *[("message_range", value) for value in (-1, (1, -1), (1, 2, 3), (0.5, 1), "ab", True)],
    *[("threshold", value) for value in (-0.1, 1.1, math.nan, "x")],
    *[("scope", value) for value in ("all", "", 1)],
    *[("roles", value) for value in ([], "robot", ["human", "robot"])],
    ("exclude_message_ids", 5),
]


@pytest.mark.parametrize(("name", "value"), UNUSABLE)
def test_arguments_that_cannot_work_are_refused(memory: Memory, name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=name):
        memory.recall.search("pear", user_id="ann", **{name: value})


# ---------------------------------------------------------------------- scope


def test_scope_user_reaches_all_threads_of_the_user(either: Memory) -> None:
    say(either, "cherry cake", thread="one")
    say(either, "cherry jam", thread="two")
    assert {hit.thread_id for hit in either.recall.search("cherry", user_id="ann")} == {"one", "two"}


def test_without_ids_the_missing_one_is_named(memory: Memory) -> None:
    with pytest.raises(IdError, match="user_id"):
        memory.recall.search("cherry")
    with pytest.raises(IdError, match="thread_id"):
        memory.recall.search("cherry", user_id="ann", scope="thread")


@pytest.mark.parametrize("scope", ["user", "thread"])
def test_a_thread_of_somebody_else_is_refused(memory: Memory, scope: Any) -> None:
    say(memory, "cherry cake")
    with pytest.raises(ThreadOwnershipError):
        memory.recall.search("cherry", thread_id="t", user_id="bob", scope=scope)


# ---------------------------------------------------------------------- filters


def test_times_are_inclusive(memory: Memory) -> None:
    for text in FRUIT:
        memory.history.append([HumanMessage(text, id=text)], thread_id="t", user_id="ann")
    times = [row.stored_at for row in memory.history.page("t").items]

    def found(since: int, until: int) -> set[str | None]:
        result = memory.recall.search("jam", user_id="ann", since=times[since], until=times[until], top_k=9)
        return set(ids(result))

    assert found(1, 3) == set(FRUIT[1:4])
    assert found(2, 2) == {FRUIT[2]}
    assert found(3, 1) == set()


def test_a_time_that_the_question_names_reaches_no_further_than_since(memory: Memory) -> None:
    for text in FRUIT:
        memory.history.append([HumanMessage(text, id=text)], thread_id="t", user_id="ann")
    since = memory.history.page("t").items[3].stored_at
    found = memory.recall.search("which jam this year?", user_id="ann", since=since, top_k=9)
    assert set(ids(found)) == set(FRUIT[3:])


def test_roles_choose_whose_messages_are_hits(either: Memory) -> None:
    say(either, *FRUIT)
    for role, wanted in {"human": {"t-0", "t-2", "t-4"}, "assistant": {"t-1", "t-3"}}.items():
        assert set(ids(either.recall.search("jam", user_id="ann", roles=[role], top_k=9))) == wanted


class Taste(BaseModel):
    sweet: bool


@pytest.mark.parametrize("place", ["additional_kwargs", "metadata", "response_metadata"])
@pytest.mark.parametrize("value", ["sweet", "a, b|c", 7, True, None, ["x"], {"y": 1}, "ü"])
def test_metadata_filters_by_value_and_type(
    make_memory: Make, embeddings: WordEmbeddings, place: str, value: Any
) -> None:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions(filterable=("taste",)))

    def tasting(id: str, value: Any) -> BaseMessage:
        if place == "response_metadata":
            return AIMessage("jam", id=id, response_metadata={"taste": value})
        data = {"taste": value}
        return AIMessage("jam", id=id, additional_kwargs={"metadata": data} if place == "metadata" else data)

    messages = [tasting("yes", value), tasting("no", "sour"), tasting("other", "7"), AIMessage("jam jar", id="none")]
    memory.history.append(messages, thread_id="t", user_id="ann")
    found = ids(memory.recall.search("jam", user_id="ann", metadata={"taste": value}))
    assert {*found} == ({"none", "yes"} if value is None else {"yes"})  # a missing key is None, as in the store


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], Taste(sweet=True)])
def test_a_message_whose_metadata_nobody_can_look_for_is_stored(
    make_memory: Make, embeddings: WordEmbeddings, value: Any
) -> None:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions(filterable=("taste",)))
    message = HumanMessage("jam", id="1", additional_kwargs={"taste": value})
    memory.history.append([message], thread_id="t", user_id="ann")
    assert ids(memory.recall.search("jam", user_id="ann")) == ["1"]


def test_metadata_that_is_not_filterable_names_the_remedy(memory: Memory) -> None:
    with pytest.raises(OptionError, match=r"taste.*filterable=.*reindex"):
        memory.recall.search("jam", user_id="ann", metadata={"taste": 1})


@pytest.mark.parametrize(
    "where", [{"taste": {"$regex": "a"}}, {"taste": {"a": 1, "$gt": 2}}, {"$nor": [{"taste": 1}]}], ids=str
)
def test_a_filter_that_memory_cannot_evaluate_is_refused_by_every_face(
    make_memory: Make, embeddings: WordEmbeddings, where: dict[str, Any]
) -> None:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions(filterable=("taste",)))
    calls: list[Callable[[], object]] = [
        lambda: memory.recall.search("jam", user_id="ann", metadata=where),
        lambda: memory.context("jam", thread_id="t", user_id="ann", metadata=where),
        lambda: memory.as_retriever(user_id="ann", metadata=where).invoke("jam"),
        lambda: memory.threads.list(user_id="ann", metadata=where),
    ]
    for call in calls:
        with pytest.raises(OptionError, match=r"metadata.*unknown operator.* here: use one of \$"):
            call()


def test_excluding_hundreds_of_messages_still_fills_top_k(either: Memory) -> None:
    say(either, *["cherry cake"] * 300, *[f"cherry {at}" for at in range(20)])
    gone = [f"t-{at}" for at in range(300)]
    found = either.recall.search("cherry cake", user_id="ann", exclude_message_ids=gone, top_k=15)
    assert len(found) == 15
    assert not set(gone) & set(ids(found))


# ---------------------------------------------------------------------- long messages


@pytest.fixture
def chunky(make_memory: Make, embeddings: WordEmbeddings) -> Memory:
    """A memory that cuts after about 40 characters."""
    return make_memory(embeddings=embeddings, recall=RecallOptions(chunk_tokens=10, message_range=0))


def test_the_pieces_of_one_message_do_not_push_others_out(chunky: Memory) -> None:
    say(chunky, "cherry cake cherry cake cherry cake. " * 60, *[f"cherry {at}" for at in range(6)])
    found = chunky.recall.search("cherry cake", user_id="ann", top_k=5)
    assert len(set(ids(found))) == 5
    assert ids(found)[0] == "t-0"


# ---------------------------------------------------------------------- questions of every kind


@pytest.mark.parametrize("query", ["", "   ", "\n\t\u3000"])
def test_a_blank_question_finds_nothing_and_asks_no_model(
    either: Memory, embeddings: WordEmbeddings, query: str
) -> None:
    say(either, *FRUIT)
    embeddings.calls.clear()
    assert not either.recall.search(query, user_id="ann")
    assert embeddings.calls == []


ODD_QUESTIONS = {
    "emoji": "🍒🎂",
    "family emoji": "👩‍👩‍👧‍👦",
    "cjk": "樱桃蛋糕怎么做",
    "arabic": "كعكة الكرز",
    "thai": "เค้กเชอร์รี่",
    "stop words": "the a of and is to",
    "one stop word": "the",
    "punctuation": "?!,.;:-_=+*/\\|()[]{}<>@#$%^&~`'\"",
    "underscores": "_ __ ___",
    "tag injection": "@user:{*}",
    "or injection": "cherry) | (@user:{bob})",
    "knn injection": "*=>[KNN 10 @vector $vector]",
    "negation": "-cherry",
    "quotes": "\"cherry' `cake",
    "wildcard": "cherr* %cherry% w'cher?y'",
    "attribute": "cherry => { $weight: 0 }",
    "backslash": "cherry\\",
    "nul": "cherry\0cake",
    "lone surrogate": "cherry \ud83c",
    "10,000 words": " ".join(f"word{at}" for at in range(10_000)),
    "10,000 letters": "c" * 10_000,
    "numbers": "2024 -1 1e5 [0 inf]",
}


@pytest.mark.parametrize("query", ODD_QUESTIONS.values(), ids=ODD_QUESTIONS)
def test_any_text_is_a_question(either: Memory, query: str) -> None:
    say(either, *FRUIT)
    say(either, "the secret of bob", thread="b", user="bob")
    found = either.recall.search(query, user_id="ann", top_k=9)
    assert {hit.thread_id for hit in found} == {"t"}
    assert len(found) == 5  # each message has a vector, and all vectors have a distance


RARE = ["xk7742", "xk7742 of the", "the xk7742", "what was the number of xk7742?", "what about xk7742 _ please"]


@pytest.mark.parametrize("query", RARE)
@pytest.mark.parametrize(("search", "is_found"), [("semantic", False), ("hybrid", True)])
def test_hybrid_finds_a_rare_word_that_the_vectors_miss(
    make_memory: Make, search: Any, is_found: bool, query: str
) -> None:
    class Blind(WordEmbeddings):
        """All texts look the same to it."""

        def _vector(self, text: str) -> list[float]:
            return super()._vector("anything")

    memory = make_memory(embeddings=Blind(), recall=RecallOptions(search=search))
    pears = [f"pear {at}" for at in range(60)]
    say(memory, *pears[:30], "ticket XK7742 was filed", *pears[30:])
    found = memory.recall.search(query, user_id="ann", top_k=5)
    assert ("t-30" in ids(found)) is is_found


# ---------------------------------------------------------------------- cost


@pytest.mark.parametrize("scope", ["user", "thread"])
def test_search_is_two_round_trips(either: Memory, trips: Trips, scope: Any) -> None:
    say(either, *FRUIT, thread="one")
    say(either, *FRUIT, thread="two")
    search = either.recall.search
    assert trips.of(lambda: search("jam", thread_id="one", user_id="ann", scope=scope, top_k=9)) == 2
