"""Exchanges over redis-py's pools: replies go to whoever asked, whatever a broken call leaves behind."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytest
import redis

from langchain_workingmem import RedisConnectionError
from langchain_workingmem._engine import clients
from langchain_workingmem._engine.exchange import exchange
from langchain_workingmem._engine.plan import Command, Send, attempt, send
from langchain_workingmem._engine.run import AsyncRunner, Runner
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import OutcomeUnknownError
from tests.helpers.embedded import kill_server

PATIENT = timedelta(seconds=10)


@pytest.fixture
def few(server: EmbeddedRedis) -> str:
    return f"{server.url}?max_connections=3"


def sync_runner(url: str) -> Runner:
    return Runner(lambda: clients.client_of(redis, url, PATIENT, PATIENT))


@asynccontextmanager
async def running(url: str, patience: timedelta = PATIENT) -> AsyncIterator[AsyncRunner]:
    runner = AsyncRunner(lambda: clients.client_of(redis.asyncio, url, patience, PATIENT))
    try:
        yield runner
    finally:
        await runner.aclose(lambda: None)


async def echo(runner: AsyncRunner, *texts: bytes) -> list[Any]:
    return await runner.run(attempt(*(("ECHO", text) for text in texts)))


def number(place: int, size: int = 1) -> bytes:
    return str(place).encode() * size


async def test_tasks_take_turns_and_each_gets_its_own_replies(few: str) -> None:
    async with running(few) as runner:

        async def talk(place: int) -> None:
            for turn in range(20):
                said = number(place, turn * 200), number(turn), number(place)
                assert await echo(runner, *said) == [*said]

        await asyncio.gather(*(talk(place) for place in range(50)))


@pytest.mark.both_faces
@pytest.mark.parametrize("size", [2**15 - 1, 2**16, 2**20])
def test_large_commands_and_replies_are_whole(few: str, face: str, size: int) -> None:
    said = b"1", random.Random(size).randbytes(size), b"3"

    async def talk() -> None:
        async with running(few) as runner:
            assert await asyncio.gather(*(echo(runner, *said) for _ in range(5))) == [[*said]] * 5

    if face == "async":
        return asyncio.run(talk())
    runner = sync_runner(few)
    assert runner.run(attempt(*(("ECHO", one) for one in said))) == [*said]
    return runner.close()


async def test_a_cancelled_call_shifts_no_reply_of_the_others_and_costs_no_connection(few: str) -> None:
    chance = random.Random(5)
    async with running(few) as runner:
        for _ in range(40):
            calls = [asyncio.create_task(echo(runner, number(place), b"same")) for place in range(30)]
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
            cancelled = chance.sample(range(30), 10)
            for place in cancelled:
                calls[place].cancel()
            for place, found in enumerate(await asyncio.gather(*calls, return_exceptions=True)):
                if place not in cancelled:
                    assert found == [number(place), b"same"]
        waiting = [asyncio.create_task(runner.run(attempt(("BLPOP", "nothing", 0)))) for _ in range(3)]
        await asyncio.sleep(0.05)
        for call in waiting:
            call.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for _ in range(3):  # every place of the pool is free again
            assert await asyncio.wait_for(echo(runner, b"next"), 5) == [b"next"]


async def test_a_reply_that_is_late_is_read_by_nobody(few: str) -> None:
    async with running(few, timedelta(milliseconds=200)) as runner:
        for _ in range(3):
            with pytest.raises(RedisConnectionError) as caught:
                await runner.run(once(("BLPOP", "nothing", 0.6)))
            assert caught.value.timed_out
        for _ in range(2):  # before the late replies have come, and behind them
            assert [await echo(runner, number(place)) for place in range(3)] == [[number(place)] for place in range(3)]
            await asyncio.sleep(0.5)


async def test_each_reply_of_a_long_exchange_has_its_time(few: str) -> None:
    async with running(few, timedelta(seconds=1)) as runner:  # as long as three of them, and two more
        assert await runner.run(send(*[("BLPOP", "nothing", 0.3)] * 4)) == [None] * 4


def test_nobody_reads_the_replies_to_a_call_that_a_signal_handler_ended(few: str) -> None:
    """It may raise in any line. The replies come late: redis-py finds them when it takes a connection."""
    left = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code is not exchange.__code__:
            return None
        left -= event == "line"
        if left < 0:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    for at in range(100):
        runner, left, before = sync_runner(few), at, sys.gettrace()
        assert runner.run(attempt(("ECHO", "warm"))) == [b"warm"]
        sys.settrace(trace)
        with suppress(KeyboardInterrupt):
            runner.run(attempt(("BLPOP", "nothing", 0.05), ("ECHO", "late")))
        sys.settrace(before)
        if left >= 0:
            break
        assert runner.run(attempt(("ECHO", "next"))) == [b"next"], at
        runner.close()
    assert 10 < at < 99


@pytest.mark.both_faces
def test_what_must_not_happen_twice_is_unknown_where_a_connection_ends(
    few: str, raw: redis.Redis, prefix: str, face: str
) -> None:
    """An idle connection that the server has closed is found before anything is sent."""
    url, waiting = f"{few}&client_name={prefix}", ("BLPOP", f"{prefix}:q", 0)

    async def talk() -> None:
        async with running(url) as runner:
            await echo(runner, b"x")
            kill(raw, prefix)
            await asyncio.sleep(0.05)
            assert await runner.run(once(("ECHO", "once"))) == [b"once"]
            calls = [asyncio.create_task(runner.run(once(waiting))) for _ in range(2)]
            await asyncio.sleep(0.1)
            kill(raw, prefix)
            for found in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(found, OutcomeUnknownError)

    if face == "async":
        return asyncio.run(talk())
    runner = sync_runner(url)
    assert runner.run(attempt(("ECHO", "x"))) == [b"x"]
    kill(raw, prefix)
    assert runner.run(once(("ECHO", "once"))) == [b"once"]
    killing = threading.Timer(0.1, kill, (raw, prefix))
    killing.start()
    with pytest.raises(OutcomeUnknownError):
        runner.run(once(waiting))
    killing.join()
    return runner.close()


@pytest.mark.both_faces
def test_a_reply_that_a_master_is_missing_counts_as_a_lost_connection(few: str, prefix: str, face: str) -> None:
    down = "return redis.call('INCR', KEYS[1]) == 1 and redis.error_reply('CLUSTERDOWN The cluster is down') or 'up'"
    called = ("EVAL", down, 1, f"{prefix}:called")

    async def talk() -> None:
        async with running(few) as runner:
            assert await runner.run(attempt(called, ("ECHO", "x"))) == [b"up", b"x"]

    if face == "async":
        return asyncio.run(talk())
    runner = sync_runner(few)
    assert runner.run(attempt(called, ("ECHO", "x"))) == [b"up", b"x"]
    return runner.close()


def once(command: Command) -> Any:
    return (yield Send((command,), at_most_once=True))


def kill(raw: redis.Redis, name: str) -> None:
    for client in cast("list[dict[str, Any]]", raw.client_list()):
        if client["name"] == name:
            with suppress(redis.ResponseError):  # it has gone by itself
                raw.client_kill_filter(_id=client["id"])


@pytest.mark.both_faces
def test_a_server_that_is_restarted_loses_no_call(face: str) -> None:
    with EmbeddedRedis() as server:
        place = Path(server.path or "")
        runner = sync_runner(server.url)
        runner.link.revive = server.start

        async def talk() -> None:
            async with running(server.url) as other:
                other.link.revive = server.start
                await echo(other, b"x")
                kill_server(place)
                found = await asyncio.gather(*(echo(other, number(place)) for place in range(20)))
                assert found == [[number(place)] for place in range(20)]

        if face == "async":
            return asyncio.run(talk())
        runner.run(attempt(("ECHO", "x")))
        kill_server(place)
        assert runner.run(attempt(("ECHO", "y"))) == [b"y"]
        runner.close()
        return None


async def test_a_connection_that_ends_while_it_logs_in_is_opened_again(
    few: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(few) as runner:
        pool = (await runner.client()).connection_pool
        get, failures = pool.get_connection, [RuntimeError("unable to perform operation; the handler is closed")]

        async def fail() -> Any:
            if failures:
                raise failures.pop()  # as uvloop says it
            return await get()

        monkeypatch.setattr(pool, "get_connection", fail)
        calls = [echo(runner, number(place)) for place in range(5)]
        assert await asyncio.gather(*calls) == [[number(place)] for place in range(5)]
