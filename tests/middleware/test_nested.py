"""Agents with `MemoryMiddleware` inside of other graphs and inside of tools."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import IdError, ThreadOwnershipError, WorkingMemoryOptions
from tests.faces.samples import signed_in
from tests.helpers.models import Bench, Scripted, agent_of, ask, calling, configured, handing_over, remembered, said
from tests.middleware.samples import TURN, UPDATE, seed, stored

pytestmark = pytest.mark.in_turn("face")


def test_an_agent_in_a_tool_sees_memory_and_stores_nothing(bench: Bench, saver: InMemorySaver | None) -> None:
    memory = bench.recalling(working_memory=WorkingMemoryOptions(template=""))
    seed(memory, "my cat is Molly", thread="pets")
    seed(memory, "hello", "hi")
    memory.working_memory.update("Ann has a dog", **TURN)
    inside = Scripted.says("Molly", "Molly")
    both = calling(("expert", {"question": "cat"}), ("expert", {"question": "my cat"}), id="a")
    outside = Scripted.says(both, "it is Molly")
    expert = handing_over(bench.face, agent_of(inside, memory))
    agent = agent_of(outside, memory, tools=[expert], checkpointer=saver)
    bench.run(agent, ask("which cat"))
    for messages in inside.seen:
        known = remembered(messages)
        assert ("my cat is Molly" in known, "Ann has a dog" in known) == (True, True)
        assert said(messages) in (["human: cat"], ["human: my cat"])
    turn = ["human: which cat", "ai: expert#a-0 expert#a-1", "tool: Molly", "tool: Molly", "ai: it is Molly"]
    assert stored(memory) == ["human: hello", "ai: hi", *turn]
    assert memory.threads.list(user_id="ann").total == 2


def test_an_agent_in_a_tool_writes_no_more_than_its_caller_may(bench: Bench) -> None:
    memory = bench.memory()
    inner = agent_of(Scripted.says("Molly"), memory).with_config(configured("own", "ann"))
    outer = Scripted.says(calling(("expert", {"question": "cat"}), id="a"), "it is Molly")
    agent = agent_of(outer, memory, tools=[handing_over(bench.face, inner)])
    bench.run(agent, ask("which cat"), configured("t", "ann", memory={"read_only": True}))
    assert memory.threads.list(user_id="ann").total == 0


def asking(face: str, inner: Any, thread: str = "of {user}") -> Any:
    """Make a tool that asks an agent in a thread of its own, whose config has no room for the user."""

    def ids(config: RunnableConfig) -> RunnableConfig:
        given = config["configurable"]
        return {"configurable": {"thread_id": thread.format(user=given.get("user_id", given["thread_id"]))}}

    @tool
    def expert(question: str, config: RunnableConfig) -> str:
        """Ask somebody who knows."""
        return str(inner.invoke(ask(question), ids(config))["messages"][-1].text)

    @tool("expert")
    async def aexpert(question: str, config: RunnableConfig) -> str:
        """Ask somebody who knows."""
        return str((await inner.ainvoke(ask(question), ids(config)))["messages"][-1].text)

    return expert if face == "sync" else aexpert


@pytest.mark.parametrize("kind", ["agent", "agent in a tool of an agent"])
def test_an_agent_in_a_tool_with_its_own_thread_has_the_user_of_the_outer_run(bench: Bench, kind: str) -> None:
    memory = bench.memory(working_memory=WorkingMemoryOptions(template=""))
    for user in ("ann", "bob"):
        memory.working_memory.update(f"{user} has a dog", user_id=user)
    notes = [calling((UPDATE, {"memory": f"{user} has a cat"}), id=f"of {user}") for user in ("ann", "bob")]
    model = Scripted.says(notes[0], "noted", notes[1], "noted")
    inner = agent_of(model, memory)
    calls = [calling(("expert", {"question": "cat"}), id=str(at)) for at in range(4)]
    if kind == "agent in a tool of an agent":
        between = Scripted.says(calls[2], "so it is", calls[3], "so it is")
        inner = agent_of(between, memory, tools=[asking(bench.face, inner, "innermost, {user}")])
    outer = Scripted.says(calls[0], "a cat", calls[1], "a cat")
    agent = agent_of(outer, memory, tools=[asking(bench.face, inner)])
    for user in ("ann", "bob"):
        bench.run(agent, ask("which"), configured(f"{user}'s own", user))
    shown = [remembered(model.seen[0]), remembered(model.seen[2])]
    assert [("ann has a dog" in text, "bob has a dog" in text) for text in shown] == [(True, False), (False, True)]
    for user in ("ann", "bob"):
        assert f"{user} has a cat" in memory.working_memory.get(user_id=user).text
    owners = {thread.id: thread.user_id for thread in memory.threads.list()}
    assert {*owners.values()} == {"ann", "bob"}
    assert (owners["of ann"], owners["of bob"]) == ("ann", "bob")


def test_an_inner_thread_of_another_user_is_refused(bench: Bench) -> None:
    memory = bench.memory()
    inner = agent_of(Scripted.says("Molly"), memory)
    outer = Scripted.says(*(calling(("expert", {"question": "cat"}), id=str(at)) for at in range(2)), "it is Molly")
    outer.script.insert(1, outer.script.pop())
    agent = agent_of(outer, memory, tools=[asking(bench.face, inner, "research")])
    bench.run(agent, ask("which"), configured("a", "ann"))
    with pytest.raises(ThreadOwnershipError, match="does not belong to user 'bob'"):
        bench.run(agent, ask("which"), configured("b", "bob"))
    assert stored(memory, "research") == ["human: cat", "ai: Molly"]


def test_an_agent_in_a_tool_may_name_a_user_but_nobody_else_than_the_authenticated_one(bench: Bench) -> None:
    memory = bench.memory()
    inner = agent_of(Scripted.says("Molly"), memory).with_config(configured("research", "archive"))
    call = calling(("expert", {"question": "cat"}), id="a")
    agent = agent_of(Scripted.says(call, "it is Molly", call), memory, tools=[handing_over(bench.face, inner)])
    bench.run(agent, ask("which"), configured("a", "ann"))
    assert [thread.id for thread in memory.threads.list(user_id="archive")] == ["research"]
    with pytest.raises(IdError, match="names another user"):
        bench.run(agent, ask("which"), configured("b", **signed_in("bob")))
    assert len(stored(memory, "research")) == 2
