"""Working memory: a plan reads the document, changes and writes it; again if another writer was faster."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import lru_cache, partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias, get_args

import orjson

from langchain_workingmem import errors
from langchain_workingmem._engine.plan import Call, Plan, Sleep, jittered, send
from langchain_workingmem._redis import scripts
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import FROM_WHERE, check_id
from langchain_workingmem._redis.state import Operations, operation, twin
from langchain_workingmem._text.values import from_micros, to_micros
from langchain_workingmem.checks import at_least, one_of
from langchain_workingmem.models import WorkingMemoryState
from langchain_workingmem.working_memory.document import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import KeeperReport

_log = logging.getLogger("langchain_workingmem")

MEMORY = scripts.Script("memory", *scripts.READING)
ChangeText: TypeAlias = "Callable[[str], str]"  # from the present document to the next
Row: TypeAlias = "Mapping[bytes, bytes]"
NOTHING = "0@"  # the version of a memory that was never written
ATTEMPTS = 100  # of a writer that always loses, then it gives up; 8 processes that write at once need a handful
FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.05  # seconds, doubled per attempt, a random part of it
COST = 20  # to merge and validate a character takes so many times longer than to read one


@lru_cache(1000)  # once is enough
def _warn(key: str, problem: str) -> None:
    _log.warning("working memory %s does not fit its format, and is shown as text: %s", key, problem)


class ScopeKey(NamedTuple):
    """Where a working memory is stored."""

    keys: Sequence[str]  # the thread's, or of the user: tombstone, memory, revisions; both end with the last two
    thread_id: str | None = None  # None: the memory of a user
    user_id: str | None = None

    @property
    def key(self) -> str:
        """Return the key of the memory itself."""
        return self.keys[-2]

    @classmethod
    def of(cls, state: MemoryState, thread_id: str | None, user_id: str | None) -> Self:
        """Return where the scope of the options has the memory of these ids."""
        scope = state.remembering.scope
        id = thread_id if scope == "thread" else user_id
        if id is None:
            missing = f"{scope}_id"
            raise errors.IdError(f"working memory of a {scope} needs a {missing}", remedy=FROM_WHERE.format(missing))
        if scope == "thread":
            return cls(state.keys.of(id), id, user_id)
        return cls(state.keys.of_user(id).of_memory, None, id)


def find_scope_key(state: MemoryState, thread_id: str | None, user_id: str | None) -> Plan[ScopeKey]:
    """Find the working memory that the ids and the scope mean; to look up a thread's owner takes one round trip."""
    for name, value in (("thread_id", thread_id), ("user_id", user_id)):
        if value is not None:
            check_id(value, name)
    if user_id is None and thread_id is not None and state.remembering.scope == "user":
        _, user_id = yield from scripts.owner_of(state, thread_id, None)
    return ScopeKey.of(state, thread_id, user_id)


# ---------------------------------------------------------------------- reading


def read_commands(scope_key: ScopeKey, *command: str | int) -> list[Command]:
    """Return the commands that read a working memory, or something else of it; `read_state` reads their replies."""
    read_command: Command = command or ("HGETALL", scope_key.key)
    return [read_command] if scope_key.thread_id is None else [read_command, ("HGET", scope_key.keys[0], "user")]


def read_state(state: MemoryState, scope_key: ScopeKey, replies: Sequence[Any]) -> WorkingMemoryState:
    """Read a working memory from the replies to `read_commands`."""
    if scope_key.thread_id is not None:
        _check_owner(scope_key.thread_id, scope_key.user_id, replies)
    return state_of(state, scope_key, as_dict(replies[0]))


def _check_owner(thread_id: str, user_id: str | None, replies: Sequence[Any]) -> None:
    scripts.check_owner(replies[1], thread_id, user_id)
    if replies[1] is None and replies[0]:  # Redis has evicted who owns it
        raise errors.ThreadDamagedError(thread_id)


def state_of(state: MemoryState, scope_key: ScopeKey, row: Row) -> WorkingMemoryState:
    """Make the record of stored fields. What a changed schema does not allow any more stays readable, as text."""
    text = row.get(b"document", b"").decode()
    value, is_empty, problem = state.remembering.format.read(text)
    if problem:
        _warn(scope_key.key, problem.removeprefix("nothing was changed, because "))
    return WorkingMemoryState(
        value=value,
        text=text,
        revision=int(row.get(b"revision", 0)),
        updated_at=from_micros(row[b"updated_at"]) if b"updated_at" in row else None,
        is_empty=is_empty,
        origin=row[b"origin"].decode() if b"origin" in row else None,
        key=scope_key.key,
        kept=row[b"kept"].decode() if b"kept" in row else None,
    )


def read_working_memory(state: MemoryState, thread_id: str | None, user_id: str | None) -> Plan[WorkingMemoryState]:
    """Read working memory. One round trip; two more where a keeper keeps it, because its messages may be gone."""
    scope_key = yield from find_scope_key(state, thread_id, user_id)
    memory = read_state(state, scope_key, (yield from send(*read_commands(scope_key))))
    if memory.kept is not None:
        from langchain_workingmem import keeping

        memory = yield from keeping.with_living_sources(state, scope_key, memory)
    return memory


def revisions_of(
    state: MemoryState, scope_key: ScopeKey, limit: int, *, newest: str = "+", oldest: str = "-"
) -> Plan[list[WorkingMemoryState]]:
    """Read kept revisions, the newest first. One round trip; with a keeper two more at least: messages may be gone."""
    if state.remembering.keeper is not None:
        from langchain_workingmem import keeping

        yield from keeping.renew(state, scope_key, only_cuts=True)
    commands = read_commands(scope_key, "XREVRANGE", scope_key.keys[-1], newest, oldest, "COUNT", limit)
    replies = yield from send(*commands)
    if scope_key.thread_id is not None:
        _check_owner(scope_key.thread_id, scope_key.user_id, replies)
    return [state_of(state, scope_key, as_dict(fields)) for _, fields in replies[0]]


# ---------------------------------------------------------------------- changing


def change_document(
    state: MemoryState, scope_key: ScopeKey, make: ChangeText, origin: str, *, expected: int | None = None
) -> Plan[tuple[WorkingMemoryState, WorkingMemoryState]]:
    """Change working memory, and return the states before and after.

    Two round trips, two more for a missing thread. After a faster writer the change is made again, on what the refusal
    returned or after a pause; `WorkingMemoryConflictError` after `ATTEMPTS`, or at once with `expected`.
    """
    before = read_state(state, scope_key, (yield from send(*read_commands(scope_key))))
    seen_revision, call = before.revision, token_hex(16)
    for attempt in range(1, ATTEMPTS + 1):
        if expected is not None and expected != before.revision:
            raise errors.WorkingMemoryConflictError(expected=expected, actual=before.revision)
        document = yield from Call(partial(make, before.text))  # a schema may take any time
        if document == before.text:
            return before, before
        head = {"expected": version_of(before), "call": call, "keep": state.remembering.revisions}
        try:
            status, row = yield from run_memory(state, scope_key, **head, origin=origin, document=document)
        except errors.ThreadNotFoundError as error:
            # the thread's first message is still to come; a thread without an owner owns itself
            with suppress(errors.ThreadExistsError):  # a concurrent first message created it
                yield from scripts.change_thread(state, error.thread_id, scope_key.user_id or error.thread_id, "create")
            continue
        after = state_of(state, scope_key, row)
        if status == "written":
            if after.kept is not None:  # so that the keeper notes when it was set
                from langchain_workingmem import keeping

                yield from keeping.renew_later(state, scope_key)
            return before, after
        seen_revision, before = before.revision, after
        if expected is None and attempt % 2 == 0:
            yield pause_after(attempt)
            before = read_state(state, scope_key, (yield from send(*read_commands(scope_key))))
    raise errors.WorkingMemoryConflictError(expected=seen_revision, actual=before.revision)


def pause_after(attempt: int) -> Sleep:
    """Return the pause of a writer after a lost race."""
    return jittered(min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE))


def check_writable(state: MemoryState) -> None:
    """Raise `ReadOnlyError` when the options make working memory read-only."""
    if state.remembering.read_only:
        raise errors.ReadOnlyError(
            "working memory is read-only here, for programs too (read_only=True)",
            remedy="go on without changing it; WorkingMemoryOptions(tools=()) takes the tools from the model alone",
        )


def version_of(memory: WorkingMemoryState) -> str:
    """Return what the script compares: the revision and its time, since revisions restart when a memory is deleted."""
    return f"{memory.revision}@{to_micros(memory.updated_at) if memory.updated_at else ''}"


def run_memory(state: MemoryState, scope_key: ScopeKey, **head: Any) -> Plan[tuple[str, Row]]:
    """Run `memory.lua`; return its status, the memory. One round trip. `ThreadNotFoundError`, `UserDeletedError`."""
    thread_id, user_id = scope_key.thread_id, scope_key.user_id
    command = MEMORY.on(scope_key.keys, user=scripts.owner_tag(user_id), ttl=state.ttl_ms, **head)
    if thread_id is None:
        ((result, row),) = yield from send(command)
        status = orjson.loads(result)["status"]
        if status == "deleted":
            raise errors.UserDeletedError(user_id or "")
        return status, as_dict(row)
    # a deletion of the owner finds what is written here: the thread goes with all that it has
    (reply, row), deletion = yield from scripts.guarded_write(state, thread_id, [user_id], command)
    if deletion is not None:
        raise deletion
    return reply["status"], as_dict(row)


class WorkingMemory(Operations):
    """Working memory, as `memory.working_memory`. It is off without `WorkingMemoryOptions`.

    The scope of the options says which id counts, `user_id` or `thread_id`. In user scope, a call with only a thread_id
    costs one more round trip, to find its owner; in thread scope, another user's thread raises `ThreadOwnershipError`.
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

        With a keeper the state also tells of each value since when it holds, by which messages, and what held before:
        `since(path)`, `sources(path)`, `history(path)`. Three round trips then.
        """
        state = self._core.state
        if state.remembering.keeper is None:
            return read_working_memory(state, thread_id, user_id)
        from langchain_workingmem import keeping

        return keeping.read(state, thread_id, user_id)

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
        after 100 lost races), `ReadOnlyError`; each leaves the old value. An update whose reply was lost is sent again:
        it changes nothing if it was stored. If another writer followed, it is made again on what there is now.
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
        _, after = yield from change_document(state, scope_key, change, "update", expected=expected_revision)
        return after

    aupdate = twin(update)

    @operation
    def clear(self, *, thread_id: str | None = None, user_id: str | None = None) -> Plan[WorkingMemoryState]:
        """Empty working memory; `revert` restores it. Two round trips, one if it is empty."""
        state = self._core.state
        check_writable(state)
        scope_key = yield from find_scope_key(state, thread_id, user_id)
        _, after = yield from change_document(state, scope_key, lambda _: "", "clear")
        return after

    aclear = twin(clear)

    @operation
    def revisions(
        self, *, thread_id: str | None = None, user_id: str | None = None, limit: int = 20
    ) -> Plan[list[WorkingMemoryState]]:
        """Return kept revisions, the present one first, with time and origin. One round trip, three with a keeper."""
        at_least(limit, 1, "limit")
        scope_key = yield from find_scope_key(self._core.state, thread_id, user_id)
        return (yield from revisions_of(self._core.state, scope_key, limit))

    arevisions = twin(revisions)

    @operation
    def revert(
        self, revision: int, *, thread_id: str | None = None, user_id: str | None = None
    ) -> Plan[WorkingMemoryState]:
        """Store an old revision, byte for byte, as a new one. Three round trips. Raises `RevisionNotFoundError`.

        One of another format, from before the options changed, becomes the document as text, for agents to convert.
        """
        state = self._core.state
        check_writable(state)
        at_least(revision, 1, "revision")
        scope_key = yield from find_scope_key(state, thread_id, user_id)
        revisions = yield from revisions_of(state, scope_key, 1, newest=f"{revision}-0", oldest=f"{revision}-0")
        if not revisions:
            raise errors.RevisionNotFoundError(revision)
        _, after = yield from change_document(state, scope_key, lambda _: revisions[0].text, "revert")
        return after

    arevert = twin(revert)

    @operation
    def undo(self, path: str, *, thread_id: str | None = None, user_id: str | None = None) -> Plan[WorkingMemoryState]:
        """Take back what was said last about one value, and return the new state: what held before holds, to any depth.

        It needs a keeper; `OptionError` names the paths that exist. About nine round trips.
        """
        from langchain_workingmem import keeping

        check_writable(self._core.state)
        return keeping.undo(self._core.state, thread_id, user_id, path)

    aundo = twin(undo)

    @operation
    def keep(self, thread_id: str, *, user_id: str | None = None) -> Plan[KeeperReport]:
        """Let the keeper read now what it has not read of a thread, and return working memory with what it has taken.

        It needs `WorkingMemoryOptions(keeper=...)`. Call it anywhere, at the same time, and again: while another
        process reads the thread, it waits. It also reads a turn without an answer. Each call of the model is about at
        most 10,000 tokens of messages. If the model fails, or gives no usable answer in three attempts, this is logged,
        the messages wait, and `last_error` says why. About eight round trips for each call, and eight more.
        """
        from langchain_workingmem import keeping

        return keeping.keep(self._core.state, thread_id, user_id)

    akeep = twin(keep)
