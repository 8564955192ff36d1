"""A model that called a tool wrongly reads what to call instead, in words of its tools and not of the program, and recovers."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage

from langchain_workingmem import FileOptions, Memory, RecallOptions, WorkingMemoryOptions
from langchain_workingmem.adapters.claude_middleware import ClaudeMemoryMiddleware
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import Scripted, ask, calling, configured
from tests.helpers.types import Make
from tests.mcp.conftest import PROGRAM
from tests.tools.samples import Person

Call = tuple[str, dict[str, Any]]
UPDATE, LONG = "update_working_memory", "x" * 3000


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


@pytest.mark.in_turn("face")
@pytest.mark.parametrize(("wrong", "says", "right"), OF_AGENTS.values(), ids=OF_AGENTS)
def test_an_agent_recovers_in_its_next_call(full: Memory, invoke: Any, wrong: Call, says: str, right: Call) -> None:
    model = Scripted.says(calling(wrong, id="a"), calling(right, id="b"), "Done.")
    agent = create_agent(
        model, full.tools(include=[UPDATE, "search_memory"]), middleware=[ClaudeMemoryMiddleware(full)]
    )
    messages = invoke(agent, ask("I like tea"), configured("t", "ann"))["messages"]
    refused, done = [message for message in messages if isinstance(message, ToolMessage)]
    assert refused.status == "error"
    assert says in refused.text
    assert PROGRAM.search(refused.text) is None, refused.text
    assert done.status == "success", done.text
