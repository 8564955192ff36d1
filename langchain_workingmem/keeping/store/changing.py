"""What tools, programs and persons write into a working memory that a keeper keeps: their values are kept, too."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.access import create_thread_document, owner_of
from langchain_workingmem._redis.codec import as_dict, to_micros
from langchain_workingmem.errors import OptionError, RedisReplyError, ThreadExistsError
from langchain_workingmem.keeping.claims import Source
from langchain_workingmem.keeping.store.commits import change_row, mark_command, read_kept
from langchain_workingmem.keeping.store.outlines import form_of_text
from langchain_workingmem.keeping.values import changes
from langchain_workingmem.working_memory import PROGRAM, Said, check_document, is_written, reader_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workingmem._documents.formats import Format
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.keeping.claims import Claim
    from langchain_workingmem.keeping.store.commits import Kept, Made
    from langchain_workingmem.models import WorkingMemoryState
    from langchain_workingmem.working_memory import ScopeKey


def change(
    state: MemoryState,
    scope_key: ScopeKey,
    make: Callable[[Format, str], str],
    origin: str,
    expected: int | None = None,
    said: Said = PROGRAM,
) -> Plan[tuple[WorkingMemoryState, WorkingMemoryState]]:
    """Change a working memory as `change_at_scope_key` does, and keep who said so and when.

    Two round trips without concurrent writers, one more with messages.
    """
    (before, after) = yield from _changed(state, scope_key, make, origin, expected, said)
    read = reader_of(state, scope_key)
    return read(before), read(after)


def _changed(
    state: MemoryState,
    scope_key: ScopeKey,
    make: Callable[[Format, str], str],
    origin: str,
    expected: int | None = None,
    said: Said = PROGRAM,
    *,
    restores: bool = False,
    into: Format | None = None,
) -> Plan[tuple[dict[bytes, bytes], dict[bytes, bytes]]]:
    sources = yield from _cited(state, scope_key, said)
    into = state.remembering.format if said.converts else into

    def claims(kept: Kept) -> Made:
        if not kept.is_kept and getattr(state.remembering, "keeper", None) is None:
            remedy = "pass WorkingMemoryOptions(keeper=...), or leave said_at out"
            raise OptionError("nothing keeps when the values of this working memory were said", remedy=remedy)
        form = into if into is not None and type(into) is not type(kept.form) else kept.form
        after = check_document(state, make(form, kept.state.text))
        if said.at is None and after == kept.state.text:
            return (), None
        # what is said now counts, even after messages whose time lies ahead of this clock
        latest = max((one.said_at + 1 for one in kept.values.claims.values()), default=0)
        at = max(kept.now, latest) if said.at is None else to_micros(said.at)
        made, layout = changes(
            form, kept.values, after, said_at=at, recorded_at=kept.now, origin=said.by, sources=sources
        )
        if form is not kept.form:
            return [inherited(kept, one) for one in made], layout
        return [restored(kept, one) for one in made] if restores else made, layout

    def is_repeated(kept: Kept) -> Plan[bool]:
        return is_written(state, scope_key, kept.form, make, expected or 0)

    return (yield from change_row(state, scope_key, claims, origin, expected, into=into, is_repeated=is_repeated))


def write(
    state: MemoryState, scope_key: ScopeKey, expected: str, origin: str, what: str, value: str | int
) -> Plan[tuple[int, dict[bytes, bytes]]]:
    """Write what `write_revision` was asked to write, where it found that a keeper keeps the document."""
    if what == "revert":
        key = scope_key.keys[-1]
        (entries,) = yield from send(("XRANGE", key, f"{value}-0", f"{value}-0"))
        row = as_dict(entries[0][1]) if entries else {b"forgotten": b"1"}
        if b"forgotten" in row:
            return -1, {}
        value = row[b"document"].decode()
    elif expected:  # another writer was faster: this one has seen a document that nobody kept
        (found,) = yield from send(("HGETALL", scope_key.key))
        return 0, as_dict(found)
    restores, into = what == "revert", None
    if restores:
        into = form_of_text(state.remembering.format, str(value))
    change: Callable[[Format, str], str] = lambda *_: str(value)  # noqa: E731
    _, after = yield from _changed(state, scope_key, change, origin, restores=restores, into=into)
    return 1, after


def restored(kept: Kept, claim: Claim) -> Claim:
    """Let a value that held before stand on the messages that it stood on: it goes with them."""
    same = [
        one
        for one in kept.values.claims.values()
        if (one.path, one.is_set, one.value) == (claim.path, claim.is_set, claim.value) and claim.is_set
    ]
    found = {source[:2]: source._replace(said_at=0) for one in same for source in one.sources}
    return claim if any(not one.sources for one in same) else replace(claim, sources=tuple(found.values()))


def inherited(kept: Kept, claim: Claim) -> Claim:
    """Let a value that was copied into another format stand on the messages of the value that it is, or is a part of."""
    text = _words(claim)
    same = [one for one in kept.values.claims.values() if claim.is_set and one.is_set and _overlap(_words(one), text)]
    found = {source[:2]: source._replace(said_at=0) for one in same for source in one.sources}
    is_said = not same or any(not one.sources for one in same)
    return claim if is_said else replace(claim, sources=tuple(found.values()))


def _overlap(one: str, other: str) -> bool:
    return bool(one and other) and (one in other or other in one)


def _words(claim: Claim) -> str:
    return (claim.value if isinstance(claim.value, str) else json.dumps(claim.value, ensure_ascii=False)).casefold()


def rendered(state: MemoryState, scope_key: ScopeKey) -> Plan[WorkingMemoryState]:
    """Make the document of the values that are left. Two round trips; it is only returned where the server refuses to store it."""
    try:
        _, row = yield from change_row(state, scope_key, lambda _: ((), None), "forget")
    except RedisReplyError:  # a full server, or a replica
        return (yield from read_kept(state, scope_key)).state
    return reader_of(state, scope_key)(row)


def _cited(state: MemoryState, scope_key: ScopeKey, said: Said) -> Plan[tuple[Source, ...]]:
    """Return messages as sources; their threads, which may be new, tell from now on what is deleted of them."""
    scope = "user" if scope_key.thread_id is None else "thread"
    for thread_id in {thread_id for thread_id, _ in said.messages}:
        _, owner = yield from owner_of(state, thread_id, scope_key.user_id)
        (is_there,) = yield from send(mark_command(state, thread_id, owner, scope))
        if not is_there:
            with suppress(ThreadExistsError):
                yield from create_thread_document(state, thread_id, owner)
            yield from send(mark_command(state, thread_id, owner, scope))
    return tuple(Source(thread_id, id, -1) for thread_id, id in said.messages)
