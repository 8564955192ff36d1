"""What is said and done when the reply to a write was lost, and when an operation of several steps ends half-way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from langchain_workingmem import Memory, WorkingMemoryConflictError, WorkingMemoryOptions
from langchain_workingmem._engine.plan import Plan, Send
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import OutcomeUnknownError
from langchain_workingmem.working_memory.store import WorkingMemory
from tests.helpers.fault_bench import FaultBench
from tests.helpers.operations import ALONE
from tests.helpers.plans import plan_of
from tests.helpers.proxy import Fault

pytestmark = pytest.mark.in_turn("face")

Make = Callable[..., Memory]
ANN: dict[str, Any] = {"user_id": "ann"}


@pytest.mark.parametrize("name", [name for name, one in ALONE.items() if one.at_most_once and "until" not in name])
def test_a_lost_reply_to_what_must_not_happen_twice_is_called_unknown(
    make_bench: Callable[..., FaultBench], name: str
) -> None:
    outcome = make_bench().try_out(ALONE[name], Fault("close", "reply", 1))
    assert isinstance(outcome.error, OutcomeUnknownError)
    assert "may have taken effect" in str(outcome.error)


# ------------------------------------------------------------------ working memory


@pytest.fixture
def brief(make_memory: Make) -> Memory:
    """Working memory in free text that keeps two revisions."""
    return make_memory(working_memory=WorkingMemoryOptions(template="", revisions=2))


@pytest.fixture
def rival(server: EmbeddedRedis, prefix: str) -> Iterator[Memory]:
    """Another process."""
    options = WorkingMemoryOptions(template="", revisions=2)
    with Memory(server.url, key_prefix=prefix, working_memory=options) as memory:
        yield memory


def losing(plan: Plan[Any], event: Callable[[], object]) -> Plan[Any]:
    """Perform a plan, and send its write twice, as where the reply was lost, with an event in between."""
    effect, is_first = next(plan), True
    while True:
        try:
            reply = yield effect
            if isinstance(effect, Send) and is_first and effect.commands[0][0] == "EVALSHA":
                is_first = False
                event()
                reply = yield effect
            effect = plan.send(reply)
        except StopIteration as done:
            return done.value


def replacing(memory: Memory, text: str, expected: int | None = None) -> Plan[Any]:
    plan: Plan[Any] = plan_of(WorkingMemory.update, memory, text, mode="replace", expected_revision=expected, **ANN)
    return plan


def write(memory: Memory, *texts: str) -> None:
    for text in texts:
        memory.working_memory.update(text, mode="replace", **ANN)


def documents(memory: Memory) -> list[str]:
    return [state.text for state in memory.working_memory.revisions(**ANN)][::-1]


@pytest.mark.parametrize("expected", [None, 1])
def test_a_write_whose_reply_was_lost_is_stored_once(brief: Memory, expected: int | None) -> None:
    write(brief, "first")
    state = brief._core.run(losing(replacing(brief, "mine", expected), lambda: None))
    assert documents(brief) == ["first", "mine"]
    assert (state.text, state.revision) == ("mine", 2)


def test_a_write_whose_reply_was_lost_is_made_again_on_what_a_rival_has_added(brief: Memory, rival: Memory) -> None:
    write(brief, "first")
    appending: Plan[Any] = plan_of(WorkingMemory.update, brief, "mine", **ANN)
    state = brief._core.run(losing(appending, lambda: rival.working_memory.update("theirs", **ANN)))
    assert state.text == "first\n\nmine\n\ntheirs"


def test_a_write_whose_reply_was_lost_before_a_rival_is_a_conflict_for_who_expects_a_revision(
    brief: Memory, rival: Memory
) -> None:
    write(brief, "first")
    with pytest.raises(WorkingMemoryConflictError):
        brief._core.run(losing(replacing(brief, "mine", 1), lambda: write(rival, "rival")))
    assert documents(brief) == ["mine", "rival"]
