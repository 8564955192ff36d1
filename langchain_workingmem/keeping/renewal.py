"""Makes the document anew where its rows have changed: for a turn at once, in Redis by compare-and-set. Any process can do that."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from langchain_workingmem._engine.plan import Plan, Spawn, compute, send
from langchain_workingmem._redis.keys import encode
from langchain_workingmem._redis.state import Recent
from langchain_workingmem._text.values import to_micros
from langchain_workingmem.derived import NEWEST, Rows, ThreadRows, learn, read_threads, thread_commands
from langchain_workingmem.errors import WorkingMemError, WorkingMemoryConflictError
from langchain_workingmem.keeping.document import KIND, KeeperNotes, RemadeDocument, nobody_else_changed, remake
from langchain_workingmem.working_memory.store import (
    COST,
    ScopeKey,
    pause_after,
    read_commands,
    read_state,
    run_memory,
    state_of,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import WorkingMemoryState
    from langchain_workingmem.working_memory.document import Format

ATTEMPTS = 20  # of a write, where other writers are faster

_log = logging.getLogger("langchain_workingmem")


class _Threads(Recent[str, list[str]]):
    """From which threads the documents were made that this process has read, by key."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The rows from which a document is to be made."""

    shown: dict[str, Rows]
    expired: frozenset[str] = frozenset()  # threads whose time is over
    skipped: frozenset[str] = frozenset()  # threads that were not looked at


def source_commands(state: MemoryState, scope_key: ScopeKey) -> list[Command]:
    """Return the commands that read the rows of a document, as far as this process knows where they lie."""
    if scope_key.thread_id is not None:
        return [ThreadRows(state, scope_key.thread_id, scope_key.user_id, KIND).show()]
    return thread_commands(state, scope_key.user_id or "", KIND, state.local(_Threads).get(scope_key.key) or ())


def read_sources(
    state: MemoryState,
    scope_key: ScopeKey,
    notes: KeeperNotes,
    commands: Sequence[Any],
    replies: Sequence[Any],
    *,
    every: bool = False,
) -> Plan[Sources]:
    """Read the replies to `source_commands`: of the newest threads, and of those whose values hold, or of `every` one.

    One round trip where rows of more threads are needed.
    """
    if scope_key.thread_id is not None:
        rows = learn(commands[0], replies[0])
        return Sources({scope_key.thread_id: rows})
    holding = {value["thread"] for value in notes.values.values() if value["thread"]}
    skipped = frozenset[str]()

    def choose(ids: list[str]) -> list[str]:
        nonlocal skipped
        chosen = [id for index, id in enumerate(ids) if every or index < NEWEST or id in holding]
        skipped = frozenset(ids) - {*chosen}
        state.local(_Threads).put(scope_key.key, chosen)
        return chosen

    by_thread = yield from read_threads(state, scope_key.user_id or "", KIND, commands, replies, choose)
    missing = {id: rows.missing_at for id, rows in by_thread.items() if rows.missing_at is not None}
    # a thread that was deleted is not listed any more, and usually goes before its time
    expiries = {id: notes.threads.get(id, {}).get("expires") or inf for id in missing}
    expired = frozenset(id for id, time in missing.items() if expiries[id] <= time)
    return Sources({id: rows for id, rows in by_thread.items() if id not in missing}, expired, skipped)


def is_current(form: Format, notes: KeeperNotes, sources: Sources) -> bool:
    """Tell whether a document was made from these rows, in this format."""
    revisions = {id: rows.revision for id, rows in sources.shown.items() if rows.rows or id in notes.threads}
    noted_revisions = {id: thread["revision"] for id, thread in notes.threads.items() if id not in sources.skipped}
    holding = {value["thread"] for value in notes.values.values()} - {None}
    is_whole = holding <= notes.threads.keys()  # else it has come with a copy or an archive
    return revisions == noted_revisions and is_whole and notes.is_in(form)


def with_living_sources(
    state: MemoryState,
    scope_key: ScopeKey,
    memory: WorkingMemoryState,
    commands: Sequence[Command] = (),
    replies: Sequence[Any] = (),
) -> Plan[WorkingMemoryState]:
    """Return a document without values whose messages are gone; it is written in the background then.

    One round trip, two where this process does not know the threads yet; without `replies` one more.
    """
    notes = KeeperNotes.read(memory.kept)
    if not replies:
        commands = source_commands(state, scope_key)
        replies = yield from send(*commands)
    sources = yield from read_sources(state, scope_key, notes, commands, replies)
    if is_current(form_of(state, notes), notes, sources):
        return memory
    if sources.skipped:
        sources = yield from read_sources(state, scope_key, notes, commands, replies, every=True)
    remade = yield from _remake(state, memory, notes, sources)
    yield from renew_later(state, scope_key)
    return _remade_state(state, memory, remade)


def renew_later(state: MemoryState, scope_key: ScopeKey) -> Plan[None]:
    """Write the document in the background as its rows have it."""

    def write() -> Plan[None]:
        try:
            yield from renew(state, scope_key)
        except WorkingMemError as error:
            _log.warning("working memory %s is not up to date: %s", scope_key.key, error)

    yield Spawn(write(), task="keep")


def renew(
    state: MemoryState,
    scope_key: ScopeKey,
    proposed: tuple[WorkingMemoryState, str] | None = None,
    *,
    without: str | None = None,
    cuts: bool = True,
    only_cuts: bool = False,
) -> Plan[WorkingMemoryState]:
    """Write the document as its rows have it, unless it is so, and return it. Two round trips, one more where rows of more threads are needed.

    `proposed`: the document that the keeper has read, and what it has made of it. `without`: a path of which what tool, program or person
    have set goes. `cuts`: where rows have gone, revisions that may hold their values go, too; `only_cuts`: it is written only then.
    """
    for attempt in range(1, ATTEMPTS + 1):
        commands = source_commands(state, scope_key)
        replies = yield from send(*read_commands(scope_key), *commands)
        split = len(replies) - len(commands)
        memory = read_state(state, scope_key, replies[:split])
        notes = KeeperNotes.read(memory.kept)
        sources = yield from read_sources(state, scope_key, notes, commands, replies[split:], every=True)
        form = form_of(state, notes)
        is_same = is_current(form, notes, sources) and nobody_else_changed(form, memory.text, notes)
        if is_same and proposed is None and without is None:
            return memory
        text = proposed[1] if proposed is not None and proposed[0].revision == memory.revision else None
        remade = yield from _remake(state, memory, notes, sources, text, without)
        if only_cuts and not remade.loses:
            return memory
        status, row = yield from run_memory(
            state,
            scope_key,
            keep=state.remembering.revisions,
            origin="keeper",
            document=remade.text,
            expected=version_of(memory),
            beside=["kept", remade.notes.write()],
            cut=(remade.loses and cuts) or None,
        )
        if status == "written":
            if sources.expired:
                tags = [encode(id) for id in sources.expired]
                yield from send(("ZREM", state.keys.rows_of_user(scope_key.user_id or "", KIND), *tags))
            return state_of(state, scope_key, row)
        yield pause_after(attempt)
    raise WorkingMemoryConflictError(expected=memory.revision, actual=int(row.get(b"revision", 0)))


def _remake(
    state: MemoryState,
    memory: WorkingMemoryState,
    notes: KeeperNotes,
    sources: Sources,
    proposed: str | None = None,
    without: str | None = None,
) -> Plan[RemadeDocument]:
    at = to_micros(memory.updated_at) if memory.updated_at else 0
    make = partial(
        remake,
        form_of(state, notes),
        memory.text,
        notes,
        sources.shown,
        at=at,
        expired=sources.expired,
        proposed=proposed,
        without=without,
    )
    return (yield from compute(make, COST * len(memory.text)))


def form_of(state: MemoryState, notes: KeeperNotes) -> Format:
    """Return the format of a document: that of the options of a keeper, else the one that a keeper has noted."""
    return state.remembering.format if state.remembering.keeper is not None else notes.form()


def _remade_state(state: MemoryState, memory: WorkingMemoryState, remade: RemadeDocument) -> WorkingMemoryState:
    form = state.remembering.format
    text, notes = remade.text, remade.notes.write()
    if text == memory.text:
        return replace(memory, kept=notes)
    value, is_empty, _ = form.read(text)
    return replace(memory, text=text, value=value, is_empty=is_empty, kept=notes)
