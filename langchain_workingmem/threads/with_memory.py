"""A thread and its working memory, changed together."""

from __future__ import annotations

from collections.abc import Mapping
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from langchain_workingmem.errors import RedisConnectionError, WorkingMemError
from langchain_workingmem.models import Thread
from langchain_workingmem.threads.operations import create_thread, update
from langchain_workingmem.working_memory import (
    NOTHING,
    check_document,
    check_writable,
    find_scope_key,
    read_working_memory,
    write_revision,
    write_revision_into,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import EllipsisType

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import Thread


def copy_memory(state: MemoryState, source: str, clone: Thread) -> Plan[None]:
    """Give a clone the working memory of its source, where threads have one. Two round trips, one when it is empty, else none.

    Both must be their owner's still: a clone that was deleted meanwhile must not come back.
    """
    if state.working_memory is None or state.working_memory.scope != "thread":
        return
    current = yield from read_working_memory(state, source, clone.resource_id)
    if current.text:
        scope_key = yield from find_scope_key(state, clone.id, clone.resource_id)
        yield from write_revision_into(state, scope_key, NOTHING, "clone", "write", current.text)


def create_with_memory(
    state: MemoryState,
    thread_id: str,
    resource_id: str,
    title: str | None,
    metadata: Mapping[str, Any] | None,
    content: Any,
) -> Plan[Thread]:
    """Create a thread, and seed the working memory unless there is one. Two round trips."""
    document = _whole(state, content)
    scope_key = yield from find_scope_key(state, thread_id, resource_id)
    try:
        thread = yield from create_thread(state, thread_id, resource_id, title, metadata)
        yield from write_revision_into(state, scope_key, NOTHING, "seed", "write", document)
    except RedisConnectionError as error:
        error.add_note("the thread may be there without its working memory: working_memory.update() sets it")
        raise
    return thread


def update_with_memory(
    state: MemoryState,
    thread_id: str,
    resource_id: str | None,
    title: str | EllipsisType | None,
    metadata: Mapping[str, Any] | EllipsisType | None,
    content: Any,
) -> Plan[Thread]:
    """Change a thread, and replace the working memory that it or its owner has; None empties it. Two round trips."""
    check_writable(state)
    document = "" if content is None else _whole(state, content)
    thread = yield from update(state, thread_id, resource_id, title, metadata)
    scope_key = yield from find_scope_key(state, thread_id, thread.resource_id)
    try:
        yield from write_revision(state, scope_key, "", "update", "write", document)
    except WorkingMemError as error:
        error.add_note(
            "title and metadata are changed, working memory is not: working_memory.update() changes it alone"
        )
        raise
    return thread


def _whole(state: MemoryState, content: Any) -> str:
    """Write the whole of a working memory down as it is stored, along whichever template."""
    return check_document(state, state.remembering.format.apply("", content, "replace"))
