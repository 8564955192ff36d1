"""The table of orders in the recipes: its rows run with memory first and with memory last, and say what they show."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolSelectorMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    PIIMiddleware,
)
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command
from pydantic import BaseModel

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import Bench, ModelDownError, Scripted, ask, breaks, calling, remembered, said, weather

PAGE = Path(__file__).parents[2] / "docs/how-to/middleware.md"
ROW = re.compile(r"^\| (?P<what>`?\w.+?) \| (?P<first>.+?) \| (?P<last>.+?) \|$", re.MULTILINE)
MAIL = "ann@example.org"

SAME = "the same"
CASES: dict[str, tuple[Callable[..., Any], Any, Any]] = {}  # by the first words of their rows


def row(name: str, first: Any, last: Any = SAME) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Take a case, and what it returns with memory first and with memory last."""

    def keep(case: Callable[..., Any]) -> Callable[..., Any]:
        CASES[name] = case, first, last
        return case

    return keep


def beside(
    first: bool, memory: Memory, model: Any, *others: Any, tools: Any = (weather, breaks), **options: Any
) -> Any:
    middleware: list[Any] = [MemoryMiddleware(memory), *others]
    return create_agent(model, [*tools], middleware=middleware if first else middleware[::-1], **options)


def oslo(id: str = "a") -> AIMessage:
    return calling(("weather", {"city": "Oslo"}), id=id)


def stored(memory: Memory) -> list[str]:
    return said(memory.history.messages("t"))


@row("`PIIMiddleware`", False)
def pii(bench: Bench, first: bool) -> Any:
    memory = bench.recalling()
    bench.embeddings.calls.clear()
    bench.run(beside(first, memory, Scripted.says("yes"), PIIMiddleware("email")), ask(f"i am {MAIL}"))
    assert stored(memory) == ["human: i am [REDACTED_EMAIL]", "ai: yes"]
    return any(MAIL in str(call) for call in bench.embeddings.calls)


@row("`PIIMiddleware(..., apply_to_output=True)`", ["human: who?", "ai: i am [REDACTED_EMAIL]"])
def pii_of_answers(bench: Bench, first: bool) -> Any:
    memory = bench.memory()
    guard = PIIMiddleware("email", apply_to_output=True)
    bench.run(beside(first, memory, Scripted.says(f"i am {MAIL}"), guard), ask("who?"))
    return said(memory.history.messages("t", superseded=True))


class TakesBack(AgentMiddleware[Any, Any]):
    """A guardrail that replaces an answer at the end of the run."""

    def after_agent(self, state: Any, runtime: Any) -> Any:
        kept = state["messages"][:-1]
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *kept, AIMessage("No.")]}


@row("a guardrail that takes an answer back", "No.", "the code is 1234")
def guardrail(bench: Bench, first: bool) -> Any:
    memory, model = bench.memory(), Scripted.says("the code is 1234", "no idea")
    agent = beside(first, memory, model, TakesBack())
    bench.run(agent, ask("the code?"))
    answer = memory.history.messages("t")[-1]
    if not first:
        memory.history.delete([answer.id or ""], thread_id="t")
    bench.run(agent, ask("again?"))
    assert "1234" not in str(model.seen[1])
    return answer.text


@row("`HumanInTheLoopMiddleware`", ["human: weather?"])
def human(bench: Bench, first: bool) -> Any:
    memory = bench.memory()
    asks = HumanInTheLoopMiddleware({"weather": True})
    agent = beside(first, memory, Scripted.says(oslo(), "done"), asks, checkpointer=InMemorySaver())
    bench.run(agent, ask("weather?"))
    waiting = stored(memory)
    edit = {"type": "edit", "edited_action": {"name": "weather", "args": {"city": "Rome"}}}
    bench.run(agent, Command(resume={"decisions": [edit]}))
    question, call, result, answer = stored(memory)
    assert [question, call, answer] == ["human: weather?", "ai: weather#a-0", "ai: done"]
    assert result.endswith("sunny in Rome")
    return waiting


class Chooses(Scripted):
    """A model that chooses the tool of the weather."""

    def with_structured_output(self, schema: Any, **_: Any) -> Any:
        return self | (lambda _: {"tools": ["weather"]})


@row("`LLMToolSelectorMiddleware`", True, False)
def selector(bench: Bench, first: bool) -> Any:
    memory, model = bench.memory(working_memory=WorkingMemoryOptions(template="")), Scripted.says("yes")
    chooses = LLMToolSelectorMiddleware(model=Chooses(script=["weather"]), max_tools=1)
    bench.run(beside(first, memory, model, chooses), ask("hi"))
    assert model.tools == [["weather"]]
    assert stored(memory) == ["human: hi", "ai: yes"]
    return "update_working_memory" in remembered(model.seen[0])


ANSWERED = "Returning structured response: name='Oslo'"


class City(BaseModel):
    """A city."""

    name: str


@row("`response_format`", ["human: where?", "ai: City#a-0", f"tool: {ANSWERED}", "human: and now?"])
def structured(bench: Bench, first: bool) -> Any:
    memory = bench.memory()
    model = Scripted.says(calling(("City", {"name": "Oslo"}), id="a"), calling(("City", {"name": "Rome"}), id="b"))
    agent = beside(first, memory, model, PIIMiddleware("email"), response_format=City)
    assert bench.run(agent, ask("where?"))["structured_response"] == City(name="Oslo")
    bench.run(agent, ask("and now?"))
    return said(model.seen[1])


@row("`ContextEditingMiddleware`", "tool: cleared", "tool: sunny in Oslo")
def editing(bench: Bench, first: bool) -> Any:
    memory, model = bench.memory(), Scripted.says(oslo(), "sunny", "bye")
    edits = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=1, keep=0, placeholder="cleared")])
    agent = beside(first, memory, model, edits)
    bench.run(agent, ask("go"))
    bench.run(agent, ask("thanks"))
    assert said(model.seen[1])[-1] == "tool: cleared"
    assert stored(memory)[2] == "tool: sunny in Oslo"
    return said(model.seen[2])[2]


@row("`ModelRetryMiddleware`, `ModelFallbackMiddleware`", (["human: one", "ai: two", "human: three"], True))
def retry(bench: Bench, first: bool) -> Any:
    memory = bench.recalling()
    again = ModelRetryMiddleware(max_retries=1, initial_delay=0, backoff_factor=0, jitter=False, on_failure="error")
    model, other = Scripted.says(*map(ModelDownError, "123")), Scripted.says(ModelDownError("4"), "four")
    memory.history.append([HumanMessage("one", id="1"), AIMessage("two", id="2")], thread_id="t", user_id="ann")
    bench.embeddings.calls.clear()
    bench.run(beside(first, memory, model, ModelFallbackMiddleware(other), again), ask("three"))
    assert stored(memory) == ["human: one", "ai: two", "human: three", "ai: four"]
    assert sum("three" in call for call in bench.embeddings.calls) == 2  # as a query and as a document
    sent = [said(messages) for messages in (*model.seen, *other.seen)]
    return sent[0], all(one == sent[0] for one in sent)


@pytest.mark.in_turn("face")
@pytest.mark.parametrize("first", [True, False], ids=["memory first", "memory last"])
@pytest.mark.parametrize("name", CASES)
def test_a_row_is_true(bench: Bench, name: str, first: bool) -> None:
    case, with_first, with_last = CASES[name]
    assert case(bench, first) == (with_first if first or with_last == SAME else with_last)


def test_the_table_says_which_orders_are_the_same() -> None:
    rows = {found["what"]: found["last"] for found in ROW.finditer(PAGE.read_text())}
    assert {name: rows[name].startswith(SAME) for name in CASES} == {
        name: last == SAME for name, (*_, last) in CASES.items()
    }
