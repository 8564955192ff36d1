"""The Lua scripts, each one atomic step within one hash tag, and their calls over a thread.

The file of a script names KEYS, ARGV and reply. A script runs only for the owner of the thread, whose tombstone lies
in another slot: what was written while the owner is being deleted, the caller takes back (`guarded_write`, `undo`).
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import orjson

from langchain_workingmem._engine.plan import SCRIPT_SOURCES, Plan, Spawn, jittered, send
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import Facts, check_id, decode, encode
from langchain_workingmem.errors import (
    MessageNotFoundError,
    ThreadDamagedError,
    ThreadExistsError,
    ThreadNotFoundError,
    ThreadOwnershipError,
    UserDeletedError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.plan import Argument, Command
    from langchain_workingmem._redis.keys import ThreadKeys
    from langchain_workingmem._redis.state import MemoryState

_PACKAGE = files("langchain_workingmem")
READING, CHANGING = ("common",), ("common", "derived/rows", "changing")  # the parts before a script


@cache
def _source(name: str) -> str:
    folder, _, file = name.rpartition("/")
    return (_PACKAGE / (folder or "_redis") / "lua" / f"{file}.lua").read_text()


class Script:
    """A script, called by its digest; `name`, `parts`: "folder/file" or of `_redis/lua`. allow-oom: it frees memory."""

    def __init__(self, name: str, *parts: str) -> None:
        text = _source(name)
        flags = text[: text.index("\n") + 1] if text.startswith("#!") else ""  # Redis reads them only in the first line
        self.name, self.source = name, "".join((flags, *map(_source, parts), text.removeprefix(flags)))
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        SCRIPT_SOURCES[self.sha] = self.source

    def call(self, keys: Sequence[str], *arguments: Argument) -> Command:
        """Build the command that runs the script."""
        return ("EVALSHA", self.sha, len(keys), *keys, *arguments)

    def on(self, keys: Sequence[str], /, *arguments: Argument, **head: Any) -> Command:
        """Build the call of a script over a thread; what is None is left out of its head."""
        fields = {name: value for name, value in head.items() if value is not None}
        return self.call(keys, orjson.dumps(fields), *arguments)


READ, PAGE = Script("read", *READING), Script("page", *READING)
WRITE, DELETE, THREAD = (Script(name, *CHANGING) for name in ("write", "delete", "thread"))


SWEEP = 500  # vectors that one step deletes, renews or gives to another owner


def find_seqs(keys: ThreadKeys, ids: Sequence[str]) -> Plan[dict[str, int]]:
    """Return where messages lie, by those ids that are there. One round trip, none without ids, two with aliases."""
    values = (yield from send(("HMGET", keys.ids, *ids)))[0] if ids else []
    if aliases := [value[1:] for value in values if value and value[:1] == b"="]:
        resolved = iter((yield from send(("HMGET", keys.ids, *aliases)))[0])
        values = [next(resolved) if value and value[:1] == b"=" else value for value in values]
    pairs = zip(ids, values, strict=True)
    return {id: int(value.split()[0]) for id, value in pairs if value and value[:1] != b"x"}


def read_reply(reply: Any, thread_id: str, user_id: str | None) -> dict[str, Any]:
    """Return the map of a script's reply; raise what it refuses."""
    answer: dict[str, Any] = orjson.loads(reply[0])
    match answer.get("refused"):
        case None:
            return answer
        case "owner" | "self" as refused:
            raise ThreadOwnershipError(thread_id, user_id or "", owns_itself=refused == "self")
        case "exists":
            raise ThreadExistsError(thread_id)
        case "message":
            raise MessageNotFoundError(answer["missing"], thread_id)
        case "damaged":
            raise ThreadDamagedError(thread_id)
        case _:  # "thread"
            raise ThreadNotFoundError(thread_id)


def guarded_write(
    state: MemoryState, thread_id: str, owners: Sequence[str | None], call: Command, *, at_most_once: bool = False
) -> Plan[tuple[list[Any], UserDeletedError | None]]:
    """Send a call that writes into a thread; if an error comes back, the caller undoes the write, and raises it."""
    # Tombstones, in other slots, are read after the write: a deletion finds earlier writes, later ones its tombstone.
    named = [owner for owner in owners if owner is not None]
    checks = [("GET", state.keys.of_user(owner).tombstone) for owner in named]
    reply, *tombstones = yield from send(call, *checks, at_most_once=at_most_once, in_order=True)
    results = [read_reply(reply, thread_id, named[0] if named else None), *reply[1:]]
    if results[0].get("renew"):
        yield Spawn(renew_vectors(state, thread_id), task="ttl")
    deleted = next((owner for owner, tombstone in zip(named, tombstones, strict=True) if tombstone is not None), None)
    return results, None if deleted is None else UserDeletedError(deleted)


def undo(state: MemoryState, thread_id: str, owner: str, version: int | None, ids: Sequence[str] = ()) -> Plan[None]:
    """Undo a write that met the deletion of its user: the thread if it is as `version` says, else the messages."""
    with suppress(ThreadOwnershipError, ThreadNotFoundError):  # it has another owner by now
        yield from delete_from(state, thread_id, owner, what="undo", version=version, ids=[*ids])
    yield jittered(0.05)  # writers that retry at once would keep the deletion from its end


def change_thread(
    state: MemoryState, thread_id: str, user_id: str | None, what: str, *, repeats: bool = False, **head: Any
) -> Plan[dict[bytes, Any]]:
    """Run `thread.lua`; return the fields of the thread. Raises `ThreadNotFoundError`, `UserDeletedError`.

    A thread of a given id is created at most once, unless the caller `repeats` and takes an existing one for its own.
    """
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    call = THREAD.on(keys, user=owner_tag(user_id), what=what, ttl=state.ttl_ms, **head)
    yield from state.indexes.ready()
    is_once = what == "create" and not (repeats or head.get("is_own"))
    (_, fields), deleted = yield from guarded_write(state, thread_id, [user_id], call, at_most_once=is_once)
    row = as_dict(fields)
    if deleted is not None and row:
        if what == "create":
            yield from undo(state, thread_id, user_id or "", int(row[b"version"]))
        raise deleted
    if not row:
        raise ThreadNotFoundError(thread_id)
    return row


def owner_of(state: MemoryState, thread_id: str | None, user_id: str | None) -> Plan[tuple[str, str]]:
    """Return thread and user; without a user, read who owns the thread in a round trip. A new one owns itself."""
    thread_id = check_id(thread_id, "thread_id")
    if user_id is not None:
        return thread_id, check_id(user_id, "user_id")
    (tag,) = yield from send(("HGET", state.keys.of(thread_id).thread, "user"))
    return thread_id, thread_id if tag is None else decode(tag)


def owner_tag(user_id: str | None) -> str:
    """Return the owner as scripts take it; empty: any owner."""
    return "" if user_id is None else encode(check_id(user_id, "user_id"))


def check_owner(tag: bytes | None, thread_id: str, user_id: str | None) -> None:
    """Raise `ThreadOwnershipError` if the `user` field of a thread is not the given owner."""
    if tag is not None and user_id is not None and decode(tag) != user_id:
        raise ThreadOwnershipError(thread_id, user_id, owns_itself=decode(tag) == thread_id)


def check_thread(state: MemoryState, thread_id: str, user_id: str) -> Plan[None]:
    """Raise `ThreadOwnershipError` if the thread belongs to another user. One round trip."""
    (tag,) = yield from send(("HGET", state.keys.of(thread_id).thread, "user"))
    check_owner(tag, thread_id, user_id)


def delete_from(
    state: MemoryState,
    thread_id: str,
    user_id: str | None,
    *,
    what: str,
    repeats: bool = False,
    beside: Sequence[Command] = (),  # sent in front of it, and behind it again
    **head: Any,
) -> Plan[dict[str, Any]]:
    """Run `delete.lua` over a thread, and delete the vectors that it has left; return the map of its reply."""
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    call = DELETE.on(keys, user=owner_tag(user_id), what=what, most=SWEEP, **head)
    is_once = what != "undo" and not repeats  # who deletes is told a number
    replies = yield from send(*beside, call, *beside, in_order=True, at_most_once=is_once)
    answer = read_reply(replies[len(beside)], thread_id, user_id)
    if answer.get("renew"):
        yield Spawn(renew_vectors(state, thread_id), task="ttl")
    if answer.get("is_left"):
        answer["vectors"] += yield from sweep(state, thread_id)
    return answer


def sweep(state: MemoryState, *thread_ids: str) -> Plan[int]:
    """Delete the vectors of dropped messages; return how many. One round trip for each 500."""
    waiting, deleted = list(thread_ids), 0
    while waiting:
        limit = max(1, SWEEP // len(waiting))
        replies = yield from send(*(DELETE.on(state.keys.of(id), user="", what="sweep", most=limit) for id in waiting))
        answers = [orjson.loads(reply[0]) for reply in replies]
        deleted += sum(int(answer.get("vectors", 0)) for answer in answers)
        waiting = [id for id, answer in zip(waiting, answers, strict=True) if answer.get("is_left")]
    return deleted


def renew_vectors(state: MemoryState, thread_id: str) -> Plan[None]:
    """Let the vectors of a thread live a ttl longer than it. Two round trips, and one for each 500 messages."""
    keys, after = state.keys.of(thread_id), "-inf"
    expires_at, ttl = yield from send(("PEXPIRETIME", keys.thread), ("HGET", keys.thread, "ttl"))
    until = min(int(expires_at) + int(ttl or 0), 9_223_372_036_854)
    while expires_at > 0:
        (members,) = yield from send(("ZRANGE", keys.order, after, "+inf", "BYSCORE", "LIMIT", 0, SWEEP))
        batch = [Facts.read(member.decode()) for member in members]
        names = [name for facts in batch for name in vector_names(keys.vector, facts)]
        if names:
            yield from send(*(("PEXPIREAT", name, until) for name in names))
        if len(batch) < SWEEP:
            yield from send(THREAD.on(keys, user="", what="vectors", until=until))
            break
        after = f"({batch[-1].seq}"


def vector_names(prefix: str, facts: Facts) -> list[str]:
    """Return the keys of the vectors of a message."""
    if not facts.vectors:
        return []
    _, chunks, length, author = facts.vectors.split("/")
    return [f"{prefix}{facts.seq}:{chunk}:{length}:{author}" for chunk in range(int(chunks))]
