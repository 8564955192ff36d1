"""What a turn shows of recall: a budget, excerpts of what is long, nothing twice, and nothing where nothing answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import (
    HistoryOptions,
    LocalEmbeddings,
    Memory,
    OptionError,
    RecallOptions,
)
from langchain_workingmem._text.messages import message_text
from langchain_workingmem._text.sending import without_block
from langchain_workingmem._text.unicode import count_tokens
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.trips import Trips

Make = Callable[..., Memory]

NEW: dict[str, Any] = {"thread_id": "new", "user_id": "ann"}


@pytest.fixture(params=["semantic", "hybrid"])
def memory(request: pytest.FixtureRequest, make_memory: Make, embeddings: WordEmbeddings) -> Memory:
    return make_memory(
        embeddings=embeddings,
        recall=RecallOptions(search=request.param),
        history=HistoryOptions(last_messages=2),
    )


def say(memory: Memory, *texts: str, thread: str = "old") -> None:
    kinds = (HumanMessage, AIMessage)
    messages = [kinds[at % 2](text, id=f"{thread}-{at}") for at, text in enumerate(texts)]
    memory.history.append(messages, thread_id=thread, user_id="ann")


def shown(memory: Memory, question: str, **options: Any) -> list[str | None]:
    return [hit.message.id for hit in memory.context(question, **NEW, **options).recalled.hits]


def size(messages: list[BaseMessage]) -> int:
    return sum(count_tokens(message_text(message)) for message in messages)


FILLER = "We talked about the weather and the garden for a while, and then about nothing much at all. "
NEEDLE = "The code of the red vault is 4711."


# ---------------------------------------------------------------------- budget and excerpts


@pytest.mark.parametrize("filler", [FILLER, "x" * 90, f"👩‍🚀 é {FILLER}"], ids=["prose", "no words", "marks"])
def test_a_long_message_comes_as_an_excerpt_around_its_best_piece(memory: Memory, filler: str) -> None:
    long = (filler * 400)[:30_000]
    say(memory, f"{long}\n\n{NEEDLE}\n\n{long}", "noted")
    context = memory.context("code of the red vault", **NEW)
    (found,) = [message for message in context.recalled.messages if message.id == "old-0"]
    assert NEEDLE in str(found.text)
    assert str(found.text).startswith("[...] ")
    assert str(found.text).endswith(" [...]")
    assert size(context.recalled.messages) <= 2_000
    assert (
        count_tokens(str(context.messages[-1].text)) < 800
    )  # of a hit, a quarter of the budget, and what stands around it
    assert NEEDLE in str(context.messages[-1].text)


def test_many_long_messages_share_the_budget(memory: Memory) -> None:
    for at in range(6):
        say(memory, f"red vault {at} {FILLER * 50}", f"{FILLER * 50} end {at}", thread=f"t{at}")
    context = memory.context("red vault", **NEW)
    assert len(context.recalled.hits) == 4
    assert 1_800 <= size(context.recalled.messages) <= 2_000
    for hit in context.recalled.hits:
        (answer,) = hit.after
        assert size([hit.message]) > size([answer]) >= 50
        assert str(answer.text).startswith("We talked")  # what stands behind a hit is cut down to its beginning
        assert str(answer.text).endswith(" [...]")


def test_short_messages_come_whole(memory: Memory) -> None:
    say(memory, "the red vault", "I see", "the blue door", "I see that too")
    for message in memory.context("red vault", **NEW).recalled.messages:
        assert "[...]" not in str(message.text)
        assert "lc_source" not in message.additional_kwargs


def test_an_excerpt_is_never_saved_in_place_of_its_message(memory: Memory) -> None:
    long = f"red vault {FILLER * 200}"
    say(memory, long, "noted")
    found = memory.context("red vault", **NEW).recalled.messages
    assert any("[...]" in str(message.text) for message in found)
    memory.history.append(found, thread_id="old", user_id="ann")
    memory.save_turn(found, thread_id="old", user_id="ann")
    assert [str(message.text) for message in memory.history.messages("old")] == [long, "noted"]


def test_a_message_of_megabytes_costs_little_time(memory: Memory) -> None:
    say(memory, "red vault", "it is open")
    memory.history.append(
        [ToolMessage("abc " * 1_250_000, tool_call_id="c", id="huge")], thread_id="old", user_id="ann"
    )
    memory.context("vault?", **NEW)
    start = time.perf_counter()
    context = memory.context("red vault?", **NEW, message_range=2)
    assert time.perf_counter() - start < 1
    assert size(context.recalled.messages) <= 2_000


# ---------------------------------------------------------------------- repetitions


def test_the_same_text_counts_once_and_the_newest(memory: Memory, trips: Trips) -> None:
    for at in range(6):
        say(memory, "my vault is red", "so it is", thread=f"t{at}")
    say(memory, "my vault is big", thread="other")
    assert trips.of(lambda: memory.context("my red vault is", **NEW)) == 2
    assert shown(memory, "my red vault is", message_range=0, top_k=2) == ["t5-0", "other-0"]


def test_what_another_role_said_is_another_message(memory: Memory) -> None:
    say(memory, "my vault is red", "my vault is red")
    assert shown(memory, "my red vault is", message_range=0) == ["old-0", "old-1"]  # the user first


def test_a_question_that_was_asked_before_comes_once_with_its_answer(memory: Memory) -> None:
    for at in range(9):
        say(memory, "What is my vault code?", "It is 4711.", thread=f"t{at}")
    hits = memory.context("What is my vault code?", **NEW).recalled.hits
    assert hits[0].message.id == "t8-0"
    assert [one.id for one in hits[0].after] == ["t8-1"]
    assert len({hit.message.text for hit in hits}) == len(hits)


def test_a_search_brings_what_it_finds_and_no_text_twice(memory: Memory) -> None:
    for at in range(3):
        say(memory, "my vault is red", "noted", thread=f"t{at}")
        say(memory, f"my vault is red and {at}", thread=f"u{at}")
    found = memory.recall.search("my vault is red", user_id="ann", top_k=4)
    assert found.hits[0].message.id == "t2-0"  # the newest
    assert len({hit.message.text for hit in found.hits}) == len(found.hits) == 4
    assert [str(message.text) for message in found.messages].count("my vault is red") == 1


# ---------------------------------------------------------------------- floor

FACTS = ["My dog is called Nougat.", "What a lovely name!", "I live in Lisbon with my sister.", "Nice."]


@pytest.fixture(params=["semantic", "hybrid"])
def local(request: pytest.FixtureRequest, make_memory: Make, local_model: LocalEmbeddings) -> Memory:
    memory = make_memory(embeddings=local_model, recall=RecallOptions(search=request.param))
    say(memory, *FACTS)
    return memory


@pytest.mark.parametrize("question", ["asdf qwer", "Explain quantum entanglement"])
def test_a_text_that_nothing_is_near_to_brings_nothing(local: Memory, question: str) -> None:
    context = local.context(question, **NEW)
    assert context.recalled.hits == []
    assert str(context.messages[-1].text) == str(without_block(context.messages[-1]).text)
    assert local.recall.search(question, user_id="ann").hits  # a search brings the best there is


@pytest.mark.parametrize("question", ["What is my dog's name?", "Where do I live?"])
def test_a_question_that_something_answers_brings_it(local: Memory, question: str) -> None:
    assert local.context(question, **NEW).recalled.hits


def test_what_was_said_at_a_time_that_the_text_names_is_brought(local: Memory) -> None:
    assert local.context("asdf qwer of this year", **NEW).recalled.hits


def test_a_threshold_takes_the_place_of_the_floor(local: Memory) -> None:
    assert local.context("asdf qwer", **NEW, threshold=0.0).recalled.hits
    assert local.context("What is my dog's name?", **NEW, threshold=0.9).recalled.hits == []


# ---------------------------------------------------------------------- documents


def test_a_retriever_fills_top_k_with_hits_of_their_own(memory: Memory) -> None:
    say(memory, "red vault one", "red vault two", "red vault three")
    retriever = memory.as_retriever(user_id="ann")
    documents = retriever.invoke("red vault", top_k=3)
    assert sorted(document.page_content for document in documents) == [
        "assistant: red vault two",
        "user: red vault one",
        "user: red vault three",
    ]
    assert len(retriever.invoke("red vault", top_k=1)) == 1


# ---------------------------------------------------------------------- without recall


@pytest.mark.parametrize(
    "empty",
    [{"metadata": {}}, {"exclude_message_ids": []}, {"exclude_message_ids": set()}, {"exclude_message_ids": ""}],
)
@pytest.mark.parametrize("off", [{}, {"recall": False}])
def test_filters_without_content_do_not_ask_for_recall_where_it_is_off(
    plain: Memory, empty: dict[str, Any], off: dict[str, Any]
) -> None:
    assert shown(plain, "red vault", **empty, **off) == []


def test_filters_with_content_ask_for_recall(plain: Memory) -> None:
    for asked in ({"metadata": {"a": 1}}, {"exclude_message_ids": ["m"]}, {"top_k": 3}, {"threshold": 0.5}):
        with pytest.raises(OptionError, match="recall is off"):
            shown(plain, "red vault", **asked)
