"""What is said and done when the reply to a write was lost, and when an operation of several steps ends half-way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import Memory, WorkingMemoryConflictError, WorkingMemoryOptions, WorkingMemoryState
from langchain_workingmem._engine.plan import Plan, Send
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import OutcomeUnknownError
from langchain_workingmem.working_memory.store import WorkingMemory
from tests.helpers.fault_bench import FaultBench
from tests.helpers.operations import ALONE
from tests.helpers.plans import plan_of, twice
from tests.helpers.proxy import Fault
from tests.helpers.types import Make

pytestmark = pytest.mark.in_turn("face")

ANN: dict[str, Any] = {"user_id": "ann"}


@pytest.mark.parametrize("name", [name for name, one in ALONE.items() if one.at_most_once and "until" not in name])
def test_a_lost_reply_to_what_must_not_happen_twice_is_called_unknown(
    make_bench: Callable[..., FaultBench], name: str
) -> None:
    outcome = make_bench().try_out(ALONE[name], Fault("close", "reply", 1))
    assert isinstance(outcome.error, OutcomeUnknownError)
    assert "may have taken effect" in str(outcome.error)


def test_a_turn_without_ids_whose_reply_was_lost_is_stored_once(plain: Memory) -> None:
    ids = {"thread_id": "t", "user_id": "u"}
    for number in range(2):
        turn = [("user", "the same question"), ("ai", f"answer {number}")]
        plain._core.run(twice(plan_of(Memory.save_turn, plain, turn, **ids)))
    assert [one.text for one in plain.history.messages("t")][::2] == ["the same question"] * 2
    assert len(plain.history.messages("t")) == 4


def test_a_question_under_the_id_of_a_deleted_one_whose_reply_was_lost_is_stored_once(plain: Memory) -> None:
    ids = {"thread_id": "t", "user_id": "u"}
    first: list[BaseMessage] = [HumanMessage("q1", id="1"), AIMessage("a1", id="2"), HumanMessage("q2", id="3")]
    plain.save_turn(first, **ids)
    plain.history.delete(["3"], thread_id="t")
    plain._core.run(twice(plan_of(Memory.save_turn, plain, [*first[:2], HumanMessage("other", id="3")], **ids)))
    assert [message.text for message in plain.history.messages("t")] == ["q1", "a1", "other"]


def test_a_long_list_without_ids_whose_reply_was_lost_is_stored_whole(plain: Memory) -> None:
    """It is written in several steps."""
    said = [(("user", "ai")[at % 2], f"words {at}") for at in range(1_100)]
    plain._core.run(twice(plan_of(Memory.save_turn, plain, said, thread_id="t", user_id="u")))
    assert [one.text for one in plain.history.messages("t")] == [text for _, text in said]


class Losing:
    """Updates a working memory in free text; the reply to the write is lost, whereupon something happens."""

    def __init__(self, memory: Memory, rival: Memory) -> None:
        self.memory, self.rival = memory, rival
        self.memory.working_memory.update("first", **ANN)

    def update(self, event: Callable[[], object] = lambda: None, **how: Any) -> WorkingMemoryState:
        return self.memory._core.run(self._losing(event, **how))

    def _losing(self, event: Callable[[], object], **how: Any) -> Plan[WorkingMemoryState]:
        plan: Plan[WorkingMemoryState] = plan_of(WorkingMemory.update, self.memory, "mine", **how, **ANN)
        effect, is_first = next(plan), True
        while True:
            try:
                reply = yield effect
                if isinstance(effect, Send) and is_first and effect.commands[0][0] == "EVALSHA":
                    is_first = False
                    event()
                    reply = yield effect  # the same once more
                effect = plan.send(reply)
            except StopIteration as done:
                state: WorkingMemoryState = done.value
                return state

    def documents(self) -> list[str]:
        return [state.text for state in self.memory.working_memory.revisions(**ANN)][::-1]


@pytest.fixture
def losing(make_memory: Make, server: EmbeddedRedis, prefix: str) -> Iterator[Losing]:
    options = WorkingMemoryOptions(template="")
    with Memory(server.url, key_prefix=prefix, working_memory=options) as rival:
        yield Losing(make_memory(working_memory=options), rival)


@pytest.mark.parametrize("expected", [None, 1])
def test_a_write_whose_reply_was_lost_is_stored_once(losing: Losing, expected: int | None) -> None:
    state = losing.update(mode="replace", expected_revision=expected)
    assert losing.documents() == ["first", "mine"]
    assert (state.text, state.revision) == ("mine", 2)


def test_a_write_whose_reply_was_lost_is_made_again_on_what_a_rival_has_added(losing: Losing) -> None:
    state = losing.update(lambda: losing.rival.working_memory.update("theirs", **ANN))
    assert state.text == "first\n\nmine\n\ntheirs"


def test_a_write_whose_reply_was_lost_before_a_rival_is_a_conflict_for_who_expects_a_revision(losing: Losing) -> None:
    with pytest.raises(WorkingMemoryConflictError):
        losing.update(
            lambda: losing.rival.working_memory.update("rival", mode="replace", **ANN),
            mode="replace",
            expected_revision=1,
        )
    assert losing.documents() == ["first", "mine", "rival"]
