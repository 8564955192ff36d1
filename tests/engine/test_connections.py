"""Ways to Redis: URLs, borrowed clients, event loops, old servers, and servers that are not there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import redis
import redis.asyncio
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, OptionError, RedisCapabilityError, RedisConnectionError
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embedded import free_port
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.faces import runners_of
from tests.helpers.types import Make

pytestmark = pytest.mark.both_faces

HELLO = HumanMessage("hello", id="1")


def test_the_environment_names_the_server(server: EmbeddedRedis, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", server.url)
    with Memory(key_prefix=prefix) as memory:
        memory.history.append([HELLO], thread_id="t", user_id="u")
        assert memory.history.messages("t") == [HELLO]


@pytest.mark.parametrize("name", ["timeout", "connect_timeout"])
@pytest.mark.parametrize("timeout", [10, timedelta(0)])
def test_a_timeout_that_is_no_time_is_refused(timeout: Any, name: str) -> None:
    options: dict[str, Any] = {name: timeout}
    with pytest.raises(OptionError, match=f"^{name}=.*use a positive timedelta"):
        Memory(**options)


@pytest.mark.parametrize("kind", [Memory, RedisMemoryStore])
@pytest.mark.parametrize("place", ["redis://h", "rediss://h", "unix:///s"])
async def test_a_timeout_in_the_url_wins_and_connecting_takes_less_time_than_a_reply(place: str, kind: Any) -> None:
    second = timedelta(seconds=1)
    for url, options, expected in (
        (place, {}, (10, 2)),
        (place, {"connect_timeout": 5 * second}, (10, 5)),
        (place, {"timeout": second}, (1, 1)),
        (f"{place}?socket_timeout=3&socket_connect_timeout=4", {"connect_timeout": second}, (3, 4)),
        (f"{place}?socket_timeout=3", {"timeout": 7 * second}, (3, 2)),
    ):
        runner, async_runner = runners_of(kind(url, **options))
        for client in (runner.client, await async_runner.client()):
            made = client.connection_pool.make_connection()
            assert (made.socket_timeout, made.socket_connect_timeout, made.retry.get_retries()) == (*expected, 0)


@pytest.mark.usefixtures("impatient")
def test_no_server_and_a_wrong_password_are_connection_errors_that_do_not_show_it(
    start: Callable[..., int], make_memory: Make
) -> None:
    for port, words in ((free_port(), "check that it runs"), (start("--requirepass", "right"), "refused the login")):
        memory = make_memory(f"redis://:hunter2@127.0.0.1:{port}?socket_connect_timeout=0.2&retry_on_timeout=0")
        with pytest.raises(RedisConnectionError, match=words) as caught:
            memory.history.append([HELLO], thread_id="t", user_id="u")
        assert "hunter2" not in f"{caught.value} {memory!r}"
        assert isinstance(caught.value, ConnectionError)


def test_a_server_without_search_or_another_database_is_a_capability_error_with_the_remedy(
    start: Callable[..., int], server: EmbeddedRedis, make_memory: Make
) -> None:
    memory = make_memory(f"redis://127.0.0.1:{start()}")
    with pytest.raises(RedisCapabilityError, match="docker run -p 6379:6379 redis:8"):
        memory.setup()
    with pytest.raises(RedisCapabilityError, match=r"Memory\.embedded\(\)"):
        memory.history.append([HELLO], thread_id="t", user_id="u")
    with pytest.raises(RedisCapabilityError, match=r"database 0 only.*key_prefix"):
        make_memory(f"{server.url}?db=1").setup()


def test_an_index_that_nobody_has_made_costs_no_message(make_memory: Make, embeddings: WordEmbeddings) -> None:
    options: dict[str, Any] = {"embeddings": embeddings}
    guest = make_memory(create_index=False, **options)
    for write, thread in ((guest.history.append, "t"), (guest.save_turn, "other")):
        with pytest.raises(OptionError, match=r"there is no index .* create_index=False, so run setup") as failure:
            write([HELLO], thread_id=thread, user_id="u")
        assert "reindex" in failure.value.__notes__[0]
    assert guest.history.messages("t") == [HELLO]
    make_memory(**options).setup()
    assert guest.recall.reindex(thread_id="t", progress=False) == 1
    assert guest.recall.search("hello", user_id="u").hits[0].message == HELLO


@pytest.mark.parametrize("options", [{"protocol": 3}, {"decode_responses": True, "protocol": 2}])
def test_borrowed_clients_of_any_kind_work_and_stay_open(
    server: EmbeddedRedis, prefix: str, options: dict[str, Any], embeddings: WordEmbeddings
) -> None:
    with redis.Redis.from_url(server.url, **options) as client:
        memory = Memory(client=client, embeddings=embeddings, key_prefix=prefix)
        memory.history.append([HELLO], thread_id="t", user_id="u")
        assert memory.recall.search("hello", user_id="u").hits[0].similarity == pytest.approx(1, abs=1e-3)
        assert memory.threads.list(user_id="u").items[0].message_count == 1
        assert memory.threads.clone("t").thread.message_count == 1
        memory.close()
        assert client.ping()


def test_one_memory_serves_threads_and_tasks_at_once(server: EmbeddedRedis, prefix: str) -> None:
    memory = Memory(server.url, key_prefix=prefix)

    def save(place: int) -> None:
        memory.history.append([HumanMessage(str(place))], thread_id="t", user_id="u")

    async def save_many() -> None:
        turns = ([HumanMessage(f"async {place}")] for place in range(50))
        await asyncio.gather(*(memory.history.aappend(turn, thread_id="t", user_id="u") for turn in turns))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(save, range(100)))
        asyncio.run(save_many())
    with memory:
        assert memory.history.page("t", limit=1).total == 150


def test_more_callers_than_connections_take_turns(server: EmbeddedRedis, prefix: str, raw: redis.Redis) -> None:
    with Memory(server.url, key_prefix=prefix) as memory:

        def save(place: int) -> None:
            memory.history.append([HumanMessage("x", id=str(place))], thread_id="t", user_id="u")

        async def read() -> list[Any]:
            async with Memory(server.url, key_prefix=prefix) as other:
                return [*await asyncio.gather(*(other.history.amessages("t", last=1) for _ in range(300)))]

        with ThreadPoolExecutor(150) as pool:
            list(pool.map(save, range(300)))
        assert len(memory.history.messages("t")) == 300
        assert asyncio.run(read()) == [memory.history.messages("t", last=1)] * 300
        assert len(raw.client_list()) < 200


def test_a_fork_gets_connections_of_its_own(server: EmbeddedRedis, prefix: str) -> None:
    with Memory(server.url, key_prefix=prefix) as memory:
        memory.history.append([HELLO], thread_id="t", user_id="u")
        child = os.fork()
        if not child:
            ok = memory.history.messages("t") == [HELLO]
            os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert memory.history.messages("t") == [HELLO]
