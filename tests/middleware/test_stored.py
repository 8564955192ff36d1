"""`MemoryMiddleware` alone: what of a turn is stored, however the turn ends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import CONFIG, Bench, Scripted, agent_of, ask, calling, configured, final, said
from tests.middleware.samples import stored

pytestmark = pytest.mark.in_turn("face")


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


def test_a_conversation_whose_answers_have_the_ids_of_the_client_is_not_doubled(bench: Bench) -> None:
    memory = bench.memory()
    model = Scripted.says("two", "four")
    agent = agent_of(model, memory)
    bench.run(agent, ask("one", "h1"))
    sent = [HumanMessage("one", id="h1"), AIMessage("two", id="client"), HumanMessage("three", id="h2")]
    bench.run(agent, {"messages": sent})
    assert model.seen[1] == sent
    assert stored(memory) == ["human: one", "ai: two", "human: three", "ai: four"]
