"""A Redis user with the rights that `plans/acl.py` names can do everything here, and nothing else."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import langchain_workingmem
from langchain_workingmem import Memory, RedisReplyError
from langchain_workingmem._engine.effects import Command
from langchain_workingmem._engine.replies import reply_of
from langchain_workingmem._redis.acl import rules, set_user
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.options import Scope
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.operations import OPERATIONS, Caller, options, use

Make = Callable[..., Memory]
MakeStore = Callable[..., RedisMemoryStore]
Grant = Callable[..., str]

INDEX = {"dims": 64, "embed": WordEmbeddings(), "fields": ["text", "tags[*]"]}
LUA = Path(langchain_workingmem.__file__).parent
SETTING = {"config|get"}  # search-on-oom, which a memory reads if it may
HIDDEN = {"info"} | SETTING  # what the doctor would like to know, and can do without


@pytest.fixture
def grant(raw: Any, server: EmbeddedRedis, prefix: str) -> Iterator[Grant]:
    """Make a user of our own with these rules, and return the URL by which it logs in."""
    made: list[str] = []

    def make(**which: bool) -> str:
        name = f"{prefix}-{len(made)}"
        made.append(name)
        raw.execute_command("ACL", "SETUSER", name, "reset", "on", ">hunter2", *rules(Keys(prefix), **which))
        return f"{server.url}?username={name}&password=hunter2"

    yield make
    raw.execute_command("ACL", "DELUSER", *made)


def denied(raw: Any, prefix: str) -> set[str]:
    """What the server refused to our users, commands and keys."""
    return {entry["object"] for entry in raw.acl_log() if entry["username"].startswith(prefix)}


def rebuild(make_memory: Make, *url: str) -> None:
    """Drop the vector index and make it anew, for a model of another size."""
    made = {**options(), "embeddings": WordEmbeddings(32, "other")}
    assert make_memory(*url, **made).recall.reindex(progress=False)


@pytest.mark.parametrize("scope", ["user", "thread"])
def test_a_user_with_these_rights_can_do_everything(
    grant: Grant, make_memory: Make, runner: asyncio.Runner | None, scope: Scope, raw: Any, prefix: str
) -> None:
    caller = Caller(memory=make_memory(grant(), **options(scope)), runner=runner)
    for name, operation in OPERATIONS.items():
        try:
            operation.call(caller)
        except RedisReplyError as error:
            raise AssertionError(name) from error
    rebuild(make_memory, grant())
    assert denied(raw, prefix) == HIDDEN


def test_a_user_with_these_rights_can_do_everything_with_a_store(
    grant: Grant, make_store: MakeStore, raw: Any, prefix: str
) -> None:
    use(make_store(redis_url=grant(), index=INDEX))
    use(make_store(redis_url=grant(create_index=False), index=INDEX, create_index=False))
    assert denied(raw, prefix) == SETTING


def test_a_user_who_only_attaches_can_do_everything_but_make_indexes_and_delete_users(
    grant: Grant, make_memory: Make, runner: asyncio.Runner | None, raw: Any, prefix: str
) -> None:
    make_memory(**options()).setup()
    caller = Caller(memory=make_memory(grant(create_index=False), create_index=False, **options()), runner=runner)
    for name, operation in OPERATIONS.items():
        if name not in {"users.delete", "users.merge"}:
            operation.call(caller)
    assert denied(raw, prefix) == HIDDEN
    with pytest.raises(RedisReplyError, match=r"permissions.*workingmem doctor --acl"):
        OPERATIONS["users.delete"].call(caller)
    with pytest.raises(RedisReplyError, match=r"permissions.*workingmem doctor --acl"):
        make_memory(grant(create_index=False), **options()).setup()


def refused(user: Any, *command: Any) -> str | None:
    """Send a command, and return the code of its refusal."""
    try:
        user.execute_command(*command)
    except redis.ResponseError as error:
        return reply_of(error).code
    return None


@pytest.mark.parametrize("create_index", [True, False])
def test_it_can_do_nothing_else(grant: Grant, raw: Any, prefix: str, create_index: bool) -> None:
    others = [f"{prefix}x:thread:{{t}}", f"{prefix}:x:thread:{{t}}", f"x{prefix}:thread:{{t}}", f"{prefix}:thread:x"]
    for key in others:
        raw.hset(key, "user", "secret")
    raw.execute_command("FT.CREATE", f"{prefix}x:threads", "PREFIX", 1, f"{prefix}x:", "SCHEMA", "user", "TAG")
    attempts: list[Command] = [
        *(("FLUSHALL",), ("FLUSHDB",), ("KEYS", "*"), ("CONFIG", "GET", "*"), ("INFO",), ("MONITOR",)),
        *(("CONFIG", "SET", "dir", "/"), ("SHUTDOWN",), ("CLIENT", "LIST"), ("ACL", "LIST")),
        *(("SCRIPT", "FLUSH"), ("FUNCTION", "LIST"), ("SUBSCRIBE", "x"), ("REPLICAOF", "NO", "ONE"), ("DUMP", "x")),
        *(("MODULE", "LIST"), ("RANDOMKEY",), ("DBSIZE",), ("MULTI",), ("SELECT", 1), ("FT._LIST",)),
        *(("FT.SEARCH", f"{prefix}x:threads", "*"), ("FT.INFO", f"{prefix}x:threads")),
        ("FT.PROFILE", f"{prefix}x:threads", "SEARCH", "QUERY", "*"),
        ("FT.DROPINDEX", f"{prefix}x:threads"),
        *(("HGETALL", key) for key in others),
        *(("EVAL", "return redis.call('HGETALL', KEYS[1])", 1, key) for key in others),
        *(("EVAL", f"return redis.call('HGETALL', '{key}')", 0) for key in others),
        *(("EVAL", f"return redis.call('{name}')", 0) for name in ("FLUSHALL", "RANDOMKEY", "DBSIZE", "INFO")),
        ("EVALSHA", raw.script_load("return redis.call('KEYS', '*')"), 0),
    ]
    if not create_index:
        attempts += [
            ("SCAN", 0),
            ("FT.CREATE", f"{prefix}x:i", "SCHEMA", "a", "TAG"),
            ("FT.CREATE", f"{prefix}:vectors", "PREFIX", 1, f"{prefix}x:", "SCHEMA", "user", "TAG"),
            ("FT.DROPINDEX", f"{prefix}:threads"),
            ("SET", f"{prefix}:vectors:settings", "{}"),
        ]
    with redis.Redis.from_url(grant(create_index=create_index), protocol=2) as user:
        assert user.hset(f"{prefix}:thread:{{t}}", "user", "mine") == 1
        for command in attempts:
            assert refused(user, *command) == "NOPERM", command
    raw.execute_command("FT.DROPINDEX", f"{prefix}x:threads")


def test_the_rights_are_what_is_used_and_no_more(
    make_memory: Make,
    make_store: MakeStore,
    runner: asyncio.Runner | None,
    commands: list[Command],
    prefix: str,
) -> None:
    caller = Caller(memory=make_memory(**options()), runner=runner)
    for operation in OPERATIONS.values():
        operation.call(caller)
    rebuild(make_memory)
    use(make_store(index=INDEX))
    in_scripts = {
        name
        for path in LUA.rglob("*.lua")
        for name in re.findall(r"(?:call|with_arguments)\('(\w+)'", path.read_text())
    }
    used = {*in_scripts, *(str(command[0]) for command in commands), "EVAL"}
    granted = {rule[1:].upper() for rule in rules(Keys(prefix)) if rule[0] == "+"}
    from_redis_py = {"PING", "CLIENT|SETINFO"}
    assert granted - from_redis_py == used - {"HELLO", "INFO", "CONFIG"}


def test_the_command_is_refused_until_a_password_stands_in_it(raw: Any, prefix: str) -> None:
    command = set_user(prefix, Keys(prefix))
    with pytest.raises(redis.ResponseError):
        raw.execute_command(*command.split())
    raw.execute_command(*command.replace("SHA256-OF-THE-PASSWORD", "0" * 64).split())
    assert raw.acl_deluser(prefix) == 1
