"""A studio in this process, and a browser without scripts that knows its token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from starlette.testclient import TestClient

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem.serving import loopback_only
from langchain_workingmem.studio import Studio, application
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.types import Make

ROOT = "http://127.0.0.1:8000"
TOKEN = "a-token-of-the-tests"
EVIL = "<script>alert('x')</script>\x1b[31m\u202e & \"quoted\""
Open = Callable[..., "Visitor"]
PAGES = ["/", "/users", "/threads", "/thread", "/find", "/context", "/recall", "/working-memory", "/log", "/data"]


class Visitor:
    """Asks for pages and sends forms."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def get(self, path: str, /, **parameters: str) -> Any:
        return self.client.get(f"{path}?{urlencode(parameters)}")

    def page(self, path: str, /, **parameters: str) -> str:
        """Return a page, which must exist."""
        answer = self.get(path, **parameters)
        assert answer.status_code == 200, (path, parameters, answer.text)
        return str(answer.text)

    def text(self, path: str, /, **parameters: str) -> str:
        """Return a page with its characters instead of entities."""
        return unescape(self.page(path, **parameters))

    def send(self, path: str, data: dict[str, str], /, *, origin: str | None = ROOT, **parameters: str) -> Any:
        headers = {} if origin is None else {"origin": origin}
        return self.client.post(f"{path}?{urlencode(parameters)}", data=data, headers=headers)


@pytest.fixture
def open_studio() -> Iterator[Open]:
    """Open studios on memories; the token is known unless `token` is None."""
    clients: list[TestClient] = []

    def make(memory: Memory, *, token: str | None = TOKEN, **options: Any) -> Visitor:
        if "documents" not in options and memory._core.state.working_memory is not None:
            options["documents"] = {memory._core.state.working_memory.scope: memory}
        studio = Studio(memory=memory, token=TOKEN, **options)
        client = TestClient(loopback_only(application(studio)), base_url=ROOT)
        client.__enter__()
        clients.append(client)
        if token is not None:
            assert client.get("/", params={"token": token}).status_code != 401
        return Visitor(client)

    yield make
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def lived(make_memory: Make, embeddings: WordEmbeddings) -> Memory:
    """A memory in which Maya has talked, with a tool call, an answer that was regenerated, and working memory."""
    memory = make_memory(embeddings=embeddings, working_memory=WorkingMemoryOptions())
    ids: Any = {"thread_id": "trip", "user_id": "maya"}
    memory.threads.create(**ids, title="A trip", metadata={"topic": "travel", "stars": 5})
    question = HumanMessage("How is the weather in Bern?", id="q1")
    call = AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Bern"}, "id": "c1"}], id="c")
    result = ToolMessage("12 degrees", tool_call_id="c1", id="r")
    memory.save_turn([question, call, result, AIMessage("It is mild.", id="a1")], **ids)
    memory.context([question], **ids)
    memory.save_turn([question, AIMessage("It rains.", id="a2")], **ids)
    memory.save_turn([("user", "Is hut 12 booked?"), ("assistant", "Yes, for July.")], **ids)
    memory.save_turn([("user", EVIL), ("assistant", "I see.")], thread_id="dog", user_id="maya")
    memory.save_turn([("user", "Kestrel is my boat"), ("assistant", "A fine name.")], thread_id="boat", user_id="jonas")
    for dog in ("Nougat", "Silk"):
        memory.working_memory.update(f"# About\n- dog: {dog}\n", user_id="maya")
    return memory
