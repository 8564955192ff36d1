"""Writing working memory: a revision is compared and the next one is made, once, even when replies are lost."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from langchain_workingmem._engine import effects
from langchain_workingmem._engine.effects import Pause, Plan
from langchain_workingmem._redis.access import create_thread_document, guarded_write, owner_tag, run_script
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._redis.sweeping import continue_sweep
from langchain_workingmem.errors import OutcomeUnknownError, ThreadExistsError, ThreadNotFoundError
from langchain_workingmem.options import Ids

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_workingmem._redis.state import MemoryState

REMEMBER = Script("working_memory/remember")


def as_seen(row: Mapping[bytes, bytes]) -> str:
    """Write what a writer saw as the script compares it: revisions begin anew when a memory is deleted, times do not."""
    return f"{row.get(b'revision', b'0').decode()}@{row.get(b'updated_at', b'').decode()}"


NOTHING = as_seen({})


def write_revision(
    state: MemoryState, scope_key: ScopeKey, expected: str, origin: str, what: str, value: str | int
) -> Plan[tuple[int, dict[bytes, bytes]]]:
    """Write working memory; that of a thread which is not there makes the thread, if there is something to write."""
    writing = partial(write_revision_into, state, scope_key, expected, origin, what, value)
    try:
        return (yield from writing())
    except ThreadNotFoundError as error:
        if what == "revert" or not value:
            return (-1 if what == "revert" else 1), {}  # nothing to bring back, nothing to clear
        # the memory of a thread whose first message is still to come; without an owner it owns itself
        with suppress(ThreadExistsError):  # somebody else's first message came in between
            yield from create_thread_document(state, error.thread_id, scope_key.resource_id or error.thread_id)
    return (yield from writing())


def write_revision_into(
    state: MemoryState, scope_key: ScopeKey, expected: str, origin: str, what: str, value: str | int
) -> Plan[tuple[int, dict[bytes, bytes]]]:
    """Write working memory; that of a thread which is not there raises `ThreadNotFoundError`. One round trip.

    When the reply is lost it is sent again, because the script finds what it has written. It cannot when that was deleted
    meanwhile, or more revisions came than are kept: `OutcomeUnknownError`. Without a revision to compare (`expected` is empty) a
    second time would undo what came in between.
    """
    keep = state.remembering.revisions
    for failures in count():
        again = int(failures > 0)
        call = REMEMBER.call(
            scope_key.keys, owner_tag(scope_key.resource_id), expected, keep, origin, what, value, again
        )
        try:
            if scope_key.thread_id is None:
                ((status, row, _),) = yield from run_script("", scope_key.resource_id, call, at_most_once=True)
            else:
                status, row, left = yield from guarded_write(
                    state, scope_key.thread_id, [scope_key.resource_id], call, at_most_once=True
                )
                yield from continue_sweep(state, scope_key.thread_id, left)
            break
        except OutcomeUnknownError as error:
            if not expected or failures >= error.repeats:
                raise
        yield Pause(effects.PAUSES[failures])
    if status == -2:
        raise OutcomeUnknownError(
            "the reply to an update of working memory was lost, and the revision that it has made is not kept any "
            "more, if it has made one",
            remedy="read working memory, and repeat the update if it is missing",
        )
    return int(status), as_dict(row)


@dataclass(frozen=True, slots=True)
class ScopeKey:
    """Where a working memory is stored."""

    keys: tuple[str, ...]  # the first is the thread's, or the tombstone of the resource; the last: memory, revisions
    thread_id: str | None = None  # None: the memory of a resource
    resource_id: str | None = None
    ids: Ids = field(default_factory=Ids)  # who asks, as far as it is known

    @property
    def key(self) -> str:
        """Return the key of the memory itself."""
        return self.keys[-2]
