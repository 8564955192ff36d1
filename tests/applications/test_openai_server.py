"""The server of docs/how-to/openai-server.md, by the clients of OpenAI and LangChain over HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from openai import AuthenticationError, BadRequestError, NotFoundError, OpenAI

from langchain_workingmem import Memory
from langchain_workingmem.middleware import MemoryMiddleware
from tests.applications.conftest import run_page
from tests.helpers.embedded import wait_until
from tests.helpers.models import Bench, Scripted, calling, said, weather

PAGE = Path(__file__).parents[2] / "docs/how-to/openai-server.md"
MAYA, OMAR = "a-long-key-of-maya", "a-long-key-of-omar"


@pytest.fixture(scope="module")
def program() -> dict[str, Any]:
    return run_page(PAGE)


@pytest.fixture
def memory(bench: Bench) -> Memory:
    return bench.memory()


@pytest.fixture
def model(program: dict[str, Any], memory: Memory) -> Scripted:
    """The model behind the program of the page, on the memory of the test."""
    model = Scripted.says()
    program["memory"] = memory
    program["agent"] = create_agent(model, [weather], middleware=[MemoryMiddleware(memory)])
    return model


@pytest.fixture
def url(program: dict[str, Any], model: Scripted) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(program["app"], log_config=None, lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    server.should_exit = True
    thread.join(10)
    listener.close()


def listed(*lines: str) -> list[Any]:
    return [{"role": ("user", "assistant")[at % 2], "content": line} for at, line in enumerate(lines)]


def client_of(url: str, key: str = MAYA, chat: str | None = "t") -> OpenAI:
    headers = {} if chat is None else {"x-conversation-id": chat}
    return OpenAI(base_url=url, api_key=key, default_headers=headers, max_retries=0)


def stored(memory: Memory) -> list[str]:
    return [line.strip() for line in said(memory.history.messages("t"))]  # a scripted stream ends with a blank


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_client_of_langchain_talks_edits_and_asks_again(
    url: str, memory: Memory, model: Scripted, is_streamed: bool
) -> None:
    named: Any = {"model": "agent", "base_url": url, "api_key": MAYA, "extra_body": {"metadata": {"thread_id": "t"}}}
    client = ChatOpenAI(**named, max_retries=0)
    model.script[:] = ["two", "sunny", "rainy", "hail"]

    def ask(*lines: str) -> str:
        sent = listed(*lines)
        return "".join(one.text for one in client.stream(sent)) if is_streamed else str(client.invoke(sent).text)

    first = ask("one")
    ask("one", first, "and Oslo?")
    ask("one", first, "and Oslo?")  # regenerated
    assert stored(memory) == ["human: one", "ai: two", "human: and Oslo?", "ai: rainy"]
    ask("one", first, "and Rome?")  # edited
    assert stored(memory) == ["human: one", "ai: two", "human: and Rome?", "ai: hail"]
    assert memory.threads.get("t", user_id="maya")


def test_what_is_said_before_a_tool_call_is_no_part_of_the_answer(url: str, memory: Memory, model: Scripted) -> None:
    model.script[:] = [calling(("weather", {"city": "Oslo"}), id="a", text="let me look"), "sunny", "bye"]
    chunks = client_of(url).chat.completions.create(model="agent", messages=listed("Oslo?"), stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert [part.strip() for part in text.split("\u2063\u2063")] == ["let me look", "sunny"]
    client_of(url).chat.completions.create(model="agent", messages=listed("Oslo?", text, "thanks"))
    assert stored(memory)[-3:] == ["ai: sunny", "human: thanks", "ai: bye"]
    assert len(memory.history.messages("t", superseded=True)) == 6


def test_who_asks_and_about_what_is_checked(url: str, memory: Memory, model: Scripted) -> None:
    model.script[:] = ["mine"]
    client_of(url).chat.completions.create(model="agent", messages=listed("hello"))
    for client, name, error in (
        (client_of(url, "another-key-0123456"), "agent", AuthenticationError),
        (client_of(url, OMAR), "agent", NotFoundError),
        (client_of(url), "gpt", NotFoundError),
        (client_of(url, chat=None), "agent", BadRequestError),
    ):
        with pytest.raises(error):
            client.chat.completions.create(model=name, messages=listed("let me in"))
    assert stored(memory) == ["human: hello", "ai: mine"]
