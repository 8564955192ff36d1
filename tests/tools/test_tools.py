"""The tools of working memory, by which names models and graphs call them, and what these are told."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool

from langchain_workingmem import Memory, OptionError, ReadOnlyError, RecallOptions, WorkingMemoryOptions
from langchain_workingmem.faces.tools import AWAY
from langchain_workingmem.middleware import MemoryMiddleware
from langchain_workingmem.working_memory.prompt import working_memory_block as rendered
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import Bench, Scripted, ask
from tests.helpers.types import Invoke, Make
from tests.mcp.conftest import PROGRAM
from tests.tools.samples import CLEAR, GET, SEARCH, TEMPLATE, UPDATE, Person, calls, known, results
from tests.working_memory.samples import with_memory

pytestmark = pytest.mark.in_turn("face")


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, [UPDATE]),
        ({"tools": ("get", "update", "clear")}, [GET, UPDATE, CLEAR]),
        ({"tools": ("get", "update", "clear"), "read_only": True}, [GET]),
        ({"read_only": True}, []),
    ],
)
def test_the_options_say_which_tools_there_are(make_memory: Make, options: dict[str, Any], names: list[str]) -> None:
    assert [tool.name for tool in with_memory(make_memory, **options).tools()] == names


def test_a_tool_that_does_not_exist_is_refused_with_those_that_do(person: Memory) -> None:
    with pytest.raises(OptionError) as caught:
        person.tools(include=["remember"])
    assert all(name in str(caught.value) for name in ("'remember'", UPDATE, GET, CLEAR, SEARCH))


@pytest.mark.parametrize("name", [UPDATE, CLEAR])
def test_a_tool_that_writes_is_refused_where_nothing_may_be_written(make_memory: Make, name: str) -> None:
    memory = with_memory(make_memory, read_only=True)
    with pytest.raises(ReadOnlyError, match=name):
        memory.tools(include=[name])
    assert [tool.name for tool in memory.tools(include=[GET])] == [GET]


def test_a_tool_of_a_part_that_is_off_says_how_to_turn_it_on(person: Memory, plain: Memory) -> None:
    with pytest.raises(OptionError, match="recall=RecallOptions"):
        person.tools(include=[SEARCH])
    for name in (UPDATE, GET, CLEAR):
        with pytest.raises(OptionError, match="working_memory=WorkingMemoryOptions"):
            plain.tools(include=[name])
    assert plain.tools() == []


FORGED: dict[str, Any] = {
    "user_id": "bob",
    "thread_id": "t",
    "config": {"configurable": {"user_id": "bob"}},
    "runtime": {"context": {"user_id": "bob"}},
}


@pytest.mark.parametrize("name", FORGED)
@pytest.mark.parametrize("schema", [Person, {"type": "object"}], ids=["pydantic", "json schema"])
def test_arguments_that_a_model_makes_up_reach_no_other_memory(
    make_memory: Make, invoke: Invoke, schema: Any, name: str
) -> None:
    memory = with_memory(make_memory, schema=schema)
    arguments = {"memory": {"name": "Eve"}, name: FORGED[name]}
    model = Scripted.says(calls(arguments), "noted")
    config = {"configurable": {"user_id": "ann"}}
    found = invoke(create_agent(model, memory.tools()), {"messages": [HumanMessage("hi")]}, config)
    assert found["messages"][-1].content == "noted"
    assert known(memory, "bob") == {}
    assert known(memory) in ({}, {"name": "Eve"})


def test_a_run_without_ids_tells_the_log_how_to_pass_them(
    person: Memory, invoke: Invoke, caplog: pytest.LogCaptureFixture
) -> None:
    (tool,) = person.tools()
    assert "cannot be used in this conversation" in invoke(tool, {"memory": {"name": "Ann"}})
    assert "pass user_id=" in caplog.text


def too_deep(depth: int) -> Any:
    document: dict[str, Any] = {}
    for _ in range(depth):
        document = {"a": document}
    return document


@pytest.mark.parametrize(
    ("schema", "arguments", "word"),
    [
        (Person, {"memory": {"age": -1}}, "age"),
        (Person, {"memory": "Ann"}, "memory"),
        (Person, {"clear": "name"}, "clear"),
        (Person, {"memory": {}}, "put what is new into `memory`"),
        (Person, {"memory": {"name": "x" * 2000}}, "limit is 1000"),
        (Person, {"memory": {"name": "\ud800"}}, ""),
        ({"type": "object"}, {"memory": too_deep(300)}, ""),
        ({"type": "object", "properties": {"age": {"type": "integer"}}}, {"memory": {"age": "old"}}, "age"),
        (None, {"memory": {"name": "Ann"}}, "memory"),
        (None, {"edits": [{"find": "x"}]}, "replace"),
        (None, {"edits": [{"find": "nowhere", "replace": "x"}]}, "nowhere"),
    ],
)
def test_what_is_refused_is_told_to_the_model_and_the_graph_goes_on(
    make_memory: Make, invoke: Invoke, schema: Any, arguments: dict[str, Any], word: str
) -> None:
    options = {"schema": schema} if schema else {"template": TEMPLATE}
    memory = with_memory(make_memory, max_bytes=1000, **options)
    model = Scripted.says(calls(arguments), "sorry")
    found = invoke(create_agent(model, memory.tools(user_id="ann")), {"messages": [HumanMessage("hi")]})
    (result,) = results(found["messages"])
    assert result.status == "error"
    assert word in str(result.content)
    assert PROGRAM.search(result.text.replace("valid dictionary", "")) is None  # it reads words of its tools
    assert found["messages"][-1].content == "sorry"
    assert memory.working_memory.get(user_id="ann").revision == 0


ARGUMENTS: dict[str, dict[str, Any]] = {
    UPDATE: {"memory": "# User\n- **Name**: Ann\n"},
    GET: {},
    CLEAR: {},
    SEARCH: {"query": "my dog"},
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_server_that_is_gone_is_told_to_the_model_and_its_address_to_the_log(
    make_memory: Make, invoke: Invoke, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    memory = make_memory(
        "redis://user:secret@127.0.0.1:1",
        working_memory=WorkingMemoryOptions(),
        embeddings=WordEmbeddings(),
        recall=RecallOptions(),
    )
    (tool,) = memory.tools(user_id="ann", include=[name])
    assert invoke(tool, ARGUMENTS[name]) == AWAY
    assert "127.0.0.1" in caplog.text
    assert name in caplog.text
    assert "secret" not in caplog.text


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
