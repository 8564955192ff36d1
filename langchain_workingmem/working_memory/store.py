"""Plans of working memory: read it, compute the change, and write it once, unless another writer was faster."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import orjson

from langchain_workingmem._engine.plan import PAUSES, Plan, Sleep, compute, jittered, send
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import FROM_WHERE, check_id
from langchain_workingmem._redis.scripts import (
    READING,
    Script,
    change_thread,
    check_owner,
    guarded_write,
    owner_of,
    owner_tag,
    refusal,
)
from langchain_workingmem._redis.state import Recent, wing
from langchain_workingmem._text.values import from_micros, to_micros
from langchain_workingmem.checks import at_least
from langchain_workingmem.errors import (
    IdError,
    OutcomeUnknownError,
    ReadOnlyError,
    ThreadExistsError,
    ThreadNotFoundError,
    UserDeletedError,
    WorkingMemoryConflictError,
)
from langchain_workingmem.models import WorkingMemoryState
from langchain_workingmem.working_memory.document import check_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.options import WorkingMemoryOptions

_log = logging.getLogger("langchain_workingmem")

MEMORY = Script("memory", *READING)
Change: TypeAlias = "Callable[[str], str]"  # from the present document to the next
Row: TypeAlias = "Mapping[bytes, bytes]"
NOTHING = "0@"  # the version of a memory that was never written
ATTEMPTS = 100  # of a writer that always loses, then it gives up; 8 processes that write at once need a handful
FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.05  # seconds, doubled per attempt, a random part of it
COST = 20  # to merge and validate a character takes so many times longer than to read one


class _Warned(Recent[str, int]):
    """The revisions that do not fit the format, and that the log was told of, by the key of the memory."""


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
            raise IdError(f"working memory of a {scope} needs a {scope}_id", remedy=FROM_WHERE.format(f"{scope}_id"))
        if scope == "thread":
            return cls(state.keys.of(id), id, user_id)
        return cls(state.keys.of_user(id), None, id)


def find_scope_key(state: MemoryState, thread_id: str | None, user_id: str | None) -> Plan[ScopeKey]:
    """Find the working memory that the ids and the scope mean; to look up a thread's owner takes one round trip."""
    for name, given in (("thread_id", thread_id), ("user_id", user_id)):
        if given is not None:
            check_id(given, name)
    if user_id is None and thread_id is not None and state.remembering.scope == "user":
        _, user_id = yield from owner_of(state, thread_id, None)
    return ScopeKey.of(state, thread_id, user_id)


# ---------------------------------------------------------------------- reading


def read_commands(scope_key: ScopeKey, *command: str | int) -> list[Command]:
    """Return the commands that read a working memory, or something else of it; `read_state` reads their replies."""
    reading: Command = command or ("HGETALL", scope_key.keys[-2])
    return [reading] if scope_key.thread_id is None else [reading, ("HGET", scope_key.keys[0], "user")]


def read_state(state: MemoryState, scope_key: ScopeKey, replies: Sequence[Any]) -> WorkingMemoryState:
    """Read a working memory from the replies to `read_commands`."""
    if scope_key.thread_id is not None:
        _check_owner(scope_key, replies)
    return state_of(state, scope_key, as_dict(replies[0]))


def _check_owner(scope_key: ScopeKey, replies: Sequence[Any]) -> None:
    thread_id, owner = scope_key.thread_id or "", replies[1]
    check_owner(owner, thread_id, scope_key.user_id)
    if owner is None and replies[0]:  # Redis has evicted who owns it
        raise refusal("damaged", thread_id, scope_key.user_id)


def state_of(state: MemoryState, scope_key: ScopeKey, row: Row) -> WorkingMemoryState:
    """Make the record of stored fields. After a change of the schema, what the old one allowed stays readable, as text."""
    text, key, revision = row.get(b"document", b"").decode(), scope_key.keys[-2], int(row.get(b"revision", 0))
    value, is_empty, problem = state.remembering.format.read(text)
    if problem and state.room(_Warned).get(key) is None:
        state.room(_Warned).put(key, revision)
        _log.warning("working memory at revision %d: %s", revision, problem)
    return WorkingMemoryState(
        value=value,
        text=text,
        revision=revision,
        updated_at=from_micros(row[b"updated_at"]) if b"updated_at" in row else None,
        is_empty=is_empty,
        origin=row[b"origin"].decode() if b"origin" in row else None,
        key=key,
        kept=row[b"kept"].decode() if b"kept" in row else None,
    )


def read_working_memory(state: MemoryState, thread_id: str | None, user_id: str | None) -> Plan[WorkingMemoryState]:
    """Read working memory. One round trip; two more where a keeper keeps it, because its messages may be gone."""
    scope_key = yield from find_scope_key(state, thread_id, user_id)
    found = read_state(state, scope_key, (yield from send(*read_commands(scope_key))))
    if found.kept is not None:
        found = yield from wing("keeping").verified(state, scope_key, found)
    return found


def revisions_of(
    state: MemoryState, thread_id: str | None, user_id: str | None, limit: int
) -> Plan[list[WorkingMemoryState]]:
    """Read the kept revisions, the newest first. One round trip."""
    at_least(limit, 1, "limit")
    scope_key = yield from find_scope_key(state, thread_id, user_id)
    replies = yield from send(*read_commands(scope_key, "XREVRANGE", scope_key.keys[-1], "+", "-", "COUNT", limit))
    if scope_key.thread_id is not None:
        _check_owner(scope_key, replies)
    return [state_of(state, scope_key, as_dict(fields)) for _, fields in replies[0]]


# ---------------------------------------------------------------------- changing


def change_document(
    state: MemoryState, scope_key: ScopeKey, make: Change, origin: str, *, size: int, expected: int | None = None
) -> Plan[tuple[WorkingMemoryState, WorkingMemoryState]]:
    """Change working memory, and return the states before and after; `size`: characters of the update.

    Two round trips without concurrent writers. When another writer was faster, the change is made again on what the refusal returned,
    or on what is read after a pause; after `ATTEMPTS` times, and at once with `expected`: `WorkingMemoryConflictError`.
    """
    before = read_state(state, scope_key, (yield from send(*read_commands(scope_key))))
    seen = before.revision
    for attempt in range(1, ATTEMPTS + 1):
        if expected is not None and expected != before.revision:
            raise WorkingMemoryConflictError(expected=expected, actual=before.revision)
        document = yield from make_document(state, partial(make, before.text), size + len(before.text))
        if document == before.text:
            return before, before
        is_written, row = yield from write_revision(state, scope_key, version_of(before), origin, document)
        if is_written:
            if b"kept" in row:  # so that what was set now has its own time
                yield from wing("keeping").renew_later(state, scope_key)
            return before, state_of(state, scope_key, row)
        seen, before = before.revision, state_of(state, scope_key, row)
        if expected is None and attempt % 2 == 0:
            yield pause_after(attempt)
            before = read_state(state, scope_key, (yield from send(*read_commands(scope_key))))
    raise WorkingMemoryConflictError(expected=seen, actual=before.revision)


def size_of(content: Any) -> int:
    """Return about how many characters an update has."""
    try:
        return len(content if isinstance(content, str) else repr(content))
    except (RecursionError, ValueError):  # it is no JSON, as the update will say
        return 0


def make_document(state: MemoryState, make: Callable[[], str], size: int) -> Plan[str]:
    """Make a document, of `size` characters, without blocking an event loop; `WorkingMemoryValidationError` if it is too large."""
    return check_size((yield from compute(make, COST * size)), state.remembering.max_bytes)


def pause_after(attempt: int) -> Sleep:
    """Return the pause of a writer after a lost race."""
    return jittered(min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE))


def check_writable(state: MemoryState) -> WorkingMemoryOptions:
    """Return the options, or raise `ReadOnlyError` when they make working memory read-only."""
    options = state.remembering
    if options.read_only:
        raise ReadOnlyError(
            "working memory is read-only here, for programs too (read_only=True)",
            remedy="go on without changing it; WorkingMemoryOptions(tools=()) takes the tools from the model alone",
        )
    return options


# ---------------------------------------------------------------------- writing


def version_of(found: WorkingMemoryState) -> str:
    """Return what the script compares: the revision and its time, since revisions restart when a memory is deleted."""
    return f"{found.revision}@{to_micros(found.updated_at) if found.updated_at else ''}"


def write_revision(
    state: MemoryState,
    scope_key: ScopeKey,
    expected: str | None,
    origin: str,
    document: str,
    *,
    beside: list[str] | None = None,
    makes_thread: bool = True,
) -> Plan[tuple[bool, Row]]:
    """Write working memory unless it is another version than `expected`; return whether it is written, and what there is now.

    One round trip, two more to make a missing thread. A call with `expected` whose reply was lost is sent again, because the script finds
    what it has written; `OutcomeUnknownError` when that is not kept any more. `beside` is another field, and its value.
    """
    keep, failures = state.remembering.revisions, 0
    head: Any = {"expected": expected, "keep": keep, "origin": origin, "document": document, "beside": beside}
    while True:
        try:
            status, row = yield from run_memory(
                state, scope_key, **head, is_repeated=failures > 0 or None, at_most_once=True
            )
            break
        except OutcomeUnknownError as error:
            if expected is None or failures >= error.repeats:
                raise
            yield Sleep(PAUSES[failures])
            failures += 1
        except ThreadNotFoundError as error:
            if not document:
                return True, {}
            if not makes_thread:
                raise
            # the thread's first message is still to come; a thread without an owner owns itself
            with suppress(ThreadExistsError):  # a concurrent first message created it
                yield from change_thread(state, error.thread_id, scope_key.user_id or error.thread_id, "create")
            makes_thread = False
    if status == "unknown":
        raise OutcomeUnknownError(
            "the reply to an update of working memory was lost, and the revision that it may have made is not kept any more",
            remedy="read working memory, and repeat the update if it is missing",
        )
    return status == "written", row


def run_memory(
    state: MemoryState, scope_key: ScopeKey, *, at_most_once: bool = False, **head: Any
) -> Plan[tuple[str, Row]]:
    """Run `memory.lua`; return its status, and the memory. One round trip. Raises `ThreadNotFoundError`, `UserDeletedError`."""
    thread_id, user_id = scope_key.thread_id, scope_key.user_id
    call = MEMORY.on(scope_key.keys, user=owner_tag(user_id), ttl=state.ttl_ms, **head)
    if thread_id is None:
        ((found, row),) = yield from send(call, at_most_once=at_most_once)
        status = orjson.loads(found)["status"]
        if status == "deleted":
            raise UserDeletedError(user_id or "")
        return status, as_dict(row)
    # a deletion of the owner finds what is written here: the thread goes with all that it has
    (reply, row), deleted = yield from guarded_write(state, thread_id, [user_id], call, at_most_once=at_most_once)
    if deleted is not None:
        raise deleted
    return reply["status"], as_dict(row)
