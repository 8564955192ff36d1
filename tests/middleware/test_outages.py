"""Agents without their Redis: a turn waits once, the next ones do not, and memory comes back by itself."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis.asyncio.connection
import redis.connection
from langchain_core.tools import tool

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem._engine.run import COOL_DOWN, FEW_REPEATS
from tests.helpers.embedded import free_port
from tests.helpers.models import Bench, Scripted, agent_of, ask, calling, said, weather
from tests.tools.samples import looping

pytestmark = pytest.mark.in_turn("face")

WAIT = timedelta(milliseconds=300)  # for a server that is silent
PATIENT = timedelta(seconds=5)  # with one that answers
REFUSED = 1 + FEW_REPEATS  # attempts of the one call that is made: it may have met a connection that had been closed


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], int]:
    """Count how often a call asks for a connection: each may be waited for."""
    made: list[object] = []
    connect: Any = redis.connection.Connection._connect
    aconnect: Any = redis.asyncio.connection.Connection._connect

    def counted(self: Any) -> Any:
        made.append(self)
        return connect(self)

    async def acounted(self: Any) -> Any:
        made.append(self)
        return await aconnect(self)

    def attempts(call: Callable[[], Any]) -> int:
        made.clear()
        call()
        return len(made)

    monkeypatch.setattr(redis.connection.Connection, "_connect", counted)
    monkeypatch.setattr(redis.asyncio.connection.Connection, "_connect", acounted)
    return attempts


class Clock:
    """A clock that goes when it is told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["refused", "silent"])
def dead(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """Where no Redis answers, and how often one call of an agent tries."""
    if request.param == "refused":
        yield f"redis://127.0.0.1:{free_port()}", REFUSED
        return
    with socket.create_server(("127.0.0.1", 0)) as mute:
        yield f"redis://127.0.0.1:{mute.getsockname()[1]}", 1


def without_redis(bench: Bench, clock: Clock, url: str, timeout: timedelta = WAIT) -> Memory:
    options = WorkingMemoryOptions(tools=("get", "update"))
    memory = bench.recalling(redis_url=url, working_memory=options, timeout=timeout, on_error="log")
    memory._core.runner.link.clock = clock
    return memory


def busy() -> list[Any]:
    """A turn of four model calls and seven tools, five of them of memory."""
    look: Any = ("search_memory", {"query": "dogs"})
    read: Any = ("get_working_memory", {})
    write: Any = ("update_working_memory", {"memory": "Ann has a dog"})
    elsewhere: Any = ("weather", {"city": "Oslo"})
    return [
        calling(look, read, elsewhere, id="a"),
        calling(write, elsewhere, id="b"),
        calling(look, read, id="c"),
        "hi",
    ]


@pytest.mark.parametrize("kind", ["agent", "graph"])
def test_a_turn_waits_once_and_the_next_one_not_at_all(
    bench: Bench, attempts: Any, clock: Clock, dead: tuple[str, int], caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    url, once = dead
    memory, model = without_redis(bench, clock, url), Scripted.says(*busy(), *busy(), *busy())
    app = agent_of(model, memory, tools=[weather]) if kind == "agent" else looping(memory, model, weather)
    with caplog.at_level(logging.WARNING, "langchain_workingmem"):
        assert attempts(lambda: bench.run(app, ask("pears"))) == once
    assert f"the {kind} {'answers' if kind == 'agent' else 'goes on'} without memory" in caplog.text
    assert "the turn is not saved" in caplog.text
    assert attempts(lambda: bench.run(app, ask("pears"))) == 0
    clock.now += COOL_DOWN
    assert attempts(lambda: bench.run(app, ask("pears"))) == once
    assert len(bench.embeddings.calls) == 1  # what is remembered is not asked for, and nothing else is embedded
    assert said(model.seen[0]) == ["human: pears"]


@pytest.fixture
def present(bench: Bench, clock: Clock) -> Memory:
    """A memory on a server that works."""
    return without_redis(bench, clock, bench.url, PATIENT)


def fail(memory: Memory) -> None:
    """Let another conversation meet a failure."""
    link = memory._core.runner.link
    link.until = link.clock() + COOL_DOWN


def stored(memory: Memory) -> list[str]:
    return said(memory.history.messages("t"))


def test_the_first_turn_behind_the_pause_finds_memory_again(
    bench: Bench, present: Memory, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    agent = agent_of(Scripted.says("one", "two", "three"), present)
    fail(present)
    bench.run(agent, ask("first"))
    assert "Redis has failed, and is asked again every 5 s" in caplog.text
    clock.now += COOL_DOWN
    bench.run(agent, ask("second"))
    assert "Redis answers again" in caplog.text
    assert stored(present) == ["human: second", "ai: two"]
    bench.run(agent, ask("third"))
    assert stored(present)[-2:] == ["human: third", "ai: three"]


def test_a_turn_that_began_without_memory_is_saved_when_redis_is_back_at_its_end(bench: Bench, present: Memory) -> None:
    @tool
    def repair() -> str:
        """Somebody else gets an answer."""
        present.threads.get("other")
        return "done"

    fail(present)
    agent = agent_of(Scripted.says(calling(("repair", {}), id="a"), "hi"), present, tools=[repair])
    bench.run(agent, ask("hello"))
    assert stored(present) == ["human: hello", "ai: repair#a-0", "tool: done", "ai: hi"]
