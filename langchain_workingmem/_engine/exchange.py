"""One round trip over a pool of redis-py that we made: all commands in one write, encoded by hiredis.

Pipelines of redis-py, as for borrowed clients and clusters, take 8 % more processor time, 14 % with asyncio.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import hiredis
from redis import exceptions as redis_errors

from langchain_workingmem._engine.clients import ERRORS, failure, lost, refusal

if TYPE_CHECKING:
    from langchain_workingmem._engine.plan import Send

_JOINED = 2**16  # bytes up to which commands are joined for one write: a copy costs less than a call


def exchange(client: Any, effect: Send) -> list[Any]:
    """Send commands in one write; return all replies, refusals as `RedisReplyError`.

    A connection with unread replies is closed, also when a signal handler raises: its next user would read them.
    """
    pool, connection, replies = client.connection_pool, None, list[Any]()
    try:
        connection = pool.get_connection()  # a failure here has sent nothing
        packed = [hiredis.pack_command(command) for command in effect.commands]  # type: ignore[arg-type]  # any length
        connection.send_packed_command([b"".join(packed)] if sum(map(len, packed)) < _JOINED else packed)
        for command in effect.commands:
            try:
                reply = connection.read_response(disable_decoding=True)
                # INFO as a dict and so on; its own look-up ignores case, and is slow
                convert = dict.get(client.response_callbacks, command[0])
                replies.append(reply if convert is None else convert(reply))
            except redis_errors.ResponseError as error:
                replies.append(refusal(error))
    except BaseException as error:
        if connection is not None:
            connection.disconnect()
            pool.release(connection)  # if `disconnect` raises, the pool must not get the connection
        if not isinstance(error, ERRORS):
            if connection is None:  # a signal handler raised in a handshake: the pool keeps the connection, half made
                pool.disconnect(inuse_connections=False)
            raise
        raise failure(error, own=True, unsure=effect.at_most_once and connection is not None)  # noqa: B904
    pool.release(connection)
    return replies


async def aexchange(client: Any, effect: Send) -> list[Any]:
    """Async twin of `exchange`. One timer serves all replies: redis-py's own ones cost 20 of 85 us."""
    pool, connection, replies = client.connection_pool, None, list[Any]()
    clock = asyncio.get_running_loop().time
    try:
        # what may run only once must not meet a connection that the server has closed: the loop learns it in two turns
        for _ in range(2 if effect.at_most_once else 0):
            await asyncio.sleep(0)
        connection = await pool.get_connection()
        seconds, connection.socket_timeout = connection.socket_timeout, None
        try:
            async with asyncio.timeout(seconds) as timer:
                packed = [hiredis.pack_command(command) for command in effect.commands]  # type: ignore[arg-type]
                await connection.send_packed_command([b"".join(packed)] if sum(map(len, packed)) < _JOINED else packed)
                sent = clock()
                for command in effect.commands:
                    if seconds and clock() - sent > seconds / 2:  # each reply has its time
                        sent = clock()
                        timer.reschedule(sent + seconds)
                    try:
                        reply = await connection.read_response(disable_decoding=True)
                        convert = dict.get(client.response_callbacks, command[0])
                        replies.append(reply if convert is None else convert(reply))
                    except redis_errors.ResponseError as error:
                        replies.append(refusal(error))
        finally:
            connection.socket_timeout = seconds
    except BaseException as error:
        if connection is not None:
            await connection.disconnect(nowait=True)
            await pool.release(connection)
        if isinstance(error, TimeoutError):
            error = redis_errors.TimeoutError("Timeout reading from socket")
        if not isinstance(error, Exception):
            raise
        raise failure(lost(error), own=True, unsure=effect.at_most_once and connection is not None)  # noqa: B904
    await pool.release(connection)
    return replies
