"""What comes back from Redis: raw replies, refusals with their remedies, and errors of the way there."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redis.asyncio.sentinel import MasterNotFoundError as AsyncMasterNotFoundError
from redis.client import NEVER_DECODE
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.exceptions import (
    ConnectionError as ConnectionLost,
)
from redis.exceptions import (
    TimeoutError as TimedOut,
)
from redis.sentinel import MasterNotFoundError

from langchain_workingmem._engine.effects import PAUSES
from langchain_workingmem.errors import OutcomeUnknownError, RedisConnectionError, RedisReplyError

if TYPE_CHECKING:
    from langchain_workingmem._engine.effects import Command, Scan

# Replies come as bytes whatever a borrowed client was told to do: vectors are not text.
RAW = {NEVER_DECODE: True}
ERRORS = (RedisError, RedisClusterException)  # redis-py does not count the latter among its own
_CODES = {NoScriptError: "NOSCRIPT", ReadOnlyError: "READONLY", OutOfMemoryError: "OOM", NoPermissionError: "NOPERM"}
_REMEDIES = {
    "OOM": "raise maxmemory, or delete threads",
    "READONLY": "this is a replica, connect to its master, or through redis+sentinel://",
    "NOREPLICAS": "fewer replicas are connected than min-replicas-to-write asks for",
    "MISCONF": "Redis cannot write to its disk, its log says why",
    "BUSY": "nothing was done: try again when that script has ended (SLOWLOG GET names it), SHUTDOWN NOSAVE would lose data",
}
# What may repeat a login: the arguments that redis-py shows of a connection, and those that a server shows of a command
# which it does not know (HELLO and AUTH carry the password). Nobody can tell where they end.
_ARGUMENTS = re.compile(r"[\s:(]*<[\w.]+[\s(].*", re.DOTALL)
_COMMAND_ARGUMENTS = re.compile(r",? with args beginning with.*", re.DOTALL)
_NO_TURN = "No connection available"  # what a pool says that lets callers wait
_NO_TURN_SEEN = "every connection to Redis was in use, and none became free in time; nothing was sent"
_NO_TURN_REMEDY = "allow more with max_connections=... in the URL, or wait longer with Memory(timeout=...)"
_RIGHTS = "`workingmem doctor --acl` prints the rights that a Redis user of this package needs"


def raw_options(client: Any, command: Command) -> dict[str, Any]:
    """Give the options of a command; a cluster must be told where to send one that names no key."""
    if command[0] in {"HELLO", "CONFIG"} and hasattr(client, "nodes_manager"):
        return {**RAW, "target_nodes": client.get_default_node()}
    return RAW


def scan_step(scan: Scan) -> Command:
    """Build the command of one step through the keys of a node."""
    return ("SCAN", scan.cursor, "MATCH", scan.pattern, "COUNT", 1000)


def scanned(replies: list[Any], step: Scan, nodes: int) -> tuple[list[bytes], Scan | None]:
    """Say what a step has found, and which is the next: on this node, or on the next one."""
    (reply,) = replies
    if isinstance(reply, Exception):
        raise reply
    cursor, keys = int(reply[0]), reply[1]
    if cursor:
        return keys, replace(step, cursor=cursor)
    return keys, replace(step, node=step.node + 1, cursor=0) if step.node + 1 < nodes else None


def checked(replies: list[Any]) -> list[Any]:
    """Turn the errors among the replies into ours."""
    return [refused(reply)[0] if isinstance(reply, Exception) else reply for reply in replies]


def refused(error: Exception, *, own: bool = False, unsure: bool = False) -> list[RedisReplyError]:
    """Return what Redis refused as a reply; raise what went wrong on the way there.

    On a client of our `own` that may be repeated, unless it is `unsure` whether something happened that must happen
    once. Whoever lends a client decides himself what it repeats.
    """
    words, cause = said(error), _shown(error)
    if isinstance(error, AuthenticationError | AuthorizationError):
        raise RedisConnectionError(
            f"Redis refused the login ({words})", remedy="check the user and password in the URL"
        ) from cause
    if isinstance(error, ConnectionLost | TimedOut | RedisClusterException):
        if words.startswith(_NO_TURN):
            raise RedisConnectionError(_NO_TURN_SEEN, remedy=_NO_TURN_REMEDY, timed_out=True) from cause
        # who was silent once may have been behind a dead connection; who is silent twice keeps his caller waiting
        timed_out = _timed_out(error)
        repeats = (1 if timed_out else len(PAUSES)) if own else 0
        if unsure and not isinstance(error, BusyLoadingError):
            raise OutcomeUnknownError(
                f"the reply of Redis was lost ({words})",
                remedy="the call may have taken effect, so look before you repeat it",
                repeats=repeats,
                timed_out=timed_out,
            ) from cause
        raise RedisConnectionError(
            f"Redis cannot be reached ({words})",
            remedy="check that it runs and that the URL is right",
            repeats=repeats,
            timed_out=timed_out,
        ) from cause
    if isinstance(error, ResponseError):
        return [reply_of(error)]
    raise RedisConnectionError(
        f"the Redis client failed ({type(error).__name__}: {words})", remedy="see the cause in the traceback"
    ) from cause


def said(error: BaseException) -> str:
    """Give the words of an error without the arguments of connections and commands, of which one may be the password."""
    words = _COMMAND_ARGUMENTS.sub("", str(error))
    return words if isinstance(error, ResponseError) else _ARGUMENTS.sub("", words)


def _shown(error: BaseException) -> BaseException | None:
    """Give an error back as a cause that a traceback may show; None where it, or what led to it, says too much."""
    one: BaseException | None = error
    while one is not None:
        if isinstance(one, ERRORS) and said(one) != str(one):
            return None
        one = one.__cause__ or one.__context__
    return error


def _timed_out(error: BaseException) -> bool:
    """Tell whether somebody was silent, whatever redis-py has made of that in a handshake or on the way to a master."""
    if isinstance(error, MasterNotFoundError | AsyncMasterNotFoundError):
        return "TimeoutError" in str(error)
    return isinstance(error, TimedOut) or isinstance(error.__cause__, TimedOut)


def reply_of(error: ResponseError) -> RedisReplyError:
    """Give back the reply as the server wrote it, and the remedy where there is one.

    redis-py takes the code off those replies that have a class of their own.
    """
    code = _CODES.get(type(error))
    text = f"{code} {said(error)}" if code else said(error)
    remedy = _RIGHTS if "no permissions" in text.lower() else _REMEDIES.get(text.split(" ", 1)[0])
    return RedisReplyError(f"{text}; {remedy}" if remedy else text, remedy=remedy)
