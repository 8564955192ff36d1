"""A memory whose owner the program fixes: what a team knows is shown to its members, and to nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langgraph.graph import MessagesState, StateGraph

from langchain_workingmem import IdError, Ids, OptionError, WorkingMemoryOptions
from langchain_workingmem.middleware import MemoryMiddleware
from tests.faces.samples import signed_in
from tests.helpers.models import Bench, Scripted, ask, calling, configured, remembered

TEAMS = {"maya": "huts", "jonas": "huts", "tom": "maps"}


def team_of(ids: Ids) -> str:
    return TEAMS[ids.user_id or ""]


@pytest.mark.in_turn("face")
@pytest.mark.parametrize("owner", ["huts", team_of], ids=["a name", "a function"])
def test_an_agent_with_two_memories_shares_the_one_of_the_team(bench: Bench, owner: Any) -> None:
    goal = WorkingMemoryOptions(template="# Team\n- Goal:\n", tools=("get", "update"))
    own = bench.memory(working_memory=WorkingMemoryOptions(template=""))
    team = bench.recalling(key_prefix=f"{bench.prefix}-team", working_memory=goal)
    team.save_turn([("user", "the goal needs ten huts")], thread_id="meeting", user_id="huts")
    note = calling(
        ("update_working_memory_team", {"edits": [{"find": "- Goal:", "replace": "- Goal: ten huts"}]}),
        ("update_working_memory", {"memory": "Maya is tired"}),
        id="a",
    )
    look = calling(("get_working_memory_team", {}), ("search_memory_team", {"query": "the goal"}), id="b")
    model = Scripted.says(note, "noted", look, "ten huts", "nothing")
    shared = MemoryMiddleware(team, name="team", user_id=owner, persist=False)
    agent = create_agent(model, [], middleware=[MemoryMiddleware(own), shared])
    bench.run(agent, ask("our goal is ten huts"), configured("of maya", "maya"))
    answers = bench.run(agent, ask("what is our goal?"), configured("of jonas", "jonas"))["messages"]
    assert "- Goal: ten huts" in remembered(model.seen[2])
    assert "Maya is tired" not in remembered(model.seen[2])
    assert "- Goal: ten huts" in answers[2].text
    assert "the goal needs ten huts" in answers[3].text
    assert team.working_memory.get(user_id="maya").is_empty
    assert [thread.id for thread in team.threads.list()] == ["meeting"]
    assert {thread.id: thread.user_id for thread in own.threads.list()} == {"of jonas": "jonas", "of maya": "maya"}
    if owner is team_of:
        bench.run(agent, ask("and ours?"), configured("of tom", "tom"))
        assert "ten huts" not in str(model.seen[4])


@pytest.mark.in_turn("face")
def test_nodes_tools_and_retriever_take_the_owner_from_the_same_function(bench: Bench) -> None:
    memory = bench.recalling(working_memory=WorkingMemoryOptions(template=""))
    model = Scripted.says("noted", "ten", "who knows")
    nodes: Any = [
        ("load", memory.load_node(user_id=team_of)),
        ("answer", lambda state: {"messages": [model.invoke(state["messages"])]}),
        ("save", memory.save_node(user_id=team_of)),
    ]
    app = StateGraph(MessagesState).add_sequence(nodes).set_entry_point("load").compile()
    (search,) = memory.tools(user_id=team_of, include=["search_memory"])
    for user, question in (("maya", "our goal is ten huts"), ("jonas", "what is our goal"), ("tom", "and our goal")):
        bench.run(app, ask(question), configured(f"of {user}", user))
        documents = memory.as_retriever(user_id=team_of).invoke("goal huts", configured("new", user))
        for found in (search.invoke({"query": "goal huts"}, configured("new", user)), str(documents)):
            assert ("ten huts" in found) == (user != "tom")
    assert ["ten huts" in remembered(messages) for messages in model.seen] == [False, True, False]
    owners = {thread.id: thread.user_id for thread in memory.threads.list()}
    assert owners == {"of maya": "huts", "of jonas": "huts", "of tom": "maps"}


def faces(bench: Bench, owner: Any) -> list[Any]:
    """Build what takes an owner, each as a graph."""
    memory = bench.memory()
    agent = create_agent(Scripted.says(), [], middleware=[MemoryMiddleware(memory, user_id=owner)])
    nodes = (memory.load_node(user_id=owner), memory.save_node(user_id=owner))
    graphs = [StateGraph(MessagesState).add_node("only", node).set_entry_point("only") for node in nodes]
    return [agent, *(graph.compile() for graph in graphs)]


@pytest.mark.in_turn("face")
def test_a_run_names_nobody_else_than_the_authenticated_user_whatever_the_owner(bench: Bench) -> None:
    for graph in faces(bench, "huts"):
        with pytest.raises(IdError, match="names another user"):
            bench.run(graph, ask("hi"), configured("t", "jonas", **signed_in("maya")))
    assert bench.memory().threads.list().total == 0


@pytest.mark.parametrize(
    ("owner", "error", "words"),
    [
        (7, OptionError, "user_id is of type int: pass a str, or a function of the ids"),
        ("", IdError, "user_id is empty"),
    ],
)
def test_what_cannot_be_an_owner_is_refused_when_it_is_passed(bench: Bench, owner: Any, error: Any, words: str) -> None:
    memory = bench.memory()
    for make in (lambda **given: MemoryMiddleware(memory, **given), memory.load_node, memory.save_node):
        with pytest.raises(error, match=words):
            make(user_id=owner)


@pytest.mark.parametrize(("returned", "words"), [(None, "returned None.*return a str"), ("", "returned is empty")])
def test_a_function_that_returns_no_id_is_refused_before_the_model_is_called(
    bench: Bench, returned: Any, words: str
) -> None:
    for graph in faces(bench, lambda _: returned):
        with pytest.raises(IdError, match=words):
            bench.run(graph, ask("hi"), configured("t", "maya"))
