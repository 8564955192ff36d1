"""Tools by their names: those that the prompt orders, and two memories in one agent."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import SystemMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import Memory, OptionError, WorkingMemoryOptions
from langchain_workingmem.middleware import MemoryMiddleware
from langchain_workingmem.working_memory.prompt import working_memory_block as rendered
from tests.helpers.models import CONFIG, Bench, Scripted, ask, calling
from tests.helpers.types import Make
from tests.middleware.samples import stored
from tests.tools.samples import GET, SEARCH, TEMPLATE, UPDATE, results, with_memory


def prompt_of(model: Scripted, call: int = 0) -> str:
    return "\n".join(str(message.text) for message in model.seen[call] if message.type != "tool")


# ---------------------------------------------------------------------- what the prompt orders


@pytest.mark.parametrize(
    ("tools", "word", "absent"),
    [
        (None, "call update_working_memory\n", "read it, not change"),
        ([f"{UPDATE}_team"], "call update_working_memory_team\n", "read it, not change"),
        ([GET, SEARCH], "read it, not change", UPDATE),
    ],
)
def test_the_block_orders_only_tools_that_there_are(
    make_memory: Make, tools: list[str] | None, word: str, absent: str
) -> None:
    memory = with_memory(make_memory, template=TEMPLATE)
    state = memory.working_memory.get(user_id="ann")
    block = rendered(memory._core.state.remembering, state, tools=tools)
    assert word in block
    assert absent not in block


# ---------------------------------------------------------------------- names of tools


@pytest.mark.parametrize("name", ["", "my team", "x" * 41, 5])
def test_a_name_that_no_tool_can_carry_is_refused(make_memory: Make, bench: Bench, name: Any) -> None:
    with pytest.raises(OptionError, match="letters, digits"):
        with_memory(make_memory).tools(name=name)
    with pytest.raises(OptionError, match="letters, digits"):
        MemoryMiddleware(bench.memory(), name=name)


# ---------------------------------------------------------------------- two memories


def two(bench: Bench) -> tuple[Memory, Memory]:
    own = bench.recalling(working_memory=WorkingMemoryOptions(template=TEMPLATE))
    team = bench.recalling(
        working_memory=WorkingMemoryOptions(template="# Team\n- **Goal**:\n"), key_prefix=f"{bench.prefix}team"
    )
    return own, team


@pytest.mark.parametrize("order", [1, -1])
def test_two_memories_live_in_one_agent(bench: Bench, saver: InMemorySaver | None, order: int) -> None:
    own, team = two(bench)
    own.history.append(["we met in the park"], thread_id="old", user_id="ann")
    team.history.append(["the park was sold"], thread_id="plans", user_id="ann")
    goal = {"memory": "# Team\n- **Goal**: ship\n"}
    model = Scripted.says(
        calling((UPDATE, {"memory": "# User\n- **Name**: Ann\n"}), (f"{UPDATE}_team", goal), id="a1"),
        "Noted.",
        "Ann, and to ship.",
    )
    middleware = [MemoryMiddleware(own), MemoryMiddleware(team, name="team")][::order]
    agent = create_agent(model, middleware=middleware, system_prompt="Be kind.", checkpointer=saver)
    found = bench.run(agent, ask("I am Ann, what about the park?", "q1"))
    assert [one.status for one in results(found["messages"])] == ["success"] * 2
    assert set(model.tools[0]) == {UPDATE, SEARCH, f"{UPDATE}_team", f"{SEARCH}_team"}
    bench.run(agent, ask("who am I, and what for?", "q2"))
    assert own.working_memory.get(user_id="ann").text == "# User\n- **Name**: Ann\n"
    assert team.working_memory.get(user_id="ann").text == "# Team\n- **Goal**: ship\n"

    first, last = prompt_of(model), prompt_of(model, 2)
    for begin, inside, outside in (
        ("<working_memory>", "# User", "# Team"),
        ('<working_memory name="team">', "# Team", "# User"),
    ):
        block = first.split(begin)[1].split("</working_memory>")[0]
        assert inside in block
        assert outside not in block
    assert "call update_working_memory_team\n" in first.split('<working_memory name="team">')[1].split("<data>")[0]
    assert "we met in the park" in first.split("<recalled_messages>")[1].split("</recalled_messages>")[0]
    assert "the park was sold" in first.split('<recalled_messages name="team">')[1].split("</recalled_messages>")[0]
    assert "- **Name**: Ann" in last
    assert "- **Goal**: ship" in last
    assert last.count("I am Ann, what about the park?") == 1

    lines = ["human: I am Ann, what about the park?", "ai: update_working_memory#a1-0 update_working_memory_team#a1-1"]
    for memory in (own, team):
        kept = stored(memory)
        assert kept[:2] == lines
        assert kept[-3:] == ["ai: Noted.", "human: who am I, and what for?", "ai: Ann, and to ship."]
        assert len(kept) == 7
        assert "<working_memory" not in str(kept)
        assert "<recalled" not in str(kept)
    if saver is not None:
        state = agent.get_state(CONFIG).values["messages"]
        assert not any(isinstance(message, SystemMessage) for message in state)
        assert "<working_memory" not in str(state)


def test_another_tool_of_the_same_name_is_refused_with_the_remedy(bench: Bench) -> None:
    @tool
    def search_memory(query: str) -> str:
        """Look it up elsewhere."""
        return query

    memory = bench.recalling()
    with pytest.raises(OptionError, match="another tool named 'search_memory'"):
        bench.run(create_agent(Scripted.says("x"), [search_memory], middleware=[MemoryMiddleware(memory)]), ask("hi"))
    others: list[dict[str, Any]] = [{"name": "team"}, {"tools": []}]
    for options in others:
        agent = create_agent(Scripted.says("Hello."), [search_memory], middleware=[MemoryMiddleware(memory, **options)])
        assert bench.run(agent, ask("hi"))["messages"][-1].text == "Hello."
