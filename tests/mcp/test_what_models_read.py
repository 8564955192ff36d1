"""A model that called a tool wrongly reads what to call instead, in words of its tools and not of the program, and recovers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_mcp_adapters.tools import load_mcp_tools

from langchain_workingmem import FileOptions, Memory, RecallOptions, WorkingMemoryOptions
from langchain_workingmem.adapters.claude_middleware import ClaudeMemoryMiddleware
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import Scripted, ask, calling, configured
from tests.helpers.types import Make
from tests.mcp.conftest import inside
from tests.tools.samples import Person

# names of the program's world: options, classes, methods, packages, addresses, ids of users
PROGRAM = re.compile(
    r"Options\(|on_error|max_bytes|\bmemory\.|\w+_memory\.|files\.|threads\.|users\.|user_id|base_revision|purge|write\(\)|"
    r"configurable|redis:|127\.0|Traceback|Error:|pip install|dictionary|instance of|\bstr\b|kwargs|Extra inputs|Value error|secret|\bben\b"
)

Call = tuple[str, dict[str, Any]]
UPDATE, LONG = "update_working_memory", "x" * 3000

MESSAGE = {"role": "user", "content": "I like tea."}

OF_AGENTS: dict[str, tuple[Call, str, Call]] = {
    "too long": ((UPDATE, {"memory": {"name": LONG}}), "keep only what matters", (UPDATE, {"memory": {"name": "Ann"}})),
    "wrong type": ((UPDATE, {"memory": {"home": 5}}), "home: Input should be an obj", (UPDATE, {"memory": {"age": 3}})),
    "empty": ((UPDATE, {"memory": {}}), "put what is new into `memory`", (UPDATE, {"memory": {"name": "Ann"}})),
    "no time": (("search_memory", {"query": "tea", "since": "2026"}), "2026-05-03", ("search_memory", {"query": "tea", "since": "2026-05-03"})),
    "no command": (("memory", {"command": "look"}), "'view'", ("memory", {"command": "view", "path": "/memories"})),
    "no note": (("memory", {"command": "view", "path": "/memories/nope"}), "does not exist", ("memory", {"command": "view", "path": "/memories"})),
    "a large note": (("memory", {"command": "create", "path": "/memories/a", "file_text": LONG}), "leave something out", ("memory", {"command": "create", "path": "/memories/a", "file_text": "x"})),
}  # fmt: skip


@pytest.fixture
def full(make_memory: Make) -> Memory:
    memory = make_memory(
        embeddings=WordEmbeddings(),
        recall=RecallOptions(),
        working_memory=WorkingMemoryOptions(schema=Person, max_bytes=1000),
        files=FileOptions(max_file_bytes=1000, max_bytes=1400),
    )
    memory.working_memory.update({"name": "Maya"}, user_id="ann")
    for path in ("/a.md", "/notes/b.md", "/memories/n"):
        memory.files.write(path, "one\n", user_id="ann")
    memory.files.write("/filler", "x" * 600, user_id="ann")
    return memory


def read_in(messages: list[BaseMessage]) -> list[ToolMessage]:
    return [message for message in messages if isinstance(message, ToolMessage)]


def check(refused: ToolMessage, done: ToolMessage, says: str) -> None:
    assert refused.status == "error"
    assert says in refused.text
    assert PROGRAM.search(refused.text) is None, refused.text
    assert done.status == "success", done.text


@pytest.mark.in_turn("face")
@pytest.mark.parametrize(("wrong", "says", "right"), OF_AGENTS.values(), ids=OF_AGENTS)
def test_an_agent_recovers_in_its_next_call(full: Memory, invoke: Any, wrong: Call, says: str, right: Call) -> None:
    model = Scripted.says(calling(wrong, id="a"), calling(right, id="b"), "Done.")
    agent = create_agent(
        model, full.tools(include=[UPDATE, "search_memory"]), middleware=[ClaudeMemoryMiddleware(full)]
    )
    refused, done = read_in(invoke(agent, ask("I like tea"), configured("t", "ann"))["messages"])
    check(refused, done, says)


OF_CLIENTS: dict[str, tuple[Call, str, Call]] = {
    "no tool": (("look", {}), "search_memory", ("search_memory", {"query": "tea"})),
    "too long": ((UPDATE, {"memory": LONG}), "keep only what matters", (UPDATE, {"memory": "- Likes tea."})),
    "no such revision": ((UPDATE, {"memory": "x", "revision": 9}), "get_working_memory", ("get_working_memory", {})),
    "to another user's thread": (("save_messages", {"messages": [MESSAGE], "thread_id": "bens"}), "none for a new thread", ("save_messages", {"messages": [MESSAGE]})),
    "nothing said": (("save_messages", {"messages": [{"role": "user", "content": " "}]}), "leave it out", ("save_messages", {"messages": [MESSAGE]})),
    "unknown argument": (("list_threads", {"user": "ben"}), "takes limit, cursor", ("list_threads", {})),
}  # fmt: skip


@pytest.mark.parametrize(("wrong", "says", "right"), OF_CLIENTS.values(), ids=OF_CLIENTS)
async def test_an_agent_over_mcp_recovers_in_its_next_call(
    make_memory: Make, wrong: Call, says: str, right: Call
) -> None:
    memory = make_memory(embeddings=WordEmbeddings(), working_memory=WorkingMemoryOptions(max_bytes=1000))
    memory.threads.create(thread_id="bens", user_id="ben")
    memory.threads.create(thread_id="mine", user_id="maya")
    async with inside(memory, "maya") as client:
        tools = await load_mcp_tools(client.session)
        calls = [calling(wrong, id="a"), calling(right, id="b")]
        if wrong[0] == "look":  # the graph itself refuses a tool that is not offered
            refused = ToolMessage(await client.refusal(*wrong[:1]), tool_call_id="a", status="error")
            del calls[0]
        agent: Any = create_agent(Scripted.says(*calls, "Done."), tools)
        *before, done = read_in((await agent.ainvoke(ask("I like tea")))["messages"])
        refused = before[0] if before else refused
    check(refused, done, says)
