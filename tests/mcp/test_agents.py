"""An agent of LangChain that has memory by langchain-mcp-adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_mcp_adapters.client import MultiServerMCPClient

from langchain_workingmem import Memory
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.models import Scripted, ask, calling
from tests.mcp.conftest import TOKENS, running

FIRST = "My dog is called Nougat."


async def test_an_agent_over_http_with_a_token(
    plain: Memory, server: EmbeddedRedis, prefix: str, token_file: Path
) -> None:
    """It saves, searches and updates, and reads what was wrong with a call."""
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
    place = ("--url", server.url, "--key-prefix", prefix)
    with running("--http", "--tokens", str(token_file), *place) as url:
        headers = {"Authorization": f"Bearer {next(iter(TOKENS))}"}
        connection: Any = {"transport": "streamable_http", "url": url, "headers": headers}
        agent: Any = create_agent(model, await MultiServerMCPClient({"memory": connection}).get_tools())
        done = await agent.ainvoke(ask("What is my dog called?"))
    saved, found, updated, refused = [one.text for one in done["messages"] if isinstance(one, ToolMessage)]
    assert saved == 'Saved 1 message in thread "t".'
    assert FIRST in found
    assert "+ - Has a dog called Nougat." in updated
    assert "next_cursor" in refused
    assert [message.text for message in plain.history.messages("t", user_id="maya")] == [FIRST]
