"""`MemoryMiddleware` beside the middleware that people combine it with."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelFallbackMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    dynamic_prompt,
)
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langchain_workingmem import HistoryOptions, Memory, WorkingMemoryOptions
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import Bench, ModelDownError, Scripted, ask, breaks, calling, remembered, said, weather
from tests.middleware.samples import TURN, stored

pytestmark = pytest.mark.in_turn("face")


@pytest.fixture(params=["memory first", "memory last"])
def memory_first(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "memory first")


def beside(
    model: Scripted, memory: Memory, *others: AgentMiddleware[Any, Any], first: bool = True, **options: Any
) -> Any:
    """Make an agent with memory listed before or behind the other middleware."""
    middleware: list[AgentMiddleware[Any, Any]] = [MemoryMiddleware(memory), *others]
    return create_agent(
        model, [weather, breaks], middleware=middleware if first else [*middleware[1:], middleware[0]], **options
    )


def oslo(id: str = "a") -> AIMessage:
    return calling(("weather", {"city": "Oslo"}), id=id)


# ---------------------------------------------------------------------- a human in the loop

APPROVE: dict[str, Any] = {"type": "approve"}
REJECT: dict[str, Any] = {"type": "reject", "message": "never"}
EDIT: dict[str, Any] = {"type": "edit", "edited_action": {"name": "weather", "args": {"city": "Rome"}}}


def asking() -> HumanInTheLoopMiddleware:
    return HumanInTheLoopMiddleware({"weather": True})


@pytest.mark.parametrize(
    ("decision", "outcome"), [(APPROVE, "sunny in Oslo"), (EDIT, "sunny in Rome"), (REJECT, "never")]
)
def test_a_turn_with_an_interrupt_is_stored_as_it_ends(
    bench: Bench, decision: dict[str, Any], outcome: str, memory_first: bool
) -> None:
    memory = bench.memory()
    model = Scripted.says(oslo(), "done", "bye")
    agent = beside(model, memory, asking(), first=memory_first, checkpointer=InMemorySaver())
    assert "__interrupt__" in bench.run(agent, ask("weather?"))
    result = bench.run(agent, Command(resume={"decisions": [decision]}))
    assert outcome in result["messages"][2].text
    assert model.seen[1] == result["messages"][:3]
    assert memory.history.messages("t") == result["messages"]
    bench.run(agent, ask("thanks"))
    assert said(model.seen[2]) == [*said(result["messages"]), "human: thanks"]
    assert stored(memory) == [*said(result["messages"]), "human: thanks", "ai: bye"]


def test_a_resume_in_a_new_process_knows_memory_again(bench: Bench) -> None:
    saver = InMemorySaver()
    first = bench.memory(working_memory=WorkingMemoryOptions(template=""))
    first.history.append([HumanMessage("one", id="1"), AIMessage("two", id="2")], **TURN)
    first.working_memory.update("Ann has a dog", **TURN)
    bench.run(beside(Scripted.says(oslo()), first, asking(), checkpointer=saver), ask("weather?"))
    second = bench.memory(working_memory=WorkingMemoryOptions(template=""))
    model = Scripted.says("done")
    bench.run(beside(model, second, asking(), checkpointer=saver), Command(resume={"decisions": [APPROVE]}))
    turn = ["human: weather?", "ai: weather#a-0", "tool: sunny in Oslo"]
    assert "Ann has a dog" in remembered(model.seen[0])
    assert said(model.seen[0]) == ["human: one", "ai: two", *turn]
    assert stored(second) == ["human: one", "ai: two", *turn, "ai: done"]


def test_an_interrupt_that_nobody_answers_loses_no_word_of_the_user(bench: Bench, memory_first: bool) -> None:
    memory = bench.memory()
    model = Scripted.says(oslo(), "fine")
    agent = beside(model, memory, asking(), first=memory_first, checkpointer=InMemorySaver())
    bench.run(agent, ask("weather?"))
    bench.run(agent, ask("never mind"))
    assert said(model.seen[1]) == ["human: weather?", "human: never mind"]
    assert [line for line in stored(memory) if not line.startswith("ai: weather")] == [
        "human: weather?",
        "human: never mind",
        "ai: fine",
    ]


# ---------------------------------------------------------------------- retries and fallbacks


def test_a_fallback_is_sent_the_same_and_stored_once(bench: Bench, memory_first: bool) -> None:
    memory = bench.memory()
    memory.history.append([HumanMessage("one", id="1"), AIMessage("two", id="2")], **TURN)
    model, other = Scripted.says(ModelDownError("down")), Scripted.says("four")
    bench.run(beside(model, memory, ModelFallbackMiddleware(other), first=memory_first), ask("three"))
    assert said(model.seen[0]) == ["human: one", "ai: two", "human: three"]
    assert other.seen == model.seen
    assert stored(memory) == ["human: one", "ai: two", "human: three", "ai: four"]


# ---------------------------------------------------------------------- summaries


def summing(*summaries: str, trigger: int, keep: int) -> SummarizationMiddleware:
    return SummarizationMiddleware(Scripted.says(*summaries), trigger=("messages", trigger), keep=("messages", keep))


def is_summary(line: str) -> bool:
    return "SUMMARY" in line


@pytest.mark.parametrize("options", [HistoryOptions(), HistoryOptions(last_messages=None)], ids=["ten", "all"])
def test_a_summary_at_the_start_of_a_turn(bench: Bench, memory_first: bool, options: HistoryOptions) -> None:
    memory = bench.memory(history=options)
    model = Scripted.says("2", "4", "6", "8")
    agent = beside(
        model, memory, summing("SUMMARY", trigger=5, keep=1), first=memory_first, checkpointer=InMemorySaver()
    )
    for text in ("1", "3", "5", "7"):
        bench.run(agent, ask(text))
    third, fourth = (said(messages) for messages in model.seen[2:])
    assert is_summary(third[0])
    assert third[1:] == ["human: 5"]
    assert is_summary(fourth[0])
    assert fourth[1:] == ["human: 5", "ai: 6", "human: 7"]
    assert stored(memory) == [f"{'human' if at % 2 else 'ai'}: {at}" for at in range(1, 9)]


STEPS = ["human: go", "ai: weather#c1-0", "tool: sunny in Oslo", "ai: weather#c2-0", "tool: sunny in Oslo", "ai: done"]


@pytest.mark.parametrize("saver", [True, False], ids=["checkpointer", "no checkpointer"])
def test_a_summary_in_mid_turn_stores_the_conversation(bench: Bench, memory_first: bool, saver: bool) -> None:
    memory = bench.memory()
    model = Scripted.says(oslo("c1"), oslo("c2"), "done", "bye")
    checkpointer = InMemorySaver() if saver else None
    summary = summing("SUMMARY", "SUMMARY", trigger=4, keep=2)
    agent = beside(model, memory, summary, first=memory_first, checkpointer=checkpointer)
    bench.run(agent, ask("go"))
    assert is_summary(said(model.seen[2])[0])
    assert said(model.seen[2])[1:] == STEPS[3:5]
    assert stored(memory) == STEPS


def test_history_that_no_summary_covers_stays_in_sight(bench: Bench, memory_first: bool) -> None:
    memory = bench.memory()
    memory.history.append([HumanMessage("my name is Ann", id="1"), AIMessage("hello", id="2")], **TURN)
    model = Scripted.says(oslo("c1"), oslo("c2"), oslo("c3"), "done")
    summary = summing("SUMMARY", "SUMMARY", trigger=4, keep=2)
    bench.run(beside(model, memory, summary, first=memory_first), ask("go"))
    assert is_summary(said(model.seen[3])[2])
    for messages in model.seen:
        assert said(messages)[:2] == ["human: my name is Ann", "ai: hello"]


# ---------------------------------------------------------------------- redaction


MAIL = "ann@example.org"


def everything(raw: redis.Redis, prefix: str) -> str:
    """Read whatever is stored under a prefix, in whatever form."""
    found = []
    for key in raw.scan_iter(f"{prefix}*"):
        kind = raw.type(key)
        found.append(key)
        if kind == b"hash":
            found += [part for pair in raw.hgetall(key).items() for part in pair]
        elif kind == b"string":
            found.append(raw.get(key))
        elif kind == b"list":
            found += raw.lrange(key, 0, -1)
        elif kind == b"zset":
            found += raw.zrange(key, 0, -1)
        elif kind == b"set":
            found += raw.smembers(key)
        elif kind == b"stream":
            found.append(repr(raw.xrange(key)).encode())
        else:
            found.append(raw.dump(key))
    return b"\n".join(found).decode(errors="replace")


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
    found = everything(raw, bench.prefix)
    assert "REDACTED_EMAIL" in found
    assert MAIL not in found


# ---------------------------------------------------------------------- another prompt


def test_middleware_that_replaces_the_prompt_cannot_take_memory_away(bench: Bench, memory_first: bool) -> None:
    memory = bench.recalling(working_memory=WorkingMemoryOptions(template=""))
    memory.history.append([HumanMessage("my cat is named Molly", id="x")], thread_id="pets", user_id="ann")

    @dynamic_prompt
    def prompt(_: Any) -> str:
        return "You are terse."

    model = Scripted.says("Molly")
    bench.run(beside(model, memory, prompt, first=memory_first), ask("how is my cat named"))
    assert said(model.seen[0]) == ["system: You are terse.", "human: how is my cat named"]
    assert "Molly" in remembered(model.seen[0])
    assert "<working_memory>" in remembered(model.seen[0])


# ---------------------------------------------------------------------- limits and early ends
