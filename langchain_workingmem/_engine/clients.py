"""Clients of redis-py: ours for a URL, round trips over the caller's, also of a cluster, and their errors as ours."""

from __future__ import annotations

import asyncio
import random
import re
from contextlib import suppress
from dataclasses import replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import redis
import redis.asyncio
from redis import exceptions as redis_errors
from redis.asyncio.cluster import ClusterNode, PipelineCommand
from redis.client import NEVER_DECODE

from langchain_workingmem import errors
from langchain_workingmem._engine.plan import ANSWER_WHEN_FULL, PAUSES

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from datetime import timedelta

    from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
    from redis.cluster import RedisCluster

    from langchain_workingmem._engine.plan import Command, Send

    SyncClient = redis.Redis | RedisCluster
    AsyncClient = redis.asyncio.Redis | AsyncRedisCluster

T = TypeVar("T")
_SCHEMES = ("redis://", "rediss://", "unix://")


def check_url(url: str) -> str:
    """Return the URL if a client can be made from it. The error quotes only its scheme: the rest may be secret."""
    if not isinstance(url, str):
        remedy = "pass a str, or a client as client=... or async_client=..."
        raise errors.OptionError(f"redis_url is of type {type(url).__name__}", remedy=remedy)
    if not url.startswith(_SCHEMES):
        scheme = re.match(r"([a-z][a-z+.-]{0,20})://", url, re.IGNORECASE)
        scheme_shown = repr(scheme[1]) if scheme else "none"
        remedy = f"use one of {', '.join(_SCHEMES)}"
        if scheme_shown == "'redis+sentinel'":
            remedy = (
                "pass client=redis.sentinel.Sentinel([(host, 26379)], ...).master_for(service), async_client= likewise"
            )
        raise errors.OptionError(f"redis_url has the scheme {scheme_shown}", remedy=remedy)
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")
        redis.BlockingConnectionPool.from_url(url).make_connection()  # type: ignore[no-untyped-call]  # without I/O
        is_bad = bool(parts.fragment) or "\0" in unquote(parts.netloc + parts.path)
        is_bad |= any(option and "=" not in option for option in parts.query.split("&"))
        database = parts.path.strip("/")
        is_bad |= "@" in parts.path and bool(parts.netloc) if parts.scheme == "unix" else not f"0{database}".isdecimal()
    except (ValueError, TypeError, AttributeError, redis_errors.RedisError):
        is_bad = True
    if is_bad:
        remedy = "percent-encode the characters / # ? @ : in user and password, and check its options"
        raise errors.OptionError("redis_url cannot be read", remedy=remedy)
    return url


def client_of(library: Any, url: str, timeout: timedelta, connect: timedelta) -> Any:
    """Make a client of `redis`, or of `redis.asyncio` for the running event loop. It repeats nothing: plans do."""
    pool = library.BlockingConnectionPool.from_url(
        url,
        max_connections=64,
        timeout=timeout.total_seconds(),  # of a caller for a free connection
        # RESP3 replies of Search are nested maps, and take 40 % longer to read (200 candidates: 957 against 681 us)
        protocol=2,
        socket_timeout=timeout.total_seconds(),
        socket_connect_timeout=min(connect, timeout).total_seconds(),
    )
    pool.turns = asyncio.Semaphore(pool.max_connections)  # of async callers
    return library.Redis.from_pool(pool)


# ---------------------------------------------------------------------- errors: with remedies, and without passwords

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
_BORROWED = "check that it runs and its address; in a cluster, CLUSTER NODES says which node is missing"
_REMEDIES = {
    "NOPERM": "docs/security.md names the rights that a Redis user of this package needs",
    "OOM": "raise maxmemory, or delete threads",
    "READONLY": "this is a replica, connect to its master, or pass a client of its Sentinel",
    "NOREPLICAS": "fewer replicas are connected than min-replicas-to-write asks for",
    "SEARCH_VECTOR_BLOB_SIZE_MISMATCH": "the index was built for other vectors: run memory.recall.reindex()",
    "MISCONF": "Redis cannot write to its disk, its log says why",
    "BUSY": "nothing was done: try again when that script has ended (SLOWLOG GET names it)",
}
# These may contain a password: the arguments that redis-py shows of a connection, and those that a server shows of an
# unknown command (HELLO and AUTH carry the password). Their end is ambiguous, so both match to the end.
_ARGUMENTS = re.compile(r"[\s:(]*<[\w.]+[\s(].*", re.DOTALL)
_COMMAND_ARGUMENTS = re.compile(r",? with args beginning with.*", re.DOTALL)
_POOL_EMPTY = "No connection available"  # the message of redis-py's blocking pool


def refusal(error: redis_errors.ResponseError) -> errors.RedisReplyError:
    """Return what Redis has refused, with a remedy; its cause would only say the same. Raise what says "lost"."""
    if isinstance(error, _LOST):
        raise error
    text = f"{_CODES.get(type(error), '')} {_safe_text(error)}".lstrip()
    code = errors.code_of(text)
    is_search = code == "OOM" and not text.startswith(code)  # with search-on-oom fail
    refused = errors.RedisReplyError(text, remedy=ANSWER_WHEN_FULL if is_search else _REMEDIES.get(code))
    refused.__cause__ = None  # so that nobody sees the context, which may hold a password
    return refused


def failure(error: Exception, *, own: bool = False, unsure: bool = False) -> errors.WorkingMemError:
    """Return the error of a failed round trip, with its cause; it has repeats if `own`. `unsure`: it may have run."""
    text, kind, repeats, timed_out = _safe_text(error), errors.RedisConnectionError, 0, False
    if isinstance(error, redis_errors.ResponseError) and not isinstance(error, _LOST):
        return refusal(error)
    if isinstance(error, _LOGIN):
        problem, remedy = f"Redis refused the login ({text})", "check the user and password in the URL"
    elif isinstance(error, redis_errors.MaxConnectionsError) or text.startswith(_POOL_EMPTY):
        problem, timed_out = "every connection to Redis was in use, so nothing was sent", True
        remedy = "allow more by max_connections=... (in the URL or your client), or wait longer: Memory(timeout=...)"
    elif isinstance(error, _LOST):
        # one timeout may come from a dead connection; after a second one the caller has waited long enough
        timed_out = any(isinstance(raised, redis_errors.TimeoutError) for raised in (error, error.__cause__))
        repeats = (1 if timed_out else len(PAUSES)) if own else 0
        problem, remedy = f"Redis cannot be reached ({text})", _OWN if own else _BORROWED
        if unsure and not isinstance(error, redis_errors.BusyLoadingError | redis_errors.ClusterDownError):
            kind, problem = errors.OutcomeUnknownError, f"Redis did not reply before the connection was lost ({text})"
            remedy = "the call may have taken effect, so look before you repeat it"
    else:
        problem, remedy = f"the Redis client failed ({type(error).__name__}: {text})", "see the cause in the traceback"
    failed = kind(problem, remedy=remedy, repeats=repeats, timed_out=timed_out)
    failed.__cause__ = _safe_cause(error)
    return failed


def lost(error: Exception) -> Exception:
    """Return an error of redis-py, also for two others that say that a connection is lost; raise what is none."""
    if isinstance(error, ERRORS):
        return error
    if isinstance(error, RuntimeError) and "handler is closed" in str(error):  # of uvloop, in a handshake
        return redis_errors.ConnectionError("Connection closed by server.")
    # the missing stream of a closed connection, and the missing node of a cluster client that could not log in
    if isinstance(error, AttributeError) and (error.obj is None or error.name == "node"):
        return redis_errors.ConnectionError("another task closed the connection to a node, which had failed")
    raise error


def _safe_text(error: BaseException) -> str:
    """Return the message without the arguments of connections and commands, which may contain the password."""
    text = _COMMAND_ARGUMENTS.sub("", str(error))
    return text if isinstance(error, redis_errors.ResponseError) else _ARGUMENTS.sub("", text)


def _safe_cause(error: BaseException) -> BaseException | None:
    """Return the error as a cause for the traceback; None if it or one of its causes may contain the password."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ERRORS) and _safe_text(cause) != str(cause):
            return None
        cause = cause.__cause__ or cause.__context__
    return error


# ---------------------------------------------------------------------- clients of the caller

_RAW = {NEVER_DECODE: True}  # bytes from every client, also from one that decodes: vectors are not text


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `perform` for a sync client, with which nothing waits for an event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError  # it has waited


async def _done(returned: Any) -> Any:
    """Return what a call of a sync client returned, or wait for that of an async one."""
    return await returned if isawaitable(returned) else returned


async def perform(client: Any, effect: Send) -> Any:
    """Perform a `Send` over any client of redis-py, sync or async."""
    try:
        if effect.node == "*":
            return await _everywhere(client, effect)
        if effect.node:
            return await _pipelined(_node(client, effect.node), effect.commands)
        if hasattr(client, "nodes_manager"):
            if effect.in_order:  # its nodes work in parallel
                singles = [replace(effect, commands=[command], in_order=False) for command in effect.commands]
                return [reply for single in singles for reply in await perform(client, single)]
            if any(map(_is_search, effect.commands)):
                return await _search(client, effect)
        return await _pipelined(client, effect.commands)
    except (*ERRORS, AttributeError, RuntimeError) as error:
        raise failure(lost(error), unsure=effect.at_most_once)  # noqa: B904 - it has its cause


async def _everywhere(client: Any, effect: Send) -> dict[str, list[Any] | errors.RedisConnectionError]:
    """Ask every master that a cluster has now; another client is one of the name "". Raise if none has answered."""
    names = [""]
    if hasattr(client, "nodes_manager"):
        await _done(client.nodes_manager.initialize())  # replicas may have taken over, and nodes have joined
        names = [node.name for node in client.get_primaries()]
    outcomes: dict[str, list[Any] | errors.RedisConnectionError] = {}
    for name in names:
        try:
            outcomes[name] = await perform(client, replace(effect, node=name))
        except errors.RedisConnectionError as error:
            outcomes[name] = error
    failures = [outcome for outcome in outcomes.values() if isinstance(outcome, errors.RedisConnectionError)]
    if failures and len(failures) == len(outcomes):
        raise failures[0]
    return outcomes


def _node(client: Any, name: str) -> Any:
    """Return what sends commands to one master of a cluster."""
    node = client.get_node(node_name=name)
    if node is None:
        raise errors.RedisConnectionError(f"{name} has left the cluster meanwhile", remedy="call again")
    return client.get_redis_connection(node) if hasattr(client, "get_redis_connection") else node


async def _pipelined(client: Any, commands: Sequence[Command]) -> list[Any]:
    """Send commands, and return all replies, refusals among them."""
    replies: list[Any] = []
    if isinstance(client, ClusterNode):  # of an async cluster
        entries = [PipelineCommand(index, *command, **_RAW) for index, command in enumerate(commands)]
        await client.execute_pipeline(entries)
        replies = [entry.result for entry in entries]
    elif len(commands) == 1:
        options = dict(_RAW)
        if commands[0][0] in {"HELLO", "CONFIG"} and hasattr(client, "nodes_manager"):  # it has no key
            options["target_nodes"] = client.get_default_node()
        try:
            replies.append(await _done(client.execute_command(*commands[0], **options)))
        except redis_errors.ResponseError as error:
            replies.append(error)
    else:
        pipe = client.pipeline(transaction=False)  # `execute` returns the connection: no `with` is needed
        for command in commands:
            pipe.execute_command(*command, **_RAW)
        replies = await _done(pipe.execute(raise_on_error=False))
    for index, reply in enumerate(replies):
        if isinstance(reply, redis_errors.ResponseError):
            replies[index] = refusal(reply)
        elif isinstance(reply, Exception):
            raise reply
    return replies


# ---------------------------------------------------------------------- searches in a cluster

_SLOTS = 16_384
_VIEW = "SEARCH.CLUSTERINFO"


def _is_search(command: Command) -> bool:
    return str(command[0]).startswith("FT.")


async def _search(client: Any, effect: Send) -> list[Any]:
    """Send commands with searches to a cluster; never return an answer that lacks a master.

    The coordinator, the node that gets a search, silently leaves out masters that are down. So it tells, before and
    after the searches, which slots it searches, and each master gets a PING. After a lost connection the nodes are
    looked for again, as a replica may have taken over, and the commands are sent once more where that does no harm.
    """
    searching = [_is_search(command) for command in effect.commands]
    is_last = effect.at_most_once
    while True:
        try:
            if not hasattr(client, "get_redis_connection"):  # an async one
                await client.initialize()
            if not (nodes := client.get_primaries()):
                raise redis_errors.ConnectionError("no node of the cluster is known")
            coordinator = _node(client, random.choice(nodes).name)  # noqa: S311 - no secret; as redis-py does it
            # to the node itself: redis-py's pipeline of a cluster repeats failed commands on another one
            commands = [(_VIEW,), *filter(_is_search, effect.commands), (_VIEW,)]
            before, *results, after = await _pipelined(coordinator, commands)
            others = [command for command in effect.commands if not _is_search(command)]
            replies = iter(await _pipelined(client, others) if others else [])
            for node in nodes:
                await _pipelined(_node(client, node.name), [("PING",)])  # any answer will do
            answers = iter(_whole(before, results, after))
            return [next(answers if is_search else replies) for is_search in searching]
        except (redis_errors.ConnectionError, redis_errors.TimeoutError) as error:
            if isinstance(error, redis_errors.MaxConnectionsError):  # the nodes are well
                raise
            with suppress(*ERRORS):
                await _done(client.nodes_manager.initialize())
            if is_last or isinstance(error, redis_errors.TimeoutError):
                raise
            is_last = True


def _whole(before: Any, searched: list[Any], after: Any) -> list[Any]:
    """Return the answers of a coordinator; raise if it did not search all slots."""
    for view in (before, after):
        if isinstance(view, errors.RedisReplyError):
            if _VIEW.lower() not in str(view).lower() or "unknown command" not in str(view):
                return [view] * len(searched)  # without the right to ask, no answer is known to be whole
            continue  # a server without that command
        slots = _slots(view)
        if slots < _SLOTS and (slots or view is after):  # Search 8.0 looks for the masters at its first search
            problem = f"a search would lack data: it reaches {slots:,} of {_SLOTS:,} slots of the cluster"
            raise redis_errors.ConnectionError(problem)
    for reply in searched:
        if isinstance(reply, errors.RedisReplyError) and reply.code == "NOSHARD":
            raise redis_errors.ConnectionError(str(reply))
    return searched


def _slots(view: Any) -> int:
    """Return how many slots a coordinator searches. Search 8.0 says it by slots, later ones by shards."""
    if isinstance(view, dict):  # RESP3
        rows = [(row[b"start"], row[b"end"]) for row in view.get(b"slots") or ()]
        shards = view.get(b"shards") or ()
    else:
        rows = [row[:2] for row in view[view.index(b"slots") + 1 :] if row] if b"slots" in view else []
        lists = view[view.index(b"shards") + 1] or () if b"shards" in view else ()
        shards = [dict(zip(fields[::2], fields[1::2], strict=True)) for fields in lists]
    for shard in shards:
        rows += zip(shard[b"slots"][::2], shard[b"slots"][1::2], strict=True)
    return sum(int(last) - int(first) + 1 for first, last in rows)
