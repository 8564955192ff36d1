"""The values of a user that become another one's, when the first is merged into the second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.keys import values_key
from langchain_workingmem.errors import WorkingMemoryConflictError
from langchain_workingmem.keeping.store.commits import change_row, digest_of, read_kept
from langchain_workingmem.working_memory import ATTEMPTS, ScopeKey, pause_after

if TYPE_CHECKING:
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.keeping.store.commits import Digests, Kept, Made


def merged_into(state: MemoryState, source: str, into: str) -> Plan[int]:
    """Give the claims of a user to another one, with their sources and times; return how many there are.

    Of each value what was said last holds; the rest is its history. A claim whose message was deleted or edited meanwhile is left out:
    whoever changes messages during a merge forgets in both memories (forget.lua), and the digests are of messages that were read
    while nothing was forgotten. It can be repeated. Five round trips.
    """
    where, to = (ScopeKey(state.keys.of_user(one), None, one) for one in (source, into))
    like = yield from read_kept(state, to)
    for attempt in range(1, ATTEMPTS + 1):
        origin = yield from read_kept(state, where, like=like)
        seen = yield from _digests(state, origin)
        (version,) = yield from send(("HGET", values_key(where.key), "version"))
        if version == origin.fields.get("version"):
            break
        yield pause_after(attempt)
    else:
        raise WorkingMemoryConflictError(expected=origin.state.revision, actual=origin.state.revision)

    def make(kept: Kept) -> Made:
        return [*origin.values.claims.values()], None if kept.state.text else origin.values.layout

    yield from change_row(state, to, make, "merge", seen=seen, joins=(source, origin))
    return len(origin.values.claims)


def _digests(state: MemoryState, kept: Kept) -> Plan[Digests]:
    """Return digests of the stored messages that values cite. One round trip, none without any."""
    ids: dict[str, dict[str, None]] = {}
    for claim in kept.values.claims.values():
        for one in claim.sources:
            ids.setdefault(one.thread_id, {})[one.message_id] = None
    replies = (
        (yield from send(*(("HMGET", state.keys.of(id).messages, *some) for id, some in ids.items()))) if ids else []
    )
    return {
        (thread_id, id): digest_of(value)
        for (thread_id, some), values in zip(ids.items(), replies, strict=True)
        for id, value in zip(some, values, strict=True)
        if value is not None
    }
