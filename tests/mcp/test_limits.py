"""What a client may send, how large what it gets is, and that neither holds the event loop."""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, RecallOptions, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.mcp import application
from langchain_workingmem.mcp.protocol import DEEPEST, MOST_BYTES, MOST_VALUES
from tests.cli.conftest import started
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.types import Make
from tests.mcp.conftest import TOKENS, inside
from tests.mcp.test_command import ask

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def called(name: str, **arguments: Any) -> bytes:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    return json.dumps(call).encode()


@pytest_asyncio.fixture
async def client(server: EmbeddedRedis, prefix: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client over HTTP of a memory with recall and working memory, in this process."""
    options: Any = {"embeddings": WordEmbeddings(), "working_memory": WorkingMemoryOptions()}
    async with Memory(server.url, key_prefix=prefix, recall=RecallOptions(threshold=0), **options) as memory:
        app = httpx.ASGITransport(application(memory, user_id="maya"))
        async with httpx.AsyncClient(transport=app, base_url="http://here", headers=HEADERS, timeout=60) as found:
            for name, arguments in (("list_threads", {}), ("search_memory", {"query": "dog"})):
                await found.post("/", content=called(name, **arguments))
            yield found


PING = b'{"jsonrpc":"2.0","id":7,"method":"ping","x":%s}'


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (b'"%s"' % (b"x" * MOST_BYTES), "Send at most 1,048,576 bytes"),
        (b"[%s]" % b",".join([b"1"] * MOST_VALUES), "5,000 values"),
        (b"[" * DEEPEST + b"]" * DEEPEST, "64 levels"),
        (b'"%s"' % (b"[" * 100_001), "Send less in one call"),
    ],
    ids=["bytes", "values", "levels", "brackets"],
)
async def test_a_message_above_a_limit_is_refused_with_the_limit(
    client: httpx.AsyncClient, x: bytes, expected: str
) -> None:
    answer = await client.post("/", content=PING % x)
    assert answer.status_code == 413
    assert expected in answer.text
    at_limit = PING % (b"[%s]" % b",".join([b"1"] * (MOST_VALUES - 4)))
    assert (await client.post("/", content=at_limit)).json() == {"jsonrpc": "2.0", "id": 7, "result": {}}


async def test_a_body_that_is_too_large_is_not_read_to_its_end(client: httpx.AsyncClient) -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 2**16
            yield b" " * 2**16

    assert (await client.post("/", content=endless())).status_code == 413
    assert read <= MOST_BYTES + 2**17


@pytest.mark.parametrize(
    ("line", "id"),
    [
        ('{"jsonrpc": "2.0", "id": 7, "method": "ping", "x": "%s"}', 7),
        ('{"method": "ping", "x": "%s", "jsonrpc": "2.0", "id": "m-7"}', "m-7"),
        ('{"method": "ping", "x": {"%s": {"id": 5}}}', None),
    ],
)
def test_a_line_that_is_too_long_is_answered_and_the_next_one_too(
    server: EmbeddedRedis, prefix: str, line: str, id: object
) -> None:
    place = ("--url", server.url, "--key-prefix", prefix)
    program: subprocess.Popen[str] = started("mcp", "--user", "maya", "--embeddings", "none", *place)
    refused = ask(program, line % ("x" * (3 * MOST_BYTES)))
    assert (refused["id"], refused["error"]["code"]) == (id, -32600)
    assert "more than 1,048,576 bytes" in refused["error"]["message"]
    assert ask(program, '{"jsonrpc": "2.0", "id": 8, "method": "ping"}') == {"jsonrpc": "2.0", "id": 8, "result": {}}
    assert program.communicate(timeout=20) == ("", "")
    assert program.returncode == 0


async def test_a_search_shows_no_more_than_a_client_can_read(make_memory: Make) -> None:
    memory = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions(threshold=0))
    for at in range(8):
        long = HumanMessage(f"the dog of number {at} " * 5_000, id=f"m{at}")
        memory.history.append([long], thread_id=f"t{at}", user_id="maya")
    async with inside(memory, "maya") as client:
        found = await client.call("search_memory", query="the dog", limit=50)
        assert len(str(found.structuredContent)) < 120_000
        assert len(found.structuredContent["hits"]) >= 4  # type: ignore[index]


async def test_a_token_is_in_no_log(plain: Memory, caplog: pytest.LogCaptureFixture) -> None:
    token = next(iter(TOKENS))
    app = httpx.ASGITransport(application(plain, tokens=TOKENS))
    bodies = [b"{", called("list_threads"), called("nothing"), called("list_threads", cursor="x"), b'{"id":1}']
    with caplog.at_level(logging.DEBUG):
        async with httpx.AsyncClient(transport=app, base_url="http://here", headers=HEADERS) as client:
            for sent in (f"Bearer {token}", f"Bearer {token}x", f"Basic {token}"):
                for body in bodies:
                    await client.post("/", content=body, headers={"Authorization": sent})
    assert caplog.records
    assert token not in caplog.text
