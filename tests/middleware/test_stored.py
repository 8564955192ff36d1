"""`MemoryMiddleware` alone: what of a turn is stored, however the turn ends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import (
    CONFIG,
    Bench,
    ModelDownError,
    Scripted,
    agent_of,
    ask,
    breaks,
    calling,
    configured,
    final,
    said,
    weather,
)
from tests.middleware.samples import stored

pytestmark = pytest.mark.in_turn("face")

# ---------------------------------------------------------------------- what is stored


def test_streamed_answers_are_stored_whole(bench: Bench) -> None:
    memory = bench.memory()
    model = Scripted.says(calling(("weather", {"city": "Oslo"}), id="a"), AIMessage("it is sunny", id="b"))
    bench.stream(agent_of(model, memory, tools=[weather]), ask("weather?"), stream_mode="messages")
    found = memory.history.messages("t")
    assert said(found) == ["human: weather?", "ai: weather#a-0", "tool: sunny in Oslo", "ai: it is sunny "]
    assert [type(message) for message in found][3] is AIMessage
    assert isinstance(found[1], AIMessage)
    assert found[1].tool_calls[0]["args"] == {"city": "Oslo"}


def test_parallel_calls_are_stored_once_and_in_order(bench: Bench, saver: InMemorySaver | None) -> None:
    memory = bench.memory()
    both = [calling(("weather", {"city": f"{at}a"}), ("weather", {"city": f"{at}b"}), id=f"c{at}") for at in (1, 2)]
    model = Scripted.says(both[0], both[1], "done", "bye")
    agent = agent_of(model, memory, tools=[weather], checkpointer=saver)
    bench.run(agent, ask("go"))
    bench.run(agent, ask("thanks"))
    expected = ["human: go"]
    for at in (1, 2):
        expected += [f"ai: weather#c{at}-0 weather#c{at}-1", f"tool: sunny in {at}a", f"tool: sunny in {at}b"]
    expected += ["ai: done", "human: thanks"]
    assert said(model.seen[3]) == expected
    assert stored(memory) == [*expected, "ai: bye"]


def test_the_result_of_a_tool_that_answers_directly_is_stored(bench: Bench, saver: InMemorySaver | None) -> None:
    memory = bench.memory()
    model = Scripted.says(calling(("final", {"text": "x"}), id="a"), "bye")
    agent = agent_of(model, memory, tools=[final], checkpointer=saver)
    bench.run(agent, ask("go"))
    assert stored(memory) == ["human: go", "ai: final#a-0", "tool: direct x"]
    bench.run(agent, ask("thanks"))
    assert said(model.seen[1]) == ["human: go", "ai: final#a-0", "tool: direct x", "human: thanks"]


@pytest.mark.parametrize("whole", [True, False])
def test_two_runs_of_a_thread_at_once_keep_each_other(
    bench: Bench, saver: InMemorySaver | None, *, whole: bool
) -> None:
    """The second run begins and ends while the model answers the first one."""
    memory = bench.memory()
    earlier = [] if saver or not whole else [HumanMessage("one", id="q1"), AIMessage("two", id="a1")]
    inner = agent_of(Scripted.says("six"), memory, checkpointer=saver)

    def meanwhile(_: object) -> str:
        question = HumanMessage("five", id="q3")
        with ThreadPoolExecutor(1) as other:  # without the context of the first run
            other.submit(inner.invoke, {"messages": [*earlier, question]}, CONFIG).result()
        return "four"

    agent = agent_of(Scripted.says("two", meanwhile), memory, checkpointer=saver)
    bench.run(agent, {"messages": [HumanMessage("one", id="q1")]})
    bench.run(agent, {"messages": [*earlier, HumanMessage("three", id="q2")]})
    found = stored(memory)
    assert found[:2] == ["human: one", "ai: two"]
    assert {*found[2:]} == {"human: three", "human: five", "ai: six", "ai: four"}
    assert len(found) == len(memory.history.messages("t", superseded=True)) == 6


class Sky(BaseModel):
    """How the sky is."""

    color: str


def test_structured_output_is_stored_with_its_result(bench: Bench, saver: InMemorySaver | None) -> None:
    memory = bench.memory()
    model = Scripted.says(calling(("Sky", {"color": "blue"}), id="a"), calling(("Sky", {"color": "red"}), id="b"))
    agent = agent_of(model, memory, response_format=ToolStrategy(Sky), checkpointer=saver)
    first = bench.run(agent, ask("sky?"))
    assert first["structured_response"] == Sky(color="blue")
    assert memory.history.messages("t") == first["messages"]
    bench.run(agent, ask("and now?"))
    assert model.seen[1][:3] == first["messages"]
    assert [line.split()[0] for line in stored(memory)] == ["human:", "ai:", "tool:"] * 2


def test_what_the_user_said_is_stored_when_the_model_fails(bench: Bench, saver: InMemorySaver | None) -> None:
    memory = bench.memory()
    model = Scripted.says(ModelDownError("down"), "sorry")
    agent = agent_of(model, memory, checkpointer=saver)
    with pytest.raises(ModelDownError):
        bench.run(agent, ask("one"))
    assert stored(memory) == ["human: one"]
    bench.run(agent, ask("two"))
    assert said(model.seen[1]) == ["human: one", "human: two"]
    assert stored(memory) == ["human: one", "human: two", "ai: sorry"]


def test_a_tool_that_ends_the_run_leaves_a_thread_that_can_go_on(bench: Bench, saver: InMemorySaver | None) -> None:
    memory = bench.memory()
    model = Scripted.says(calling(("breaks", {"text": "x"}), id="a", text="I try"), "sorry")
    agent = agent_of(model, memory, tools=[breaks], checkpointer=saver)
    with pytest.raises(RuntimeError, match="broken x"):
        bench.run(agent, ask("one"))
    bench.run(agent, ask("two"))
    assert said(model.seen[1]) == ["human: one", "ai: I try", "human: two"]
    assert stored(memory) == ["human: one", "ai: I try breaks#a-0", "human: two", "ai: sorry"]


def test_what_other_middleware_marks_during_the_run_is_not_stored(bench: Bench) -> None:
    """A client's own mark counts for nothing: it would hide what the model reads from the store."""
    marked = HumanMessage("a summary", additional_kwargs={"lc_source": "summarization"})

    class Summing(AgentMiddleware[Any, Any, Any]):
        def before_model(self, *_: Any) -> dict[str, Any]:
            return {"messages": [marked.model_copy()]}

    memory = bench.memory()
    agent = create_agent(Scripted.says("yes"), [], middleware=[MemoryMiddleware(memory), Summing()])
    bench.run(agent, ask("go on"))
    assert stored(memory) == ["human: go on", "ai: yes"]
    bench.run(agent_of(Scripted.says("yes"), memory), {"messages": [marked, HumanMessage("go on")]}, configured("u"))
    assert stored(memory, "u") == ["human: a summary", "human: go on", "ai: yes"]
