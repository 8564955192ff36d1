"""Connections of our own: what tasks share, what a cancelled, late or broken call costs the others, and who falls back."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, cast

import pytest
import redis
from redis.exceptions import ConnectionError as ConnectionLost

from langchain_workingmem import OutcomeUnknownError
from langchain_workingmem._engine import clients
from langchain_workingmem._engine.effects import Command, Send, attempt
from langchain_workingmem._engine.runners import AsyncRunner, Runner
from langchain_workingmem._engine.wires import tasks
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embedded import wait_until

PATIENT, SHORT = timedelta(seconds=10), timedelta(milliseconds=300)
NO_EMBEDDER = cast("Any", None)


@pytest.fixture
def one(server: EmbeddedRedis) -> str:
    return f"{server.url}?max_connections=1"


@asynccontextmanager
async def running(url: str, patience: timedelta = PATIENT) -> AsyncIterator[tuple[AsyncRunner, tasks.LanePool]]:
    runner = AsyncRunner(lambda: clients.async_client(url, patience, PATIENT), NO_EMBEDDER)
    try:
        yield runner, (await runner.client()).connection_pool
    finally:
        await runner.aclose(lambda: None)


async def echo(runner: AsyncRunner, *texts: bytes) -> list[Any]:
    return await runner.run(attempt(*(("ECHO", text) for text in texts)))


def number(place: int, size: int = 1) -> bytes:
    return str(place).encode() * size


# ------------------------------------------------------------------ what is shared


async def test_tasks_share_one_connection_and_each_gets_its_own_replies(one: str) -> None:
    async with running(one) as (runner, pool):

        async def talk(place: int) -> None:
            for turn in range(20):
                said = number(place, turn * 200), number(turn), number(place)
                assert await echo(runner, *said) == [*said]

        await asyncio.gather(*(talk(place) for place in range(50)))
        assert len(pool.lanes) == 1


async def test_more_connections_are_opened_while_all_are_busy_but_few(server: EmbeddedRedis) -> None:
    async with running(server.url) as (runner, pool):
        for _ in range(5):
            await echo(runner, b"alone")
        assert len(pool.lanes) == 1
        for _ in range(20):
            await asyncio.gather(*(echo(runner, b"x") for _ in range(100)))
        assert 1 < len(pool.lanes) <= 8


@pytest.mark.parametrize("size", [2**15 - 1, 2**16, 2**20])
async def test_large_commands_and_replies_are_whole(one: str, size: int) -> None:
    async with running(one) as (runner, _):
        large = random.Random(size).randbytes(size)
        for found in await asyncio.gather(*(echo(runner, b"1", large, b"3") for _ in range(5))):
            assert found == [b"1", large, b"3"]


# ------------------------------------------------------------------ cancelled calls


async def test_a_cancelled_call_shifts_no_reply_of_the_others(one: str) -> None:
    chance = random.Random(5)
    async with running(one) as (runner, _):
        for _ in range(20):
            calls = [asyncio.create_task(echo(runner, number(place), b"same")) for place in range(30)]
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            cancelled = chance.sample(range(30), 10)
            for place in cancelled:
                calls[place].cancel()
            for place, found in enumerate(await asyncio.gather(*calls, return_exceptions=True)):
                if place not in cancelled:
                    assert found == [number(place), b"same"]
        assert await echo(runner, b"after") == [b"after"]


async def test_all_calls_of_a_lane_are_cancelled_and_the_next_is_served(one: str) -> None:
    async with running(one) as (runner, _):
        calls = [asyncio.create_task(runner.run(attempt(("BLPOP", "nothing", 0)))) for _ in range(5)]
        await asyncio.sleep(0.05)
        for call in calls:
            call.cancel()
        assert all(
            isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*calls, return_exceptions=True)
        )
        assert await asyncio.wait_for(echo(runner, b"next"), 5) == [b"next"]


# ------------------------------------------------------------------ late replies


async def test_nobody_waits_behind_calls_that_hold_up_all_lanes(server: EmbeddedRedis) -> None:
    async with running(server.url) as (runner, pool):
        slow = []
        while len(pool.lanes) < 8:
            slow.append(asyncio.create_task(runner.run(attempt(("BLPOP", "nothing", 20)))))
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.6)
        calls = [echo(runner, number(place)) for place in range(50)]
        assert await asyncio.wait_for(asyncio.gather(*calls), 10) == [[number(place)] for place in range(50)]
        assert not any(call.done() for call in slow)
        for call in slow:
            call.cancel()
        await asyncio.gather(*slow, return_exceptions=True)


# ------------------------------------------------------------------ connections that end


async def test_calls_that_share_a_connection_survive_its_end(one: str, raw: redis.Redis) -> None:
    async with running(f"{one}&client_name=shared") as (runner, _):
        await echo(runner, b"x")
        for _ in range(5):
            calls = [asyncio.create_task(echo(runner, number(place))) for place in range(20)]
            await asyncio.sleep(0)
            kill(raw, "shared")
            assert await asyncio.gather(*calls) == [[number(place)] for place in range(20)]


async def test_what_must_not_happen_twice_is_unknown_where_a_shared_connection_ends(
    one: str, raw: redis.Redis, prefix: str
) -> None:
    async with running(f"{one}&client_name=unsure") as (runner, _):
        waiting = [asyncio.create_task(runner.run(once(("BLPOP", f"{prefix}:q", 0)))) for _ in range(2)]
        await asyncio.sleep(0.1)
        kill(raw, "unsure")
        for found in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(found, OutcomeUnknownError)
        # an idle connection that the server has closed is found before anything is sent
        await echo(runner, b"x")
        kill(raw, "unsure")
        await asyncio.sleep(0.05)
        assert await runner.run(once(("ECHO", "once"))) == [b"once"]


def once(command: Command) -> Any:
    return (yield Send((command,), at_most_once=True))


def kill(raw: redis.Redis, name: str) -> None:
    for client in cast("list[dict[str, Any]]", raw.client_list()):
        if client["name"] == name:
            with suppress(redis.ResponseError):  # it has gone by itself
                raw.client_kill_filter(_id=client["id"])


def test_an_idle_wire_that_the_server_closed_is_found_before_anything_is_sent(
    server: EmbeddedRedis, raw: redis.Redis
) -> None:
    runner = Runner(lambda: clients.sync_client(f"{server.url}?client_name=idle", PATIENT, PATIENT), NO_EMBEDDER)
    assert runner.run(attempt(("ECHO", "x"))) == [b"x"]
    kill(raw, "idle")
    assert runner.run(once(("ECHO", "once"))) == [b"once"]
    runner.close()


@pytest.mark.both_faces
def test_a_server_that_is_restarted_loses_no_call(face: str) -> None:
    with EmbeddedRedis() as server:
        runner = Runner(lambda: clients.sync_client(server.url, PATIENT, PATIENT), NO_EMBEDDER)
        runner.revive = server.start

        async def talk() -> None:
            async with running(server.url) as (other, _):
                other.revive = server.start
                await echo(other, b"x")
                stop(server)
                found = await asyncio.gather(*(echo(other, number(place)) for place in range(20)))
                assert found == [[number(place)] for place in range(20)]

        if face == "async":
            return asyncio.run(talk())
        runner.run(attempt(("ECHO", "x")))
        stop(server)
        assert runner.run(attempt(("ECHO", "y"))) == [b"y"]
        runner.close()
        return None


def stop(server: EmbeddedRedis) -> None:
    with redis.Redis.from_url(server.url) as raw:
        process = cast("dict[str, Any]", raw.info("server"))["process_id"]
        os.kill(process, signal.SIGKILL)
        wait_until(lambda: not answers(raw))


def answers(raw: redis.Redis) -> bool:
    try:
        return bool(raw.ping())
    except redis.RedisError:
        return False


async def test_an_answer_that_cannot_be_read_ends_the_calls_of_its_lane(one: str) -> None:
    async with running(one) as (runner, pool):
        lane = await pool.take()
        calls = [asyncio.create_task(lane.exchange([("BLPOP", "nothing", 0)])) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(redis.InvalidResponse):
            receive(lane, b"?hello\r\n")
        for found in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(found, ConnectionLost)
        assert await echo(runner, b"next") == [b"next"]


def receive(lane: tasks.Lane, sent: bytes) -> None:
    """Play the event loop."""
    lane.get_buffer(-1)[: len(sent)] = sent
    lane.buffer_updated(len(sent))


async def test_a_connection_that_ends_while_it_logs_in_is_opened_again(
    one: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(one) as (runner, pool):
        get, failures = pool.get_connection, [RuntimeError("the handler is closed")]  # as uvloop says it

        async def fail() -> Any:
            if failures:
                raise failures.pop()
            return await get()  # type: ignore[no-untyped-call]

        monkeypatch.setattr(pool, "get_connection", fail)
        calls = [echo(runner, number(place)) for place in range(5)]
        assert await asyncio.gather(*calls) == [[number(place)] for place in range(5)]


# ------------------------------------------------------------------ processes, loops, threads


# ------------------------------------------------------------------ who falls back


@pytest.mark.parametrize("option", ["protocol=3", "health_check_interval=1", "encoding=latin-1"])
async def test_what_only_redis_py_can_do_is_left_to_it(server: EmbeddedRedis, option: str) -> None:
    url = f"{server.url}?{option}"
    async with running(url) as (other, pool):
        assert await echo(other, b"x", b"y") == [b"x", b"y"]
        assert not pool.is_direct
