"""Clients that come from npm, where they are installed: the conformance suite and the inspector.

    npm install --prefix DIR @modelcontextprotocol/conformance @modelcontextprotocol/inspector
    MCP_CLIENTS=DIR pytest tests/mcp/test_clients.py

The conformance suite needs Node 22 or later. Nothing is fetched here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from langchain_workingmem import Memory
from langchain_workingmem.embedded import EmbeddedRedis
from tests.mcp.conftest import running

pytestmark = pytest.mark.programs

NOT_OFFERED = Path(__file__).with_name("not_offered.yml")
PATH = os.pathsep.join([str(Path(os.environ.get("MCP_CLIENTS", "."), "node_modules", ".bin")), os.environ["PATH"]])


def client(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a client; skip the test if it is not installed."""
    found = shutil.which(name, path=PATH)
    if found is None:
        pytest.skip(f"{name} is not installed: npm install its package, and name the folder in MCP_CLIENTS")
    environment = {**os.environ, "PATH": PATH}
    return subprocess.run([found, *words], env=environment, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def place(server: EmbeddedRedis, prefix: str) -> list[str]:
    return ["--resource", "maya", "--embeddings", "none", "--url", server.url, "--key-prefix", prefix]


def test_the_conformance_suite_passes(place: list[str], tmp_path: Path) -> None:
    client("conformance", "--version")
    with running("--http", *place) as url:
        options = ["--expected-failures", str(NOT_OFFERED), "-o", str(tmp_path)]
        done = client("conformance", "server", "--url", url, *options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "server-initialize: 1 passed" in done.stdout


def test_the_inspector_writes_over_stdio_and_reads_over_http(plain: Memory, place: list[str]) -> None:
    client("mcp-inspector-cli", "--help")

    def ask(server: list[str], *words: str) -> Any:
        done = client("mcp-inspector", "--cli", *server, "--method", *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    said = 'messages=[{"role": "user", "content": "My dog is called Nougat."}]'
    words = ["tools/call", "--tool-name", "save_messages", "--tool-arg", said, "--tool-arg", "thread_id=dog"]
    started = [sys.executable, "-m", "langchain_workingmem.cli", "mcp", *place]
    assert ask(started, *words)["structuredContent"]["thread_id"] == "dog"
    assert [message.text for message in plain.history.messages("dog")] == ["My dog is called Nougat."]
    with running("--http", *place) as url:
        over_http = [url, "--transport", "http"]
        assert all(tool["outputSchema"]["type"] == "object" for tool in ask(over_http, "tools/list")["tools"])
        listed = ask(over_http, "tools/call", "--tool-name", "list_threads")["structuredContent"]
        assert listed["threads"][0]["thread_id"] == "dog"
