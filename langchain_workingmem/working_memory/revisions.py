"""Writes revisions of working memory: compare, then write, once, even when a reply is lost."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from langchain_workingmem._engine.plan import PAUSES, Plan, Sleep
from langchain_workingmem._redis.access import (
    continue_sweep,
    create_thread_document,
    guarded_write,
    owner_tag,
    run_script,
)
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem.errors import OutcomeUnknownError, ThreadExistsError, ThreadNotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_workingmem._redis.state import MemoryState

REMEMBER = Script("working_memory/remember")


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


def write_revision(
    state: MemoryState, scope_key: ScopeKey, expected: str, origin: str, what: str, value: str | int
) -> Plan[tuple[int, dict[bytes, bytes]]]:
    """Write working memory as `write_revision_into` does, but create a missing thread if there is something to write."""
    try:
        return (yield from write_revision_into(state, scope_key, expected, origin, what, value))
    except ThreadNotFoundError as error:
        if what == "revert" or not value:
            return (-1 if what == "revert" else 1), {}  # nothing to bring back, nothing to clear
        # the thread's first message is still to come; a thread without an owner owns itself
        with suppress(ThreadExistsError):  # a concurrent first message created it
            yield from create_thread_document(state, error.thread_id, scope_key.user_id or error.thread_id)
    return (yield from write_revision_into(state, scope_key, expected, origin, what, value))


def write_revision_into(
    state: MemoryState, scope_key: ScopeKey, expected: str, origin: str, what: str, value: str | int
) -> Plan[tuple[int, dict[bytes, bytes]]]:
    """Write working memory; a missing thread raises `ThreadNotFoundError`. One round trip.

    A call whose reply was lost is sent again, because the script finds what it has written. `OutcomeUnknownError` when
    it cannot: the memory was deleted meanwhile, or more revisions came than are kept. With an empty `expected` a call is
    never repeated, because that would undo concurrent writes.
    """
    thread_id, user_id = scope_key.thread_id, scope_key.user_id
    owner, keep = owner_tag(user_id), state.remembering.revisions
    for failures in count():
        call = REMEMBER.call(scope_key.keys, owner, expected, keep, origin, what, value, int(failures > 0))
        try:
            if thread_id is None:
                ((status, row, _),) = yield from run_script("", user_id, call, at_most_once=True)
            else:
                status, row, left = yield from guarded_write(state, thread_id, [user_id], call, at_most_once=True)
                yield from continue_sweep(state, thread_id, left)
            break
        except OutcomeUnknownError as error:
            if not expected or failures >= error.repeats:
                raise
        yield Sleep(PAUSES[failures])
    if status == -2:
        raise OutcomeUnknownError(
            "the reply to an update of working memory was lost, and the revision that it may have made is not kept any more",
            remedy="read working memory, and repeat the update if it is missing",
        )
    return int(status), as_dict(row)
