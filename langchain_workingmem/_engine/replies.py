"""Reads replies of Redis, and turns errors of redis-py into ours, with remedies and without passwords."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from redis import exceptions as redis_errors
from redis.client import NEVER_DECODE

from langchain_workingmem._engine.plan import ANSWER_WHEN_FULL, PAUSES
from langchain_workingmem.errors import OutcomeUnknownError, RedisConnectionError, RedisReplyError, Remedy, code_of

if TYPE_CHECKING:
    from langchain_workingmem._engine.plan import Command

RAW = {NEVER_DECODE: True}  # bytes from every client, also from a borrowed one that decodes: vectors are not text
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
    "SEARCH_VECTOR_BLOB_SIZE_MISMATCH": Remedy("the index was built for other vectors: run {reindex}"),
    "MISCONF": "Redis cannot write to its disk, its log says why",
    "BUSY": "nothing was done: try again when that script has ended (SLOWLOG GET names it), SHUTDOWN NOSAVE would lose data",
}
# These may contain a password: the arguments that redis-py shows of a connection, and those that a server shows of an
# unknown command (HELLO and AUTH carry the password). Their end is ambiguous, so both match to the end.
_ARGUMENTS = re.compile(r"[\s:(]*<[\w.]+[\s(].*", re.DOTALL)
_COMMAND_ARGUMENTS = re.compile(r",? with args beginning with.*", re.DOTALL)
_POOL_EMPTY = "No connection available"  # the message of redis-py's blocking pool


def raw_options(client: Any, command: Command) -> dict[str, Any]:
    """Return the options of a command; a cluster needs a node for commands without a key."""
    if command[0] in {"HELLO", "CONFIG"} and hasattr(client, "nodes_manager"):
        return {**RAW, "target_nodes": client.get_default_node()}
    return RAW


def answered(found: dict[str, list[Any] | RedisConnectionError]) -> dict[str, list[Any] | RedisConnectionError]:
    """Return the replies of all nodes; raise the first error if none has answered."""
    errors = [one for one in found.values() if isinstance(one, RedisConnectionError)]
    if errors and len(errors) == len(found):
        raise errors[0]
    return found


def checked(replies: list[Any]) -> list[Any]:
    """Turn the errors among the replies into ours."""
    return [refused(reply) if isinstance(reply, Exception) else reply for reply in replies]


def refused(error: Exception, *, own: bool = False, unsure: bool = False) -> RedisReplyError:
    """Return what Redis refused, as a reply; raise every other error.

    An error on a client of our `own` allows repeats; the owner of a borrowed client configures its repeats. `unsure`: the
    command must run only once, and may have run.
    """
    text, cause = _safe_text(error), _safe_cause(error)
    if isinstance(error, _LOGIN):
        remedy = "check the user and password in the URL"
        raise RedisConnectionError(f"Redis refused the login ({text})", remedy=remedy) from cause
    if isinstance(error, _LOST):
        if text.startswith(_POOL_EMPTY):
            raise RedisConnectionError(
                "every connection to Redis was in use, and none became free in time; nothing was sent",
                remedy="allow more with max_connections=... in the URL, or wait longer with Memory(timeout=...)",
                timed_out=True,
            ) from cause
        if isinstance(error, redis_errors.MaxConnectionsError):  # of a pool that does not wait; ours do
            raise RedisConnectionError(
                "every connection to Redis was in use",
                remedy="make the client with max_connections=..., in a cluster one for each caller and node",
            ) from cause
        # one timeout may come from a dead connection; after a second one the caller has waited long enough
        timed_out = _timed_out(error)
        repeats = (1 if timed_out else len(PAUSES)) if own else 0
        kind, seen, remedy = RedisConnectionError, "cannot be reached", _OWN if own else _BORROWED
        if unsure and not isinstance(error, redis_errors.BusyLoadingError | redis_errors.ClusterDownError):
            kind, remedy = OutcomeUnknownError, "the call may have taken effect, so look before you repeat it"
            seen = "did not reply before the connection was lost"
        raise kind(f"Redis {seen} ({text})", remedy=remedy, repeats=repeats, timed_out=timed_out) from cause
    if isinstance(error, redis_errors.ResponseError):
        return reply_of(error)
    seen = f"the Redis client failed ({type(error).__name__}: {text})"
    raise RedisConnectionError(seen, remedy="see the cause in the traceback") from cause


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


def _timed_out(error: BaseException) -> bool:
    """Return whether the cause is a timeout, also in a handshake."""
    return any(isinstance(one, redis_errors.TimeoutError) for one in (error, error.__cause__))


def reply_of(error: redis_errors.ResponseError) -> RedisReplyError:
    """Return the reply as the server wrote it, with a remedy if there is one."""
    known, text = _CODES.get(type(error)), _safe_text(error)
    text = f"{known} {text}" if known else text
    code = code_of(text)
    is_search = code == "OOM" and not text.startswith(code)  # with search-on-oom fail
    return RedisReplyError(text, remedy=ANSWER_WHEN_FULL if is_search else _REMEDIES.get(code))
