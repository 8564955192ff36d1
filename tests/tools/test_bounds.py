"""What a client sends within the documented bounds holds neither the event loop nor the prompt of others."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.lib.tools import ToolError
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem.adapters.anthropic import MemoryTool
from langchain_workingmem.adapters.deepagents import FilesBackend
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import FilePathError
from langchain_workingmem.files.paths import Pattern
from langchain_workingmem.working_memory.document import unwrapped
from tests.helpers.types import Invoke, Make
from tests.tools.samples import update_tool
from tests.users.test_event_loop import HELD, longest_hold
from tests.working_memory.samples import with_memory

LISTS = {"type": "object", "properties": {"l": {"type": "array", "uniqueItems": True}}}
UPDATES: dict[str, tuple[WorkingMemoryOptions, Any]] = {
    "items that are compared with each other": (
        WorkingMemoryOptions(schema=LISTS),
        {"memory": {"l": [{"a": at} for at in range(400)]}},
    ),
    "tags in tags": (WorkingMemoryOptions(template=""), {"memory": "<working_memory" + "<data>" * 10_000}),
    "lines that are compared": (WorkingMemoryOptions(template=""), {"memory": "a\nb\n" * 10_000}),
}


@pytest.mark.parametrize(("options", "update"), UPDATES.values(), ids=UPDATES)
async def test_an_update_does_not_hold_the_event_loop(
    server: EmbeddedRedis, prefix: str, options: WorkingMemoryOptions, update: dict[str, Any]
) -> None:
    async with Memory(server.url, key_prefix=prefix, working_memory=options) as memory:
        tool = update_tool(memory)
        await memory.working_memory.aget(user_id="ann")
        _, held = await longest_hold(lambda: tool.ainvoke(update))
    assert held < HELD


def test_many_edits_are_refused(make_memory: Make, invoke: Invoke) -> None:
    memory = with_memory(make_memory, template="")
    memory.working_memory.update("one", user_id="ann")
    edits = [{"find": "one", "replace": "two"}] * 101
    assert "at most 100 items" in str(invoke(update_tool(memory), {"edits": edits}))
    assert memory.working_memory.get(user_id="ann").text == "one"


def test_what_stands_around_a_text_is_taken_off_three_times() -> None:
    assert unwrapped('```md\n<working_memory x="1"> rules <data>a</data> b</working_memory>\n```') == "a"
    assert unwrapped("<data>" * 4 + "a" + "</data>" * 4) == "<data>a</data>"


def test_long_names_and_titles_are_cut_where_they_are_shown(make_memory: Make, embeddings: Any) -> None:
    memory = make_memory(embeddings=embeddings)
    memory.threads.create(user_id="ann", thread_id="t", title="T" * 5_000)
    memory.history.append([HumanMessage("my dog is Nougat", name="N" * 5_000)], thread_id="t", user_id="ann")
    shown = str(memory.context("who is my dog?", thread_id="new", user_id="ann").messages[-1].text)
    assert ("N" * 40 in shown, "N" * 41 in shown) == (True, False)
    assert ("T" * 200 in shown, "T" * 201 in shown) == (True, False)


@pytest.mark.parametrize("pattern", ["{" * 1_000, "a{" * 500])
def test_braces_that_never_end_are_an_error_of_the_pattern(plain: Memory, pattern: str) -> None:
    with pytest.raises(FilePathError, match="fewer braces"):
        Pattern(pattern, "/")
    assert "braces" in str(FilesBackend(plain, user_id="ann").glob(pattern).error)


def test_agents_are_told_what_no_file_can_hold(plain: Memory) -> None:
    plain.files.write("/memories/a", "y" * 20_000, user_id="ann")
    backend, tool = FilesBackend(plain, user_id="ann"), MemoryTool(plain, user_id="ann")
    assert "surrogate" in str(backend.grep("\ud800").error)
    assert len((backend.grep("y").matches or [])[0]["text"]) == 10_000
    commands: list[tuple[Any, str]] = [
        ({"command": ["view"]}, "Unknown command"),
        ({"command": "insert", "path": "/memories/a", "insert_line": 10**30, "insert_text": "x"}, r"range \[0, 1\]"),
    ]
    for command, words in commands:
        with pytest.raises(ToolError, match=words):
            tool.call(command)
