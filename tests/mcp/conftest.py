"""Clients of the official SDK: of the command over both transports, and of a server in this process."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.memory import create_connected_server_and_client_session
from mcp.types import CallToolResult, TextContent

from langchain_workingmem import Memory
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.mcp import server as mcp_server
from tests.cli.conftest import ended, started
from tests.helpers.programs import command

# names of the program's world: options, classes, methods, packages, addresses, ids of users
PROGRAM = re.compile(
    r"Options\(|on_error|max_bytes|\bmemory\.|\w+_memory\.|files\.|threads\.|users\.|user_id|base_revision|purge|write\(\)|"
    r"configurable|redis:|127\.0|Traceback|Error:|pip install|dictionary|instance of|\bstr\b|kwargs|Extra inputs|Value error|secret|\bben\b"
)
Connect = Callable[..., AbstractAsyncContextManager["Client"]]
TOKENS = {"token-of-maya-0123": "maya", "token-of-jonas-0123": "jonas"}


class Client:
    """A session, and what its answers say."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session

    async def call(self, name: str, **arguments: Any) -> CallToolResult:
        return await self.session.call_tool(name, arguments)

    async def text(self, name: str, **arguments: Any) -> str:
        result = await self.call(name, **arguments)
        assert not result.isError, text_of(result)
        return text_of(result)

    async def data(self, name: str, **arguments: Any) -> dict[str, Any]:
        result = await self.call(name, **arguments)
        assert result.structuredContent is not None, text_of(result)
        return result.structuredContent

    async def refusal(self, name: str, **arguments: Any) -> str:
        result = await self.call(name, **arguments)
        assert result.isError, text_of(result)
        assert PROGRAM.search(text_of(result)) is None, text_of(result)
        return text_of(result)

    async def tools(self) -> list[str]:
        return [tool.name for tool in (await self.session.list_tools()).tools]

    async def save(self, *texts: str, thread_id: str, **more: Any) -> dict[str, Any]:
        roles = ("user", "assistant")
        messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
        return await self.data("save_messages", messages=messages, thread_id=thread_id, **more)


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


@asynccontextmanager
async def over_stdio(*words: str, errors: Path, **environment: str) -> AsyncIterator[Client]:
    python, *arguments = command("-W", "error", "-P", "-m", "langchain_workingmem.cli", "mcp", *words)
    parameters = StdioServerParameters(command=python, args=arguments, env={**os.environ, **environment})
    with open(errors, "w+") as log:  # noqa: ASYNC230, PTH123 - it is local, and short
        async with stdio_client(parameters, errlog=log) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            yield Client(session)
        log.seek(0)
        assert log.read() == ""


@asynccontextmanager
async def over_http(url: str, token: str | None = None, **headers: str) -> AsyncIterator[Client]:
    sent = {**headers, **({} if token is None else {"Authorization": f"Bearer {token}"})}
    async with (
        httpx.AsyncClient(headers=sent, timeout=30) as client,
        streamable_http_client(url, http_client=client) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield Client(session)


@pytest.fixture(params=["stdio", "http"])
def connect(request: pytest.FixtureRequest, server: EmbeddedRedis, prefix: str, tmp_path: Path) -> Connect:
    """Start the command for a user, and connect the client of the SDK with it."""
    place = ("--url", server.url, "--key-prefix", prefix)

    @asynccontextmanager
    async def connected(*words: str, user: str = "maya", embeddings: str = "none") -> AsyncIterator[Client]:
        words = ("--user", user, "--embeddings", embeddings, *place, *words)
        if request.param == "stdio":
            async with over_stdio(*words, errors=tmp_path / "errors") as client:
                yield client
            return
        with running("--http", *words) as url:
            async with over_http(url) as client:
                yield client

    return connected


class running:  # noqa: N801 - used like a function
    """Run the command over HTTP while the block runs; Ctrl-C ends it, and nothing is left."""

    def __init__(self, *words: str) -> None:
        self._process = started("mcp", *words)
        alone = "Every program of this machine can reach this memory: --tokens FILE asks each one for a token\n"
        self._notice = "" if "--tokens" in words else alone

    def __enter__(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def __exit__(self, *_: object) -> None:
        assert self._process.stderr
        self._process.send_signal(signal.SIGINT)
        assert self._process.stderr.read() == self._notice
        assert ended(self._process) == 0


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps(TOKENS))
    path.chmod(0o600)
    return path


@asynccontextmanager
async def inside(memory: Memory, user_id: str, *, read_only: bool = False) -> AsyncIterator[Client]:
    """Connect a client with a server in this process."""
    made = mcp_server(memory, user_id=user_id, read_only=read_only)
    async with create_connected_server_and_client_session(made) as session:
        yield Client(session)
