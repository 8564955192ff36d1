"""A short question that finds little for itself is asked again together with what the user said before it."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import LocalEmbeddings, Memory, RecallOptions
from langchain_workingmem.errors import EmbeddingError
from tests.helpers.trips import Trips
from tests.helpers.types import Make

ALPS = "I went hiking in the Alps in May, Tom came along"
ASKED = [("user", "Where did I go hiking?"), ("assistant", "In the Alps.")]
CHAT: Any = {"thread_id": "chat", "user_id": "u"}


@pytest.fixture
def walks(make_memory: Make, local_model: LocalEmbeddings) -> Memory:
    memory = make_memory(embeddings=local_model, recall=RecallOptions())
    memory.save_turn([("user", ALPS), ("assistant", "Sounds great")], thread_id="may", user_id="u")
    for at in range(6):
        lines = [("user", f"Somebody else who knows buys {at} roses"), ("assistant", "Noted")]
        memory.save_turn(lines, thread_id=f"g{at}", user_id="u")
    return memory


def shown(memory: Memory, asked: Any = "Who else?", **more: Any) -> list[str]:
    return [str(one.text) for one in memory.context(asked, **CHAT, read_only=True, **more).recalled.messages]


def test_what_was_said_before_stands_in_the_callers_list(walks: Memory) -> None:
    before = [HumanMessage("Where did I go hiking?"), AIMessage("In the Alps.")]
    assert ALPS in shown(walks, [*before, HumanMessage("Who else?")])


def test_or_in_the_history_that_was_read(walks: Memory, trips: Trips) -> None:
    walks.save_turn(ASKED, **CHAT)
    assert ALPS in shown(walks)
    assert trips.of(lambda: shown(walks)) == 3  # one for both texts together


def test_it_is_found_when_it_is_asked_again(walks: Memory) -> None:
    walks.save_turn(ASKED, **CHAT)
    walks.save_turn([("user", "Who else?"), ("assistant", "With friends.")], **CHAT)
    assert ALPS in shown(walks)


def test_what_it_finds_for_itself_stays(walks: Memory) -> None:
    def best() -> list[str]:
        hits = walks.context("Who else?", **CHAT, read_only=True).recalled.hits
        return [str(hit.message.text) for hit in hits]

    alone = best()
    walks.save_turn(ASKED, **CHAT)
    assert best()[:2] == alone[:2]
    assert ALPS in best()[2:]


def test_a_model_that_fails_at_the_second_call_costs_the_follow_up_alone(
    walks: Memory, make_memory: Make, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(LocalEmbeddings):
        def embed_query(self, text: str) -> list[float]:
            if "hiking" in text:
                raise ConnectionError("away")
            return super().embed_query(text)

        embeds_alike = False

    walks.save_turn(ASKED, **CHAT)
    going_on = make_memory(embeddings=Failing(), on_error="log")
    assert shown(going_on)
    assert "without what its question follows up" in caplog.text
    with pytest.raises(EmbeddingError):
        shown(make_memory(embeddings=Failing(), on_error="raise"))
