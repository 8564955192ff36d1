"""The doctor: checks of the server, the indexes and the newest messages. They only read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from langchain_workingmem import errors
from langchain_workingmem._engine.plan import Plan, attempt, everywhere, send
from langchain_workingmem._redis.codec import UNREADABLE, as_dict, search_version
from langchain_workingmem._redis.indexes import LAYOUT, compare_layout
from langchain_workingmem._redis.keys import Facts
from langchain_workingmem._redis.queries import is_stale, rows_of, sorted_search
from langchain_workingmem.models import Diagnosis, Finding, StoredMessage

if TYPE_CHECKING:
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import Level

MOST_LOOKED_AT = 100  # the newest threads, and of each the newest messages, that are looked at
NEARLY_FULL = 0.9  # of maxmemory
_REINDEX = "run memory.recall.reindex()"


def diagnose(state: MemoryState) -> Plan[Diagnosis]:
    """Run all checks. A few round trips, and two for each thread that is looked at."""
    checks = {"server": _servers, "layout": _layout, "indexes": _indexes, "threads": _newest_messages}
    findings: list[Finding] = []
    try:
        for check, look in checks.items():
            try:
                findings += yield from look(state)
            except errors.RedisReplyError as error:
                findings.append(_finding(check, "unknown", error))
    except (errors.RedisConnectionError, errors.OptionError) as error:  # nothing else can be looked at
        findings.append(_finding("connection" if isinstance(error, ConnectionError) else check, "error", error))
    except errors.RedisCapabilityError:
        remedy = "use Redis 8, Redis Stack or Redis Cloud; history alone works with create_index=False"
        findings.append(_finding("search", "error", "the server has no Search: no recall, no listings", remedy))
    return Diagnosis(findings=findings)


def _finding(check: str, level: Level, message: str | errors.WorkingMemError, remedy: str | None = None) -> Finding:
    if isinstance(message, errors.WorkingMemError):
        remedy = remedy or message.remedy or "the log of the server may say why"
        message = str(message).removesuffix(f": {message.remedy}")
    return Finding(check=check, level=level, message=message, remedy=remedy)


_WRONG = {  # why something is wrong, and the remedy
    "server": (": writes fail", "connect to the master"),
    "persistence": (
        ": a crash loses what came after the last snapshot, or everything",
        "set appendonly yes, and appendfsync everysec or always",
    ),
    "eviction": (
        ": a full server throws memories away, messages without their vectors and vice versa",
        "set maxmemory-policy noeviction: writes then fail instead",
    ),
    "memory": ("", "raise maxmemory, or delete old threads: writes fail when it is full"),
}


def _servers(_: MemoryState) -> Plan[list[Finding]]:
    """Look at what each master says of itself; the findings begin with its name, if there are several."""
    findings: list[Finding] = []
    for node, replies in (yield from everywhere(("HELLO",), ("INFO",))).items():
        prefix = f"{node}: " if node else ""
        if isinstance(replies, errors.RedisConnectionError):
            remedy = "start it, or give it a replica that takes over: until then no search is answered"
            findings.append(_finding("server", "error", f"{prefix}{replies}", remedy))
            continue
        hello, info = replies
        if isinstance(hello, errors.RedisReplyError):
            findings.append(_finding("server", "unknown", hello))
        else:
            fields = as_dict(hello)
            name, version, mode, role = (fields[key].decode() for key in (b"server", b"version", b"mode", b"role"))
            message = f"{prefix}{name} {version}, {mode}, {role}"
            findings.append(_judged("server", message, "error", is_good=role == "master"))
            if (search := search_version(hello)) is not None:  # a hosted server may hide it
                number = f"{search // 10_000}.{search // 100 % 100}.{search % 100}"
                findings.append(_finding("search", "ok", f"{prefix}Search {number}"))
        if isinstance(info, errors.RedisReplyError):
            findings.append(_finding("memory", "unknown", info, "grant +info, which only reads"))
            continue
        policy, used, limit = (info.get(key, 0) for key in ("maxmemory_policy", "used_memory", "maxmemory"))
        append_only = "on" if info.get("aof_enabled") else "off"
        size = f"{used / 2**20:,.0f} MiB used of {f'{limit / 2**20:,.0f} MiB' if limit else 'no limit'}"
        findings += [
            _judged("persistence", f"{prefix}append-only file {append_only}", is_good=append_only == "on"),
            _judged("eviction", f"{prefix}{policy}", is_good=policy == "noeviction"),
            _judged("memory", f"{prefix}{size}", is_good=not limit or used <= NEARLY_FULL * limit),
        ]
    return findings


def _judged(check: str, message: str, level: Level = "warning", *, is_good: bool) -> Finding:
    why, remedy = _WRONG[check]
    return _finding(check, "ok", message) if is_good else _finding(check, level, f"{message}{why}", remedy)


def _layout(state: MemoryState) -> Plan[list[Finding]]:
    (version,) = yield from send(("HGET", state.keys.layout, "version"))
    if version is not None:
        compare_layout(state.keys, version)
    return [_finding("layout", "ok", f"storage layout {LAYOUT}")]


def _indexes(state: MemoryState) -> Plan[list[Finding]]:
    """Check both indexes, and whether the model fits that of vectors."""
    (stored,) = yield from send(("GET", state.keys.vectors_settings))
    threads = yield from _index("threads index", state.keys.threads_index)
    if stored is None:
        if threads.level == "error":
            threads = _finding("threads index", "ok", "not made yet: made at first use")
        return [threads, _finding("vectors index", "ok", "none: semantic recall was never used here")]
    settings = json.loads(stored)
    vectors = yield from _index("vectors index", state.keys.vectors_index)
    if state.recall is None:
        return [threads, vectors]
    try:
        dims = yield from state.embedder.dimensions()
        state.indexes.check_index_settings(settings, dims)
        model = _finding("model", "ok", f"{state.model}, {dims} dimensions, fits the index")
        if settings["model"] != state.model:
            message = f"the vectors were made by {settings['model']}, the model is now {state.model}"
            model = _finding("model", "warning", message, _REINDEX)
    except (errors.EmbeddingError, errors.EmbeddingSizeError, errors.OptionError) as error:
        model = _finding("model", "error", error)
    return [threads, vectors, model]


def _index(check: str, name: str) -> Plan[Finding]:
    (reply,) = yield from attempt(("FT.INFO", name))
    if isinstance(reply, errors.RedisReplyError):
        if is_stale(reply):
            remedy = "run memory.setup() as a user that may create it"
            return _finding(check, "error", f"there is no index {name!r}", remedy)
        return _finding(check, "unknown", reply)
    info = as_dict(reply)
    # the coordinator of a cluster may write sums as floats
    documents, failures = (float(info[key]) for key in (b"num_docs", b"hash_indexing_failures"))
    message = f"{documents:,.0f} documents"
    if failures:
        remedy = f"{_REINDEX}; the number also counts what was mended since the index was made"
        return _finding(check, "unknown", f"{message}; {failures:,.0f} could not be indexed", remedy)
    return _finding(check, "ok", message)


def _newest_messages(state: MemoryState) -> Plan[list[Finding]]:
    """Look at the newest messages of the newest threads: which lack vectors, cannot be read, or lack a key."""
    (stored,) = yield from send(("GET", state.keys.vectors_settings))
    newest = sorted_search(state.keys.threads_index, "*", "updated_at", descending=True, limit=MOST_LOOKED_AT)
    (reply,) = yield from attempt(newest)
    if isinstance(reply, errors.RedisReplyError):
        return [] if is_stale(reply) else [_finding("threads", "unknown", reply)]  # a missing index was said
    ids = [state.keys.thread_of(row[b"__key"]) for row in rows_of(reply) if row]
    checked, damaged = list[Facts](), list[Finding]()
    for id in ids:
        keys = state.keys.of(id)
        exists = ("EXISTS", keys.order, keys.messages, keys.ids)
        count, existing, members = yield from send(
            ("HGET", keys.thread, "count"), exists, ("ZRANGE", keys.order, -MOST_LOOKED_AT, -1)
        )
        if int(count or 0) and existing < len(exists) - 1:
            why = f"thread {id!r} is damaged: Redis has evicted keys, or somebody has deleted them"
            remedy = f"threads.delete({id!r}) deletes the rest; set maxmemory-policy noeviction"
            damaged.append(_finding("threads", "error", why, remedy))
            continue
        batch = [Facts.read(member.decode()) for member in members]
        bodies = (yield from send(("HMGET", keys.messages, *(facts.seq for facts in batch))))[0] if batch else []
        for facts, body in zip(batch, bodies, strict=True):
            try:
                if body is not None:  # else it was deleted meanwhile
                    StoredMessage.of(body, "", facts.seq).message  # noqa: B018 - makes it
            except UNREADABLE as error:
                why = str(error).partition("\n")[0] or type(error).__name__
                text = f"message {facts.id!r} of thread {id!r} cannot be read, and is left out ({why})"
                remedy = f"history.delete([{facts.id!r}], thread_id={id!r}), and append it again if you have it"
                damaged.append(_finding("messages", "error", text, remedy))
        checked += batch
    if stored is None or state.recall is None:
        return damaged
    settings = json.loads(stored)
    digest = state.indexes.digest_of(state.indexes.index_settings(settings["dims"], settings))
    lacking = sum(facts.settings != digest and not facts.is_refused for facts in checked)
    text = f"{lacking:,} of {len(checked):,} messages, the newest of each thread, lack vectors of the present settings"
    return [_finding("vectors", "warning" if lacking else "ok", text, _REINDEX if lacking else None), *damaged]
