"""Files as tools, for any model."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from langchain_workingmem import Memory
from langchain_workingmem.adapters.shapes import MOST
from langchain_workingmem.adapters.tools import file_tools
from langchain_workingmem.errors import OptionError
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import Bench, Scripted, ask, calling, configured, said

NAMES = ["list_files", "find_files", "search_files", "read_file", "write_file", "edit_file", "delete_file", "rename_file"]  # fmt: skip


def last(messages: list[BaseMessage]) -> str:
    return str(messages[-1].text)


@pytest.mark.both_faces
def test_an_agent_keeps_notes_for_each_user(bench: Bench) -> None:
    memory = bench.memory()
    write = ("write_file", {"path": "/tea.md", "content": "green\nblack\n"})
    edit = ("edit_file", {"path": "/tea.md", "old": "black", "new": "white"})
    read = ("read_file", {"path": "/tea.md"})
    model = Scripted.says(calling(write, id="a"), calling(edit, id="b"), "Noted.", calling(read, id="c"), last)
    agent = create_agent(model, file_tools(memory, by="claude"))
    bench.run(agent, ask("I like tea"), configured("1", "ann"))
    model.script += [calling(read, id="d"), last]
    assert "revision 2, 2 lines:\n     1\tgreen\n     2\twhite" in last(
        bench.run(agent, ask("Which?"), configured("2", "ann"))["messages"]
    )
    nothing = last(bench.run(agent, ask("Which?"), configured("3", "bob"))["messages"])
    assert nothing.startswith("there is no file '/tea.md'")
    assert [one.by for one in memory.files.history("/tea.md", resource_id="ann")] == ["claude", "claude"]
    assert model.tools[0] == NAMES


@pytest.mark.in_turn("face")
def test_the_tools_work_in_a_tool_node_and_the_calls_stay_in_the_conversation(bench: Bench) -> None:
    memory = bench.memory()
    tools = file_tools(memory, include=["list_files"])
    agent = create_agent(
        model := Scripted.says(calling(("list_files", {}), id="a"), "None.", "As before."),
        tools,
        middleware=[MemoryMiddleware(memory)],
    )
    bench.run(agent, ask("Which files?"), configured("1", "ann"))
    bench.run(agent, ask("And now?"), configured("1", "ann"))
    assert said(model.seen[-1])[-4:] == [
        "ai: list_files#a-0",
        "tool: The directory is empty.",
        "ai: None.",
        "human: And now?",
    ]
    graph: Any = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(tools)).add_edge(START, "tools").add_edge("tools", END)
    given = {"messages": [calling(("list_files", {"path": "/"}), id="b")]}
    assert last(bench.run(graph.compile(), given, configured("1", "ann"))["messages"]) == "The directory is empty."


TREE = {"/a.md": "one\ntwo\n", "/src/b.py": "two", "/src/c.bin": b"\xff"}
CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("list_files", {}, "/a.md (8 bytes)\n/src/"),
    ("find_files", {"pattern": "*.py"}, "/src/b.py"),
    ("find_files", {"pattern": "*.no"}, "No file matches."),
    ("search_files", {"text": "two"}, "/a.md:2: two\n/src/b.py:1: two"),
    ("search_files", {"text": "two", "path": "/src"}, "/src/b.py:1: two"),
    ("search_files", {"text": ""}, "text is empty"),
    ("read_file", {"path": "/a.md", "start_line": 2}, "/a.md, revision 1, 2 lines:\n     2\ttwo"),
    ("read_file", {"path": "/a.md", "lines": 1}, "     1\tone\n(1 more lines; read on from line 2)"),
    ("read_file", {"path": "/a.md", "start_line": 9}, "/a.md, revision 1, 2 lines:"),
    ("read_file", {"path": "/src/c.bin"}, "/src/c.bin is no text; it has 1 bytes."),
    ("write_file", {"path": "/a.md", "content": "x"}, "/a.md is written, revision 2."),
    ("write_file", {"path": "/a.md", "content": "x", "revision": 0}, "has changed in the same places"),
    ("write_file", {"path": "/../a", "content": "x"}, "holds '..'"),
    ("edit_file", {"path": "/a.md", "old": "o", "new": "0"}, "is in it 2 times, in lines 1, 2"),
    ("edit_file", {"path": "/a.md", "old": "o", "new": "0", "all": True}, "/a.md is changed in 2 places, the first in line 1; revision 2."),
    ("edit_file", {"path": "/a.md", "old": "two", "new": "2"}, "/a.md is changed in 1 place, the first in line 2; revision 2."),
    ("delete_file", {"path": "/src"}, "/src is deleted, 2 files."),
    ("delete_file", {"path": "/no"}, "there is no file '/no'"),
    ("rename_file", {"path": "/src", "new_path": "/lib"}, "/src is /lib now."),
    ("rename_file", {"path": "/src", "new_path": "/a.md"}, "path '/a.md' exists"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "given", "says"), CALLS, ids=lambda one: one if isinstance(one, str) and one in NAMES else ""
)
def test_a_tool_says_what_it_did_or_why_not(plain: Memory, name: str, given: dict[str, Any], says: str) -> None:
    for path, content in TREE.items():
        plain.files.write(path, content, resource_id="ann")  # type: ignore[arg-type]
    (tool,) = file_tools(plain, resource_id="ann", include=[name])
    assert says in tool.invoke(given)


def test_a_write_that_names_what_it_has_read_keeps_changes_of_others(plain: Memory) -> None:
    plain.files.write("/a.md", "one\ntwo\nthree\n", resource_id="ann")
    plain.files.edit("/a.md", "one", "1", resource_id="ann")
    (write,) = file_tools(plain, resource_id="ann", include=["write_file"])
    told = write.invoke({"path": "/a.md", "content": "one\ntwo\n3\n", "revision": 1})
    assert told == "/a.md is written, revision 3. What others had changed meanwhile is kept, too: read it again."
    assert plain.files.read("/a.md", resource_id="ann").text == "1\ntwo\n3\n"


def test_long_answers_are_cut_and_say_so(plain: Memory) -> None:
    plain.files.write("/a.md", "x\n" * (MOST + 1), resource_id="ann")
    (search,) = file_tools(plain, resource_id="ann", include=["search_files"])
    lines = search.invoke({"text": "x"}).splitlines()
    assert (len(lines), lines[-1]) == (MOST + 1, f"(more than {MOST} were found: ask for less)")


def test_strict_schemas_take_every_tool(plain: Memory) -> None:
    tools = file_tools(plain, resource_id="ann")
    assert [tool.name for tool in tools] == NAMES
    for tool in tools:
        parameters = convert_to_openai_tool(tool, strict=True)["function"]["parameters"]
        assert parameters["additionalProperties"] is False
        assert all(one.get("description") for one in parameters["properties"].values())


def test_a_name_that_is_no_tool_is_refused(plain: Memory) -> None:
    with pytest.raises(OptionError, match="there is no tool 'read'"):
        file_tools(plain, include=["read"])
