"""Conversations of teams of six shapes: nothing is lost, doubled or shown to others, and lists are valid."""

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

from langchain_workingmem import WorkingMemoryOptions
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.conversations import accept
from tests.helpers.models import Bench, Scripted, ask, configured, own, said, weather

TURNS = 4
Calls = Callable[[int], Sequence[str]]  # the tools that a member calls in a turn, one after the other
Member = Callable[..., Any]  # makes an agent with memory: its name, its calls, its tools


def scripted(name: str, calls: Calls) -> Scripted:
    """A model that calls tools and then repeats the question."""
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

    return Scripted.says(*[answer] * 200)


def never(_: int) -> list[str]:
    return []


def sometimes(name: str) -> Calls:
    return lambda turn: [name] * (turn % 2)


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


def with_handoffs(member: Member) -> Any:
    """A lead and two members, who report to it."""
    lead = member("lead", lambda n: ["transfer_to_ann", "transfer_to_ben"][: n % 3], transfer("ann"), transfer("ben"))
    team = {"lead": lead, "ann": member("ann", sometimes("weather"), weather), "ben": member("ben", never)}
    return graph_of(team, (START, "lead"), ("ann", "lead"), ("ben", "lead"))


def with_a_supervisor(member: Member) -> Any:
    """A member that the lead calls as a tool."""
    inner = member("inner", sometimes("weather"), weather)

    @tool
    def expert(query: str) -> str:
        """Ask the expert."""
        return str(inner.invoke({"messages": [HumanMessage(query)]})["messages"][-1].text)

    return graph_of({"lead": member("lead", sometimes("expert"), expert)}, (START, "lead"))


def as_swarm(member: Member) -> Any:
    """Two members, of whom the first may hand the user over to the second."""
    ann = member("ann", sometimes("transfer_to_ben"), transfer("ben"))
    ben = member("ben", lambda n: ["weather"] * (n % 3), weather)
    return graph_of({"ann": ann, "ben": ben}, (START, "ann"))


def by_send(member: Member) -> Any:
    """Two members to whom the state is sent at once, and a third that sums up."""
    team = {"ann": member("ann", sometimes("weather"), weather), "ben": member("ben", never)}
    graph = graph_of({**team, "lead": member("lead", never)}, ("ann", "lead"), ("ben", "lead"))
    graph.add_conditional_edges(START, lambda state: [Send(name, state) for name in team])
    return graph


def in_a_subgraph(member: Member) -> Any:
    """A member in a graph of its own, and one behind it."""
    inner = graph_of({"ann": member("ann", sometimes("weather"), weather)}, (START, "ann")).compile()
    return graph_of({"inner": inner, "lead": member("lead", never)}, (START, "inner"), ("inner", "lead"))


def with_two_memories(member: Member) -> Any:
    """Two members one behind the other, each with both memories."""
    team = {"ann": member("ann", sometimes("weather"), weather), "ben": member("ben", never)}
    return graph_of(team, (START, "ann"), ("ann", "ben"))


TEAMS = [with_handoffs, with_a_supervisor, as_swarm, by_send, in_a_subgraph, with_two_memories]


@pytest.mark.parametrize("order", [1, -1], ids=["memory first", "memory last"])
@pytest.mark.parametrize("is_checkpointed", [True, False])
@pytest.mark.parametrize("team", TEAMS)
def test_a_team_loses_nothing_doubles_nothing_and_streams_nothing_of_memory(
    bench: Bench, team: Any, is_checkpointed: bool, order: int
) -> None:
    names = ["", "team"] if team is with_two_memories else [""]
    knows = WorkingMemoryOptions(template="")
    memories = {name: bench.recalling(key_prefix=f"{bench.prefix}{name}", working_memory=knows) for name in names}
    models: list[Scripted] = []

    def member(name: str, calls: Calls, *tools: BaseTool) -> Any:
        models.append(scripted(name, calls))
        both = [MemoryMiddleware(memory, name=name or None) for name, memory in memories.items()]
        middleware: list[Any] = [*both, TodoListMiddleware()]
        return create_agent(models[-1], [*tools], name=name, middleware=middleware[::order])

    app = team(member).compile(checkpointer=InMemorySaver() if is_checkpointed else None)
    ends: dict[str, list[BaseMessage]] = {"maya": [], "omar": []}
    for turn, user in itertools.product(range(1, TURNS + 1), ends):
        given, config = ask(f"question {turn} of {user}"), configured(f"of {user}", user)
        parts = bench.stream(app, given, config, stream_mode=["messages", "values"])
        assert not [one for kind, one in parts if kind == "messages" and "<" in str(one[0].text)]
        new = [one for kind, one in parts if kind == "values"][-1]["messages"]
        ends[user] = new if is_checkpointed else [*ends[user], *new]
    for memory, (user, other) in itertools.product(memories.values(), (("maya", "omar"), ("omar", "maya"))):
        stored = memory.history.messages(f"of {user}", user_id=user, superseded=True)
        assert sorted(said(stored)) == sorted(said(ends[user]))
        asked = [f"human: question {turn} of {user}" for turn in range(1, TURNS + 1)]
        assert [one for one in said(stored) if one.startswith("human")] == asked
        assert f"of {other}" not in str(said(stored))
    assert all(model.seen for model in models)
    for messages in itertools.chain.from_iterable(model.seen for model in models):
        accept(messages)
        asked = [one for one in said(messages) if one.startswith("human")]
        assert len(asked) == len({*asked})
        assert str(messages).count("<working_memory") == len(memories)
        assert sum(f"of {user}" in str(messages) for user in ends) == 1
