"""Writing working memory: a revision is compared and the next one is made, once, even when replies are lost."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from langchain_workingmem.errors import OutcomeUnknownError, ThreadExistsError, ThreadNotFoundError
from langchain_workingmem.plans import effects, scripts
from langchain_workingmem.plans.access import guarded, owner_tag, run_script
from langchain_workingmem.plans.codec import as_dict
from langchain_workingmem.plans.effects import Pause, Plan
from langchain_workingmem.plans.slices import go_on
from langchain_workingmem.plans.threads import create

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_workingmem.plans.space import Space
    from langchain_workingmem.plans.working_memory import Place


def as_seen(row: Mapping[bytes, bytes]) -> str:
    """Write what a writer saw as the script compares it: revisions begin anew when a memory is deleted, times do not."""
    return f"{row.get(b'revision', b'0').decode()}@{row.get(b'updated_at', b'').decode()}"


NOTHING = as_seen({})


def write(
    space: Space, place: Place, expected: str, origin: str, what: str, value: str | int
) -> Plan[tuple[int, dict[bytes, bytes]]]:
    """Write working memory; that of a thread which is not there makes the thread, if there is something to write."""
    writing = partial(write_into, space, place, expected, origin, what, value)
    try:
        return (yield from writing())
    except ThreadNotFoundError as error:
        if what == "revert" or not value:
            return (-1 if what == "revert" else 1), {}  # nothing to bring back, nothing to clear
        # the memory of a thread whose first message is still to come; without an owner it owns itself
        with suppress(ThreadExistsError):  # somebody else's first message came in between
            yield from create(space, error.thread_id, place.resource_id or error.thread_id, None, None)
    return (yield from writing())


def write_into(
    space: Space, place: Place, expected: str, origin: str, what: str, value: str | int
) -> Plan[tuple[int, dict[bytes, bytes]]]:
    """Write working memory; that of a thread which is not there raises `ThreadNotFoundError`. One round trip.

    When the reply is lost it is sent again, because the script finds what it has written. It cannot when that was deleted
    meanwhile, or more revisions came than are kept: `OutcomeUnknownError`. Without a revision to compare (`expected` is empty) a
    second time would undo what came in between.
    """
    keep = space.remembering.revisions
    for failures in count():
        again = int(failures > 0)
        call = scripts.REMEMBER.call(
            place.keys, owner_tag(place.resource_id), expected, keep, origin, what, value, again
        )
        try:
            if place.thread_id is None:
                ((status, row, _),) = yield from run_script("", place.resource_id, call, once=True)
            else:
                status, row, left = yield from guarded(space, place.thread_id, [place.resource_id], call, once=True)
                yield from go_on(space, place.thread_id, left)
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
