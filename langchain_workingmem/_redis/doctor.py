"""Checks of the server, the indexes and the vectors. They only read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.plan import ANSWER_WHEN_FULL, Plan, attempt, everywhere, send
from langchain_workingmem._redis.codec import UNREADABLE, as_dict, search_version
from langchain_workingmem._redis.indexes import LAYOUT, WHEN_FULL, compare_layout
from langchain_workingmem._redis.keys import Facts
from langchain_workingmem._redis.queries import built_as, is_stale, rows_of, sorted_search
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
from langchain_workingmem.models import Diagnosis, Finding, StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import Level

MOST_THREADS, MOST_MESSAGES = 100, 100  # the newest ones, which are looked at
TOGETHER = 10  # threads whose messages are read in one round trip
NEARLY_FULL = 0.9  # of maxmemory
_SETUP = "run memory.setup() as a user that may create indexes"
_REINDEX = Remedy("run {reindex}")
_NO_SEARCH = "use Redis 8, Redis Stack or Redis Cloud; history alone works with create_index=False"


def diagnose(state: MemoryState, open_for: float | None = None) -> Plan[Diagnosis]:
    """Run all checks; `open_for` is how many seconds memory has gone without Redis, None if it has not."""
    checks: dict[str, tuple[Callable[[MemoryState], Plan[list[Finding]]], str]] = {  # and the remedy of a missing right
        "server": (_servers, "grant +hello"),
        "memory": (_settings, "grant +info, which only reads"),
        "search when full": (_search_when_full, "grant +config|get, or CONFIG SET search-on-oom ignore to be sure"),
        "layout": (_layout, "grant +hget"),
        "threads index": (_threads_index, "grant +ft.info"),
        "vectors index": (_vectors_index, "grant +get and +ft.info"),
        "threads": (_newest_messages, "grant +@read and +ft.aggregate"),
    }
    findings: list[Finding] = []
    try:
        for check, (look, right) in checks.items():
            try:
                findings += yield from look(state)
            except RedisReplyError as error:
                remedy = right if error.code == "NOPERM" else error.remedy or right
                findings.append(_found(check, "unknown", error, remedy))
    except (RedisConnectionError, OptionError) as error:  # nothing else can be looked at
        findings.append(_found("connection" if isinstance(error, ConnectionError) else check, "error", error))
    except RedisCapabilityError:
        findings.append(_found("search", "error", "the server has no Search: no recall, no listings", _NO_SEARCH))
    if open_for is not None:
        seen = f"open for {open_for:,.0f} s: Redis has failed, and what runs with on_error='log' goes without memory"
        findings.append(_found("circuit breaker", "warning", seen, "none when Redis answers: the first reply ends it"))
    return Diagnosis(findings=findings)


def _found(check: str, level: Level, seen: str | WorkingMemError, remedy: str | None = None) -> Finding:
    """Make a finding; an error brings its remedy along."""
    if isinstance(seen, str):
        return Finding(check=check, level=level, message=seen, remedy=remedy)
    return Finding(check=check, level=level, message=_said(seen), remedy=remedy or seen.remedy or "")


def _said(error: WorkingMemError) -> str:
    return str(error).removesuffix(f": {error.remedy}")


# ---------------------------------------------------------------------- the server


def _ask_all(command: str) -> Plan[dict[str, Any]]:
    """Return the reply of each master by its name, as findings begin with it; the error of a master that is down."""
    found: dict[str, Any] = {}
    for node, replies in (yield from everywhere((command,))).items():
        reply = replies if isinstance(replies, RedisConnectionError) else replies[0]
        if isinstance(reply, RedisReplyError):
            raise reply
        found[f"{node}: " if node else ""] = reply
    return found


def _servers(_: MemoryState) -> Plan[list[Finding]]:
    """Look at what each master says of itself."""
    findings = []
    for where, reply in (yield from _ask_all("HELLO")).items():
        if isinstance(reply, RedisConnectionError):
            remedy = "start it, or give it a replica that takes over: until then no search is answered"
            findings.append(_found("server", "error", f"{where}{_said(reply)}", remedy))
            continue
        about = as_dict(reply)
        name, version, mode, role = (about.get(key, b"?").decode() for key in (b"server", b"version", b"mode", b"role"))
        if role in {"slave", "replica"}:
            seen = f"{where}{name} {version} is a {role}: writes fail"
            findings.append(_found("server", "error", seen, "connect to the master"))
        else:
            findings.append(_found("server", "ok", f"{where}{name} {version}, {mode}, {role}"))
        search = search_version(reply)
        if search is not None:  # a hosted server may hide it; the checks of the indexes decide
            major, rest = divmod(search, 10_000)
            findings.append(_found("search", "ok", f"{where}Search {major}.{rest // 100}.{rest % 100}"))
    return findings


def _settings(_: MemoryState) -> Plan[list[Finding]]:
    """Look at what a crash loses, what a full server does, and how full it is."""
    found = yield from _ask_all("INFO")
    masters = {where: info for where, info in found.items() if not isinstance(info, RedisConnectionError)}
    return [finding for where, info in masters.items() for finding in _settings_of(where, info)]


def _settings_of(where: str, info: dict[str, Any]) -> Iterator[Finding]:
    if broken := [key for key in ("aof_last_write_status", "rdb_last_bgsave_status") if info.get(key, "ok") != "ok"]:
        seen = f"{where}{', '.join(broken)}: writing failed"
        yield _found("persistence", "error", seen, "look at disk and server log")
    elif info.get("aof_enabled"):
        yield _found("persistence", "ok", f"{where}append-only file on")
    else:
        seen = f"{where}append-only file off: a crash loses what came after the last snapshot, or everything"
        yield _found("persistence", "warning", seen, "set appendonly yes, and appendfsync everysec or always")
    if (policy := info.get("maxmemory_policy", "unknown policy")) == "noeviction":
        yield _found("eviction", "ok", f"{where}noeviction")
    else:
        seen = f"{where}{policy}: a full server throws memories away, messages without their vectors and vice versa"
        yield _found("eviction", "warning", seen, "set maxmemory-policy noeviction: writes then fail instead")
    used, most = info.get("used_memory", 0), info.get("maxmemory", 0)
    seen = f"{where}{used / 2**20:,.0f} MiB used of {f'{most / 2**20:,.0f} MiB' if most else 'no limit'}"
    if most and used > NEARLY_FULL * most:
        yield _found("memory", "warning", seen, "raise maxmemory, or delete old threads: writes fail when it is full")
    else:
        yield _found("memory", "ok", seen)


def _search_when_full(_: MemoryState) -> Plan[list[Finding]]:
    (settings,) = yield from send(WHEN_FULL)
    check, policy = "search when full", as_dict(settings).get(b"search-on-oom", b"").decode()
    if policy == "return":
        seen = "search-on-oom is return: when memory is full, searches fail or find nothing"
        return [_found(check, "warning", seen, ANSWER_WHEN_FULL)]
    return [_found(check, "ok", f"search-on-oom is {policy}")] if policy else []  # Search before 8.4 always answers


# ---------------------------------------------------------------------- what is stored


def _layout(state: MemoryState) -> Plan[list[Finding]]:
    (version,) = yield from send(("HGET", state.keys.layout, "version"))
    if version is not None:
        compare_layout(state.keys, version)
    return [_found("layout", "ok", f"storage layout {LAYOUT}")]


def _threads_index(state: MemoryState) -> Plan[list[Finding]]:
    found = yield from _index("threads index", state.keys.threads_index)
    (settings,) = yield from send(("GET", state.keys.vectors_settings))
    if found.level == "error" and settings is None:
        return [_found("threads index", "ok", "not made yet: made at first use")]
    return [found]


def _vectors_index(state: MemoryState) -> Plan[list[Finding]]:
    """Check the index by its stored settings, and whether the model fits it."""
    (stored,) = yield from send(("GET", state.keys.vectors_settings))
    if stored is None:
        return [_found("vectors index", "ok", "none: semantic recall was never used here")]
    settings = json.loads(stored)
    index = yield from _index("vectors index", state.keys.vectors_index, settings)
    if state.recall is None:
        return [index]
    try:
        dims = yield from state.embedder.dimensions()
        state.indexes.check_index_settings(settings, dims)
    except (EmbeddingError, EmbeddingSizeError, OptionError) as error:
        return [index, _found("model", "error", error)]
    if settings["model"] != state.model:
        seen = f"the vectors were made by {settings['model']}, the model is now {state.model}"
        return [index, _found("model", "warning", seen, _REINDEX)]
    return [index, _found("model", "ok", f"{state.model}, {dims} dimensions, fits the index")]


def _index(check: str, name: str, settings: dict[str, Any] | None = None) -> Plan[Finding]:
    (reply,) = yield from attempt(("FT.INFO", name))
    if isinstance(reply, RedisReplyError):
        if is_stale(reply):
            return _found(check, "error", f"there is no index {name!r}", _SETUP)
        raise reply
    info = as_dict(reply)
    # the coordinator of a cluster may write sums as floats
    names = (b"num_docs", b"total_index_memory_sz_mb", b"hash_indexing_failures", b"indexing")
    documents, size, failures, is_indexing = (float(info.get(name, 0)) for name in names)
    seen, part = f"{documents:,.0f} documents, {size:,.1f} MiB", float(info.get(b"percent_indexed", 1))
    other = [f"{name}={value}" for name, value in built_as(info).items() if settings and settings[name] != value]
    if other:  # a change of the settings was interrupted
        seen += f"; it was built with {', '.join(other)}, its settings say otherwise"
        return _found(check, "error", seen, _REINDEX)
    if is_indexing and part < 1:  # for a while after a restart Search reports indexing, and a percentage of 16,350
        return _found(check, "warning", f"{seen}; {part:.0%} is indexed", "wait: searches miss the rest until then")
    if failures:
        remedy = Remedy("run {reindex}; the number also counts what was mended since the index was made")
        return _found(check, "unknown", f"{seen}; {failures:,.0f} could not be indexed", remedy)
    return _found(check, "ok", seen)


def _newest_messages(state: MemoryState) -> Plan[list[Finding]]:
    """Look at the newest messages of the newest threads: which lack vectors, cannot be read, or lack a key."""
    (stored,) = yield from send(("GET", state.keys.vectors_settings))
    newest = sorted_search(state.keys.threads_index, "*", "updated_at", descending=True, limit=MOST_THREADS)
    (reply,) = yield from attempt(newest)
    if isinstance(reply, RedisReplyError):
        if is_stale(reply):  # without the index, which was said
            return []
        raise reply
    ids = [state.keys.thread_of(row[b"__key"]) for row in rows_of(reply) if row]
    seen, damaged, is_all = list[Facts](), list[Finding](), len(ids) < MOST_THREADS
    for start in range(0, len(ids), TOGETHER):
        asked: list[Command] = []
        found: dict[str, list[Facts]] = {}
        for keys in map(state.keys.of, ids[start : start + TOGETHER]):
            asked += [("HGET", keys.thread, "count"), ("EXISTS", keys.order, keys.messages, keys.ids)]
            asked.append(("ZRANGE", keys.order, -MOST_MESSAGES, -1))
        replies = yield from send(*asked)
        for id, count, number, members in zip(ids[start:], replies[::3], replies[1::3], replies[2::3], strict=False):
            if int(count or 0) and number < 3:
                why = f"thread {id!r} is damaged: Redis has evicted keys, or somebody has deleted them"
                remedy = f"threads.delete({id!r}) deletes the rest; set maxmemory-policy noeviction"
                damaged.append(_found("threads", "error", why, remedy))
            elif members:
                found[id] = [Facts.read(one.decode()) for one in members]
                is_all = is_all and len(members) < MOST_MESSAGES
        reading: list[Command] = [
            ("HMGET", state.keys.of(id).messages, *(one.seq for one in own)) for id, own in found.items()
        ]
        for (id, own), bodies in zip(found.items(), (yield from send(*reading)) if found else (), strict=True):
            seen += own
            damaged += (one for pair in zip(own, bodies, strict=True) for one in _unreadable(id, *pair))
    if stored is None or state.recall is None:
        return damaged
    settings = json.loads(stored)
    digest = state.indexes.digest_of(state.indexes.index_settings(settings["dims"], settings))
    lacking, looked = sum(one.settings != digest for one in seen), "all" if is_all else "a sample, the newest"
    message = f"{lacking:,} of {len(seen):,} messages ({looked}) lack vectors of the present settings"
    return [_found("vectors", "warning" if lacking else "ok", message, _REINDEX if lacking else None), *damaged]


def _unreadable(id: str, facts: Facts, body: bytes | None) -> Iterator[Finding]:
    try:
        if body is not None:  # else it was deleted meanwhile
            StoredMessage.of(body, "", facts.seq).message  # noqa: B018 - makes it
    except UNREADABLE as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        seen = f"message {facts.id!r} of thread {id!r} cannot be read, and is left out ({why})"
        remedy = f"history.delete([{facts.id!r}], thread_id={id!r}), and append it again if you have it"
        yield _found("messages", "error", seen, remedy)
