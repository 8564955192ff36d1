"""Agents of LangChain that have memory by langchain-mcp-adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langchain_mcp_adapters.client import MultiServerMCPClient

from langchain_workingmem import Memory
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.models import Scripted, ask, calling
from tests.mcp.conftest import TOKENS, running

pytestmark = pytest.mark.programs

FIRST = "My dog is called Nougat."


async def converse(tools: list[BaseTool]) -> list[str]:
    """Let an agent save, search and update; return what its tools have answered."""
    model = Scripted.says(
        calling(("save_messages", {"messages": [{"role": "user", "content": FIRST}], "thread_id": "t"}), id="a"),
        calling(
            ("search_memory", {"query": "What is my dog called?"}),
            ("update_working_memory", {"memory": "- Has a dog called Nougat."}),
            ("list_threads", {"cursor": "x"}),
            id="b",
        ),
        "It is called Nougat.",
    )
    agent: Any = create_agent(model, tools)
    done = await agent.ainvoke(ask("What is my dog called?"))
    assert done["messages"][-1].text == "It is called Nougat."
    return [message.text for message in done["messages"] if isinstance(message, ToolMessage)]


def check(answers: list[str], memory: Memory) -> None:
    saved, found, updated, refused = answers
    assert saved == 'Saved 1 message in thread "t".'
    assert FIRST in found
    assert "+ - Has a dog called Nougat." in updated
    assert "next_cursor" in refused
    assert [message.text for message in memory.history.messages("t", user_id="maya")] == [FIRST]


@pytest.fixture
def place(server: EmbeddedRedis, prefix: str) -> list[str]:
    return ["--url", server.url, "--key-prefix", prefix]


async def test_an_agent_over_http_with_a_token(plain: Memory, place: list[str], token_file: Path) -> None:
    with running("--http", "--tokens", str(token_file), *place) as url:
        (maya, _) = TOKENS
        headers = {"Authorization": f"Bearer {maya}"}
        connection: Any = {"transport": "streamable_http", "url": url, "headers": headers}
        check(await converse(await MultiServerMCPClient({"memory": connection}).get_tools()), plain)
