"""One round trip over a connection of redis-py, and its errors as ours: with remedies, and without passwords.

A pipeline of redis-py looks at each argument, and encodes the commands of async connections in Python: it takes 8 % more processor
time of client and server for saving a turn, and 14 % more for an async one (medians of 30 batches). So over the pools that we make, all
commands go in one write, encoded by hiredis. `clients.perform` uses pipelines, for borrowed clients and clusters.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import hiredis
from redis import exceptions as redis_errors

from langchain_workingmem._engine.plan import ANSWER_WHEN_FULL, PAUSES
from langchain_workingmem.errors import OutcomeUnknownError, RedisConnectionError, RedisReplyError, code_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.plan import Command

_JOINED = 2**16  # bytes up to which commands are joined for one write: a copy costs less than a call


def exchange(client: Any, connection: Any, commands: Sequence[Command]) -> list[Any]:
    """Send commands in one write, give the connection back, and return all replies: refusals as `RedisReplyError`.

    A connection whose replies are not read to the end is closed, also where a signal handler raises between two of them:
    whoever took it next would read them.
    """
    replies: list[Any] = []
    try:
        packed = [hiredis.pack_command(command) for command in commands]  # type: ignore[arg-type]  # of any length
        connection.send_packed_command([b"".join(packed)] if sum(map(len, packed)) < _JOINED else packed)
        for command in commands:
            try:
                reply = connection.read_response(disable_decoding=True)
                # INFO as a dict and so on; its own look-up ignores case, and is slow
                form = dict.get(client.response_callbacks, command[0])
                replies.append(reply if form is None else form(reply))
            except redis_errors.ResponseError as error:
                replies.append(refused(error))
    except BaseException:
        connection.disconnect()
        client.connection_pool.release(connection)  # not in a `finally`: one that could not be closed is not given back
        raise
    client.connection_pool.release(connection)
    return replies


async def aexchange(client: Any, connection: Any, commands: Sequence[Command]) -> list[Any]:
    """Async twin of `exchange`. One timer serves all replies: redis-py's own ones cost 20 of 85 us."""
    replies: list[Any] = []
    seconds, connection.socket_timeout = connection.socket_timeout, None
    clock = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(seconds) as timer:
            packed = [hiredis.pack_command(command) for command in commands]  # type: ignore[arg-type]
            await connection.send_packed_command([b"".join(packed)] if sum(map(len, packed)) < _JOINED else packed)
            sent = clock()
            for command in commands:
                if seconds and clock() - sent > seconds / 2:  # each reply has its time
                    sent = clock()
                    timer.reschedule(sent + seconds)
                try:
                    reply = await connection.read_response(disable_decoding=True)
                    form = dict.get(client.response_callbacks, command[0])
                    replies.append(reply if form is None else form(reply))
                except redis_errors.ResponseError as error:
                    replies.append(refused(error))
        connection.socket_timeout = seconds
    except BaseException as error:
        connection.socket_timeout = seconds
        await connection.disconnect(nowait=True)
        await client.connection_pool.release(connection)
        if isinstance(error, TimeoutError):
            raise redis_errors.TimeoutError("Timeout reading from socket") from error
        raise
    await client.connection_pool.release(connection)
    return replies


# ---------------------------------------------------------------------- errors

# redis-py does not derive the second from the first
ERRORS = (redis_errors.RedisError, redis_errors.RedisClusterException)
_LOGIN = (redis_errors.AuthenticationError, redis_errors.AuthorizationError)
# CLUSTERDOWN is a reply, but it says what a lost connection says: a master is missing
_LOST = (
    redis_errors.ConnectionError,
    redis_errors.TimeoutError,
    redis_errors.RedisClusterException,
    redis_errors.ClusterDownError,
)
_CODES = {  # redis-py removes the code from replies that have their own class
    redis_errors.NoScriptError: "NOSCRIPT",
    redis_errors.ReadOnlyError: "READONLY",
    redis_errors.OutOfMemoryError: "OOM",
    redis_errors.NoPermissionError: "NOPERM",
}
_OWN = "check that it runs and that the URL is right"
_BORROWED = "check that it runs and that the client has the right address; in a cluster, CLUSTER NODES says which node is missing"
_REMEDIES = {
    "NOPERM": "docs/security.md names the rights that a Redis user of this package needs",
    "OOM": "raise maxmemory, or delete threads",
    "READONLY": "this is a replica, connect to its master, or pass a client of its Sentinel",
    "NOREPLICAS": "fewer replicas are connected than min-replicas-to-write asks for",
    "SEARCH_VECTOR_BLOB_SIZE_MISMATCH": "the index was built for other vectors: run memory.recall.reindex()",
    "MISCONF": "Redis cannot write to its disk, its log says why",
    "BUSY": "nothing was done: try again when that script has ended (SLOWLOG GET names it), SHUTDOWN NOSAVE would lose data",
}
# These may contain a password: the arguments that redis-py shows of a connection, and those that a server shows of an
# unknown command (HELLO and AUTH carry the password). Their end is ambiguous, so both match to the end.
_ARGUMENTS = re.compile(r"[\s:(]*<[\w.]+[\s(].*", re.DOTALL)
_COMMAND_ARGUMENTS = re.compile(r",? with args beginning with.*", re.DOTALL)
_POOL_EMPTY = "No connection available"  # the message of redis-py's blocking pool


def refused(error: Exception, *, own: bool = False, unsure: bool = False) -> RedisReplyError:
    """Return what Redis refused, as a reply with a remedy; raise every other error.

    An error on a client of our `own` allows repeats; the owner of a borrowed client configures its repeats. `unsure`: the
    command must run only once, and may have run.
    """
    text, cause = _safe_text(error), _safe_cause(error)
    if isinstance(error, _LOGIN):
        remedy = "check the user and password in the URL"
        raise RedisConnectionError(f"Redis refused the login ({text})", remedy=remedy) from cause
    if isinstance(error, _LOST):
        raise _lost(error, text, own=own, unsure=unsure) from cause
    if not isinstance(error, redis_errors.ResponseError):
        seen = f"the Redis client failed ({type(error).__name__}: {text})"
        raise RedisConnectionError(seen, remedy="see the cause in the traceback") from cause
    if known := _CODES.get(type(error)):
        text = f"{known} {text}"
    code = code_of(text)
    is_search = code == "OOM" and not text.startswith(code)  # with search-on-oom fail
    return RedisReplyError(text, remedy=ANSWER_WHEN_FULL if is_search else _REMEDIES.get(code))


def _lost(error: Exception, text: str, *, own: bool, unsure: bool) -> RedisConnectionError:
    if text.startswith(_POOL_EMPTY) or isinstance(error, redis_errors.MaxConnectionsError):
        return RedisConnectionError(
            "every connection to Redis was in use, so nothing was sent",
            remedy="allow more with max_connections=... (in the URL, or of your client), or wait longer with Memory(timeout=...)",
            timed_out=True,
        )
    # one timeout may come from a dead connection; after a second one the caller has waited long enough
    timed_out = any(isinstance(one, redis_errors.TimeoutError) for one in (error, error.__cause__))
    repeats = (1 if timed_out else len(PAUSES)) if own else 0
    if unsure and not isinstance(error, redis_errors.BusyLoadingError | redis_errors.ClusterDownError):
        return OutcomeUnknownError(
            f"Redis did not reply before the connection was lost ({text})",
            remedy="the call may have taken effect, so look before you repeat it",
            repeats=repeats,
            timed_out=timed_out,
        )
    return RedisConnectionError(
        f"Redis cannot be reached ({text})", remedy=_OWN if own else _BORROWED, repeats=repeats, timed_out=timed_out
    )


def _safe_text(error: BaseException) -> str:
    """Return the message without the arguments of connections and commands, which may contain the password."""
    text = _COMMAND_ARGUMENTS.sub("", str(error))
    return text if isinstance(error, redis_errors.ResponseError) else _ARGUMENTS.sub("", text)


def _safe_cause(error: BaseException) -> BaseException | None:
    """Return the error as a cause for the traceback; None if it or one of its causes may contain the password."""
    one: BaseException | None = error
    while one is not None:
        if isinstance(one, ERRORS) and _safe_text(one) != str(one):
            return None
        one = one.__cause__ or one.__context__
    return error
