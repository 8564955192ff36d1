"""The plans of a turn, driven by hand: one request for all that a model is shown, and one that saves what was said."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import (
    EmbeddingError,
    Memory,
    RecallOptions,
    ThreadOwnershipError,
    UserDeletedError,
    WorkingMemoryOptions,
)
from langchain_workingmem.errors import RedisReplyError
from tests.helpers.by_hand import ByHand, found, stored, vector_key

IDS: dict[str, Any] = {"thread_id": "t", "user_id": "u"}
ASKED = HumanMessage("which dog", id="q")
EARLIER = (HumanMessage("hello", id="h"), AIMessage("good day", id="a"))


def read(*history: Any) -> list[Any]:
    """Answer what the thread says to a list of one new question: nothing of it is known, and this is in front of it."""
    return [0, 0, [], [], [], [], [b""], [-1], [-1], [0], [0], stored(*history), [], b"-inf", 0, b"0"]


def recalling(by_hand: ByHand, **options: Any) -> Memory:
    recall = RecallOptions(search="semantic", message_range=0)
    return Memory(embeddings=by_hand.model, recall=recall, working_memory=WorkingMemoryOptions(template=""), **options)


def shown(memory: Memory) -> list[str]:
    return [message.text for message in memory.context([ASKED], **IDS).messages]


def test_a_turn_is_one_request_without_recall(by_hand: ByHand) -> None:
    by_hand.answers = [[read(*EARLIER)]]
    assert shown(Memory()) == ["hello", "good day", "which dog"]
    assert by_hand.steps == [["TURN"]]


def test_history_working_memory_and_the_search_share_a_request(by_hand: ByHand) -> None:
    window = [b"", [b"7", 4], 4, b"7", b"x", stored(HumanMessage("Nougat is my dog", id="x"))[2]]
    by_hand.answers = [
        [found((vector_key("other", 7), 0.1)), read(*EARLIER), {b"document": b"likes tea", b"revision": b"1"}],
        [window],
    ]
    texts = shown(recalling(by_hand))
    assert texts[:2] == ["hello", "good day"]
    assert "likes tea" in texts[2]
    assert "Nougat is my dog" in texts[2]
    assert texts[2].endswith("which dog")
    assert by_hand.steps == [("which dog",), ["FT.SEARCH", "TURN", "HGETALL"], ["WINDOWS"]]


def test_without_hits_there_is_no_second_request(by_hand: ByHand) -> None:
    by_hand.answers = [[found(), read(), {}]]
    recalling(by_hand).context([ASKED], **IDS)
    assert by_hand.steps == [("which dog",), ["FT.SEARCH", "TURN", "HGETALL"]]


def test_a_hit_that_the_history_shows_anyway_is_not_fetched(by_hand: ByHand) -> None:
    by_hand.answers = [[found((vector_key("t", 0), 0.1), (vector_key("t", 1), 0.1)), read(*EARLIER), {}]]
    assert recalling(by_hand).context([ASKED], **IDS).recalled.rows == []
    assert by_hand.steps == [("which dog",), ["FT.SEARCH", "TURN", "HGETALL"]]


@pytest.mark.parametrize("message", [HumanMessage(" ", id="q"), AIMessage("go on", id="q")])
def test_without_a_question_nothing_is_embedded(by_hand: ByHand, message: Any) -> None:
    by_hand.answers = [[read(), {}]]
    recalling(by_hand).context([message], **IDS)
    assert by_hand.steps == [["TURN", "HGETALL"]]


def test_a_model_that_fails_ends_the_turn_or_costs_it_its_recall(
    by_hand: ByHand, caplog: pytest.LogCaptureFixture
) -> None:
    by_hand.model.broken = ValueError("overloaded")
    with pytest.raises(EmbeddingError):
        shown(recalling(by_hand))
    by_hand.answers = [[read(*EARLIER), {}]]
    with caplog.at_level(logging.WARNING):
        assert shown(recalling(by_hand, on_error="log"))[:2] == ["hello", "good day"]
    assert "this turn goes without recall" in caplog.text
    assert by_hand.steps == [("which dog",), ("which dog",), ["TURN", "HGETALL"]]


@pytest.mark.parametrize("with_recall", [True, False])
def test_somebody_elses_thread_is_refused(by_hand: ByHand, with_recall: bool) -> None:
    refusal = RedisReplyError("WMOWNER")
    by_hand.answers = [[found(), refusal, {}] if with_recall else [refusal]]
    with pytest.raises(ThreadOwnershipError):
        shown(recalling(by_hand) if with_recall else Memory())


def test_only_the_script_that_was_forgotten_is_sent_again(by_hand: ByHand) -> None:
    by_hand.answers = [[found(), RedisReplyError("NOSCRIPT"), {}], [read(*EARLIER)]]
    assert shown(recalling(by_hand))[:2] == ["hello", "good day"]
    assert by_hand.steps[1:] == [["FT.SEARCH", "TURN", "HGETALL"], ["TURN!"]]


# ---------------------------------------------------------------------- saving


def saved(*ids: bytes) -> list[Any]:
    return [[len(ids), len(ids), 0, b"7", list(ids), [], 0], None]


def test_a_turn_is_saved_in_one_request_under_the_ids_that_the_thread_knows(by_hand: ByHand) -> None:
    by_hand.answers = [saved(b"known", b"b")]
    turn = Memory().save_turn([HumanMessage("hello"), AIMessage("hi", id="b")], **IDS)
    assert [message.id for message in turn] == ["known", "b"]
    assert by_hand.steps == [["WRITE", "GET"]]


def test_what_the_list_of_a_turn_has_left_behind_is_superseded_when_the_turn_is_saved(by_hand: ByHand) -> None:
    memory = Memory()
    seen = read(*EARLIER)
    seen[2:4] = [b"old", b"older"], [5, 6]  # the answers that the thread has to the question
    seen[6:8] = [b"q"], [4]
    by_hand.answers = [[seen], saved(b"q", b"b"), saved(b"q", b"b")]
    memory.context([ASKED], **IDS)
    for _ in range(2):
        memory.save_turn([ASKED, AIMessage("Nougat", id="b")], **IDS)
    left = [[one for one in by_hand.request(at)[0] if one in {"old", "older"}] for at in (1, 2)]
    assert left == [["old", "older"], []]  # once is enough


def test_a_turn_under_an_owner_who_is_deleted_is_taken_back(by_hand: ByHand) -> None:
    by_hand.answers = [[saved(b"q")[0], b"a tombstone"], [[0, 0, 0, 0, [], 0]], [[0, 0]]]
    with pytest.raises(UserDeletedError):
        Memory().save_turn([ASKED], **IDS)
    assert by_hand.steps == [["WRITE", "GET"], ["DELETE"], ["SWEEP"], "Pause"]
