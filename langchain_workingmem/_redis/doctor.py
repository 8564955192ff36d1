"""Checks of the server, the indexes and the vectors. They only read."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.plan import ANSWER_WHEN_FULL, Plan, attempt, everywhere, scan
from langchain_workingmem._redis.codec import as_dict, search_version
from langchain_workingmem._redis.layout import HAS_CLOCK, LAYOUT, NEWER_REDIS, NO_CLOCK, WHEN_FULL, compare_layout
from langchain_workingmem._redis.queries import build_filter, built_as, rows_of, sorted_search
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem.errors import (
    EmbeddingError,
    EmbeddingSizeError,
    OptionError,
    RedisCapabilityError,
    RedisConnectionError,
    RedisReplyError,
    Remedy,
    WorkingMemError,
)
from langchain_workingmem.reports import Diagnosis, Finding

if TYPE_CHECKING:
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.reports import Level

COUNT_DIGESTS = Script("count_digests")

MOST_THREADS, MOST_MESSAGES = 1000, 100  # the newest ones, which are checked for missing vectors
NEARLY_FULL = 0.9  # of maxmemory
_SETUP = "run memory.setup() as a user that may create indexes"
_REINDEX = Remedy("run {reindex}")
_MORE_RIGHTS = "run the doctor as a user with more rights"
_TAKES_OVER = "start it, or give it a replica that takes over: until then no search is answered"


def diagnose(state: MemoryState, open_for: float | None = None) -> Plan[Diagnosis]:
    """Run all checks: about eight round trips; with recall twelve, and one call of the embedding model.

    `open_for` is how many seconds memory has gone without Redis, None if it has not.
    """
    findings: list[Finding] = []
    try:
        for node, hello in (yield from _ask_all("HELLO")):  # every user may send it
            findings += _server(node, hello)
        for node, info in (yield from _ask_all("INFO")):
            if not isinstance(info, RedisConnectionError):
                findings += _settings(node, info)
        if (yield from _ask(*HAS_CLOCK)) == 0:
            findings.append(_found("scripts", "error", NO_CLOCK, NEWER_REDIS))
        findings += _search_when_full((yield from _ask(*WHEN_FULL)))
        findings += yield from _stored(state)
    except RedisCapabilityError:
        remedy = "use Redis 8, Redis Stack or Redis Cloud; history alone works with create_index=False"
        findings.append(_found("search", "error", "the server has no Search: no recall, no listings", remedy))
    except RedisConnectionError as error:
        findings.append(_found("connection", "error", _said(error), error.remedy))
    if open_for is not None:
        message = f"open for {open_for:,.0f} s: Redis has failed, and what runs with on_error='log' goes without memory"
        findings.append(
            _found("circuit breaker", "warning", message, "none when Redis answers: the first reply ends it")
        )
    return Diagnosis(findings=findings)


def _found(check: str, level: Level, message: str, remedy: str | None = None) -> Finding:
    return Finding(check=check, level=level, message=message, remedy=remedy)


def _unknown(check: str, why: RedisReplyError | str, remedy: str = _MORE_RIGHTS) -> Finding:
    """Return a finding about what cannot be seen; `remedy` helps if a right is missing."""
    if isinstance(why, RedisReplyError):
        remedy = remedy if why.code == "NOPERM" else why.remedy or remedy
        why = _said(why)
    return _found(check, "unknown", why, remedy)


def _said(error: WorkingMemError) -> str:
    """Return the message without the remedy, which stands beside it."""
    return str(error).removesuffix(f": {error.remedy}")


def _ask(*command: Any) -> Plan[Any]:
    """Return the reply to a command, or its `RedisReplyError`.

    One command per round trip: a pipeline in a cluster accepts only commands with a key.
    """
    (reply,) = yield from attempt(command)
    return reply


def _ask_all(*command: Any) -> Plan[list[tuple[str, Any]]]:
    """Return the reply of every master with its host:port, "" without a cluster; a second time if one was lost."""
    found = yield from everywhere(command)
    if any(isinstance(replies, RedisConnectionError) for replies in found.values()):
        found = yield from everywhere(command)  # the connection may have been an old one
    return [(node, replies[0] if isinstance(replies, list) else replies) for node, replies in found.items()]


# ---------------------------------------------------------------------- the server


def _server(node: str, reply: Any) -> list[Finding]:
    """Return what a master of a cluster says of itself, or the server (""), whose name is empty."""
    where = f"{node}: " if node else ""
    if isinstance(reply, RedisConnectionError):
        return [_found("server", "error", f"{where}{_said(reply)}", _TAKES_OVER)]
    if isinstance(reply, RedisReplyError):
        return [_unknown("server", reply)]
    about = as_dict(reply)
    name, version, mode, role = (about.get(key, b"?").decode() for key in (b"server", b"version", b"mode", b"role"))
    if role in {"slave", "replica"}:
        found = [
            _found("server", "error", f"{where}{name} {version} is a {role}: writes fail", "connect to the master")
        ]
    else:
        found = [_found("server", "ok", f"{where}{name} {version}, {mode}, {role}")]
    search = search_version(reply)
    if search is not None:  # a hosted server may hide its modules; the checks of the indexes decide
        major, rest = divmod(search, 10_000)
        found.append(_found("search", "ok", f"{where}Search {major}.{rest // 100}.{rest % 100}"))
    return found


def _settings(node: str, info: Any) -> list[Finding]:
    if isinstance(info, RedisReplyError):
        checks = ("persistence", "eviction", "memory")
        return [_unknown(check, info, "grant +info, which only reads") for check in checks]
    where = f"{node}: " if node else ""
    return [_persistence(where, info), _eviction(where, info), _memory(where, info)]


def _persistence(where: str, info: dict[str, Any]) -> Finding:
    broken = [key for key in ("aof_last_write_status", "rdb_last_bgsave_status") if info.get(key, "ok") != "ok"]
    if broken:
        seen = f"{where}{', '.join(broken)}: writing failed"
        return _found("persistence", "error", seen, "look at disk and server log")
    if "aof_enabled" not in info:
        return _unknown("persistence", "the server does not tell")
    if info["aof_enabled"]:
        return _found("persistence", "ok", f"{where}append-only file on")
    seen = f"{where}append-only file off: a crash loses what came after the last snapshot, or everything"
    return _found("persistence", "warning", seen, "set appendonly yes, and appendfsync everysec or always")


def _eviction(where: str, info: dict[str, Any]) -> Finding:
    policy = info.get("maxmemory_policy")
    if policy is None:
        return _unknown("eviction", "the server does not tell")
    if policy == "noeviction":
        return _found("eviction", "ok", f"{where}noeviction")
    message = f"{where}{policy}: a full server throws memories away, messages without their vectors and vice versa"
    return _found("eviction", "warning", message, "set maxmemory-policy noeviction: writes then fail instead")


def _memory(where: str, info: dict[str, Any]) -> Finding:
    used, most = info.get("used_memory", 0), info.get("maxmemory", 0)
    seen = f"{where}{used / 2**20:,.0f} MiB used of {f'{most / 2**20:,.0f} MiB' if most else 'no limit'}"
    if most and used > NEARLY_FULL * most:
        return _found("memory", "warning", seen, "raise maxmemory, or delete old threads: writes fail when it is full")
    return _found("memory", "ok", seen)


def _search_when_full(settings: Any) -> list[Finding]:
    check = "search when full"
    if isinstance(settings, RedisReplyError):
        return [_unknown(check, settings, "grant +config|get, or CONFIG SET search-on-oom ignore to be sure")]
    policy = as_dict(settings).get(b"search-on-oom", b"").decode()  # Search before 8.4 has no such setting, and answers
    if policy == "return":
        message = "search-on-oom is return: when memory is full, searches fail or find nothing"
        return [_found(check, "warning", message, ANSWER_WHEN_FULL)]
    return [_found(check, "ok", f"search-on-oom is {policy}")] if policy else []


# ---------------------------------------------------------------------- what is stored


def _stored(state: MemoryState) -> Plan[list[Finding]]:
    stored = yield from _ask("HGET", state.keys.layout, "version")
    if isinstance(stored, RedisReplyError):
        layout = _unknown("layout", stored)
    else:
        try:
            compare_layout(state.keys, stored or LAYOUT.encode())
        except OptionError as error:
            return [_found("layout", "error", _said(error), error.remedy)]
        layout = _found("layout", "ok", f"storage layout {LAYOUT}")
    threads = yield from _index("threads index", state.keys.threads_index)
    if threads.level == "error" and (yield from _is_unused(state)):
        return [layout, _found("threads index", "ok", "not made yet: made at first use")]
    return [layout, threads, *(yield from _vectors(state))]


def _is_unused(state: MemoryState) -> Plan[bool]:
    """Return whether there is no thread; False on a server with more keys than one step of SCAN sees."""
    try:
        threads, cursors = yield from scan(f"{state.keys.thread_prefix}*")
    except RedisReplyError:  # the user of the application may not look through the keys
        return False
    return not threads and not cursors


def _index(check: str, name: str, settings: dict[str, Any] | None = None) -> Plan[Finding]:
    reply = yield from _ask("FT.INFO", name)
    if isinstance(reply, RedisReplyError):
        if reply.code == "NOPERM":
            return _unknown(check, reply)
        return _found(check, "error", f"there is no index {name!r} ({reply})", _SETUP)
    info = as_dict(reply)
    # the coordinator of a cluster may write sums as floats
    names = (b"num_docs", b"hash_indexing_failures", b"indexing", b"total_index_memory_sz_mb")
    documents, failures, is_indexing, size = (float(info.get(name, 0)) for name in names)
    seen = f"{documents:,.0f} documents, {size:,.1f} MiB"
    other = [f"{name}={value}" for name, value in built_as(info).items() if settings and settings[name] != value]
    if other:  # a change of the settings was interrupted
        seen = f"{seen}; it was built with {', '.join(other)}, its settings say otherwise"
        return _found(check, "error", seen, _REINDEX)
    part = float(info.get(b"percent_indexed", 1))
    if is_indexing and part < 1:  # for a while after a restart Search reports indexing, and a percentage of 16,350
        return _found(check, "warning", f"{seen}; {part:.0%} is indexed", "wait: searches miss the rest until then")
    if failures:
        remedy = Remedy("run {reindex}; the number also counts what was mended since the index was made")
        return _found(check, "unknown", f"{seen}; {failures:,.0f} could not be indexed", remedy)
    return _found(check, "ok", seen)


def _vectors(state: MemoryState) -> Plan[list[Finding]]:
    stored = yield from _ask("GET", state.keys.vectors_settings)
    if isinstance(stored, RedisReplyError):
        return [_unknown("vectors", stored)]
    if stored is None:
        if state.recall is None:
            return [_found("vectors index", "ok", "none: semantic recall was never used here")]
        return [_found("vectors index", "error", "there is none", _SETUP)]
    settings = json.loads(stored)
    index = yield from _index("vectors index", state.keys.vectors_index, settings)
    if state.recall is None:
        return [index]
    return [index, (yield from _model(state, settings)), (yield from _coverage(state, settings))]


def _model(state: MemoryState, settings: dict[str, Any]) -> Plan[Finding]:
    try:
        dims = yield from state.embedder.dimensions()
        state.indexes.check_index_settings(settings, dims)
    except (EmbeddingError, EmbeddingSizeError, OptionError) as error:
        return _found("model", "error", _said(error), error.remedy or "")
    if settings["model"] != state.indexes.model:
        message = f"the vectors were made by {settings['model']}, the model is now {state.indexes.model}"
        return _found("model", "warning", message, _REINDEX)
    return _found("model", "ok", f"{state.indexes.model}, {dims} dimensions, fits the index")


def _coverage(state: MemoryState, settings: dict[str, Any]) -> Plan[Finding]:
    """Count the messages without vectors of the present settings: all, or the newest of the newest threads."""
    threads, most = state.keys.threads_index, MOST_THREADS + 1
    newest = sorted_search(threads, build_filter(), "updated_at", descending=True, limit=most, fields=["count"])
    (reply,) = yield from attempt(newest)
    if isinstance(reply, RedisReplyError):
        return _unknown("vectors", reply)
    found = [row for row in rows_of(reply) if row]
    rows = found[:MOST_THREADS]
    ids = [state.keys.thread_of(row[b"__key"]) for row in rows]
    roles = f",{','.join(state.indexes.options.roles)},"
    calls = [COUNT_DIGESTS.call(state.keys.of(id).all, roles, MOST_MESSAGES) for id in ids]
    digests: Counter[str] = Counter()
    for one in (yield from attempt(*calls)) if calls else []:
        if isinstance(one, RedisReplyError):
            return _unknown("vectors", one)
        digests.update({digest.decode(): int(count) for digest, count in as_dict(one).items()})
    is_exact = len(found) == len(rows) and all(int(row[b"count"]) <= MOST_MESSAGES for row in rows)
    dims = settings["dims"]
    dtype = state.indexes.index_settings(dims, settings)["datatype"]
    lacking = digests.total() - digests[state.indexes.index_digest(dims, dtype)]
    looked = "all" if is_exact else "a sample, the newest"
    message = f"{lacking:,} of {digests.total():,} messages ({looked}) lack vectors of the present settings"
    return _found("vectors", "warning" if lacking else "ok", message, _REINDEX if lacking else None)
