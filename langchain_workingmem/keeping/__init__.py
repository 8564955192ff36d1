"""Working memory that keeps itself: a model reads what was said, and each value has its messages, and since when it holds."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.calls import chat_model_by_name
from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.scripts import owner_of
from langchain_workingmem._redis.state import Part
from langchain_workingmem._text.values import from_micros, to_micros
from langchain_workingmem.derived import Rows, ThreadRows
from langchain_workingmem.errors import OptionError, ThreadConflictError, ThreadNotFoundError
from langchain_workingmem.keeping.document import (
    KIND,
    Body,
    KeeperNotes,
    notes_from_archive,
    said_by_path,
    with_changes_of_others,
)
from langchain_workingmem.keeping.document import without_rows as _without_rows
from langchain_workingmem.keeping.keeper import Keeper
from langchain_workingmem.keeping.renewal import (
    form_of,
    read_sources,
    renew,
    renew_later,
    source_commands,
    with_living_sources,
)
from langchain_workingmem.models import KeeperReport, WorkingMemoryValue, unknown_path
from langchain_workingmem.working_memory.store import ScopeKey, find_scope_key, read_commands, read_state

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import WorkingMemoryState
    from langchain_workingmem.turn.assemble import Turn

__all__ = [
    "Body",
    "Keeping",
    "install",
    "keep",
    "notes_for_copy",
    "notes_from_archive",
    "read",
    "renew",
    "renew_later",
    "undo",
    "with_living_sources",
    "without_rows",
]
_ATTEMPTS = 5  # of a change that meets deletions in the thread


class Keeping(Part):
    """What a keeper does in turns."""

    def commands(self, state: MemoryState, thread_id: str, user_id: str) -> list[Command]:
        """Read whether the rows of the document have changed."""
        return source_commands(state, ScopeKey.of(state, thread_id, user_id))

    def gathered(self, state: MemoryState, turn: Turn, asked: Sequence[Command], replies: list[Any]) -> Plan[bool]:
        """Take values whose messages are gone out of what the model is shown."""
        scope_key = ScopeKey.of(state, turn.thread_id, turn.user_id)
        if turn.working_memory is not None and (turn.working_memory.kept or any(replies)):
            turn.working_memory = yield from with_living_sources(state, scope_key, turn.working_memory, asked, replies)
        return False

    def written(self, state: MemoryState, thread_id: str, user_id: str | None, tokens: int) -> Plan[None]:  # noqa: ARG002
        """Let the keeper read in the background."""
        if state.remembering.background and user_id is not None:
            yield from Keeper(state, ScopeKey.of(state, thread_id, user_id), thread_id, user_id).in_background()


def install(state: MemoryState) -> None:
    """Let a keeper take part in the turns of a memory."""
    options = state.remembering
    if isinstance(options.keeper, str):
        state.remembering = state.working_memory = replace(options, keeper=chat_model_by_name(options.keeper))
    state.parts.append(Keeping())


def keep(state: MemoryState, thread_id: str, user_id: str | None) -> Plan[KeeperReport]:
    """Let the keeper read now what it has not read of a thread."""
    if state.remembering.keeper is None:
        raise OptionError("no keeper is on", remedy="pass WorkingMemoryOptions(keeper=...), a model")
    thread_id, owner = yield from owner_of(state, thread_id, user_id)
    keeper = Keeper(state, ScopeKey.of(state, thread_id, owner), thread_id, owner)
    with suppress(ThreadNotFoundError):  # then there is nothing to read
        yield from keeper.run(now=True)
    memory = yield from read(state, thread_id, owner)
    return KeeperReport(memory=memory, operations=keeper.operations, left_out=keeper.left_out, last_error=keeper.error)


def read(state: MemoryState, thread_id: str | None, user_id: str | None) -> Plan[WorkingMemoryState]:
    """Read a document with the time and the sources of its values. Three round trips, four where more threads are needed."""
    scope_key = yield from find_scope_key(state, thread_id, user_id)
    memory = read_state(state, scope_key, (yield from send(*read_commands(scope_key))))
    memory = yield from with_living_sources(state, scope_key, memory)
    return replace(memory, timeline=(yield from _timeline(state, scope_key, memory)))


def _rows(state: MemoryState, scope_key: ScopeKey, notes: KeeperNotes) -> Plan[dict[str, Rows]]:
    commands = source_commands(state, scope_key)
    sources = yield from read_sources(state, scope_key, notes, commands, (yield from send(*commands)), every=True)
    return sources.shown


def _timeline(
    state: MemoryState, scope_key: ScopeKey, memory: WorkingMemoryState
) -> Plan[Mapping[str, Sequence[WorkingMemoryValue]]]:
    notes = KeeperNotes.read(memory.kept)
    at = to_micros(memory.updated_at) if memory.updated_at else 0
    notes = with_changes_of_others(form_of(state, notes), memory.text, notes, at)  # with what others have set since
    by_thread = yield from _rows(state, scope_key, notes)
    bodies = {(thread_id, id): body for thread_id, rows in by_thread.items() for id, body in rows.rows.items()}
    timeline = {}
    for path, entries in said_by_path(notes, by_thread).items():
        timeline[path] = [
            WorkingMemoryValue(
                path=path,
                value=leaf.value,
                since=from_micros(since),
                sources=[(thread_id, message_id) for message_id in bodies[thread_id, id]["ids"]] if thread_id else [],
            )
            for since, id, thread_id, leaf in reversed(entries)
        ]
    return timeline


def undo(state: MemoryState, thread_id: str | None, user_id: str | None, path: str) -> Plan[WorkingMemoryState]:
    """Take back what was said last about a value; what was said before holds again."""
    if not isinstance(path, str):
        raise OptionError(f"path={path!r}", remedy="pass a JSON Pointer, such as '/city'")
    path = path if path.startswith("/") else f"/{path}"
    scope_key = yield from find_scope_key(state, thread_id, user_id)
    for _ in range(_ATTEMPTS):
        memory = yield from renew(state, scope_key)
        notes = KeeperNotes.read(memory.kept)
        said = said_by_path(notes, (yield from _rows(state, scope_key, notes)))
        if path not in said:
            raise unknown_path(path, said)
        last = said[path][-1]
        if not last.thread:
            yield from renew(state, scope_key, without=path)
            return (yield from read(state, thread_id, user_id))
        owner = scope_key.user_id or (yield from owner_of(state, last.thread, None))[1]
        rows = ThreadRows(state, last.thread, owner, KIND)
        if (yield from rows.commit((yield from rows.read()), drop=[last.id])) is not None:
            yield from renew(state, scope_key, cuts=False)  # no message has gone
            return (yield from read(state, thread_id, user_id))
    raise ThreadConflictError(last.thread)


def without_rows(text: str, notes: str | None) -> str:
    """Return a document without the values that rows have given: they come from these."""
    return _without_rows(text, KeeperNotes.read(notes))


def notes_for_copy(text: str) -> str:
    """Return what a copy of a thread notes beside its document."""
    notes = KeeperNotes.read(text)
    return KeeperNotes(notes.base, notes.values, template=notes.template).write()
