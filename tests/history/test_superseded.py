"""What a conversation has left behind: out of sight, not destroyed, and gone with what is deleted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import HistoryOptions, Memory, MessageNotFoundError
from langchain_workingmem._redis.scripts import change_thread
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.history.save import save_turn
from tests.helpers.conversations import ai, result
from tests.helpers.types import Make

TURN: dict[str, Any] = {"thread_id": "t", "user_id": "u"}

WORDS = {"q0": "my cat is Molly", "a0": "nice", "q1": "my dog is Rex", "a1": "sweet", "q2": "it rains", "a2": "indeed"}


def said(*names: str) -> list[BaseMessage]:
    return [(HumanMessage if name[0] == "q" else AIMessage)(WORDS.get(name, name), id=name) for name in names]


@pytest.fixture
def talked(memory: Memory) -> Memory:
    """Three turns, with vectors."""
    memory.save_turn(said(*WORDS), **TURN)
    return memory


def current(memory: Memory, thread: str = "t") -> list[str | None]:
    return [message.id for message in memory.history.messages(thread)]


def whole(memory: Memory, thread: str = "t", **options: Any) -> list[str | None]:
    return [message.id for message in memory.history.messages(thread, superseded=True, **options)]


def recalled(memory: Memory, query: str) -> set[str | None]:
    found = memory.recall.search(query, user_id="u", message_range=1)
    return {message.id for message in found.messages}


def test_nothing_shows_what_was_left_behind(talked: Memory) -> None:
    edited = talked.context([*said("q0", "a0"), HumanMessage("is my dog Rex", id="n")], **TURN)
    assert "Rex" not in str(edited.recalled.messages)  # also before the turn is saved
    talked.history.truncate("t", after="a0")
    assert "q1" not in recalled(talked, WORDS["q1"])
    context = talked.context("my dog is Rex", **TURN)
    assert [message.id for message in context.messages][:-1] == ["q0", "a0"]
    assert "Rex" not in str(context.recalled.messages)
    assert [row.message.id for row in talked.history.page("t")] == ["q0", "a0"]
    assert talked.history.page("t").total == 2
    assert [row.message.id for row in talked.history.for_user("u")] == ["q0", "a0"]
    assert talked.history.for_user("u").total == 2
    assert talked.recall.reindex(user_id="u", progress=False) == 0


def test_a_message_that_is_saved_again_is_back_with_its_vector(talked: Memory) -> None:
    talked.history.truncate("t", after="a0")
    talked.history.append(said("q1"), **TURN)
    assert current(talked) == ["q0", "a0", "q1"]
    assert "q1" in recalled(talked, WORDS["q1"])
    assert whole(talked) == list(WORDS)


def test_a_message_that_is_not_on_the_branch_is_an_error(talked: Memory) -> None:
    talked.history.truncate("t", after="a1")
    with pytest.raises(MessageNotFoundError, match="q2"):
        talked.history.truncate("t", after="q2")


def test_a_truncation_beside_writers_counts_right(talked: Memory, server: EmbeddedRedis, prefix: str) -> None:
    def write() -> None:
        with Memory(server.url, key_prefix=prefix) as rival:
            for at in range(60):
                rival.history.append([HumanMessage(f"more {at}")], **TURN)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done():
            talked.history.truncate("t", after="q0")
        writing.result()
    assert [thread.message_count for thread in talked.threads.list()] == [len(current(talked))]
    assert len(set(whole(talked))) == len(whole(talked)) == 66


def test_a_cleared_thread_keeps_nothing_but_itself(talked: Memory, raw: redis.Redis, prefix: str) -> None:
    edited = [*said("q0", "a0"), HumanMessage("my dog is Max", id="q1")]
    talked.context(edited, **TURN)
    talked.save_turn([*edited, AIMessage("brave", id="b1")], **TURN)
    assert len(whole(talked)) == talked.history.clear("t") == 8
    assert whole(talked) == []
    assert list(raw.scan_iter(f"{prefix}:*{{*")) == [f"{prefix}:thread:{{t}}".encode()]
    assert [thread.message_count for thread in talked.threads.list()] == [0]
    talked.save_turn(said("q0", "a0"), **TURN)
    assert current(talked) == ["q0", "a0"]


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize(
    ("saved", "left"),
    [(["q1", "x1"], ["q0", "a0", "q1", "x1"]), (["q0"], ["q0"]), (["q0", "x0", "q3", "a3"], ["q0", "x0", "q3", "a3"])],
)
def test_a_question_edited_by_its_id_supersedes_the_same_with_and_without_a_context(
    talked: Memory, saved: list[str], left: list[str], *, seen: bool
) -> None:
    turn = [HumanMessage(f"now {name}", id=name) if name[0] == "q" else AIMessage(name, id=name) for name in saved]
    if seen:
        talked.context(turn[:-1] if len(turn) > 1 else turn, **TURN)
    talked.save_turn(turn, **TURN)
    assert current(talked) == left
    before = whole(talked)
    assert {*WORDS} - {*before} == set()
    assert before.count(saved[0]) == 2  # its older version
    talked.save_turn(turn, **TURN)  # once more, as after a lost reply
    assert (current(talked), whole(talked)) == (left, before)


def test_a_question_that_is_edited_while_its_followers_stay_changes_in_place(talked: Memory) -> None:
    sent = [HumanMessage("my cat is Tom", id="q0"), *said(*WORDS)[1:], *said("q3", "a3")]
    talked.save_turn(sent, **TURN)
    assert talked.history.messages("t", superseded=True) == talked.history.messages("t") == sent


def test_what_was_deleted_by_id_stays_away_when_the_rest_is_cleared(talked: Memory) -> None:
    talked.history.delete(["q1"], thread_id="t")
    assert "q1" not in [one.id for one in talked.context(said(*WORDS, "q3"), **TURN).messages]
    talked.history.clear("t")
    talked.save_turn(said("q0", "a0", "q1", "a1"), **TURN)
    assert current(talked) == ["q0", "a0", "a1"]


def test_a_deletion_reaches_the_older_words_of_a_question(plain: Memory) -> None:
    for words in ("dog", "cat"):
        plain.save_turn([HumanMessage(words, id="e"), AIMessage("good")], **TURN)
    plain.history.delete(["e"], thread_id="t")
    for words in ("dog", "cat"):
        plain.save_turn([HumanMessage(words, id="e"), *said("q1", "a1")], **TURN)
    assert [one.text for one in plain.history.messages("t", superseded=True)][:2] == ["good", "good"]
    assert "e" not in whole(plain)


def test_what_a_provider_has_refused_is_not_shown_again(memory: Memory) -> None:
    memory.save_turn(said("q0", "a0", "q1"), **TURN)
    memory._core.run(change_thread(memory._core.state, "t", TURN["user_id"], "refuse", refused=["q1"]))
    assert [str(one.id) for one in memory.context("new", **TURN).messages][:-1] == ["q0", "a0"]
    asked = memory.context(said("q0", "a0", "q1"), **TURN).messages  # once more
    assert [one.id for one in asked] == ["q0", "a0", "q1"]
    assert not memory.context([*said("q0", "a0", "q1"), HumanMessage("dog Rex?", id="n")], **TURN).recalled.rows
    memory.history.update(said("q1"), thread_id="t")  # the user stands by it
    assert [str(one.id) for one in memory.context("new", **TURN).messages][:-1] == ["q0", "a0", "q1"]


def test_a_branch_comes_back_with_its_tool_traffic_and_its_vectors(memory: Memory) -> None:
    memory.save_turn([*said("q0", "a0", "q1"), ai("", "c1", id="c1"), result("c1", "r1"), *said("a1")], **TURN)
    whole = current(memory)
    memory.save_turn(said("q0", "a0", "q2", "a2"), **TURN)
    memory.save_turn(said("q0", "a0", "q1", "a1", "q3", "a3"), **TURN)
    assert current(memory)[: len(whole)] == whole
    memory.settled()
    assert memory.recall.search(WORDS["q1"], user_id="u").hits[0].message.id == "q1"


def test_a_window_reaches_further_back_than_what_was_left_behind(make_memory: Make) -> None:
    memory = make_memory(history=HistoryOptions(last_messages=2, step=1))
    memory.save_turn(said(*WORDS), **TURN)
    shown = memory.context([*said("q1"), HumanMessage("new", id="n")], **TURN).messages
    assert [one.id for one in shown] == ["q0", "a0", "q1", "n"]


def test_a_question_that_is_edited_back_and_forth_is_shown_once(plain: Memory) -> None:
    for words in ("dog", "cat", "dog", "cat"):
        plain.save_turn([HumanMessage(words, id="e"), AIMessage("good")], **TURN)
        assert [one.text for one in plain.history.messages("t")] == [words, "good"]


def test_the_answer_of_a_subgraph_is_stored_although_its_question_was_superseded_meanwhile(plain: Memory) -> None:
    plain.history.append(said("q0", "a0", "q1"), **TURN)
    plain.history.truncate("t", after="a0")
    plain._core.run(save_turn(plain._core, said("a1"), "t", "u", kind="part", question_id="q1"))
    assert current(plain) == ["q0", "a0", "a1"]
