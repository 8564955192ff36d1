"""The extra `mcp`: python -P mcp.py URL PREFIX."""

from __future__ import annotations

import asyncio
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from langchain_workingmem import Memory
from langchain_workingmem.mcp import application, server

URL, PREFIX = sys.argv[1:]
PLACE = ["--url", URL, "--key-prefix", PREFIX, "--embeddings", "none"]


async def main() -> None:
    words = ["-P", "-m", "langchain_workingmem.cli", "mcp", "--user", "maya", *PLACE]
    parameters = StdioServerParameters(command=sys.executable, args=words, env={**os.environ})
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        saved = await session.call_tool("save_messages", {"messages": [{"role": "user", "content": "Hello."}]})
        assert not saved.isError


asyncio.run(main())
with Memory(URL, key_prefix=PREFIX) as memory:
    assert server(memory, user_id="maya").name == "workingmem"
    application(memory, tokens={"a-token-of-maya-01": "maya"})
    assert memory.threads.list(user_id="maya").total == 1
