"""Checks of the server, the indexes and the vectors. They only read."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.effects import ANSWER_WHEN_FULL, Plan, Scan, attempt, scan, survey
from langchain_workingmem._redis.codec import as_dict, search_version
from langchain_workingmem._redis.indexes import probe_dimensions
from langchain_workingmem._redis.layout import (
    HAS_CLOCK,
    LAYOUT,
    NEWER_REDIS,
    NO_CLOCK,
    SEARCH_ON_OOM,
    compare_layout,
    oom_policy,
    search_again,
    when_full,
)
from langchain_workingmem._redis.queries import build_filter, built_as, columns, rows_of, sorted_search
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
from langchain_workingmem.reports import Diagnosis, Finding, alike

if TYPE_CHECKING:
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.reports import Level

COUNT_DIGESTS, COUNT_MEDIA = Script("count_digests"), Script("count_media", "header")

MOST_THREADS, MOST_MESSAGES = 1000, 100  # the newest ones, which are checked for missing vectors
MOST_COMPARED = 1000  # messages of a thread whose media are compared with them
MOST_STEPS = 10  # of SCAN, to find out whether there is a thread
NEARLY_FULL = 0.9  # of maxmemory
COORDINATOR = 80_600  # the first version of Search that was tested in a cluster without a fault
_SETUP = "run memory.setup() as a user that may create indexes"
_REINDEX = Remedy("run {reindex}")
_OF_OTHERS = "those of another model, other filterable keys, roles or chunk_tokens"
_RESTORE = (
    "restore what is lost from a backup; users.export() and users.load() into another database count the rest anew"
)
_MORE_RIGHTS = "run the doctor as a user with more rights"
_START = "start Redis (docker run -p 6379:6379 redis:8), or correct the URL"
_TAKES_OVER = "start it, or give it a replica that takes over: until then no search is answered"
_SAME_USERS = "make the same users on every node, and keep them with ACL SAVE, or CONFIG REWRITE without an aclfile"
_NO_LOGIN = "Redis refused the login"  # how our error begins


def diagnose(state: MemoryState, open_for: float | None = None, *, most_threads: int | None = None) -> Plan[Diagnosis]:
    """Run all checks: about nine round trips; with recall sixteen, and one call of the embedding model.

    `open_for` is how many seconds the circuit breaker has been open, None if it is closed. Messages of the newest
    `most_threads` are checked for vectors and media, by default of 1,000, which takes a third of a second.
    """
    findings: list[Finding] = []
    try:
        hello = yield from _ask_all("HELLO")  # every user may send it
        findings += _server(hello)
        if 0 in dict((yield from _ask_all(*HAS_CLOCK))).values():
            findings.append(_found("scripts", "error", NO_CLOCK, NEWER_REDIS))
        findings += yield from _settings_of_server()
        findings += yield from _search_when_full(state, dict(hello))
        if (fresh := (yield from _new(state))) is not None:
            findings += fresh
        else:
            findings += yield from _layout(state)
            findings += yield from _index("threads index", state.keys.threads_index)
            findings += yield from _vectors(state, most_threads or MOST_THREADS)
            findings += yield from _media(state, most_threads or MOST_THREADS)
    except RedisCapabilityError:
        remedy = "use Redis 8, Redis Stack or Redis Cloud; history alone works with create_index=False"
        findings.append(_found("search", "error", "the server has no Search: no recall, no listings", remedy))
    except RedisConnectionError as error:
        answered = bool(findings) or str(error).startswith(_NO_LOGIN)
        findings.append(_found("connection", "error", _said(error), error.remedy if answered else _START))
    if open_for is not None:
        message = f"open for {open_for:,.0f} s: Redis has failed, and what runs with on_error='log' goes without memory"
        remedy = "none when Redis answers: the first reply closes it"
        findings.append(_found("circuit breaker", "warning", message, remedy))
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


def _layout(state: MemoryState) -> Plan[list[Finding]]:
    stored = yield from _ask("HGET", state.keys.layout, "version")
    if isinstance(stored, RedisReplyError):
        return [_unknown("layout", stored)]
    try:
        compare_layout(state.keys, stored)
    except OptionError as error:
        return [_found("layout", "error", _said(error), error.remedy)]
    return [_found("layout", "ok", f"storage layout {LAYOUT}")]


# ---------------------------------------------------------------------- the server


def _ask_all(*command: Any) -> Plan[list[tuple[str, Any]]]:
    """Return the reply of every master with its host:port, "" without a cluster; a second time if one was lost."""
    rows = yield from survey(command)
    if any(isinstance(reply, RedisConnectionError) for _, reply in rows):  # the connection may have been an old one
        rows = yield from survey(command)
    return rows


def _server(rows: list[tuple[str, Any]]) -> list[Finding]:
    found: list[Finding] = []
    for node, reply in rows:
        if isinstance(reply, RedisConnectionError):
            seen = _said(reply)
            is_down = not seen.startswith(_NO_LOGIN)
            message, remedy = (f"{node} is down: {seen}", _TAKES_OVER) if is_down else (f"{node}: {seen}", _SAME_USERS)
            found.append(_found("server", "error", message, remedy))
    answers = [(node, reply) for node, reply in rows if not isinstance(reply, RedisConnectionError)]
    return [*found, *alike([(node, _about(reply)) for node, reply in answers])]


def _about(reply: Any) -> list[Finding]:
    if isinstance(reply, RedisReplyError):
        return [_unknown("server", reply)]
    about = as_dict(reply)
    name, version, mode, role = (about.get(key, b"?").decode() for key in (b"server", b"version", b"mode", b"role"))
    if role in {"slave", "replica"}:
        found = [_found("server", "error", f"{name} {version} is a {role}: writes fail", "connect to the master")]
    else:
        found = [_found("server", "ok", f"{name} {version}, {mode}, {role}")]
    search = search_version(reply)
    if search is not None:  # a hosted server may hide its modules; the checks of the indexes decide
        major, rest = divmod(search, 10_000)
        seen = f"Search {major}.{rest // 100}.{rest % 100}"
        if mode == "cluster" and search < COORDINATOR:
            seen = f"{seen}: in a cluster, a search over RESP3 may leave out a master that was restarted"
            found.append(_found("search", "warning", seen, "use Redis 8.6, or cluster clients with protocol=2"))
        else:
            found.append(_found("search", "ok", seen))
    return found


def _settings_of_server() -> Plan[list[Finding]]:
    rows = yield from _ask_all("INFO")
    can_tell = any(isinstance(info, dict) for _, info in rows)
    snapshots = dict((yield from _ask_all("CONFIG", "GET", "save"))) if can_tell else {}
    answers = [(node, info) for node, info in rows if not isinstance(info, RedisConnectionError)]
    return alike([(node, _settings(info, snapshots.get(node))) for node, info in answers])


def _settings(info: Any, snapshots: Any) -> list[Finding]:
    if isinstance(info, RedisReplyError):
        checks = ("persistence", "eviction", "memory")
        return [_unknown(check, info, "grant +info, which only reads") for check in checks]
    return [_persistence(info, snapshots), _eviction(info), _memory(info)]


def _persistence(info: dict[str, Any], snapshots: Any) -> Finding:
    broken = [key for key in ("aof_last_write_status", "rdb_last_bgsave_status") if info.get(key, "ok") != "ok"]
    remedy = "set appendonly yes, and appendfsync everysec or always"
    if broken:
        return _found("persistence", "error", f"{', '.join(broken)}: writing failed", "look at disk and server log")
    if "aof_enabled" not in info:
        return _unknown("persistence", "the server does not tell")
    if info["aof_enabled"]:
        return _found("persistence", "ok", "append-only file on")
    seen = "off: a restart loses everything"
    if isinstance(snapshots, RedisReplyError | RedisConnectionError):
        seen = "append-only file off; snapshots: not to be seen"
    elif any(as_dict(snapshots).values()):
        seen = "snapshots only: a crash loses what came after the last one"
    return _found("persistence", "warning", seen, remedy)


def _eviction(info: dict[str, Any]) -> Finding:
    policy = info.get("maxmemory_policy")
    if policy is None:
        return _unknown("eviction", "the server does not tell")
    if policy == "noeviction":
        return _found("eviction", "ok", "noeviction")
    message = f"{policy}: a full server throws memories away, messages without their vectors and vice versa"
    return _found("eviction", "warning", message, "set maxmemory-policy noeviction: writes then fail instead")


def _memory(info: dict[str, Any]) -> Finding:
    used, most = info.get("used_memory", 0), info.get("maxmemory", 0)
    seen = f"{used / 2**20:,.0f} MiB used of {f'{most / 2**20:,.0f} MiB' if most else 'no limit'}"
    if most and used > NEARLY_FULL * most:
        return _found("memory", "warning", seen, "raise maxmemory, or delete old threads: writes fail when it is full")
    return _found("memory", "ok", seen)


def _search_when_full(state: MemoryState, hello: dict[str, Any]) -> Plan[list[Finding]]:
    state.when_full, told = "all", []
    for node, setting in (yield from _ask_all(*SEARCH_ON_OOM)):
        about = hello.get(node)
        if not isinstance(setting, RedisConnectionError) and not isinstance(about, RedisConnectionError | None):
            policy = oom_policy(setting, about)
            if (seen := when_full(policy, about)) != "all":
                state.when_full = seen
            told.append((node, _oom(policy, setting)))
    return alike(told)


def _oom(policy: str | None, setting: Any) -> list[Finding]:
    check = "search when full"
    if policy is None:
        seen = setting if isinstance(setting, RedisReplyError) else "the server does not show search-on-oom"
        return [_unknown(check, seen, "grant +config|get, or CONFIG SET search-on-oom ignore to be sure")]
    if policy == "return":
        message = "search-on-oom is return: when memory is full, searches fail or find nothing"
        return [_found(check, "warning", message, ANSWER_WHEN_FULL)]
    return [_found(check, "ok", f"search-on-oom is {policy}")] if policy else []


# ---------------------------------------------------------------------- indexes


def _new(state: MemoryState) -> Plan[list[Finding] | None]:
    """Return findings for a memory that was never used, None for one in use. At least two round trips.

    An unused memory has no index and no thread. On a shared server with very many keys, only some are checked. A user who
    may not list them is told what is unknown, unless a layout was written.
    """
    keys = state.keys
    info = yield from _ask("FT.INFO", keys.threads_index)
    stored = yield from _ask("GET", keys.vectors_settings)
    if not isinstance(info, RedisReplyError) or info.code == "NOPERM" or stored is not None:
        return None
    step: Scan | None = Scan(f"{keys.thread_prefix}*")
    for _ in range(MOST_STEPS):
        if step is not None:
            try:
                threads, step = yield from scan(step)
            except RedisReplyError:  # the user of the application may not look through the keys
                if (yield from _ask("HGET", keys.layout, "version")) is not None:
                    return None
                break
            if threads:
                return None
    checks = ["threads index", *(["vectors index"] if state.recall else [])]
    seen = "not made yet: made at first use" + ("" if state.indexes.create else ", by a program that may create it")
    if step is None:
        return [_found(check, "ok", seen) for check in checks]
    return [_unknown(check, f"{seen}, unless it was dropped", _SETUP) for check in checks]


def _index(check: str, name: str, settings: dict[str, Any] | None = None) -> Plan[list[Finding]]:
    reply = yield from _ask("FT.INFO", name)
    if isinstance(reply, RedisReplyError):
        if reply.code == "NOPERM":
            return [_unknown(check, reply)]
        return [_found(check, "error", f"there is no index {name!r} ({reply})", _SETUP)]
    info = as_dict(reply)
    # the coordinator of a cluster may write sums as floats
    names = (b"num_docs", b"hash_indexing_failures", b"indexing", b"total_index_memory_sz_mb")
    documents, failures, is_indexing, size = (float(info.get(name, 0)) for name in names)
    seen = f"{documents:,.0f} documents, {size:,.1f} MiB"
    other = [f"{name}={value}" for name, value in built_as(info).items() if settings and settings[name] != value]
    if other:  # a change of the settings was interrupted
        seen = f"{seen}; it was built with {', '.join(other)}, its settings say otherwise"
        return [_found(check, "error", seen, _REINDEX)]
    part = float(info.get(b"percent_indexed", 1))
    if is_indexing and part < 1:  # for a while after a restart Search reports indexing, and a percentage of 16,350
        return [_found(check, "warning", f"{seen}; {part:.0%} is indexed", "wait: searches miss the rest until then")]
    if not failures:
        return [_found(check, "ok", seen)]
    if (yield from _is_mended(name, as_dict(info.get(b"Index Errors", ())).get(b"last indexing error key"))):
        return [_found(check, "ok", f"{seen}; {failures:,.0f} were refused, the last of them was mended or deleted")]
    remedy = Remedy("run {reindex}; the number also counts what was mended since the index was made")
    return [_found(check, "warning", f"{seen}; {failures:,.0f} could not be indexed", remedy)]


def _is_mended(name: str, key: bytes | None) -> Plan[bool]:
    """Return whether the document that was refused last is in the index now, or gone; what came before is not known."""
    if key is None or b"{" not in key:  # hidden, with hide-user-data-from-log
        return False
    if (yield from _ask("EXISTS", key)) == 0:
        return True
    reply = yield from _ask("FT.SEARCH", name, "*", "INKEYS", 1, key, "NOCONTENT", "TIMEOUT", 0)
    return not isinstance(reply, RedisReplyError) and bool(columns(reply, content=False)[0])


# ---------------------------------------------------------------------- vectors and the model


def _vectors(state: MemoryState, most_threads: int) -> Plan[list[Finding]]:
    stored = yield from _ask("GET", state.keys.vectors_settings)
    if isinstance(stored, RedisReplyError):
        return [_unknown("vectors", stored)]
    if stored is None:
        if state.recall is None:
            return [_found("vectors index", "ok", "none: semantic recall was never used here")]
        return [_found("vectors index", "error", "there is none", _SETUP)]
    settings = json.loads(stored)
    index = yield from _index("vectors index", state.keys.vectors_index, settings)
    model = (yield from _model(state, settings)) if state.recall else []
    return [*index, *model, *(yield from _coverage(state, settings, most_threads))]


def _model(state: MemoryState, settings: dict[str, Any]) -> Plan[list[Finding]]:
    try:
        dims = yield from probe_dimensions()
        state.indexes.check_index_settings(settings, dims)
    except (EmbeddingError, EmbeddingSizeError, OptionError) as error:
        return [_found("model", "error", _said(error), error.remedy or "")]
    if settings["model"] != state.indexes.model:
        message = f"the vectors were made by {settings['model']}, the model is now {state.indexes.model}"
        return [_found("model", "warning", message, _REINDEX)]
    return [_found("model", "ok", f"{state.indexes.model}, {dims} dimensions, fits the index")]


def _coverage(state: MemoryState, settings: dict[str, Any], most_threads: int) -> Plan[list[Finding]]:
    """Count the messages without vectors of the present settings: all, or the newest of the newest threads."""
    threads, most = state.keys.threads_index, most_threads + 1
    newest = sorted_search(threads, build_filter(), "updated_at", descending=True, limit=most, fields=["count"])
    replies = yield from attempt(newest)
    yield from search_again(state, [newest], replies)
    reply = replies[0]
    if isinstance(reply, RedisReplyError):
        return [_unknown("vectors", reply)]
    found = [row for row in rows_of(reply) if row]
    rows, roles = found[:most_threads], state.recall.roles if state.recall else ("human", "ai")
    ids = [state.keys.thread_of(row[b"__key"]) for row in rows]
    calls = [COUNT_DIGESTS.call(state.keys.of(id).all, f",{','.join(roles)},", MOST_MESSAGES) for id in ids]
    replies = (yield from attempt(*calls)) if calls else []
    refused = next((reply for reply in replies if isinstance(reply, RedisReplyError)), None)
    if refused is not None:
        return [_unknown("vectors", refused)]
    digests: Counter[str] = Counter()
    for one in replies:
        digests.update({digest.decode(): int(count) for digest, count in as_dict(one).items()})
    is_exact = len(found) == len(rows) and all(int(row[b"count"]) <= MOST_MESSAGES for row in rows)
    looked = "all" if is_exact else "a sample, the newest"
    where = f"of {digests.total():,} messages ({looked})"
    if state.recall:
        dims = settings["dims"]
        dtype = state.indexes.index_settings(dims, settings)["datatype"]
        lacking = digests.total() - digests[state.indexes.index_digest(dims, dtype)]
        why = f", {others:,} have {_OF_OTHERS}" if (others := lacking - digests[""]) else ""
        message = f"{lacking:,} {where} lack vectors of the present settings{why}"
    else:
        lacking = digests[""]
        message = f"{lacking:,} {where} lack vectors; settings of the others: {len(digests) - ('' in digests)}"
    return [_found("vectors", "warning" if lacking else "ok", message, _REINDEX if lacking else None)]


# ---------------------------------------------------------------------- media


def _media(state: MemoryState, most_threads: int) -> Plan[list[Finding]]:
    """Compare the media of the newest threads with the references to them; no finding without media. Two round trips."""
    name, most = state.keys.threads_index, most_threads
    (reply,) = yield from attempt(sorted_search(name, build_filter(), "updated_at", descending=True, limit=most))
    found = [] if isinstance(reply, RedisReplyError) else rows_of(reply)  # the check of the index says why
    ids = [state.keys.thread_of(row[b"__key"]) for row in found if row]
    replies = (
        (yield from attempt(*(COUNT_MEDIA.call(state.keys.of(id).all, MOST_COMPARED) for id in ids))) if ids else []
    )
    counts = [map(int, one) for one in replies if not isinstance(one, RedisReplyError)]
    threads, number, lost, left, wrong = map(sum, zip([0] * 5, *counts, strict=True))
    seen = f"{number:,} pictures and files of {threads:,} threads"
    if lost or left or wrong:
        seen += f": {lost:,} references to lost ones, {left:,} without a message, {wrong:,} counted wrongly"
        return [_found("media", "warning", seen, _RESTORE)]
    return [_found("media", "ok", seen)] if number else []
