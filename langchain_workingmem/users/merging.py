"""The plan that merges a user into another one."""

from __future__ import annotations

from collections import Counter
from copy import copy
from typing import TYPE_CHECKING, Any

from langchain_workingmem._counting import count_command
from langchain_workingmem._documents.joining import joined
from langchain_workingmem._engine.plan import Plan, attempt, send
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import check_id, merge_mark
from langchain_workingmem._redis.state import wing
from langchain_workingmem.errors import (
    IdError,
    ThreadNotFoundError,
    ThreadOwnershipError,
    UserDeletedError,
    WorkingMemError,
)
from langchain_workingmem.options import WorkingMemoryOptions
from langchain_workingmem.recall import Authors
from langchain_workingmem.reports import MergeReport
from langchain_workingmem.threads import all_threads, transfer
from langchain_workingmem.users.operations import claim, lift
from langchain_workingmem.working_memory import ScopeKey, change_at_scope_key

if TYPE_CHECKING:
    from langchain_workingmem._redis.state import MemoryState


def merge(state: MemoryState, source: str, into: str, merge_id: str) -> Plan[MergeReport]:
    """Give the working memory, threads and files of a user to another one.

    Writers for the source are refused meanwhile. Each step can be repeated, so the next call goes on where one was
    interrupted.
    """
    if check_id(source, "source") == check_id(into, "into"):
        raise IdError(f"into is the user {source!r} itself", remedy="pass the user whom it becomes")
    if state.working_memory is None:  # the stored one is merged all the same
        state = copy(state)
        state.working_memory = WorkingMemoryOptions(template="")
    keys, mine = state.keys, merge_mark(into)
    claiming, other = claim(state, source, mine, merge_id), ("GET", keys.of_user(into)[0])
    earlier, deleting = yield from send(claiming, other, in_order=True)
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
        (has_files,) = yield from send(("EXISTS", *keys.files_of_user(source)[1:]))
        if has_files:
            told: dict[str, Any] = {**(yield from wing("files").merged_into(state, source, into))}
            renamed = told.pop("files_renamed", {})
            counts.update(told)
    except WorkingMemError as error:
        yield from attempt(lift(state, source, mine, merge_id))
        if counts.total():
            error.add_note(f"a part is merged: call users.merge({source!r}, into={into!r}) again for the rest")
        raise
    yield from send(lift(state, source, mine, merge_id))
    for one in (source, into):
        state.room(Authors).pop(one)
    return MergeReport(source=source, into=into, files_renamed=renamed, **counts)


def _merge_memory(state: MemoryState, source: str, into: str, counts: Counter[str]) -> Plan[None]:
    """Merge the working memories; `WorkingMemoryValidationError` if the result may not be. Four round trips."""
    _, memory, revisions = state.keys.of_user(source)
    usage = state.keys.usage_of_user(source)[1]
    (document, kept), taken = yield from send(("HMGET", memory, "document", "kept"), ("HGETALL", usage))
    if document and kept:  # values of rows come with these
        document = wing("keeping").without_rows(document.decode(), kept.decode()).encode()
    if document:
        where = ScopeKey(state.keys.of_user(into), None, into)
        yield from change_at_scope_key(state, where, lambda form, text: joined(form, text, document.decode()), "merge")
        counts["working_memories"] += 1
    numbers = {name.decode(): int(number) for name, number in as_dict(taken).items()}
    counting = [count_command(state, into, numbers)] if numbers else []
    yield from send(*counting, ("DEL", memory, revisions, usage), at_most_once=bool(numbers))
