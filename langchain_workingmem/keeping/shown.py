"""What users see of values: each with its time and sources, the document as it held at a time, and the way back to what held before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from langchain_workingmem._engine.plan import send
from langchain_workingmem._redis.access import check_owner
from langchain_workingmem._redis.codec import decode_message, from_micros
from langchain_workingmem.keeping.claims import Claim
from langchain_workingmem.keeping.store import change_kept, read_kept
from langchain_workingmem.keeping.store.changing import rendered, restored
from langchain_workingmem.remembered import WorkingMemoryValue, not_kept, unknown_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langchain_workingmem._documents.formats import Format
    from langchain_workingmem._engine.plan import Command, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.keeping.store import Kept, Made
    from langchain_workingmem.keeping.values import Held, Values
    from langchain_workingmem.models import StoredMessage, WorkingMemoryState
    from langchain_workingmem.working_memory import ScopeKey


def timeline(values: Values, form: Format) -> dict[str, tuple[WorkingMemoryValue, ...]]:
    """Return what holds and held by path, the newest first: the present values in the order of the document, then the others."""
    paths = dict.fromkeys([*values.present(form), *sorted(path for path in values.paths if not path.endswith("/"))])
    return {path: tuple(_value(path, one) for one in values.history(path)) for path in paths}


def _value(path: str, held: Held) -> WorkingMemoryValue:
    return WorkingMemoryValue(
        path=path,
        value=held.value,
        since=from_micros(held.since),
        until=None if held.until is None else from_micros(held.until),
        sources=[(source.thread_id, source.message_id) for source in held.sources],
        origin=held.origin,
        recorded_at=from_micros(held.recorded_at),
        is_set=held.is_set,
        positions=tuple(source.seq for source in held.sources),
    )


def read(state: MemoryState, scope_key: ScopeKey) -> Plan[WorkingMemoryState]:
    """Read a working memory with the sources and the history of its values. One round trip, three after a deletion took values of it."""
    kept = yield from read_kept(state, scope_key)
    if b"stale" in kept.row:  # the document that is left becomes a revision
        yield from rendered(state, scope_key)
        kept = yield from read_kept(state, scope_key)
    return replace(kept.state, timeline=timeline(kept.values, kept.form), is_kept=True)


def messages_behind(
    state: MemoryState, sources: Iterable[tuple[str, str]], user_id: str | None
) -> Plan[list[StoredMessage]]:
    """Read the messages behind a value, in order of time, without those that are gone. One round trip, none without sources."""
    ids: dict[str, list[str]] = {}
    for thread_id, id in dict.fromkeys(sources):  # a value that was brought back stands on the message twice
        ids.setdefault(thread_id, []).append(id)
    commands: list[Command] = []
    for thread_id, some in ids.items():
        keys = state.keys.of(thread_id)
        commands += [("HGET", keys.thread, "user"), ("ZMSCORE", keys.order, *some), ("HMGET", keys.messages, *some)]
    replies = (yield from send(*commands)) if commands else []
    found: list[StoredMessage] = []
    for (thread_id, some), owner, seqs, values in zip(
        ids.items(), replies[::3], replies[1::3], replies[2::3], strict=True
    ):
        check_owner(owner, thread_id, user_id)
        found += [
            decode_message(id.encode(), str(int(seq)).encode(), value, thread_id)
            for id, seq, value in zip(some, seqs, values, strict=True)
            if seq is not None and value is not None
        ]
    return sorted(found, key=lambda row: row.stored_at)


def undo(state: MemoryState, scope_key: ScopeKey, path: str) -> Plan[tuple[WorkingMemoryState, WorkingMemoryState]]:
    """Set a value back to what held before it; return the states before and after. Two round trips."""

    def back(kept: Kept) -> Made:
        _check_kept(state, kept)
        history = kept.values.history(path)
        if not history:
            raise unknown_path(path, timeline(kept.values, kept.form))
        before = history[1] if len(history) > 1 else None
        same = next(claim for claim in kept.values.claims.values() if claim.path == path)
        claim = Claim(
            path=path,
            value=before.value if before else None,
            is_set=before is not None and before.is_set,
            said_at=max(kept.now, 1 + max(one.said_at for one in kept.values.claims.values())),
            recorded_at=kept.now,
            origin="person",
            is_line=same.is_line,
        )
        return [restored(kept, claim)], None

    return change_kept(state, scope_key, back, "undo")


def _check_kept(state: MemoryState, kept: Kept) -> None:
    if not kept.is_kept and not state.keeps:
        raise not_kept()
