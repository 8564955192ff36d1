"""Servers that refuse, forget, load, die and change places under a memory that is in use, and full disks."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from langchain_core.messages import HumanMessage

from langchain_workingmem import RedisConnectionError, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import RedisReplyError
from tests.helpers.embedded import BareServers, connect, full_memory, kill_server, server_pid, wait_until
from tests.helpers.examples import sample
from tests.helpers.fault_bench import FaultBench
from tests.helpers.operations import ALONE
from tests.helpers.types import Make

READS = {"context", "threads.get", "threads.list", "history.messages", "recall.search", "working_memory.revisions"}


@contextmanager
def trouble(raw: Any, bad: tuple[object, ...], good: tuple[object, ...]) -> Iterator[None]:
    raw.execute_command(*bad)
    yield
    raw.execute_command(*good)


@pytest.fixture
def full_disk(private: EmbeddedRedis) -> Iterator[None]:
    """Let a snapshot have failed: where its file should be, there was a directory."""
    with redis.Redis.from_url(private.url) as raw:
        place = Path(raw.config_get("dir")["dir"], "dump.rdb")
        place.mkdir()
        raw.config_set("stop-writes-on-bgsave-error", "no")
        raw.config_set("save", "3600 1000000")
        wait_until(lambda: not raw.info("persistence")["rdb_bgsave_in_progress"])
        raw.bgsave()
        wait_until(lambda: raw.info("persistence")["rdb_last_bgsave_status"] == "err")
        yield
        raw.config_set("save", "")
        place.rmdir()


# the way out of a full memory
FREEING = {"threads.delete", "history.delete", "history.delete (until)"}
SAVES, FEW = ("CONFIG", "SET", "stop-writes-on-bgsave-error"), ("CONFIG", "SET", "min-replicas-to-write")
ALONE_AGAIN = ("REPLICAOF", "NO", "ONE")
REFUSALS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "OOM": (full_memory, "raise maxmemory"),
    "READONLY": (lambda raw: trouble(raw, ("REPLICAOF", "127.0.0.1", 1), ALONE_AGAIN), "connect to its master"),
    "NOREPLICAS": (lambda raw: trouble(raw, (*FEW, 1), (*FEW, 0)), "replicas are connected"),
    "MISCONF": (lambda raw: trouble(raw, (*SAVES, "yes"), (*SAVES, "no")), "its log says why"),
}


@pytest.mark.in_turn("face")
@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("code", REFUSALS)
def test_a_server_that_refuses_writes_is_a_typed_error_with_the_remedy(
    make_bench: Callable[..., FaultBench], code: str
) -> None:
    bench = make_bench()
    cause, remedy = REFUSALS[code]
    answered = set()
    # what an operation does about a refusal does not depend on its code: a full server has a way out, too
    tried = [*ALONE] if code == "OOM" else sample(ALONE, 20)
    for name in tried:
        operation = ALONE[name]
        whole = bench.record(operation)
        outcome = bench.try_out(operation, trouble=cause(bench.raw))
        if outcome.error is None:
            assert outcome == whole
            answered.add(name)
        else:
            assert isinstance(outcome.error, RedisReplyError)
            assert outcome.error.code == code, (name, outcome.error)
            assert remedy in str(outcome.error)
            assert outcome.after == whole.before
    assert answered >= READS & {*tried}
    if code == "OOM":
        assert answered >= FREEING


@pytest.mark.parametrize("name", sample(ALONE, 20))
def test_a_server_that_forgot_scripts_and_indexes_gives_the_right_answer(
    make_bench: Callable[..., FaultBench], name: str
) -> None:
    @contextmanager
    def forgetful() -> Iterator[None]:
        bench.raw.script_flush()
        for index in ("f:threads", "f:vectors"):
            bench.raw.execute_command("FT.DROPINDEX", index)
        yield

    bench = make_bench()
    whole = bench.record(ALONE[name])
    assert bench.try_out(ALONE[name], trouble=forgetful()) == whole


@pytest.mark.in_turn("face")
def test_an_embedded_server_that_died_is_started_again_by_whoever_misses_it(make_memory: Make, tmp_path: Path) -> None:
    memory = make_memory(path=tmp_path / "data", working_memory=WorkingMemoryOptions(template=""))
    memory.history.append([HumanMessage("hello", id="1")], thread_id="t", user_id="u")
    for call, answer in (
        (lambda: memory.history.messages("t"), [HumanMessage("hello", id="1")]),
        (lambda: memory.working_memory.update("tea", user_id="u").revision, 1),
        (lambda: memory.threads.delete("t"), True),
        (lambda: memory.threads.list().total, 0),
    ):
        kill_server(tmp_path / "data")
        assert call() == answer


@pytest.mark.in_turn("face")
def test_a_server_that_is_loading_is_waited_for(start: BareServers, make_memory: Make) -> None:
    port = start("--save", "", "--enable-debug-command", "yes")
    memory = make_memory(f"redis://127.0.0.1:{port}", create_index=False)
    memory.history.append([HumanMessage(str(number)) for number in range(300)], thread_id="t", user_id="u")
    with redis.Redis(port=port) as raw:
        raw.mset({f"ballast{number}": number for number in range(500)})
        raw.save()
    start.kill(port)
    start("--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024", port=port)
    with redis.Redis.from_url(f"redis://127.0.0.1:{port}") as raw, pytest.raises(redis.BusyLoadingError):
        raw.get("ballast1")
    assert memory.threads.create(user_id="u", thread_id="new").id == "new"  # refused while it loads, hence repeated
    assert len(memory.history.messages("t")) == 300


@pytest.fixture
def replicated(start: BareServers, tmp_path: Path) -> tuple[int, int, int]:
    """Start a master, a replica of it, and a sentinel, and return their ports."""
    master = start("--repl-diskless-sync-delay", "0")
    replica = start("--replicaof", "127.0.0.1", str(master))
    with redis.Redis(port=replica) as raw:
        wait_until(lambda: raw.info("replication")["master_link_status"] == "up")
    config = tmp_path / "sentinel.conf"
    times = "down-after-milliseconds mymaster 300", "failover-timeout mymaster 3000"
    lines = [f"monitor mymaster 127.0.0.1 {master} 1", *times]
    config.write_text("".join(f"sentinel {line}\n" for line in lines))
    sentinel = start(str(config), "--sentinel")
    with redis.Redis(port=sentinel) as raw:
        wait_until(lambda: raw.info("sentinel")["master0"]["slaves"] == 1)
    return master, replica, sentinel


@pytest.fixture
def of_sentinel(replicated: tuple[int, int, int], face: str, loop_runner: asyncio.Runner) -> Iterator[dict[str, Any]]:
    watch: Any = redis.sentinel.Sentinel if face == "sync" else redis.asyncio.sentinel.Sentinel
    watcher = watch([("127.0.0.1", replicated[2])])
    client = watcher.master_for("mymaster")
    yield {"client" if face == "sync" else "async_client": client}
    for one in (client, *watcher.sentinels):
        if face == "sync":
            one.close()
        else:
            loop_runner.run(one.aclose())


@pytest.mark.in_turn("face")
def test_a_writer_goes_on_after_a_failover(
    start: BareServers, replicated: tuple[int, int, int], of_sentinel: dict[str, Any], make_memory: Make
) -> None:
    master, replica, _ = replicated
    memory = make_memory(**of_sentinel, create_index=False)
    deadline = time.monotonic() + 30

    def append(message: HumanMessage) -> None:
        while True:
            try:
                memory.history.append([message], thread_id="t", user_id="u")
            except RedisConnectionError:  # it takes longer than memory waits by itself: the same message once more
                assert time.monotonic() < deadline
            else:
                return

    said = [HumanMessage(str(place), id=str(place)) for place in range(60)]
    for message in said[:30]:
        append(message)
    with redis.Redis(port=master) as raw:
        raw.set("written", "last")
        assert raw.wait(1, 5000) == 1  # without this, what was acknowledged last may be lost with the master
    start.kill(master)
    for message in said[30:]:
        append(message)
    assert memory.history.messages("t") == said
    with redis.Redis(port=replica) as raw:
        assert raw.info("replication")["role"] == "master"


ROOM = 60_000  # bytes
WRITERS = 8


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits another process")
def test_a_server_that_is_killed_while_its_disk_is_full_loses_one_write_of_a_client_at_most(data: Path) -> None:
    """A limit on the size of the server's files does to it what a full disk does."""
    acknowledged = [0] * WRITERS
    errors: list[redis.RedisError] = []

    def write(number: int) -> None:
        with connect(server) as client:
            try:
                while True:
                    client.rpush(f"writer {number}", "x" * 90)
                    acknowledged[number] += 1
            except redis.RedisError as error:
                errors.append(error)

    with EmbeddedRedis(data) as server:
        with connect(server) as client:
            client.set("key", "value")
        (file,) = data.glob("appendonlydir/*.incr.aof")
        most = file.stat().st_size + ROOM
        resource.prlimit(server_pid(data), resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(write, range(WRITERS)))
        assert [type(error) for error in errors if not isinstance(error, redis.ResponseError)] == []
        assert len(errors) == WRITERS
        kill_server(data)
        server.start()
        with connect(server) as client:
            missing = [count - client.llen(f"writer {number}") for number, count in enumerate(acknowledged)]
        assert sum(acknowledged) > 100
        assert max(missing) <= 1
