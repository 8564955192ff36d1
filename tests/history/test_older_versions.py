"""Older versions of questions that were edited under their ids: beside the first message, deleted, exported and imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import Memory
from tests.helpers.archives import unsealed

Make = Callable[..., Memory]
TURN: dict[str, Any] = {"thread_id": "t", "user_id": "ann"}


def turn(memory: Memory, *messages: BaseMessage) -> list[str]:
    """One turn: all but the last message are sent, and the last is the answer."""
    shown = memory.context(list(messages[:-1]), **TURN).messages
    memory.save_turn(list(messages), **TURN)
    return [str(message.text) for message in shown]


@pytest.fixture
def edited(memory: Memory) -> Memory:
    """A thread whose first question was edited under its id."""
    turn(memory, HumanMessage("milk", id="q"), AIMessage("cow", id="a0"))
    turn(memory, HumanMessage("tea", id="q"), AIMessage("leaf", id="a1"))
    return memory


def version_of(memory: Memory, id: str) -> str:
    (found,) = [m.id or "" for m in memory.history.messages("t", superseded=True) if (m.id or "").startswith(f"{id}~")]
    return found


@pytest.mark.parametrize("id", ["q", None])
def test_the_first_question_takes_its_older_words_back(edited: Memory, id: str | None) -> None:
    old = [HumanMessage("milk", id=id), AIMessage("cow", id="a0" if id else None)]
    assert turn(edited, *old, HumanMessage("bread"), AIMessage("flour")) == ["milk", "cow", "bread"]
    assert [m.text for m in edited.history.messages("t")] == ["milk", "cow", "bread", "flour"]
    assert turn(edited, *old, HumanMessage("more"), AIMessage("end")) == ["milk", "cow", "more"]


def test_a_program_that_writes_under_the_id_of_a_version_locks_nobody_out(edited: Memory) -> None:
    edited.history.append([HumanMessage("juice", id=version_of(edited, "q"))], **TURN)
    sent = [HumanMessage("milk"), AIMessage("cow"), HumanMessage("bread")]
    assert turn(edited, *sent, AIMessage("flour"))[-1] == "bread"


def test_deleting_a_version_deletes_nothing_else(memory: Memory) -> None:
    turn(memory, HumanMessage("one", id="q0"), AIMessage("A", id="a1"))
    turn(memory, HumanMessage("two", id="q2"), AIMessage("B", id="a3"))
    memory.history.truncate("t", after="a1")
    turn(memory, HumanMessage("three", id="q4"), AIMessage("C", id="a5"))
    turn(memory, HumanMessage("four", id="q4"), AIMessage("D", id="a6"))
    version = version_of(memory, "q4")
    assert [m.id for m in memory.history.messages("t", after=version)] == ["q4", "a6"]
    assert memory.history.delete([version], thread_id="t") == 1
    left = [m.id for m in memory.history.messages("t", superseded=True)]
    assert left == ["q0", "a1", "q2", "a3", "q4", "a5", "a6"]


def test_versions_come_back_with_their_message(edited: Memory, make_memory: Make, prefix: str) -> None:
    turn(edited, HumanMessage("water", id="q"), AIMessage("rain", id="a2"))
    edited.history.append([AIMessage(f"note {number}", id=f"n{number}") for number in range(500)], **TURN)
    other = make_memory(key_prefix=f"{prefix}-other")
    other.users.load(unsealed(edited.users.export("ann")))
    assert other.history.messages("t", superseded=True) == edited.history.messages("t", superseded=True)
    assert turn(other, HumanMessage("milk", id="q"), AIMessage("cow", id="a0"))[-1] == "milk"


def test_recall_ignores_what_others_put_among_its_vectors(edited: Memory, raw: redis.Redis, prefix: str) -> None:
    client: Any = raw
    key = next(client.scan_iter(f"{prefix}:vector:{{t}}*"))
    client.hset(f"{prefix}:vector:{{t}}:foreign", mapping=client.hgetall(key))
    assert edited.recall.search("tea", user_id="ann").hits
