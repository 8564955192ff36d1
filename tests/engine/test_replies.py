"""Errors of redis-py: what of their text is passed on. The texts are as versions before 7.4 word them."""

from __future__ import annotations

import traceback

import pytest
import redis
import redis.asyncio.sentinel
import redis.exceptions
import redis.sentinel

from langchain_workingmem import Memory, RedisConnectionError
from langchain_workingmem._engine.clients import refused
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
            refused(seen, own=True, unsure=unsure)
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
    text = str(refused(redis.exceptions.ResponseError(reply)))
    assert "hunter2" not in text
    assert "ann" not in text


def test_a_pool_that_is_used_up_says_so(server: EmbeddedRedis) -> None:
    client = redis.Redis.from_url(server.url, max_connections=1)
    taken = client.connection_pool.get_connection()
    with pytest.raises(RedisConnectionError, match="max_connections"):
        Memory(client=client).history.messages("t")
    client.connection_pool.release(taken)
    client.close()
