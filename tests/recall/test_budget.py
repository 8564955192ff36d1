"""Recall within a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import convert_to_messages

from langchain_workingmem import HistoryOptions, Memory, OptionError, RecallOptions, RecallResult
from langchain_workingmem._text.chunks import count_tokens
from langchain_workingmem._text.rendering import message_text
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.trips import Trips

Make = Callable[..., Memory]


@pytest.fixture(params=["semantic", "hybrid"])
def talk(request: pytest.FixtureRequest, make_memory: Make, embeddings: WordEmbeddings) -> Memory:
    """A thread of 40 messages of 10 tokens, every fourth of them about the fox."""
    memory = make_memory(
        embeddings=embeddings,
        recall=RecallOptions(search=request.param, top_k=1),
        history=HistoryOptions(last_messages=2),
    )
    texts = [f"{'red fox' if at % 4 == 0 else 'old sea'} {at:02} ".ljust(40, "x") for at in range(40)]
    memory.history.append(
        [HumanMessage(text, id=str(at)) for at, text in enumerate(texts)], thread_id="t", resource_id="u"
    )
    return memory


def size(found: RecallResult) -> int:
    return sum(count_tokens(message_text(message)) for message in convert_to_messages(found.messages))


@pytest.mark.parametrize("budget", [9, 10, 30, 45, 100])
def test_the_budget_is_filled_and_kept(talk: Memory, budget: int) -> None:
    found = talk.recall.search("red fox", resource_id="u", message_range=1, max_tokens=budget)
    assert size(found) == budget // 10 * 10
    # a window is of three messages, at the beginning of the thread of two; a hit is alone where it does not fit any more
    assert len(found.hits) in {9: [0], 10: [1], 30: [1, 2], 45: [2, 3], 100: [4, 5]}[budget]
    assert any(hit.before or hit.after for hit in found.hits) is (budget >= 30)
    assert all(str(hit.message.text).startswith("red fox") for hit in found.hits)


def test_without_neighbours_every_message_of_the_budget_is_a_hit(talk: Memory) -> None:
    found = talk.recall.search("red fox", resource_id="u", message_range=0, max_tokens=105)
    assert len(found.hits) == len(found.messages) == 10
    assert len(talk.recall.search("red fox", resource_id="u", message_range=0, max_tokens=105, top_k=3).hits) == 3


def test_a_long_message_makes_room_for_shorter_ones(talk: Memory) -> None:
    talk.history.append([HumanMessage("red fox " * 100, id="long")], thread_id="t", resource_id="u")
    found = talk.recall.search("red fox", resource_id="u", message_range=0, max_tokens=50)
    assert "long" not in {hit.message.id for hit in found.hits}
    assert len(found.hits) == 5


def test_the_calls_of_tools_count(talk: Memory) -> None:
    call = {"name": "paint", "args": {"what": "fox " * 1000}, "id": "call"}
    turn = [
        HumanMessage("red fox!", id="ask"),
        AIMessage("", tool_calls=[call], id="paint"),
        ToolMessage("ok", tool_call_id="call"),
    ]
    talk.history.append(turn, thread_id="painting", resource_id="u")
    found = talk.recall.search("red fox", resource_id="u", message_range=1, max_tokens=60)
    assert "ask" in {hit.message.id for hit in found.hits}
    assert size(found) <= 60


def test_it_is_an_option_and_an_argument_of_every_face(
    talk: Memory, make_memory: Make, embeddings: WordEmbeddings
) -> None:
    memory = make_memory(
        embeddings=embeddings,
        recall=RecallOptions(max_tokens=25, message_range=0),
        history=HistoryOptions(last_messages=2),
    )
    assert len(memory.recall.search("red fox", resource_id="u").hits) == 4  # the option is for turns
    assert len(memory.recall.search("red fox", resource_id="u", max_tokens=25).hits) == 2
    assert len(memory.context("red fox", thread_id="t", resource_id="u").recalled.hits) == 2
    assert len(memory.context("red fox", thread_id="t", resource_id="u", max_tokens=35).recalled.hits) == 3


def test_it_costs_no_more_round_trips(talk: Memory, trips: Trips) -> None:
    assert trips.of(lambda: talk.recall.search("red fox", resource_id="u", max_tokens=50)) == 2


def test_a_budget_or_a_number_of_hits_that_cannot_be_is_refused(talk: Memory) -> None:
    with pytest.raises(OptionError, match="max_tokens=0"):
        talk.recall.search("red fox", resource_id="u", max_tokens=0)
    with pytest.raises(OptionError, match="at most 100000"):
        talk.recall.search("red fox", resource_id="u", top_k=10**12)
    with pytest.raises(OptionError, match="max_tokens"):
        RecallOptions(max_tokens=-1)
