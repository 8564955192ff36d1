"""Errors of redis-py and of engines: what of their text is passed on, and which code stands for every wording."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import redis
import redis.asyncio.sentinel
import redis.exceptions
import redis.sentinel

from langchain_workingmem import RedisConnectionError
from langchain_workingmem._engine.clients import failure, refusal
from langchain_workingmem.embedded import EmbeddedRedis

LOGIN = "username=ann,password=hunter2"
CONNECTION = f"<redis.connection.Connection(db=0,{LOGIN},socket_timeout=0.2,host=10.0.0.7,port=26379)>"
SENTINELS = {
    "before 7.4": f"<redis.client.Redis(<redis.connection.ConnectionPool({CONNECTION})>)>",
    "a class of somebody else": f"<their.Client(<their.Pool({LOGIN})>)>",
    "a password with brackets": "<redis.client.Redis(<redis.connection.ConnectionPool(password=hun>)>ter2,host=h)>)>",
}
KINDS = [redis.sentinel.MasterNotFoundError, redis.asyncio.sentinel.MasterNotFoundError]


def raised(error: Exception, *, unsure: bool = False) -> RedisConnectionError:
    try:
        raise error
    except redis.exceptions.RedisError as seen:
        with pytest.raises(RedisConnectionError) as caught:
            raise failure(seen, own=True, unsure=unsure)  # noqa: B904 - it has its cause
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unsure", [False, True])
@pytest.mark.parametrize("shown", SENTINELS.values(), ids=SENTINELS)
def test_no_arguments_of_a_connection_are_passed_on(kind: type[Exception], shown: str, unsure: bool) -> None:
    one, other = f"{shown} - network:ConnectionError", f"{shown} - network:TimeoutError"
    error = raised(kind(f"No master found for 'orders' : {one}, {other}"), unsure=unsure)
    assert "(No master found for 'orders')" in str(error)
    for text in (str(error), "".join(traceback.format_exception(error))):
        for secret in ("hunter2", "hun>", "ter2", "10.0.0.7", "ConnectionPool", "username"):
            assert secret not in text


def test_an_error_without_arguments_is_passed_on_with_its_cause() -> None:
    said = redis.exceptions.ConnectionError("Error 111 connecting to 127.0.0.1:1. Connection refused.")
    error = raised(said)
    assert "Error 111 connecting to 127.0.0.1:1. Connection refused." in str(error)
    assert error.__cause__ is said


def test_a_server_that_does_not_know_how_one_logs_in_shows_no_login() -> None:
    reply = "unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'ann' 'hunter2' "
    text = str(refusal(redis.exceptions.ResponseError(reply)))
    assert "hunter2" not in text
    assert "ann" not in text


# Recorded, or read in the sources of RediSearch, branches 2.10 to 8.10
SAID = {
    "wm:threads: no such index": "SEARCH_INDEX_NOT_FOUND",  # 2.10.5
    "No such index wm:threads": "SEARCH_INDEX_NOT_FOUND",  # 2.10.12 to 8.6
    "Unknown index name": "SEARCH_INDEX_NOT_FOUND",  # FT.INFO up to 8.6
    "Index not found: wm:threads": "SEARCH_INDEX_NOT_FOUND",  # the coordinator of 8.4 and 8.6
    "SEARCH_INDEX_NOT_FOUND Index not found: wm:threads": "SEARCH_INDEX_NOT_FOUND",  # 8.8 and later
    "SEARCH_INDEX_DROPPED_BG The index was dropped before the query could be executed": "SEARCH_INDEX_DROPPED_BG",
    "Index already exists": "SEARCH_INDEX_EXISTS",
    "Error parsing vector similarity query: query vector blob size (4) does not match index's expected size (8).": (
        "SEARCH_VECTOR_BLOB_SIZE_MISMATCH"
    ),
    "SEARCH_QUERY_BAD Error parsing vector similarity query: query vector blob size (4) does not match index's expected "
    "size (8).": "SEARCH_VECTOR_BLOB_SIZE_MISMATCH",
    "SEARCH_QUERY_BAD Could not validate the query nodes (bad attribute?)": "SEARCH_QUERY_BAD",
    "ERR ACL failure in script: User u has no permissions to run the 'get' command": "NOPERM",
    "unknown command 'FT.SEARCH', with args beginning with: ": "NOSEARCH",
    "unknown command 'JSON.SET', with args beginning with: ": "unknown",
    "OOM command not allowed when used memory > 'maxmemory'.": "OOM",
}


@pytest.mark.parametrize("reply", SAID)
def test_one_code_stands_for_every_wording(reply: str) -> None:
    assert refusal(redis.ResponseError(reply)).code == SAID[reply]


def refused(client: Any, *command: Any) -> str:
    with pytest.raises(redis.ResponseError) as caught:
        client.execute_command(*command)
    return refusal(caught.value).code


def test_the_codes_of_a_missing_index_and_of_one_that_exists(raw: Any, prefix: str) -> None:
    index, vector = f"{prefix}:i", ("VECTOR", "FLAT", 6, "TYPE", "FLOAT32", "DIM", 2, "DISTANCE_METRIC", "COSINE")
    create = ("FT.CREATE", index, "PREFIX", 1, f"{prefix}:d", "SCHEMA", "v", *vector)
    for command in (
        ("FT.SEARCH", index, "*"),
        ("FT.AGGREGATE", index, "*"),
        ("FT.INFO", index),
        ("FT.DROPINDEX", index),
    ):
        assert refused(raw, *command) == "SEARCH_INDEX_NOT_FOUND"
    raw.execute_command(*create)
    assert refused(raw, *create) == "SEARCH_INDEX_EXISTS"
    raw.hset(f"{prefix}:d", "v", b"\0" * 8)
    nearest = ("FT.SEARCH", index, "*=>[KNN 1 @v $v]", "PARAMS", 2, "v", b"\0" * 4, "DIALECT", 2)
    assert refused(raw, *nearest) == "SEARCH_VECTOR_BLOB_SIZE_MISMATCH"


def test_the_codes_of_a_lacking_right(raw: Any, server: EmbeddedRedis, prefix: str) -> None:
    raw.execute_command("FT.CREATE", f"{prefix}:i", "PREFIX", 1, f"{prefix}:", "SCHEMA", "a", "TAG")
    rights = ("on", ">hunter2", "~other:*", "+@all", "-flushall")
    raw.execute_command("ACL", "SETUSER", prefix, "reset", *rights)
    try:
        with redis.Redis.from_url(f"{server.url}?username={prefix}&password=hunter2") as user:
            for command in (
                ("FLUSHALL",),
                ("GET", f"{prefix}:k"),
                ("EVAL", "return redis.call('FLUSHALL')", 0),
                ("EVAL", f"return redis.call('GET', '{prefix}:k')", 0),
            ):
                assert refused(user, *command) == "NOPERM"
    finally:
        raw.acl_deluser(prefix)
