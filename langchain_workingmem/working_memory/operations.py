"""Plans of working memory: read it, compute the change, and write it once, unless another writer was faster."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from langchain_workingmem._documents.formats import Format, check_size
from langchain_workingmem._engine.plan import PAUSES, Plan, Sleep, send
from langchain_workingmem._redis.access import (
    change_thread,
    check_owner,
    guarded_write,
    owner_of,
    owner_tag,
    refusal,
)
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import FROM_WHERE, check_id
from langchain_workingmem._redis.scripts import READING, Script
from langchain_workingmem._redis.state import wing
from langchain_workingmem._text.clock import from_micros
from langchain_workingmem.checks import at_least
from langchain_workingmem.errors import (
    IdError,
    OutcomeUnknownError,
    ReadOnlyError,
    Remedy,
    ThreadExistsError,
    ThreadNotFoundError,
    UserDeletedError,
    WorkingMemoryConflictError,
    WorkingMemoryValidationError,
)
from langchain_workingmem.models import WorkingMemoryState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.options import WorkingMemoryOptions

_log = logging.getLogger("langchain_workingmem")

MEMORY = Script("memory", *READING)
Change: TypeAlias = Callable[[Format, str], str]  # from the present document to the next
NOTHING = "0@"  # `as_seen` of a memory that was never written
ATTEMPTS = 100  # of a writer that always loses, then it gives up; 8 processes that write at once need a handful
FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.05  # seconds, doubled per attempt, a random part of it


@dataclass(frozen=True, slots=True)
class ScopeKey:
    """Where a working memory is stored."""

    keys: tuple[str, ...]  # the thread's, or of the user: tombstone, memory, revisions; both end with the last two
    thread_id: str | None = None  # None: the memory of a user
    user_id: str | None = None

    @property
    def key(self) -> str:
        """Return the key of the memory itself."""
        return self.keys[-2]


def find_scope_key(state: MemoryState, thread_id: str | None, user_id: str | None) -> Plan[ScopeKey]:
    """Find the working memory that the ids and the scope mean; to look up a thread's owner takes one round trip."""
    for name, given in (("thread_id", thread_id), ("user_id", user_id)):
        if given is not None:
            check_id(given, name)
    if state.remembering.scope == "thread":
        if thread_id is None:
            raise IdError("working memory of a thread needs a thread_id", remedy=FROM_WHERE.format("thread_id"))
        return ScopeKey(state.keys.of(thread_id), thread_id, user_id)
    if user_id is None:
        if thread_id is None:
            raise IdError("working memory of a user needs a user_id", remedy=FROM_WHERE.format("user_id"))
        _, user_id = yield from owner_of(state, thread_id, None)
    return ScopeKey(state.keys.of_user(user_id), None, user_id)


def read_commands(scope_key: ScopeKey) -> list[Command]:
    """Return the commands that read a working memory; `read_state` reads their replies."""
    return _with_owner(scope_key, ("HGETALL", scope_key.key))


def read_state(state: MemoryState, scope_key: ScopeKey, replies: list[Any]) -> WorkingMemoryState:
    """Read a working memory from the replies to `read_commands`."""
    return reader_of(state, scope_key)(as_dict(_owned(scope_key, replies)))


def _with_owner(scope_key: ScopeKey, command: Command) -> list[Command]:
    return [command] if scope_key.thread_id is None else [command, ("HGET", scope_key.keys[0], "user")]


def _owned(scope_key: ScopeKey, replies: Sequence[Any]) -> Any:
    """Return the reply to the command in `_with_owner`, after a check of the thread's owner."""
    if scope_key.thread_id is not None:
        check_owner(replies[1], scope_key.thread_id, scope_key.user_id)
        if replies[1] is None and replies[0]:  # Redis has evicted who owns it
            raise refusal("damaged", scope_key.thread_id, scope_key.user_id)
    return replies[0]


def _read_row(scope_key: ScopeKey) -> Plan[dict[bytes, bytes]]:
    return as_dict(_owned(scope_key, (yield from send(*read_commands(scope_key)))))


def reader_of(state: MemoryState, scope_key: ScopeKey) -> Callable[[Mapping[bytes, bytes]], WorkingMemoryState]:
    """Return the function that reads stored rows of a working memory."""
    form = state.remembering.format

    def read(row: Mapping[bytes, bytes]) -> WorkingMemoryState:
        text = row.get(b"document", b"").decode()
        try:
            value = form.value(text)
        except WorkingMemoryValidationError as error:
            # after a change of the schema, what the old one allowed must stay readable
            _log.warning("working memory at revision %d: %s", int(row[b"revision"]), error)
            value = text
        return WorkingMemoryState(
            value=value,
            text=text,
            revision=int(row.get(b"revision", 0)),
            updated_at=from_micros(row[b"updated_at"]) if b"updated_at" in row else None,
            is_empty=form.is_empty(text),
            origin=row[b"origin"].decode() if b"origin" in row else None,
            key=scope_key.key,
            kept=row[b"kept"].decode() if b"kept" in row else None,
        )

    return read


def read_working_memory(state: MemoryState, thread_id: str | None, user_id: str | None) -> Plan[WorkingMemoryState]:
    """Read working memory. One round trip; two more where a keeper keeps it, because its messages may be gone."""
    scope_key = yield from find_scope_key(state, thread_id, user_id)
    found = read_state(state, scope_key, (yield from send(*read_commands(scope_key))))
    return (yield from verified(state, scope_key, found))


def verified(state: MemoryState, scope_key: ScopeKey, found: WorkingMemoryState) -> Plan[WorkingMemoryState]:
    """Return a document without values whose messages are gone: a keeper has noted where they come from."""
    if found.kept is None:
        return found
    shown: WorkingMemoryState = yield from wing("keeping").verified(state, scope_key, found)
    return shown


def change_working_memory(
    state: MemoryState,
    thread_id: str | None,
    user_id: str | None,
    make: Change,
    origin: str,
    expected: int | None = None,
) -> Plan[tuple[WorkingMemoryState, WorkingMemoryState]]:
    """Find working memory and change it, as `change_at_scope_key` does."""
    scope_key = yield from find_scope_key(state, thread_id, user_id)
    return (yield from change_at_scope_key(state, scope_key, make, origin, expected))


def change_at_scope_key(
    state: MemoryState,
    scope_key: ScopeKey,
    make: Change,
    origin: str,
    expected: int | None = None,
) -> Plan[tuple[WorkingMemoryState, WorkingMemoryState]]:
    """Change working memory, and return the states before and after.

    Two round trips without concurrent writers. When another writer was faster, the change is made again on what the
    refusal returned, or on what is read after a pause; after `ATTEMPTS` times: `WorkingMemoryConflictError`.
    With `expected` there is one attempt. One more round trip when that revision is not the present one: a caller whose
    reply was lost repeats the call, and the revision after `expected` tells whether the first call was stored.
    """
    row = yield from _read_row(scope_key)
    read = reader_of(state, scope_key)
    before = read(row)
    form = state.remembering.format
    for attempt in range(1, ATTEMPTS + 1):
        if expected is not None and expected != before.revision:
            if attempt == 1 and (yield from _is_written(state, scope_key, form, make, expected)):
                return before, before
            raise WorkingMemoryConflictError(expected=expected, actual=before.revision)
        document = check_document(state, make(form, before.text))
        if document == before.text:
            return before, before
        is_written, row = yield from write_revision(state, scope_key, as_seen(row), origin, document)
        if is_written:
            if b"kept" in row:  # so that what was set now has its own time
                yield from wing("keeping").renew_later(state, scope_key)
            return before, read(row)
        if expected is None and attempt % 2 == 0:
            yield pause_after(attempt)
            row = yield from _read_row(scope_key)
        seen, before = before.revision, read(row)
    raise WorkingMemoryConflictError(expected=seen, actual=before.revision)


def pause_after(attempt: int) -> Sleep:
    """Return the pause of a writer after a lost race."""
    return Sleep(min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE), jitter=True)


def _is_written(state: MemoryState, scope_key: ScopeKey, form: Format, make: Change, expected: int) -> Plan[bool]:
    """Tell whether the revision after `expected` is what this change makes of `expected`. One round trip."""
    (entries,) = yield from send(("XRANGE", scope_key.keys[-1], f"{expected}-0", f"{expected + 1}-0"))
    kept = {int(row[b"revision"]): row[b"document"].decode() for row in (as_dict(fields) for _, fields in entries)}
    old, new = kept.get(expected, "" if expected == 0 else None), kept.get(expected + 1)
    if old is None or new is None:
        return False
    try:
        return bool(check_document(state, make(form, old)) == new)
    except WorkingMemoryValidationError:
        return False


def check_document(state: MemoryState, document: str) -> str:
    """Return the document, or raise `WorkingMemoryValidationError` when it is too large or not valid UTF-8."""
    return check_size(document, state.remembering.max_bytes)


def check_writable(state: MemoryState) -> WorkingMemoryOptions:
    """Return the options, or raise `ReadOnlyError` when they make working memory read-only."""
    options = state.remembering
    if options.read_only:
        raise ReadOnlyError("working memory is read-only", remedy=Remedy("{writable}"))
    return options


def revisions_of(
    state: MemoryState, thread_id: str | None, user_id: str | None, limit: int
) -> Plan[list[WorkingMemoryState]]:
    """Read the kept revisions, the newest first. One round trip."""
    at_least(limit, 1, "limit")
    scope_key = yield from find_scope_key(state, thread_id, user_id)
    newest: Command = ("XREVRANGE", scope_key.keys[-1], "+", "-", "COUNT", limit)
    entries = _owned(scope_key, (yield from send(*_with_owner(scope_key, newest))))
    read = reader_of(state, scope_key)
    return [read(as_dict(fields)) for _, fields in entries]


# ---------------------------------------------------------------------- writing


def as_seen(row: Mapping[bytes, bytes]) -> str:
    """Return what the script compares: the revision and its time, since revisions restart when a memory is deleted."""
    return f"{row.get(b'revision', b'0').decode()}@{row.get(b'updated_at', b'').decode()}"


def run_memory(
    state: MemoryState, scope_key: ScopeKey, *, at_most_once: bool = False, **head: Any
) -> Plan[tuple[str, dict[bytes, bytes]]]:
    """Run `memory.lua`; return its status, and the memory. One round trip. Raises `ThreadNotFoundError`, `UserDeletedError`."""
    thread_id, user_id = scope_key.thread_id, scope_key.user_id
    call: Command = MEMORY.on(scope_key.keys, user=owner_tag(user_id), ttl=state.ttl_ms, **head)
    if thread_id is None:
        ((found, row),) = yield from send(call, at_most_once=at_most_once)
        status = orjson.loads(found)["status"]
        if status == "deleted":
            raise UserDeletedError(user_id or "")
    else:  # a deletion of the owner finds what is written here: the thread goes with all that it has
        (found, row), deleted = yield from guarded_write(state, thread_id, [user_id], call, at_most_once=at_most_once)
        if deleted is not None:
            raise deleted
        status = found["status"]
    return status, as_dict(row)


def write_revision(
    state: MemoryState, scope_key: ScopeKey, expected: str | None, origin: str, document: str
) -> Plan[tuple[bool, dict[bytes, bytes]]]:
    """Write working memory as `write_revision_into` does, but create a missing thread if there is something to write."""
    try:
        return (yield from write_revision_into(state, scope_key, expected, origin, document))
    except ThreadNotFoundError as error:
        if not document:
            return True, {}
        # the thread's first message is still to come; a thread without an owner owns itself
        with suppress(ThreadExistsError):  # a concurrent first message created it
            yield from change_thread(state, error.thread_id, scope_key.user_id or error.thread_id, "create")
    return (yield from write_revision_into(state, scope_key, expected, origin, document))


def write_revision_into(
    state: MemoryState,
    scope_key: ScopeKey,
    expected: str | None,
    origin: str,
    document: str,
    *,
    beside: list[str] | None = None,
) -> Plan[tuple[bool, dict[bytes, bytes]]]:
    """Write working memory unless it is another one than `expected`; return whether it is written, and what there is now.

    One round trip; a missing thread raises `ThreadNotFoundError`. A call whose reply was lost is sent again, because
    the script finds
    what it has written. `OutcomeUnknownError` when it cannot: the memory was deleted meanwhile, or more revisions came
    than are kept.
    Without `expected` a call is never repeated, because that would undo concurrent writes. `beside` is another field, and its value.
    """
    head = {
        "beside": beside,
        "expected": expected,
        "keep": state.remembering.revisions,
        "origin": origin,
        "document": document,
    }
    for failures in count():
        try:
            status, row = yield from run_memory(
                state, scope_key, **head, is_repeated=failures > 0 or None, at_most_once=True
            )
            break
        except OutcomeUnknownError as error:
            if expected is None or failures >= error.repeats:
                raise
        yield Sleep(PAUSES[failures])
    if status == "unknown":
        raise OutcomeUnknownError(
            "the reply to an update of working memory was lost, and the revision that it may have made is not kept any more",
            remedy="read working memory, and repeat the update if it is missing",
        )
    return status == "written", row
