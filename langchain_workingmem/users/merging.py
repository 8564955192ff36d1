"""The plan that merges a user into another one."""

from __future__ import annotations

from collections import Counter
from copy import copy
from typing import TYPE_CHECKING, Any

from langchain_workingmem._counting import count_command
from langchain_workingmem._documents.joining import joined
from langchain_workingmem._engine.plan import Plan, attempt, send
from langchain_workingmem._redis import rooms
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import check_id, merge_mark
from langchain_workingmem.errors import (
    IdError,
    ThreadNotFoundError,
    ThreadOwnershipError,
    UserDeletedError,
    WorkingMemError,
    WorkingMemoryConflictError,
)
from langchain_workingmem.options import WorkingMemoryOptions
from langchain_workingmem.recall import Authors
from langchain_workingmem.reports import MergeReport
from langchain_workingmem.threads import all_threads, transfer
from langchain_workingmem.users.operations import CLAIM, LIFT
from langchain_workingmem.working_memory import (
    ATTEMPTS,
    ScopeKey,
    as_seen,
    check_document,
    pause_after,
    reader_of,
    write_revision_into,
)

if TYPE_CHECKING:
    from langchain_workingmem._redis.state import MemoryState


def merge(state: MemoryState, source: str, into: str, merge_id: str) -> Plan[MergeReport]:
    """Give the working memory, threads and files of a user to another one.

    Writers for the source are refused meanwhile. Each step can be repeated, so the next call goes on where one was interrupted.
    Working memory goes first, because its values stand on messages: a message that is deleted meanwhile is forgotten in both
    memories, and then a thread takes its values along to the new owner.
    """
    if check_id(source, "source") == check_id(into, "into"):
        raise IdError(f"into is the user {source!r} itself", remedy="pass the user whom it becomes")
    if state.working_memory is None:  # the stored one is merged all the same
        state = copy(state)
        state.working_memory = WorkingMemoryOptions(template="")
    keys, mine = state.keys, merge_mark(into)
    tombstone, other = keys.of_user(source)[0], keys.of_user(into)[0]
    earlier, deleting = yield from send(CLAIM.call([tombstone], mine, merge_id), ("GET", other), in_order=True)
    if earlier is not None and not earlier.startswith(mine.encode()):
        raise UserDeletedError(source)
    counts: Counter[str] = Counter()
    renamed: dict[str, str] = {}
    try:
        if deleting is not None:
            raise UserDeletedError(into)
        yield from _merge_memory(state, source, into, counts)
        for thread in (yield from all_threads(state, source)):
            try:
                moved = yield from transfer(state, thread.id, source, into, merging=True)
            except (ThreadOwnershipError, ThreadNotFoundError):  # it was given away or deleted meanwhile
                continue
            counts.update(threads=1, messages=moved.message_count)
        yield from _merge_memory(state, source, into, counts)  # what a deletion of messages has left there meanwhile
        own = {"files": keys.files_of_user(source)[1:]}
        found = yield from send(*(("EXISTS", *names) for names in own.values()))
        for name in (name for name, is_there in zip(own, found, strict=True) if is_there):
            told: dict[str, Any] = {**(yield from rooms.load(name).merged_into(state, source, into))}
            renamed |= told.pop("files_renamed", {})
            counts.update(told)
    except WorkingMemError as error:
        yield from attempt(LIFT.call([tombstone], mine + merge_id))
        if counts.total():
            error.add_note(f"a part is merged: call users.merge({source!r}, into={into!r}) again for the rest")
        raise
    yield from send(LIFT.call([tombstone], mine + merge_id))
    for one in (source, into):
        state.room(Authors).pop(one)
    return MergeReport(source=source, into=into, files_renamed=renamed, **counts)


def _merge_memory(state: MemoryState, source: str, into: str, counts: Counter[str]) -> Plan[None]:
    """Merge the working memories; `WorkingMemoryValidationError` if the result may not be. Four round trips."""
    where = ScopeKey(state.keys.of_user(into), None, into)
    _, memory, revisions = state.keys.of_user(source)
    usage = state.keys.usage_of_user(source)[1]
    read = reader_of(state, where)
    for number in range(1, ATTEMPTS + 1):
        rows = yield from send(("HGETALL", memory), ("HGETALL", where.key), ("HGETALL", usage))
        guest, user = as_dict(rows[0]), as_dict(rows[1])
        document = guest.get(b"document", b"").decode()
        if not document:
            break
        before = read(user)
        after = check_document(state, joined(state.remembering.format, before.text, document))
        status, _ = yield from write_revision_into(state, where, as_seen(user), "merge", "write", after)
        if status:
            break
        if number % 2 == 0:
            yield pause_after(number)
    else:
        raise WorkingMemoryConflictError(expected=before.revision, actual=before.revision)
    counts["working_memories"] += int(bool(document))
    taken = [part for pair in as_dict(rows[2]).items() for part in pair]
    counting = [count_command(state, into, taken)] if taken else []
    yield from send(*counting, ("DEL", memory, revisions, usage), at_most_once=bool(taken))
