"""The extra `server`: python -P server.py URL PREFIX."""

from __future__ import annotations

import asyncio
import sys

import httpx
from langchain_core.runnables import RunnableLambda

from langchain_workingmem import Memory
from langchain_workingmem.openai_server import application

URL, PREFIX = sys.argv[1:]


async def main() -> None:
    with Memory(URL, key_prefix=PREFIX) as memory:
        app = application(RunnableLambda(lambda _: "Hello!"), memory, users={"a-key-of-maya-0123": "maya"})
        headers = {"authorization": "Bearer a-key-of-maya-0123", "x-conversation-id": "t"}
        body = {"model": "agent", "messages": [{"role": "user", "content": "Hi."}], "stream": True}
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://here", headers=headers
        ) as client:
            found = await client.post("/v1/chat/completions", json=body)
        assert '"content": "Hello!"' in found.text
        assert found.text.endswith("data: [DONE]\n\n")


asyncio.run(main())
