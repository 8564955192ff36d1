"""Working memory: the facts that an agent keeps about its user or task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from langchain_workingmem._redis.core import Operations, operation, twin
from langchain_workingmem._redis.state import wing
from langchain_workingmem.checks import at_least, one_of
from langchain_workingmem.errors import RevisionNotFoundError, ThreadNotFoundError
from langchain_workingmem.working_memory.document import Mode
from langchain_workingmem.working_memory.store import (
    change_document,
    check_writable,
    find_scope_key,
    read_working_memory,
    revisions_of,
    run_memory,
    size_of,
    state_of,
    write_revision,
)

if TYPE_CHECKING:
    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.models import KeeperReport, WorkingMemoryState


class WorkingMemory(Operations):
    """Working memory, as `memory.working_memory`. It is off without `WorkingMemoryOptions`.

    The scope of the options says which id counts: `user_id` for the memory of a user, `thread_id` for that of a
    conversation. In user scope, a call with only a thread_id costs one more round trip, to find the thread's owner.
    In thread scope, a thread of another user raises `ThreadOwnershipError`.
    """

    @property
    def format(self) -> Literal["markdown", "json", "text"]:
        """Return the format: Markdown along a template, JSON along a schema, or free text."""
        return self._core.state.remembering.format.name

    @property
    def template(self) -> str | None:
        """Return the Markdown template; None with a schema or free text."""
        return getattr(self._core.state.remembering.format, "template", None) or None

    @property
    def schema(self) -> Any:
        """Return the schema as it was passed, None without one."""
        return self._core.state.remembering.schema

    @operation
    def get(self, *, thread_id: str | None = None, user_id: str | None = None) -> Plan[WorkingMemoryState]:
        """Return working memory; `is_empty` and at revision 0 when it was never written. One round trip.

        With a keeper the state also tells of each value since when it holds, by which messages, and what held before: `since(path)`,
        `sources(path)`, `history(path)`. Three round trips then.
        """
        state = self._core.state
        if state.remembering.keeper is None:
            return read_working_memory(state, thread_id, user_id)
        reading: Plan[WorkingMemoryState] = wing("keeping").read(state, thread_id, user_id)
        return reading

    aget = twin(get)

    @operation
    def update(
        self,
        content: Any,
        *,
        thread_id: str | None = None,
        user_id: str | None = None,
        mode: Mode | None = None,
        expected_revision: int | None = None,
    ) -> Plan[WorkingMemoryState]:
        """Update working memory and return its new state; an update that changes nothing makes no revision.

        With a schema `content` is a dict, an instance of the schema or JSON; else text. Modes: "merge" (RFC 7396: null
        deletes, arrays are replaced), "append" (arrays grow without repetitions, text grows by a block), "replace";
        None takes the mode of the options. The result is validated before it is stored. Unless "replace" is passed, an
        update that would erase everything (the bare template, empty text, nulls only) is refused.
        Atomic: a concurrent write is merged, not lost. Two round trips without concurrent writers. Errors:
        `WorkingMemoryValidationError` (names the field), `WorkingMemoryConflictError` (with `expected_revision`, or
        after 100 lost races), `ReadOnlyError`; each leaves the old value as it was. An update whose reply was lost is sent
        again, and stored once; `OutcomeUnknownError` if nobody can tell any more whether it was stored.
        """
        state = self._core.state
        check_writable(state)
        if mode is not None:
            one_of(mode, get_args(Mode), "mode")
        if expected_revision is not None:
            at_least(expected_revision, 0, "expected_revision")

        def change(text: str) -> str:
            return state.remembering.format.apply(text, content, mode)

        scope_key = yield from find_scope_key(state, thread_id, user_id)
        size = size_of(content)
        _, after = yield from change_document(state, scope_key, change, "update", size=size, expected=expected_revision)
        return after

    aupdate = twin(update)

    @operation
    def clear(self, *, thread_id: str | None = None, user_id: str | None = None) -> Plan[WorkingMemoryState]:
        """Empty working memory; `revert` restores it. One round trip."""
        state = self._core.state
        check_writable(state)
        scope_key = yield from find_scope_key(state, thread_id, user_id)
        _, row = yield from write_revision(state, scope_key, None, "clear", "")
        return state_of(state, scope_key, row)

    aclear = twin(clear)

    @operation
    def revisions(
        self, *, thread_id: str | None = None, user_id: str | None = None, limit: int = 20
    ) -> Plan[list[WorkingMemoryState]]:
        """Return the kept revisions, the present one first, with time and origin. One round trip."""
        return revisions_of(self._core.state, thread_id, user_id, limit)

    arevisions = twin(revisions)

    @operation
    def revert(
        self, revision: int, *, thread_id: str | None = None, user_id: str | None = None
    ) -> Plan[WorkingMemoryState]:
        """Store an old revision, byte for byte, as a new one. One round trip. Raises `RevisionNotFoundError`.

        One of another format, from before the options changed, is the document again: `value` is its text, and agents are
        asked to bring it into the present format.
        """
        state = self._core.state
        check_writable(state)
        at_least(revision, 1, "revision")
        scope_key = yield from find_scope_key(state, thread_id, user_id)
        head = {"revert": str(revision), "keep": state.remembering.revisions, "origin": "revert"}
        try:
            status, row = yield from run_memory(state, scope_key, **head, at_most_once=True)
        except ThreadNotFoundError as error:
            raise RevisionNotFoundError(revision) from error
        if status == "missing":
            raise RevisionNotFoundError(revision)
        return state_of(state, scope_key, row)

    arevert = twin(revert)

    @operation
    def undo(self, path: str, *, thread_id: str | None = None, user_id: str | None = None) -> Plan[WorkingMemoryState]:
        """Take back what was said last about one value, and return the new state: what was said before holds again, to any depth.

        It needs a keeper; `OptionError` names the paths that exist. About nine round trips.
        """
        check_writable(self._core.state)
        undoing: Plan[WorkingMemoryState] = wing("keeping").undo(self._core.state, thread_id, user_id, path)
        return undoing

    aundo = twin(undo)

    @operation
    def keep(self, thread_id: str, *, user_id: str | None = None) -> Plan[KeeperReport]:
        """Let the keeper read now what it has not read of a thread, and return working memory with what the keeper has taken.

        It needs `WorkingMemoryOptions(keeper=...)`. It is safe to call this anywhere, at the same time, and again: while another process
        reads the thread, it waits. It also reads a turn that has no answer yet. Each call of the model is about at most 10,000 tokens of
        messages. If the model fails, or gives no usable answer in three attempts, this is logged, the messages wait, and `last_error`
        says why. About eight round trips for each call of the model, and eight more.
        """
        keeping: Plan[KeeperReport] = wing("keeping").keep(self._core.state, thread_id, user_id)
        return keeping

    akeep = twin(keep)
