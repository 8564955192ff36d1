"""`MemoryMiddleware` beside the middleware that people combine it with."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
)
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from langchain_workingmem import Memory, ThreadOwnershipError, WorkingMemoryOptions
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.canaries import keys_with
from tests.helpers.models import Bench, Scripted, ask, calling, configured, remembered, said, weather
from tests.middleware.samples import TURN, seed, stored

pytestmark = pytest.mark.in_turn("face")


def beside(model: Scripted, memory: Memory, *others: AgentMiddleware[Any, Any], **options: Any) -> Any:
    """Make an agent with memory in front of others; tests/applications/test_orders.py looks at both orders."""
    middleware: list[AgentMiddleware[Any, Any]] = [MemoryMiddleware(memory), *others]
    return create_agent(model, [weather], middleware=middleware, **options)


def oslo(id: str = "a") -> AIMessage:
    return calling(("weather", {"city": "Oslo"}), id=id)


ASKING = HumanInTheLoopMiddleware({"weather": True})


def test_a_resume_in_a_new_process_knows_memory_again(bench: Bench) -> None:
    saver = InMemorySaver()
    first = bench.memory(working_memory=WorkingMemoryOptions(template=""))
    seed(first, "one", "two")
    first.working_memory.update("Ann has a dog", **TURN)
    bench.run(beside(Scripted.says(oslo()), first, ASKING, checkpointer=saver), ask("weather?"))
    second = bench.memory(working_memory=WorkingMemoryOptions(template=""))
    model = Scripted.says("done")
    bench.run(beside(model, second, ASKING, checkpointer=saver), Command(resume={"decisions": [{"type": "approve"}]}))
    turn = ["human: weather?", "ai: weather#a-0", "tool: sunny in Oslo"]
    assert "Ann has a dog" in remembered(model.seen[0])
    assert said(model.seen[0]) == ["human: one", "ai: two", *turn]
    assert stored(second) == ["human: one", "ai: two", *turn, "ai: done"]


def test_an_interrupt_that_nobody_answers_loses_no_word_of_the_user(bench: Bench) -> None:
    memory = bench.memory()
    model = Scripted.says(oslo(), "fine")
    agent = beside(model, memory, ASKING, checkpointer=InMemorySaver())
    bench.run(agent, ask("weather?"))
    bench.run(agent, ask("never mind"))
    assert said(model.seen[1]) == ["human: weather?", "human: never mind"]
    assert [line for line in stored(memory) if not line.startswith("ai: weather")] == [
        "human: weather?",
        "human: never mind",
        "ai: fine",
    ]


def test_a_tool_that_asks_a_person_has_not_failed(bench: Bench) -> None:
    @tool
    def book() -> str:
        """Book a hut."""
        return str(interrupt("really?"))

    memory, model = bench.memory(), Scripted.says(calling(("book", {}), id="a"), "done")
    agent = create_agent(model, [book], middleware=[MemoryMiddleware(memory)], checkpointer=InMemorySaver())
    bench.run(agent, ask("book it"))
    assert stored(memory) == ["human: book it"]  # the run goes on later, and is saved as it ends
    bench.run(agent, Command(resume="yes"))
    assert stored(memory) == ["human: book it", "ai: book#a-0", "tool: yes", "ai: done"]


def summing() -> SummarizationMiddleware:
    return SummarizationMiddleware(Scripted.says(*["SUMMARY"] * 2), trigger=("messages", 4), keep=("messages", 2))


STEPS = ["human: go", "ai: weather#c1-0", "tool: sunny in Oslo", "ai: weather#c2-0", "tool: sunny in Oslo", "ai: done"]


def test_a_summary_in_mid_turn_stores_the_conversation(bench: Bench, saver: InMemorySaver | None) -> None:
    memory = bench.memory()
    model = Scripted.says(oslo("c1"), oslo("c2"), "done", "bye")
    bench.run(beside(model, memory, summing(), checkpointer=saver), ask("go"))
    assert "SUMMARY" in said(model.seen[2])[0]
    assert said(model.seen[2])[1:] == STEPS[3:5]
    assert stored(memory) == STEPS


def test_history_that_no_summary_covers_stays_in_sight(bench: Bench) -> None:
    memory = bench.memory()
    seed(memory, "my name is Ann", "hello")
    model = Scripted.says(oslo("c1"), oslo("c2"), oslo("c3"), "done")
    bench.run(beside(model, memory, summing()), ask("go"))
    assert "SUMMARY" in said(model.seen[3])[2]
    for messages in model.seen:
        assert said(messages)[:2] == ["human: my name is Ann", "ai: hello"]


MAIL = "ann@example.org"


@tool
def directory(name: str) -> str:
    """Look up an address."""
    return f"{name}: {MAIL}"


def test_only_redacted_text_is_stored(bench: Bench, raw: redis.Redis) -> None:
    memory = bench.recalling(working_memory=WorkingMemoryOptions(template=""))
    model = Scripted.says(calling(("directory", {"name": "Ann"}), id="a"), f"it is {MAIL}")
    guard = PIIMiddleware("email", apply_to_input=True, apply_to_output=True, apply_to_tool_results=True)
    both: list[AgentMiddleware[Any, Any]] = [MemoryMiddleware(memory), guard]
    agent = create_agent(model, [directory], middleware=both)
    result = bench.run(agent, ask(f"is it {MAIL}?"))
    assert memory.history.messages("t") == result["messages"]
    assert stored(memory)[0] == "human: is it [REDACTED_EMAIL]?"
    assert keys_with(raw, bench.prefix, "REDACTED_EMAIL")
    assert not keys_with(raw, bench.prefix, MAIL)


def test_nobody_else_resumes_a_tool_that_waits_for_a_person(bench: Bench) -> None:
    done: list[str] = []

    @tool
    def refund(amount: int) -> str:
        """Pay back."""
        done.append(f"{amount}")
        return "paid"

    memory = bench.memory(on_error="log")  # which is no reason to go on
    model, saver = Scripted.says(calling(("refund", {"amount": 5}), id="c"), "Done."), InMemorySaver()

    def agent() -> Any:  # each in a process of its own
        asking = HumanInTheLoopMiddleware(interrupt_on={"refund": True})
        return create_agent(model, [refund], middleware=[MemoryMiddleware(memory), asking], checkpointer=saver)

    approved: Any = Command(resume={"decisions": [{"type": "approve"}]})
    bench.run(agent(), ask("my money back"), configured("t", "maya"))
    for user in ("omar", None):
        with pytest.raises(ThreadOwnershipError):
            bench.run(agent(), approved, configured("t", user))
    assert done == []
    bench.run(agent(), approved, configured("t", "maya"))
    assert done == ["5"]
    assert stored(memory)[-1] == "ai: Done."
