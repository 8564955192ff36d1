"""Writes revisions of working memory: compare, then write, once, even when a reply is lost."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import orjson

from langchain_workingmem._engine.plan import PAUSES, Plan, Sleep, send
from langchain_workingmem._redis.access import change_thread, guarded_write, owner_tag
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.scripts import READING, Script
from langchain_workingmem.errors import OutcomeUnknownError, ThreadExistsError, ThreadNotFoundError, UserDeletedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState

MEMORY = Script("memory", *READING)


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


def as_seen(row: Mapping[bytes, bytes]) -> str:
    """Return what the script compares: the revision and its time, since revisions restart when a memory is deleted."""
    return f"{row.get(b'revision', b'0').decode()}@{row.get(b'updated_at', b'').decode()}"


NOTHING = as_seen({})


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
    state: MemoryState, scope_key: ScopeKey, expected: str | None, origin: str, document: str
) -> Plan[tuple[bool, dict[bytes, bytes]]]:
    """Write working memory unless it is another one than `expected`; return whether it is written, and what there is now.

    One round trip; a missing thread raises `ThreadNotFoundError`. A call whose reply was lost is sent again, because the script finds
    what it has written. `OutcomeUnknownError` when it cannot: the memory was deleted meanwhile, or more revisions came than are kept.
    Without `expected` a call is never repeated, because that would undo concurrent writes.
    """
    head = {"expected": expected, "keep": state.remembering.revisions, "origin": origin, "document": document}
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
