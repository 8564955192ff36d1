"""A kept working memory on a server: what a keeper writes, and who may still find a word."""

from __future__ import annotations

from typing import Any

import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem._documents.formats import TextFormat
from langchain_workingmem._engine.plan import Plan
from langchain_workingmem._redis.access import run_script
from langchain_workingmem.keeping.claims import Claim, Source
from langchain_workingmem.keeping.store import Digests, Kept, change_kept, digest_of, mark_command, read_kept
from langchain_workingmem.models import WorkingMemoryState
from langchain_workingmem.options import Scope
from langchain_workingmem.working_memory import find_scope_key
from tests.helpers.archives import unsealed

ANY: dict[str, Any] = {"type": "object"}
SAID = 1_700_000_000_000_000  # when the first message of a thread counts as said, in microseconds


def talk(memory: Memory, *texts: str, thread: str = "t", owner: str = "u", first: int = 0) -> None:
    """Save turns: the user says a text, and gets an answer. Their ids are q0, a0, q1, ..."""
    for number, text in enumerate(texts, first):
        said = [HumanMessage(text, id=f"q{number}"), AIMessage(f"I see, {number}", id=f"a{number}")]
        memory.save_turn(said, thread_id=thread, user_id=owner)


def seen_by_keeper(
    memory: Memory, thread: str, owner: str, *ids: str, word: str = ""
) -> Plan[tuple[dict[str, int], Digests]]:
    """Mark a thread and read messages of it, as a keeper does: their positions and digests; none if no one holds the word."""
    state = memory._core.state
    keys = state.keys.of(thread)
    _, values, order = yield from run_script(
        thread,
        owner,
        mark_command(state, thread, owner, state.remembering.scope),
        ("HMGET", keys.messages, *ids),
        ("ZMSCORE", keys.order, *ids),
        in_order=True,
    )
    if not any(word in value.decode() for value in values if value):
        return {}, {}
    seqs = {id: int(one) for id, one in zip(ids, order, strict=True) if one is not None}
    return seqs, {(thread, id): digest_of(value) for id, value in zip(ids, values, strict=True) if value}


def keeping(
    memory: Memory,
    values: dict[str, Any],
    *ids: str,
    thread: str = "t",
    owner: str = "u",
    at: int | None = None,
    word: str = "",
) -> Plan[WorkingMemoryState | None]:
    """Keep values by path that messages say; None removes one. Messages that are gone say nothing."""
    state = memory._core.state
    seqs, seen = yield from seen_by_keeper(memory, thread, owner, *ids, word=word)
    if not seqs:
        return None
    scope_key = yield from find_scope_key(state, thread, owner)

    def make(kept: Kept) -> tuple[list[Claim], None]:
        sources = tuple(Source(thread, id, seq) for id, seq in seqs.items())
        said = SAID + max(seqs.values(), default=0) if at is None else at
        return [
            Claim(
                path=path,
                value=value,
                is_set=value is not None,
                said_at=said,
                recorded_at=kept.now,
                origin="keeper",
                sources=sources,
                order=order,
                is_line=isinstance(kept.form, TextFormat),
            )
            for order, (path, value) in enumerate(values.items())
        ], None

    cursor = thread, max(seqs.values(), default=0)
    _, after = yield from change_kept(state, scope_key, make, "keeper", cursor=cursor, seen=seen)
    return after


def keep(memory: Memory, values: dict[str, Any], *ids: str, **options: Any) -> WorkingMemoryState | None:
    """Run `keeping`."""
    return memory._core.run(keeping(memory, values, *ids, **options))


def kept(memory: Memory, thread: str = "t", owner: str = "u") -> Kept:
    """Read a working memory with its values."""

    def read() -> Plan[Kept]:
        scope_key = yield from find_scope_key(memory._core.state, thread, owner)
        return (yield from read_kept(memory._core.state, scope_key))

    return memory._core.run(read())


def keeps(scope: Scope) -> dict[str, Any]:
    """Return the options of a memory for `live`."""
    return {"working_memory": WorkingMemoryOptions(schema=ANY, scope=scope)}


def live(memory: Memory, scope: Scope, thread: str = "t", owner: str = "u", *, searches: bool = True) -> None:
    """Do what there is to do with a kept working memory; `searches`: also what needs an index."""
    ids: Any = {"thread_id": thread, "user_id": owner}
    where: Any = {"thread": thread, "owner": owner}
    part = memory.working_memory
    talk(memory, "I live in Lisbon", "I moved to Xanadu", "and so on", **where)
    keep(memory, {"/city": "Lisbon"}, "q0", **where)
    keep(memory, {"/city": "Xanadu"}, "q1", "a1", **where)
    part.update({"name": "Ann"}, **ids)
    memory.history.truncate(thread, after="a0")
    assert part.get(**ids).value == {"city": "Lisbon", "name": "Ann"}
    talk(memory, "I moved to Xanadu", first=1, **where)
    assert part.get(**ids).value == {"city": "Xanadu", "name": "Ann"}
    copy = memory.threads.clone(thread).thread.id
    memory.history.update([HumanMessage("I moved", id="q1")], **ids)
    memory.history.delete(["a1"], **ids)
    assert part.get(**ids).value == {"city": "Lisbon", "name": "Ann"}
    memory.threads.transfer(copy, user_id=owner, to=f"{owner}, too")
    revision = part.get(**ids).revision
    part.clear(**ids)
    assert part.revert(revision, **ids).value == {"city": "Lisbon", "name": "Ann"}
    records = unsealed(memory.users.export(owner)) if searches else []
    memory.threads.delete(thread)
    assert part.get(**ids).value == ({"name": "Ann"} if scope == "user" else None)
    if searches:
        memory.users.delete(owner)
        memory.users.load(records)
        assert part.get(**ids).value == {"city": "Lisbon", "name": "Ann"}


def everything(raw: redis.Redis, prefix: str) -> dict[str, str]:
    """Return all that is stored under a prefix, as text by key."""
    found: dict[str, str] = {}
    client: Any = raw
    for key in client.scan_iter(f"{prefix}*"):
        kind = client.type(key)
        reading = {
            b"hash": lambda key=key: client.hgetall(key),
            b"string": lambda key=key: client.get(key),
            b"zset": lambda key=key: client.zrange(key, 0, -1),
            b"stream": lambda key=key: client.xrange(key),
        }
        found[key.decode()] = repr(reading[kind]())
    return found


def keys_with(raw: redis.Redis, prefix: str, word: str) -> list[str]:
    """Return the keys under a prefix that hold a word."""
    return [key for key, text in everything(raw, prefix).items() if word in text or word in key]
