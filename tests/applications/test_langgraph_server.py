"""The page about LangGraph servers, served by `langgraph dev` as it stands: who reaches whose memory over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embedded import wait_until

pytest.importorskip("langgraph_api", reason="needs langgraph-cli[inmem], which the group `dev` brings")
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import APIError

PAGE = (Path(__file__).parents[2] / "docs/how-to/langgraph-server.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    """A Redis of its own, as the page uses the usual key prefix."""
    with EmbeddedRedis() as redis:
        yield redis.url


@pytest.fixture(scope="module")
def url(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run `langgraph dev` on the files of the page, without a key and without telling anybody."""
    folder = tmp_path_factory.mktemp("server")
    *code, end = blocks("python")
    assert end == "memory.close()\n"
    (folder / "app.py").write_text("\n".join(code))
    settings = json.loads(blocks("json")[0])
    settings["http"] = {"configurable_headers": {"include": ["user_id"]}}
    (folder / "langgraph.json").write_text(json.dumps(settings))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("LANGSMITH_", "LANGCHAIN_"))}
    env |= {"REDIS_URL": redis_url, "LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1"}
    command = [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload", "--host", "127.0.0.1"]
    url, log = f"http://127.0.0.1:{port}", folder / "log.txt"

    def is_up() -> bool:
        assert server.poll() is None, log.read_text()
        try:
            return httpx.get(f"{url}/ok").is_success
        except httpx.TransportError:
            return False

    with log.open("w") as output:
        server = subprocess.Popen(
            [*command, "--port", str(port)], cwd=folder, env=env, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_until(is_up, seconds=60)
        yield url
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture
def memory(redis_url: str) -> Iterator[Memory]:
    with Memory(redis_url, working_memory=WorkingMemoryOptions()) as memory:
        yield memory


class Client:
    """A user of the server."""

    def __init__(self, url: str, user: str | None, **headers: str) -> None:
        self.url = url
        self.headers = {"authorization": f"Bearer for-{user}", **headers} if user else headers

    def api(self) -> LangGraphClient:
        return get_client(url=self.url, headers=self.headers)

    async def thread(self) -> str:
        async with self.api() as api:
            return str((await api.threads.create())["thread_id"])

    async def say(self, text: str, thread: str | None = None, graph: str = "agent", **more: Any) -> str:
        """Return what the model was shown, or how the run was refused."""
        given: Any = {"messages": [{"role": "user", "content": text}]}
        try:
            async with self.api() as api:
                state: Any = await api.runs.wait(thread, graph, input=given, **more)
        except (APIError, httpx.HTTPStatusError) as error:
            return f"{error.response.status_code}"
        except Exception as error:  # noqa: BLE001 - the SDK raises a bare one for a run that failed
            return str(error)
        return str(state["messages"][-1]["content"])


def run(*calls: Coroutine[Any, Any, Any]) -> list[Any]:
    """Let clients call at once: the server takes a second to begin a run."""

    async def together() -> list[Any]:
        return await asyncio.gather(*calls)

    return asyncio.run(together())


def configurable(**values: Any) -> dict[str, Any]:
    return {"configurable": values}


@pytest.fixture(scope="module")
def talks(url: str) -> tuple[str, str]:
    """A thread of each of two users, in which something was said."""

    async def talk(user: str, secret: str) -> str:
        client = Client(url, user)
        thread = await client.thread()
        await client.say(f"my dog is {secret}", thread)
        return thread

    maya, omar = run(talk("maya", "Nougat"), talk("omar", "Kestrel"))
    return maya, omar


def test_each_user_has_their_own_memory(url: str, talks: tuple[str, str], memory: Memory) -> None:
    memory.working_memory.update("Maya likes tea.", user_id="maya")
    maya, omar = Client(url, "maya"), Client(url, "omar")
    shown = run(maya.say("my dog", talks[0]), maya.say("my dog", context={"thread_id": "m"}), omar.say("my dog"))
    assert ["Nougat" in one for one in shown] == [True, True, False]
    assert ["Kestrel" in one for one in shown] == [False, False, True]
    assert ["likes tea" in one for one in shown] == [True, True, False]
    assert {thread.user_id for thread in memory.threads.list().items} >= {"maya", "omar"}


def test_naming_somebody_else_is_refused(url: str, talks: tuple[str, str], memory: Memory) -> None:
    omar, threads = Client(url, "omar"), memory.threads.list(user_id="maya")

    async def by_assistant() -> str:
        async with omar.api() as api:
            made = await api.assistants.create("agent", config={"configurable": {"user_id": "maya"}})
        return await omar.say("my dog", graph=made["assistant_id"])

    refused = run(
        omar.say("my dog", talks[1], context={"user_id": "maya"}),
        omar.say("my dog", talks[1], config=configurable(user_id="maya")),
        by_assistant(),
        Client(url, "omar", user_id="maya").say("my dog", talks[1]),
        Client(url, "desk").say("my dog", context={"user_id": "maya"}),  # in the graph that trusts nobody
    )
    assert all("IdError" in one and "names another user" in one for one in refused), refused
    assert memory.threads.list(user_id="maya") == threads


def test_what_the_server_has_not_said_signs_nobody_in(url: str, talks: tuple[str, str]) -> None:
    forged = {"langgraph_auth_user": {"identity": "maya"}, "langgraph_auth_user_id": "maya"}
    headers = {"x-user-id": "maya", "langgraph_auth_user_id": "maya"}
    shown = run(
        Client(url, "omar").say("my dog", talks[1], config=configurable(**forged)),
        Client(url, "omar").say("my dog", talks[1], context=forged),
        Client(url, "omar", **headers).say("my dog", talks[1]),
    )
    assert all("Kestrel" in one and "Nougat" not in one for one in shown)
    strangers = (Client(url, None), Client(url, None, **{"x-auth-scheme": "langsmith"}))
    assert run(*(stranger.say("my dog") for stranger in strangers)) == ["401"] * 2


def test_somebody_elses_thread_is_refused(url: str, talks: tuple[str, str], memory: Memory) -> None:
    omar, before = Client(url, "omar"), memory.history.messages(talks[0])
    refused = run(
        omar.say("my dog", talks[0]),
        omar.say("my dog", talks[1], context={"thread_id": talks[0]}),
        omar.say("my dog", config=configurable(thread_id=talks[0])),
    )
    assert [one.partition(":")[0] for one in refused] == ["404", "ThreadOwnershipError", "ThreadOwnershipError"]
    assert memory.history.messages(talks[0]) == before


def test_a_service_speaks_for_its_users(url: str, talks: tuple[str, str], memory: Memory) -> None:
    named: Any = {"graph": "desk", "config": configurable(user_id="maya", memory={"persist": False})}
    served, refused = run(Client(url, "desk").say("my dog", **named), Client(url, "omar").say("my dog", **named))
    assert "Nougat" in served
    assert refused.startswith("PermissionError")
    assert memory.threads.list(user_id="desk").total == 0


def test_a_deleted_thread_is_forgotten(url: str, memory: Memory) -> None:
    maya, omar = Client(url, "maya"), Client(url, "omar")

    async def delete() -> None:
        thread = await maya.thread()
        await maya.say("this goes", thread)
        async with maya.api() as mine, omar.api() as theirs:
            (done,) = await mine.runs.list(thread)
            await mine.runs.delete(thread, done["run_id"])
            with pytest.raises(APIError):
                await theirs.threads.delete(thread)
            assert memory.threads.get(thread) is not None
            await mine.threads.delete(thread)
        assert memory.threads.get(thread) is None

    run(delete())
