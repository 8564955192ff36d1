"""A thread and its working memory, changed together."""

from __future__ import annotations

from collections.abc import Mapping
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from langchain_workingmem.errors import RedisConnectionError, WorkingMemError
from langchain_workingmem.models import Thread
from langchain_workingmem.threads.operations import create, update
from langchain_workingmem.working_memory.operations import checked, find, read, writable
from langchain_workingmem.working_memory.revisions import NOTHING, write, write_into

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import EllipsisType

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.state import Space
    from langchain_workingmem.models import Thread


def copy_memory(space: Space, source: str, clone: Thread) -> Plan[None]:
    """Give a clone the working memory of its source, where threads have one. Two round trips, one when it is empty, else none.

    Both must be their owner's still: a clone that was deleted meanwhile must not come back.
    """
    if space.working_memory is None or space.working_memory.scope != "thread":
        return
    state = yield from read(space, source, clone.resource_id)
    if state.text:
        place = yield from find(space, clone.id, clone.resource_id)
        yield from write_into(space, place, NOTHING, "clone", "write", state.text)


def create_with_memory(
    space: Space,
    thread_id: str,
    resource_id: str,
    title: str | None,
    metadata: Mapping[str, Any] | None,
    content: Any,
) -> Plan[Thread]:
    """Create a thread, and seed the working memory unless there is one. Two round trips."""
    document = _whole(space, content)
    place = yield from find(space, thread_id, resource_id)
    try:
        thread = yield from create(space, thread_id, resource_id, title, metadata)
        yield from write_into(space, place, NOTHING, "seed", "write", document)
    except RedisConnectionError as error:
        error.add_note("the thread may be there without its working memory: working_memory.update() sets it")
        raise
    return thread


def update_with_memory(
    space: Space,
    thread_id: str,
    resource_id: str | None,
    title: str | EllipsisType | None,
    metadata: Mapping[str, Any] | EllipsisType | None,
    content: Any,
) -> Plan[Thread]:
    """Change a thread, and replace the working memory that it or its owner has; None empties it. Two round trips."""
    writable(space)
    document = "" if content is None else _whole(space, content)
    thread = yield from update(space, thread_id, resource_id, title, metadata)
    place = yield from find(space, thread_id, thread.resource_id)
    try:
        yield from write(space, place, "", "update", "write", document)
    except WorkingMemError as error:
        error.add_note(
            "title and metadata are changed, working memory is not: working_memory.update() changes it alone"
        )
        raise
    return thread


def _whole(space: Space, content: Any) -> str:
    """Write the whole of a working memory down as it is stored, along whichever template."""
    return checked(space, space.remembering.format.apply("", content, "replace"))
