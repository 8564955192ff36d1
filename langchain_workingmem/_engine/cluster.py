"""Searches in a cluster: never an answer that lacks a master.

The node that receives a search, its coordinator, asks the masters that it knows, and leaves out silently those that are
down. So with each search the coordinator is asked, before and after, which slots it searches, and then every master for a
PING. The commands go to the nodes themselves: redis-py's pipeline of a cluster repeats failed commands on another node, whose
view was not asked for.
"""

from __future__ import annotations

import random
from contextlib import suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar

from redis import exceptions as redis_errors
from redis.asyncio.cluster import PipelineCommand
from redis.exceptions import ConnectionError as ConnectionLost

from langchain_workingmem._engine.replies import ERRORS, RAW, checked, refused
from langchain_workingmem.errors import RedisConnectionError, code_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
    from redis.cluster import RedisCluster

    from langchain_workingmem._engine.plan import Command

T = TypeVar("T")
SLOTS = 16_384
_VIEW = "SEARCH.CLUSTERINFO"
_CANNOT_SAY = (_VIEW.lower(), "unknown command")  # in the refusal of a server that has no such command
_FAILED = (redis_errors.ConnectionError, redis_errors.TimeoutError)


def has_search(commands: Sequence[Command]) -> bool:
    """Return whether one of the commands is for Search."""
    return any(_is_search(command) for command in commands)


def _is_search(command: Command) -> bool:
    return str(command[0]).startswith("FT.")


def search(
    client: RedisCluster,
    commands: Sequence[Command],
    call: Callable[[Sequence[Command]], list[Any]],
    *,
    again: bool,
) -> list[Any]:
    """Sync twin of `asearch`."""
    return at_once(asearch(client, commands, call, again=again))


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine of this module, in which nothing waits for an event loop where the client is a sync one."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError  # it has waited


async def asearch(
    client: RedisCluster | AsyncRedisCluster,
    commands: Sequence[Command],
    call: Callable[[Sequence[Command]], list[Any] | Awaitable[list[Any]]],
    *,
    again: bool,
) -> list[Any]:
    """Send commands, with `call` those that are not for Search: one round trip, one for those, and a PING to each master.

    After a lost connection the nodes are looked for again: a replica may have taken over. With `again` the commands are sent
    again then, once.
    """
    try:
        return await _search(client, commands, call)
    except _FAILED as error:
        if isinstance(error, redis_errors.MaxConnectionsError):  # the nodes are well
            raise
        with suppress(redis_errors.RedisError, redis_errors.RedisClusterException):
            await _done(client.nodes_manager.initialize())
        if not again or isinstance(error, redis_errors.TimeoutError):
            raise
    return await _search(client, commands, call)


async def _done(found: Any) -> Any:
    """Return what a call of a sync client returned, or wait for that of an async one."""
    return await found if isawaitable(found) else found


async def _search(client: Any, commands: Sequence[Command], call: Callable[[Sequence[Command]], Any]) -> list[Any]:
    is_sync = hasattr(client, "get_redis_connection")
    nodes: list[Any] = (client if is_sync else await client.initialize()).get_primaries()
    if not nodes:
        raise ConnectionLost("no node of the cluster is known")

    async def ask(node: Any, *line: Command) -> list[Any]:
        if is_sync:
            pipe = client.get_redis_connection(node).pipeline(transaction=False)
            for command in line:
                pipe.execute_command(*command, **RAW)
            return pipe.execute(raise_on_error=False)  # type: ignore[no-any-return]
        todo = [PipelineCommand(at, *command, **RAW) for at, command in enumerate(line)]
        await node.execute_pipeline(todo)
        for one in todo:
            if isinstance(one.result, Exception) and not isinstance(one.result, redis_errors.ResponseError):
                raise one.result
        return [one.result for one in todo]

    asked = random.choice(nodes)  # noqa: S311 - no secret; as redis-py does it
    found = await ask(asked, (_VIEW,), *filter(_is_search, commands), (_VIEW,))
    others = [command for command in commands if not _is_search(command)]
    replies = await _done(call(others)) if others else []
    for node in nodes:
        await ask(node, ("PING",))  # any answer will do
    return _merged(commands, found, replies)


async def masters(client: Any) -> tuple[str, ...]:
    """Return the name of every master that a cluster has now, host:port; one "" for another client."""
    if not hasattr(client, "get_primaries"):
        return ("",)
    try:
        await _done(client.nodes_manager.initialize())  # replicas may have taken over, and nodes have joined
    except (*ERRORS, AttributeError) as error:
        raise refused(lost(error)) from None
    return tuple(node.name for node in client.get_primaries())


def node_of(client: Any, name: str) -> Any:
    """Return what sends commands to one node of a cluster, by its name in `masters`."""
    if not name:
        return client
    node = client.get_node(node_name=name)
    if node is None:
        raise RedisConnectionError(f"{name} has left the cluster meanwhile", remedy="call again")
    return client.get_redis_connection(node) if hasattr(client, "get_redis_connection") else node


def lost(error: Exception) -> Exception:
    """Return an error of redis-py, also for two others that say that a connection is lost; raise what is none."""
    if isinstance(error, ERRORS):
        return error
    if isinstance(error, RuntimeError) and "handler is closed" in str(error):  # of uvloop, in a handshake
        return ConnectionLost("Connection closed by server.")
    if isinstance(error, AttributeError) and error.obj is None:  # the missing stream of a closed connection
        return ConnectionLost("another task closed the connection to a node of the cluster, which had failed")
    raise error


def _merged(commands: Sequence[Command], found: list[Any], replies: list[Any]) -> list[Any]:
    """Return one reply per command; raise if the search lacked a master."""
    before, *searched, after = found
    for view in (before, after):
        if not isinstance(view, redis_errors.ResponseError):
            slots = _slots(view)
            is_idle = view is before and not slots  # Search 8.0 looks for the masters at its first search
            if slots < SLOTS and not is_idle:
                raise ConnectionLost(
                    f"a search would lack data: it reaches {slots:,} of {SLOTS:,} slots of the cluster"
                )
        elif isinstance(view, redis_errors.ClusterDownError):
            raise view
        elif not all(part in str(view).lower() for part in _CANNOT_SAY):
            searched = [view] * len(searched)  # without the right to ask, no answer is known to be whole
    for reply in searched:
        if isinstance(reply, redis_errors.ResponseError) and code_of(str(reply)) == "NOSHARD":
            raise ConnectionLost(str(reply))
    from_search, from_others = iter(checked(searched)), iter(replies)
    return [next(from_search if _is_search(command) else from_others) for command in commands]


def _slots(view: Any) -> int:
    """Return how many slots a coordinator searches. Search 8.0 says it by slots, later ones by shards."""
    if isinstance(view, dict):  # RESP3
        rows = [(row[b"start"], row[b"end"]) for row in view.get(b"slots") or ()]
        shards = view.get(b"shards") or ()
    else:
        rows = [row[:2] for row in view[view.index(b"slots") + 1 :] if row] if b"slots" in view else []
        lists = view[view.index(b"shards") + 1] or () if b"shards" in view else ()
        shards = [dict(zip(one[::2], one[1::2], strict=True)) for one in lists]
    for shard in shards:
        rows += zip(shard[b"slots"][::2], shard[b"slots"][1::2], strict=True)
    return sum(int(last) - int(first) + 1 for first, last in rows)
