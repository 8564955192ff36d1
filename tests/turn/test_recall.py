"""What a turn shows of recall: a budget, excerpts of what is long, nothing twice, and nothing where nothing answers."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import HistoryOptions, Memory, RecallOptions
from langchain_workingmem._text.messages import message_text
from langchain_workingmem._text.unicode import count_tokens
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.types import Make

NEW: dict[str, Any] = {"thread_id": "new", "user_id": "ann"}


@pytest.fixture(params=["semantic", "hybrid"])
def memory(request: pytest.FixtureRequest, make_memory: Make, embeddings: WordEmbeddings) -> Memory:
    return make_memory(
        embeddings=embeddings, recall=RecallOptions(search=request.param), history=HistoryOptions(last_messages=2)
    )


def say(memory: Memory, *texts: str, thread: str = "old") -> None:
    kinds = (HumanMessage, AIMessage)
    messages = [kinds[at % 2](text, id=f"{thread}-{at}") for at, text in enumerate(texts)]
    memory.history.append(messages, thread_id=thread, user_id="ann")


def size(messages: list[BaseMessage]) -> int:
    return sum(count_tokens(message_text(message)) for message in messages)


FILLER = "We talked about the weather and the garden for a while, and then about nothing much at all. "
NEEDLE = "The code of the red vault is 4711."


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


def test_an_excerpt_is_never_saved_in_place_of_its_message(memory: Memory) -> None:
    long = f"red vault {FILLER * 200}"
    say(memory, long, "noted")
    found = memory.context("red vault", **NEW).recalled.messages
    assert any("[...]" in str(message.text) for message in found)
    memory.history.append(found, thread_id="old", user_id="ann")
    memory.save_turn(found, thread_id="old", user_id="ann")
    assert [str(message.text) for message in memory.history.messages("old")] == [long, "noted"]
