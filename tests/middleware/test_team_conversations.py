"""Long conversations of teams on one memory: nothing is lost, doubled or shown to another user, and each model reads a valid list."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import TodoListMiddleware
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send

from langchain_workingmem import Memory
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import Bench, Scripted, ask, configured, own, said, weather

TURNS = 6
ORDER = {0: 1}  # 1: memory stands first in the list of middleware, -1: last
Calls = Callable[[int], Sequence[str]]  # the tools that a member calls in a turn, one after the other


def member(memory: Memory, name: str, calls: Calls, *tools: BaseTool) -> tuple[Scripted, Any]:
    """An agent with memory that calls tools and then repeats the question."""
    numbers = itertools.count()

    def answer(messages: list[BaseMessage]) -> AIMessage:
        asked = max(at for at, one in enumerate(messages) if one.type == "human")
        question = str(own(messages)[asked].text)
        done = [one.name for one in messages[asked:] if one.type == "tool"]
        wanted = [one for one in calls(int(question.split()[1])) if one not in done]
        if not wanted:
            return AIMessage(f"{name} to {question}")
        arguments = {"weather": {"city": "Oslo"}, "expert": {"query": question}}.get(wanted[0], {})
        call: Any = {"name": wanted[0], "args": arguments, "id": f"{name}-{next(numbers)}"}
        return AIMessage("", tool_calls=[call])

    model = Scripted.says(*[answer] * 200)
    middleware = [MemoryMiddleware(memory), TodoListMiddleware()]
    return model, create_agent(model, [*tools], name=name, middleware=middleware[:: ORDER[0]])


def transfer(to: str) -> BaseTool:
    @tool(f"transfer_to_{to}")
    def hand_over(runtime: ToolRuntime) -> Command[Any]:
        """Hand over."""
        told = ToolMessage(f"to {to}", name=f"transfer_to_{to}", tool_call_id=runtime.tool_call_id or "")
        return Command(goto=to, graph=Command.PARENT, update={"messages": [*runtime.state["messages"], told]})

    return hand_over


def graph_of(members: dict[str, Any], *edges: tuple[str, str]) -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(MessagesState)
    for name, agent in members.items():
        graph.add_node(name, agent, destinations=tuple(members))
    for begin, end in edges:
        graph.add_edge(begin, end)
    return graph


def with_handoffs(memory: Memory) -> tuple[list[Scripted], Any]:
    """A supervisor and two members, who report to it."""
    hands = [transfer("ann"), transfer("ben")]
    lead, leader = member(memory, "lead", lambda n: ["transfer_to_ann", "transfer_to_ben"][: n % 3], *hands)
    first, ann = member(memory, "ann", lambda n: ["weather"] * (n % 2), weather)
    second, ben = member(memory, "ben", lambda _: [])
    edges = ((START, "lead"), ("ann", "lead"), ("ben", "lead"))
    return [lead, first, second], graph_of({"lead": leader, "ann": ann, "ben": ben}, *edges)


def side_by_side(memory: Memory) -> tuple[list[Scripted], Any]:
    """Two members answer at once, and a third sums up."""
    first, ann = member(memory, "ann", lambda n: ["weather"] * (n % 2), weather)
    second, ben = member(memory, "ben", lambda _: [])
    last, lead = member(memory, "lead", lambda _: [])
    edges = ((START, "ann"), (START, "ben"), ("ann", "lead"), ("ben", "lead"))
    return [first, second, last], graph_of({"ann": ann, "ben": ben, "lead": lead}, *edges)


def in_tools(memory: Memory) -> tuple[list[Scripted], Any]:
    """A member that the lead calls as a tool."""
    inner, agent = member(memory, "inner", lambda n: ["weather"] * (n % 2), weather)

    @tool
    def expert(query: str) -> str:
        """Ask the expert."""
        return str(agent.invoke({"messages": [HumanMessage(query)]})["messages"][-1].text)

    lead, leader = member(memory, "lead", lambda n: ["expert"] * (n % 2), expert)
    return [inner, lead], graph_of({"lead": leader}, (START, "lead"))


def as_swarm(memory: Memory) -> tuple[list[Scripted], Any]:
    """Two members, of whom the first may hand the user over to the second."""
    first, ann = member(memory, "ann", lambda n: ["transfer_to_ben"] * (n % 2), transfer("ben"))
    second, ben = member(memory, "ben", lambda n: ["weather"] * (n % 3), weather)
    return [first, second], graph_of({"ann": ann, "ben": ben}, (START, "ann"))


def by_send(memory: Memory) -> tuple[list[Scripted], Any]:
    """Two members to whom the state is sent, and a third that sums up."""
    first, ann = member(memory, "ann", lambda n: ["weather"] * (n % 2), weather)
    second, ben = member(memory, "ben", lambda _: [])
    last, lead = member(memory, "lead", lambda _: [])
    graph = graph_of({"ann": ann, "ben": ben, "lead": lead}, ("ann", "lead"), ("ben", "lead"))
    graph.add_conditional_edges(START, lambda state: [Send(name, state) for name in ("ann", "ben")])
    return [first, second, last], graph


def in_a_subgraph(memory: Memory) -> tuple[list[Scripted], Any]:
    """A member in a graph of its own, and one behind it."""
    first, ann = member(memory, "ann", lambda n: ["weather"] * (n % 2), weather)
    last, lead = member(memory, "lead", lambda _: [])
    inner = graph_of({"ann": ann}, (START, "ann")).compile()
    return [first, last], graph_of({"inner": inner, "lead": lead}, (START, "inner"), ("inner", "lead"))


TEAMS = [with_handoffs, side_by_side, in_tools, as_swarm, by_send, in_a_subgraph]


def check_valid(messages: list[BaseMessage]) -> None:
    """Check that calls and results stand together, and that nothing is there twice."""
    ids = [one.id for one in messages if one.id]
    assert len(ids) == len({*ids})
    asked = [one for one in said(messages) if one.startswith("human")]
    assert len(asked) == len({*asked})
    open_calls: set[str] = set()
    for one in messages:
        if isinstance(one, ToolMessage):
            open_calls.remove(one.tool_call_id)
        else:
            assert not open_calls
            open_calls = {str(call["id"]) for call in one.tool_calls} if isinstance(one, AIMessage) else set()
    assert not open_calls


@pytest.mark.parametrize("order", [1, -1], ids=["memory first", "memory last"])
@pytest.mark.parametrize("is_checkpointed", [True, False])
@pytest.mark.parametrize("team", TEAMS)
def test_a_team_loses_nothing_and_doubles_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, team: Any, is_checkpointed: bool, order: int
) -> None:
    monkeypatch.setitem(ORDER, 0, order)
    memory = bench.recalling()
    models, graph = team(memory)
    app = graph.compile(checkpointer=InMemorySaver() if is_checkpointed else None)
    ends: dict[str, list[BaseMessage]] = {"maya": [], "omar": []}
    for turn, user in itertools.product(range(1, TURNS + 1), ends):
        new = bench.run(app, ask(f"question {turn} of {user}"), configured(f"of {user}", user))["messages"]
        ends[user] = new if is_checkpointed else [*ends[user], *new]
    for user, other in (("maya", "omar"), ("omar", "maya")):
        stored = memory.history.messages(f"of {user}", user_id=user, superseded=True)
        assert sorted(said(stored)) == sorted(said(ends[user]))
        assert [one for one in said(stored) if one.startswith("human")] == [
            f"human: question {turn} of {user}" for turn in range(1, TURNS + 1)
        ]
        assert f"of {other}" not in str(said(stored))
    for model in models:
        assert model.seen
        for messages in model.seen:
            check_valid(messages)
            assert sum(f"of {user}" in str(messages) for user in ends) == 1
