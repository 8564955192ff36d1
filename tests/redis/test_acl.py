"""The Redis users of docs/security.md can do everything here, and reach no keys of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from langchain_workingmem._engine.clients import refusal
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import RedisReplyError
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.operations import OPERATIONS, Caller, options, use
from tests.helpers.rights import RULES, rules
from tests.helpers.types import Make

MakeStore = Callable[..., RedisMemoryStore]
Grant = Callable[[str], str]

INDEX = {"dims": 64, "embed": WordEmbeddings(), "fields": ["text", "tags[*]"]}
UNREAD = {"config|get", "info"}  # what memory would like to know, and can do without


@pytest.fixture
def grant(raw: Any, server: EmbeddedRedis, prefix: str) -> Iterator[Grant]:
    """Make a user with the rules of the page for our prefix, and return the URL by which it logs in."""
    made: list[str] = []

    def make(name: str) -> str:
        user = f"{prefix}-{len(made)}"
        made.append(user)
        raw.execute_command("ACL", "SETUSER", user, "reset", "on", ">hunter2", *rules(prefix, name))
        return f"{server.url}?username={user}&password=hunter2"

    yield make
    raw.execute_command("ACL", "DELUSER", *made)


def denied(raw: Any, prefix: str) -> set[str]:
    """What the server refused to our users, commands and keys."""
    return {entry["object"] for entry in raw.acl_log() if entry["username"].startswith(prefix)}


def test_the_user_of_a_deployment_can_do_everything(
    grant: Grant, make_memory: Make, make_store: MakeStore, runner: asyncio.Runner | None, raw: Any, prefix: str
) -> None:
    caller = Caller(memory=make_memory(grant("workingmem-admin"), **options()), runner=runner)
    for name, operation in OPERATIONS.items():
        try:
            operation.call(caller)
        except RedisReplyError as error:
            raise AssertionError(name) from error
    use(make_store(redis_url=grant("workingmem-admin"), index=INDEX))
    assert denied(raw, prefix) <= UNREAD


def test_the_user_of_an_application_can_do_everything_but_make_indexes(
    grant: Grant, make_memory: Make, runner: asyncio.Runner | None, raw: Any, prefix: str
) -> None:
    make_memory(**options()).setup()
    caller = Caller(memory=make_memory(grant("workingmem"), create_index=False, **options()), runner=runner)
    for operation in OPERATIONS.values():
        operation.call(caller)
    assert denied(raw, prefix) <= UNREAD
    with pytest.raises(RedisReplyError, match=r"permissions"):
        make_memory(grant("workingmem"), **options()).recall.reindex(progress=False)


@pytest.mark.parametrize("name", RULES)
def test_it_reaches_no_keys_of_others_and_no_settings(grant: Grant, raw: Any, prefix: str, name: str) -> None:
    raw.hset(other := f"{prefix}x:thread:{{t}}", "user", "secret")
    attempts: list[tuple[Any, ...]] = [
        *(("FLUSHALL",), ("KEYS", "*"), ("CONFIG", "GET", "*"), ("MONITOR",), ("SHUTDOWN",), ("ACL", "LIST")),
        *(("HGETALL", other), ("EVAL", "return redis.call('HGETALL', KEYS[1])", 1, other)),
        ("EVAL", f"return redis.call('HGETALL', '{other}')", 0),
    ]
    with redis.Redis.from_url(grant(name), protocol=2) as user:
        assert user.hset(f"{prefix}:thread:{{t}}", "user", "mine") == 1
        for command in attempts:
            with pytest.raises(redis.ResponseError) as refused:
                user.execute_command(*command)
            assert refusal(refused.value).code == "NOPERM", command
