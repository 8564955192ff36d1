"""One round trip over a connection of a pool that we have made, by the public methods of redis-py's connections.

Borrowed clients, and clusters, use redis-py's pipelines. TODO numbers
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError, ResponseError

from langchain_workingmem._engine.replies import RAW, checked, raw_options, reply_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.plan import Command


def take(client: Any) -> Any:
    """Take a connection from the pool of a client; nothing has been sent where this fails.

    Where a signal handler raises during a handshake, redis-py gives the connection back half made: without its login, or with
    replies that whoever took it next would read.
    """
    pool = client.connection_pool
    try:
        return pool.get_connection()
    except RedisError:  # then redis-py has closed it
        raise
    except BaseException:
        pool.disconnect(inuse_connections=False)
        raise


def exchange(client: Any, connection: Any, commands: Sequence[Command]) -> list[Any]:
    """Send commands in one write, give the connection back, and return all replies, refusals among them.

    A connection whose replies are not read to the end is closed, also where a signal handler raises between two of them:
    whoever took it next would read them.
    """
    replies: list[Any] = []
    try:
        connection.send_packed_command(connection.pack_commands(commands))
        for command in commands:
            try:
                reply = connection.read_response(disable_decoding=True)
            except ResponseError as error:
                reply = reply_of(error)
            else:
                reply = _formed(client, command, reply)
            replies.append(reply)
    except BaseException:
        connection.disconnect()
        client.connection_pool.release(connection)  # not in a `finally`: one that could not be closed is not given back
        raise
    client.connection_pool.release(connection)
    return replies


async def aexchange(client: Any, connection: Any, commands: Sequence[Command]) -> list[Any]:
    """Async twin of `exchange`."""
    replies: list[Any] = []
    try:
        await connection.send_packed_command(connection.pack_commands(commands))
        for command in commands:
            try:
                reply = await connection.read_response(disable_decoding=True)
            except ResponseError as error:
                reply = reply_of(error)
            else:
                reply = _formed(client, command, reply)
            replies.append(reply)
    except BaseException:
        await connection.disconnect(nowait=True)
        await client.connection_pool.release(connection)
        raise
    await client.connection_pool.release(connection)
    return replies


def _formed(client: Any, command: Command, reply: Any) -> Any:
    """Give a reply the form of redis-py: INFO as a dict, and so on."""
    form = dict.get(client.response_callbacks, command[0])  # its own look-up is slow, because it ignores case
    return reply if form is None else form(reply)


def pipelined(client: Any, commands: Sequence[Command]) -> list[Any]:
    """Send commands over a client of the caller, and return all replies, refusals among them."""
    if len(commands) == 1:
        return [client.execute_command(*commands[0], **raw_options(client, commands[0]))]
    pipe = client.pipeline(transaction=False)  # `execute` returns the connection: no `with` is needed
    for command in commands:
        pipe.execute_command(*command, **RAW)
    return checked(pipe.execute(raise_on_error=False))


async def apipelined(client: Any, commands: Sequence[Command]) -> list[Any]:
    """Async twin of `pipelined`."""
    if len(commands) == 1:
        return [await client.execute_command(*commands[0], **raw_options(client, commands[0]))]
    pipe = client.pipeline(transaction=False)
    for command in commands:
        pipe.execute_command(*command, **RAW)
    return checked(await pipe.execute(raise_on_error=False))
