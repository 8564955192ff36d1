"""A served agent, and the official clients that talk to it."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
import uvicorn
from langchain.agents import create_agent
from openai import OpenAI

from langchain_workingmem import Memory
from langchain_workingmem.middleware import MemoryMiddleware
from langchain_workingmem.openai_server import application
from langchain_workingmem.serving import listen
from tests.helpers.embedded import wait_until
from tests.helpers.models import Bench, Scripted, weather

KEYS = {"key-of-maya-0123": "maya", "key-of-omar-0123": "omar"}
MAYA, OMAR = KEYS
HELLO: list[Any] = [{"role": "user", "content": "hello"}]

HTTP = httpx2.Client(verify=False)  # reading certificates takes longer than most tests here
atexit.register(HTTP.close)

Serve = Callable[[Any], str]


def listed(*lines: str) -> list[Any]:
    """Messages as a client sends them, from lines such as "human: hello"."""
    roles = {"system": "system", "human": "user", "ai": "assistant"}
    pairs = [line.split(": ", 1) for line in lines]
    return [{"role": roles[kind], "content": text} for kind, text in pairs]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve an application on a port of this machine, and return its address."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(app: Any) -> str:
        listener = listen(None)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", ws="none"))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        running.append((server, thread))
        wait_until(lambda: server.started)
        return f"http://127.0.0.1:{listener.getsockname()[1]}/v1"

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join(10)


def agent_app(
    memory: Memory, *lines: Any, middleware: Any = (), tools: Any = (weather,), **options: Any
) -> tuple[Scripted, Any]:
    """Make an agent that says these lines, and its application."""
    model = lines[0] if lines and isinstance(lines[0], Scripted) else Scripted.says(*lines)
    agent = create_agent(model, [*tools], middleware=[MemoryMiddleware(memory), *middleware])
    return model, application(agent, memory, **{"users": KEYS, **options})


@pytest.fixture
def memory(bench: Bench) -> Memory:
    return bench.memory()


def client_of(url: str, key: str = MAYA, chat: str | None = "t", **options: Any) -> OpenAI:
    headers = {} if chat is None else {"x-conversation-id": chat}
    return OpenAI(base_url=url, api_key=key, default_headers=headers, max_retries=0, http_client=HTTP, **options)
