"""Checks of the server, the indexes and the vectors. They only read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.plan import ANSWER_WHEN_FULL, Plan, attempt, everywhere, scan, send
from langchain_workingmem._redis.codec import UNREADABLE, as_dict, search_version
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
    from collections.abc import Sequence

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.reports import Level

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
    """Return what a master is set to: what a crash loses, what a full server does, and how full it is."""
    if isinstance(info, RedisReplyError):
        checks = ("persistence", "eviction", "memory")
        return [_unknown(check, info, "grant +info, which only reads") for check in checks]
    where = f"{node}: " if node else ""
    broken = [key for key in ("aof_last_write_status", "rdb_last_bgsave_status") if info.get(key, "ok") != "ok"]
    if broken:
        seen = f"{where}{', '.join(broken)}: writing failed"
        kept = _found("persistence", "error", seen, "look at disk and server log")
    elif "aof_enabled" not in info:
        kept = _unknown("persistence", "the server does not tell")
    elif info["aof_enabled"]:
        kept = _found("persistence", "ok", f"{where}append-only file on")
    else:
        seen = f"{where}append-only file off: a crash loses what came after the last snapshot, or everything"
        kept = _found("persistence", "warning", seen, "set appendonly yes, and appendfsync everysec or always")
    policy = info.get("maxmemory_policy")
    if policy is None:
        full = _unknown("eviction", "the server does not tell")
    elif policy == "noeviction":
        full = _found("eviction", "ok", f"{where}noeviction")
    else:
        seen = f"{where}{policy}: a full server throws memories away, messages without their vectors and vice versa"
        full = _found("eviction", "warning", seen, "set maxmemory-policy noeviction: writes then fail instead")
    used, most = info.get("used_memory", 0), info.get("maxmemory", 0)
    seen = f"{where}{used / 2**20:,.0f} MiB used of {f'{most / 2**20:,.0f} MiB' if most else 'no limit'}"
    remedy = "raise maxmemory, or delete old threads: writes fail when it is full"
    is_near = most and used > NEARLY_FULL * most
    return [kept, full, _found("memory", "warning", seen, remedy) if is_near else _found("memory", "ok", seen)]


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
    sample = yield from _sample(state)
    return [layout, threads, *(yield from _vectors(state, sample)), *sample.findings]


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


def _vectors(state: MemoryState, sample: _Sample) -> Plan[list[Finding]]:
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
    return [index, (yield from _model(state, settings)), _coverage(state, settings, sample)]


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


@dataclass(slots=True)
class _Sample:
    """What is stored: the newest messages of the newest threads, and what is wrong with threads."""

    facts: dict[str, list[Facts]] = field(default_factory=dict)  # by thread
    refused: RedisReplyError | None = None
    findings: list[Finding] = field(default_factory=list)

    def damaged(self, id: str, why: str) -> None:
        """Note a thread that lacks a key."""
        seen = f"thread {id!r} is damaged, {why}: Redis has evicted keys, or somebody has deleted them"
        remedy = f"threads.delete({id!r}) deletes the rest; set maxmemory-policy noeviction"
        self.findings.append(_found("threads", "error", seen, remedy))

    def look_at(self, id: str, bodies: Sequence[bytes | None]) -> None:
        """Note the messages of a thread that cannot be read."""
        for facts, body in zip(self.facts[id], bodies, strict=True):
            try:
                if body is not None:  # else it was deleted meanwhile
                    StoredMessage.of(body, "", facts.seq, make=True)
            except UNREADABLE as error:
                why = str(error).partition("\n")[0] or type(error).__name__
                seen = f"message {facts.id!r} of thread {id!r} cannot be read, and is left out ({why})"
                remedy = f"history.delete([{facts.id!r}], thread_id={id!r}), and append it again if you have it"
                self.findings.append(_found("messages", "error", seen, remedy))


def _sample(state: MemoryState) -> Plan[_Sample]:
    """Look at the newest messages of the newest threads, and for threads without an owner."""
    this, keys = _Sample(), state.keys
    newest = sorted_search(keys.threads_index, build_filter(), "updated_at", descending=True, limit=MOST_THREADS)
    try:
        (reply,) = yield from send(newest)
        ids = [keys.thread_of(row[b"__key"]) for row in rows_of(reply) if row]
        for start in range(0, len(ids), TOGETHER):
            yield from _read_newest(state, this, ids[start : start + TOGETHER])
        yield from _find_ownerless(state, this)
    except RedisReplyError as error:
        this.refused = error
        this.findings.append(_unknown("threads", error))
    return this


def _read_newest(state: MemoryState, this: _Sample, ids: Sequence[str]) -> Plan[None]:
    """Read facts and bodies of the newest messages of some threads. Two round trips."""
    calls: list[Command] = []
    for keys in map(state.keys.of, ids):
        calls += [("HGET", keys.thread, "count"), ("EXISTS", keys.order, keys.messages, keys.ids)]
        calls.append(("ZRANGE", keys.order, -MOST_MESSAGES, -1))
    replies = yield from send(*calls)
    for id, count, number, members in zip(ids, replies[::3], replies[1::3], replies[2::3], strict=True):
        if int(count or 0) and number != PARTS:
            this.damaged(id, "a part of its messages is gone")
        elif members:
            this.facts[id] = [Facts.read(one.decode()) for one in members]
    filled = [id for id in ids if id in this.facts]
    reading: list[Command] = [
        ("HMGET", state.keys.of(id).messages, *(one.seq for one in this.facts[id])) for id in filled
    ]
    for id, bodies in zip(filled, (yield from send(*reading)) if reading else (), strict=True):
        this.look_at(id, bodies)


def _find_ownerless(state: MemoryState, this: _Sample) -> Plan[None]:
    """Note threads whose own key is gone, in about 20,000 keys. Two round trips per 1,000."""
    keys, cursors, named = state.keys, None, set[str]()
    kinds = tuple(f"{keys.prefix}:{kind}:{{".encode() for kind in ("order", "messages", "ids"))
    for _ in range(STEPS):
        seen, cursors = yield from scan(f"{keys.prefix}:*:{{*", cursors)
        ids = sorted({keys.thread_of(key) for key in seen if key.startswith(kinds)} - named)
        there = (yield from send(*(("EXISTS", keys.of(id).thread) for id in ids))) if ids else []
        for id, is_there in zip(ids, there, strict=True):
            named.add(id)
            if not is_there:
                this.damaged(id, "nobody knows who owns it")
        if not cursors:
            return


def _coverage(state: MemoryState, settings: dict[str, Any], sample: _Sample) -> Finding:
    """Count the messages without vectors of the present settings."""
    if sample.refused is not None and not sample.facts:
        return _unknown("vectors", sample.refused)
    dims = settings["dims"]
    digest = state.indexes.index_digest(dims, state.indexes.index_settings(dims, settings)["datatype"])
    seen = [facts.settings == digest for found in sample.facts.values() for facts in found]
    is_all = len(sample.facts) < MOST_THREADS and all(len(found) < MOST_MESSAGES for found in sample.facts.values())
    looked = "all" if is_all else "a sample, the newest"
    lacking = seen.count(False)
    message = f"{lacking:,} of {len(seen):,} messages ({looked}) lack vectors of the present settings"
    return _found("vectors", "warning" if lacking else "ok", message, _REINDEX if lacking else None)
