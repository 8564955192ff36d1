"""Checks of the server, the indexes and the vectors. They only read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_workingmem._documents.messages import UNREADABLE
from langchain_workingmem._engine.plan import ANSWER_WHEN_FULL, Plan, attempt, everywhere, scan
from langchain_workingmem._redis.codec import as_dict, search_version
from langchain_workingmem._redis.facts import Facts
from langchain_workingmem._redis.layout import LAYOUT, WHEN_FULL, compare_layout
from langchain_workingmem._redis.queries import build_filter, built_as, rows_of, sorted_search
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
from langchain_workingmem.models import StoredMessage
from langchain_workingmem.reports import Diagnosis, Finding

if TYPE_CHECKING:
    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.reports import Level

    # facts of the newest messages by thread, or why they cannot be read
    Newest: TypeAlias = dict[str, list[Facts]] | RedisReplyError

MOST_THREADS, MOST_MESSAGES = 100, 100  # the newest ones, which are looked at
TOGETHER = 10  # threads whose messages are read in one round trip
PARTS = 3  # keys that each thread with messages has beside its own: order, messages, ids
STEPS = 20  # of SCAN, of about 1,000 keys each
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
    newest = yield from _newest_facts(state)
    vectors = yield from _vectors(state, newest)
    return [layout, threads, *vectors, *(yield from _unreadable(state, newest)), *(yield from _damaged(state, newest))]


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


def _vectors(state: MemoryState, newest: Newest) -> Plan[list[Finding]]:
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
    return [index, (yield from _model(state, settings)), _coverage(state, settings, newest)]


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


def _newest_facts(state: MemoryState) -> Plan[Newest]:
    """Read the facts of the newest messages of the newest threads, by thread. Two round trips."""
    threads = sorted_search(state.keys.threads_index, build_filter(), "updated_at", descending=True, limit=MOST_THREADS)
    (reply,) = yield from attempt(threads)
    if isinstance(reply, RedisReplyError):
        return reply
    ids = [state.keys.thread_of(row[b"__key"]) for row in rows_of(reply) if row]
    calls = [("ZRANGE", state.keys.of(id).order, -MOST_MESSAGES, -1) for id in ids]
    replies = (yield from attempt(*calls)) if calls else []
    refused = next((one for one in replies if isinstance(one, RedisReplyError)), None)
    if refused is not None:
        return refused
    return {id: [Facts.read(one.decode()) for one in found] for id, found in zip(ids, replies, strict=True)}


def _coverage(state: MemoryState, settings: dict[str, Any], newest: Newest) -> Finding:
    """Count the messages without vectors of the present settings."""
    if isinstance(newest, RedisReplyError):
        return _unknown("vectors", newest)
    dims = settings["dims"]
    digest = state.indexes.index_digest(dims, state.indexes.index_settings(dims, settings)["datatype"])
    seen = [facts.settings == digest for found in newest.values() for facts in found]
    is_all = len(newest) < MOST_THREADS and all(len(found) < MOST_MESSAGES for found in newest.values())
    looked = "all" if is_all else "a sample, the newest"
    lacking = seen.count(False)
    message = f"{lacking:,} of {len(seen):,} messages ({looked}) lack vectors of the present settings"
    return _found("vectors", "warning" if lacking else "ok", message, _REINDEX if lacking else None)


def _unreadable(state: MemoryState, newest: Newest) -> Plan[list[Finding]]:
    """Name the newest messages that cannot be read. One round trip per ten threads."""
    found: list[Finding] = []
    if isinstance(newest, RedisReplyError):
        return found
    filled = [(id, rows) for id, rows in newest.items() if rows]
    for start in range(0, len(filled), TOGETHER):
        some = filled[start : start + TOGETHER]
        calls: list[Command] = [
            ("HMGET", state.keys.of(id).messages, *(facts.seq for facts in rows)) for id, rows in some
        ]
        for (id, rows), bodies in zip(some, (yield from attempt(*calls)), strict=True):
            if isinstance(bodies, RedisReplyError):
                return [*found, _unknown("messages", bodies)]
            for facts, body in zip(rows, bodies, strict=True):
                if any(bodies) and (why := _damage(facts, body)):
                    remedy = f"history.delete([{facts.id!r}], thread_id={id!r}), and append it again if you have it"
                    seen = f"message {facts.id!r} of thread {id!r} cannot be read, and is left out ({why})"
                    found.append(_found("messages", "error", seen, remedy))
    return found


def _damage(facts: Facts, body: bytes | None) -> str:
    """Return why a message cannot be read; empty if it can."""
    try:
        StoredMessage.of(body, "", facts.seq, make=True)
    except UNREADABLE as error:
        return str(error).partition("\n")[0] or type(error).__name__
    return ""


def _broken(id: str, why: str) -> Finding:
    remedy = f"threads.delete({id!r}) deletes the rest, threads.create() begins anew; set maxmemory-policy noeviction"
    return _found(
        "threads",
        "error",
        f"thread {id!r} is damaged, {why}: Redis has evicted keys, or somebody has deleted them",
        remedy,
    )


def _damaged(state: MemoryState, newest: Newest) -> Plan[list[Finding]]:
    """Name threads of which a key is gone while others are there: in about 20,000 keys, and the newest ones."""
    keys, cursors, named = state.keys, None, set[str]()
    kinds = tuple(f"{keys.prefix}:{kind}:{{".encode() for kind in ("order", "superseded", "messages", "ids"))
    try:
        for _ in range(STEPS):
            seen, cursors = yield from scan(f"{keys.prefix}:*:{{*", cursors)
            named |= {keys.thread_of(key) for key in seen if key.startswith(kinds)}
            if not cursors:
                break
    except RedisReplyError as error:
        return [_unknown("threads", error, "grant +scan, which only reads")]
    ids, found = sorted(named | {*([] if isinstance(newest, RedisReplyError) else newest)}), list[Finding]()
    for start in range(0, len(ids), MOST_THREADS):
        some = [keys.of(id) for id in ids[start : start + MOST_THREADS]]
        calls: list[Command] = [
            call
            for one in some
            for call in (("HGET", one.thread, "count"), ("EXISTS", one.order, one.messages, one.ids))
        ]
        replies = yield from attempt(*calls)
        for id, count, number in zip(ids[start:], replies[::2], replies[1::2], strict=False):
            if count is None and number:
                found.append(_broken(id, "nobody knows who owns it"))
            elif not isinstance(count, RedisReplyError) and int(count or 0) and number != PARTS:
                found.append(_broken(id, "a part of its messages is gone"))
    return found
