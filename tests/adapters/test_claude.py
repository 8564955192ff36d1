"""Claude's memory tool on files: in Anthropic's SDK, and in agents of LangChain with Claude and with other models."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.lib.tools import ToolError
from langchain.agents import create_agent

from langchain_workingmem import Memory
from langchain_workingmem.adapters.anthropic import AsyncMemoryTool, MemoryTool
from langchain_workingmem.adapters.claude_middleware import ClaudeMemoryMiddleware
from langchain_workingmem.middleware import MemoryMiddleware
from langchain_workingmem.options import FileOptions
from tests.adapters.claude import FakeClaude, chat_model_of, fake_claude
from tests.helpers.models import Bench, Scripted, ask, calling, configured, said
from tests.helpers.types import Make
from tests.mcp.conftest import PROGRAM

LEARN = {"command": "create", "path": "/memories/ann.md", "file_text": "likes tea\n"}
LOOK = {"command": "view", "path": "/memories"}
NATIVE = {"type": "memory_20250818", "name": "memory"}


@pytest.fixture
def claude() -> Iterator[FakeClaude]:
    with fake_claude() as claude:
        yield claude


# ---------------------------------------------------------------------- Anthropic's SDK


@pytest.mark.in_turn("face")
def test_the_sdk_runs_the_tool_and_the_next_conversation_reads_the_notes(
    bench: Bench, claude: FakeClaude, face: str, loop_runner: asyncio.Runner
) -> None:
    memory = bench.memory()
    asked: dict[str, Any] = {"model": "claude", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}

    async def aconverse(user: str) -> None:
        async with AsyncAnthropic(base_url=claude.url, api_key="none") as client:
            tool = AsyncMemoryTool(memory, user_id=user)
            await client.beta.messages.tool_runner(**asked, tools=[tool]).until_done()

    def converse(user: str) -> None:
        if face == "async":
            loop_runner.run(aconverse(user))
        else:
            with Anthropic(base_url=claude.url, api_key="none") as client:
                client.beta.messages.tool_runner(**asked, tools=[MemoryTool(memory, user_id=user)]).until_done()

    claude.says(LEARN, LEARN, "Noted.", LOOK, "Tea?", LOOK, "Who are you?")
    for user in ("ann", "ann", "bob"):
        converse(user)
    assert claude.seen[0]["tools"] == [NATIVE]
    assert claude.results(1) == ["File created successfully at: /memories/ann.md"]
    assert "File /memories/ann.md already exists" in claude.results(2)[0]
    assert claude.seen[2]["messages"][-1]["content"][0]["is_error"]
    assert claude.results(4)[0].splitlines()[1:] == ["10B\t/memories", "10B\t/memories/ann.md"]
    assert claude.results(6)[0].splitlines()[1:] == ["0B\t/memories"]


def command(name: str, **fields: Any) -> dict[str, Any]:
    return {"command": name, "path": "/memories/a.md", **fields}


TOLD: list[tuple[dict[str, Any], str]] = [
    (command("view"), "Here's the content of /memories/a.md with line numbers:\n     1\tone\n     2\ttwo\n     3\t"),
    (command("view", view_range=[2, 2]), "with line numbers:\n     2\ttwo"),
    (command("view", view_range=[2, 10**30]), "with line numbers:\n     2\ttwo\n     3\t"),
    (command("view", path="/memories/no"), "The path /memories/no does not exist. Please provide a valid path."),
    (command("view", path="/memories/deep"), "\n5B\t/memories/deep\n5B\t/memories/deep/er/\n5B\t"),
    (command("create", file_text=""), "File /memories/a.md already exists"),
    (command("create", file_text="", path="/memories/a.md/exists"), "is below '/memories/a.md', which is a file"),
    (command("create", file_text="x" * 100, path="/memories/b"), "64 at most"),
    (command("create", path="/memories/b"), "The command `create` needs `file_text`."),
    (command("str_replace", old_str="two", new_str="2"), "showing the change (with line numbers):\n     1\tone\n     2\t2\n     3\t"),
    (command("str_replace", old_str="o", new_str="0"), "Multiple occurrences of old_str `o` in lines: 1, 2. Please"),
    (command("str_replace", old_str="no"), "old_str `no` did not appear verbatim in /memories/a.md."),
    (command("str_replace", old_str="a", new_str="a"), "old and new are the same: pass another text as new"),
    (command("str_replace", old_str="a", path="/memories/deep"), "The path /memories/deep is not a file."),
    (command("insert", insert_line=1, insert_text="x\n\n"), "The file /memories/a.md has been edited."),
    (command("insert", insert_line=3, insert_text="x"), "`insert_line` parameter: 3. It should be within the range"),
    (command("insert", insert_line="1", insert_text="x"), "The command `insert` needs `insert_line`."),
    (command("insert", insert_line=0, insert_text="x", path="/memories/bin"), "it holds bytes, no text"),
    (command("delete"), "Successfully deleted /memories/a.md"),
    (command("delete", path="/memories/"), "Cannot delete the /memories directory itself"),
    (command("delete", path="/memories/no"), "The path /memories/no does not exist"),
    (command("delete", path="/memories/../x"), "Path /memories/../x would escape /memories directory"),
    (command("rename", old_path="/memories/a.md", new_path="/memories/b.md"), "Successfully renamed /memories/a.md to /memories/b.md"),
    (command("rename", old_path="/memories/a.md", new_path="/memories/deep"), "The destination /memories/deep already exists"),
    (command("rename", old_path="/memories", new_path="/memories/b"), "Cannot rename the /memories directory itself"),
    (command("shred"), "Unknown command: 'shred'. Use one of view, create, str_replace, insert, delete, rename."),
]  # fmt: skip


@pytest.fixture
def notes(make_memory: Make) -> Memory:
    memory = make_memory(files=FileOptions(max_file_bytes=64))
    for path, content in {"a.md": "one\ntwo\n", "deep/er/b.md": "three", "bin": b"\xff", ".hidden": "x"}.items():
        memory.files.write(f"/memories/{path}", content, user_id="ann")  # type: ignore[arg-type]
    return memory


@pytest.mark.usefixtures("impatient")
def test_without_a_server_the_model_goes_on_without_notes(make_memory: Make) -> None:
    tool = MemoryTool(make_memory("redis://ann:secret@127.0.0.1:1", files=FileOptions()), user_id="ann")
    with pytest.raises(ToolError, match="Go on without it") as told:
        tool.call(command("view"))
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(("given", "says"), TOLD, ids=lambda given: given["command"] if isinstance(given, dict) else "")
def test_a_command_says_what_it_did_or_why_not(notes: Memory, given: dict[str, Any], says: str) -> None:
    try:
        told = MemoryTool(notes, user_id="ann").call(given)
    except ToolError as error:
        told = str(error)
    assert says in told
    assert PROGRAM.search(told) is None


def test_all_notes_are_cleared_and_other_files_stay(notes: Memory) -> None:
    notes.files.write("/else.md", "stays", user_id="ann")
    tool = MemoryTool(notes, user_id="ann")
    assert tool.clear_all_memory() == tool.clear_all_memory() == "All memory cleared"
    assert [one.path for one in notes.files.glob("**", user_id="ann")] == ["/else.md"]


# ---------------------------------------------------------------------- agents of LangChain


@pytest.mark.in_turn("face")
def test_claude_is_offered_its_own_tool(bench: Bench, claude: FakeClaude) -> None:
    memory = bench.memory()
    both: Any = {"system_prompt": "Be kind.", "middleware": [ClaudeMemoryMiddleware(memory, by="claude")]}
    agent = create_agent(chat_model_of(claude), [], **both)
    claude.says(LEARN, {"command": "view", "path": "/memories/no"}, "Noted.", LOOK, "Who are you?")
    bench.run(agent, ask("I like tea"), configured("1", "ann"))
    bench.run(agent, ask("Hello"), configured("2", "bob"))
    assert claude.seen[0]["tools"] == [NATIVE]
    assert "context-management-2025-06-27" in claude.betas[0]
    assert claude.seen[0]["system"] == "Be kind."
    assert claude.results(1) == ["File created successfully at: /memories/ann.md"]
    assert claude.results(2) == ["The path /memories/no does not exist. Please provide a valid path."]
    assert claude.results(4)[0].splitlines()[1:] == ["0B\t/memories"]
    assert [one.by for one in memory.files.history("/memories/ann.md", user_id="ann")] == ["claude"]


@pytest.mark.in_turn("face")
def test_another_model_calls_the_same_tool_and_what_it_did_stays_in_the_conversation(bench: Bench) -> None:
    """Unlike calls of memory's own tools, which later turns leave out."""
    memory = bench.memory()
    model = Scripted.says(calling(("memory", LEARN), id="m"), "Noted.", "You like tea.")
    agent = create_agent(model, [], middleware=[MemoryMiddleware(memory), ClaudeMemoryMiddleware(memory)])
    bench.run(agent, ask("I like tea"), configured("1", "ann"))
    assert "memory" in model.tools[0]
    assert memory.files.read("/memories/ann.md", user_id="ann").text == "likes tea\n"
    bench.run(agent, ask("And?"), configured("1", "ann"))
    told = ["ai: memory#m-0", "tool: File created successfully at: /memories/ann.md", "ai: Noted."]
    assert said(model.seen[-1])[-5:] == ["human: I like tea", *told, "human: And?"]
