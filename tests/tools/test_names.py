"""Tools by their names: those that the prompt orders, and two memories in one agent."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool

from langchain_workingmem import OptionError
from langchain_workingmem.middleware import MemoryMiddleware
from langchain_workingmem.working_memory.prompt import working_memory_block as rendered
from tests.helpers.models import Bench, Scripted, ask
from tests.helpers.types import Make
from tests.tools.samples import GET, SEARCH, TEMPLATE, UPDATE, with_memory


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


@pytest.mark.parametrize("name", ["", "my team", "x" * 41, 5])
def test_a_name_that_no_tool_can_carry_is_refused(make_memory: Make, bench: Bench, name: Any) -> None:
    with pytest.raises(OptionError, match="letters, digits"):
        with_memory(make_memory).tools(name=name)
    with pytest.raises(OptionError, match="letters, digits"):
        MemoryMiddleware(bench.memory(), name=name)


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
