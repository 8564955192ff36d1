"""Plans of working memory: read, change and compare, write if nobody was faster."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from langchain_workingmem.errors import (
    IdError,
    ReadOnlyError,
    RedisConnectionError,
    RevisionNotFoundError,
    WorkingMemError,
    WorkingMemoryConflictError,
    WorkingMemoryValidationError,
)
from langchain_workingmem.models import WorkingMemoryState
from langchain_workingmem.options import Ids, at_least, one_of
from langchain_workingmem.plans.access import check_owner
from langchain_workingmem.plans.codec import as_dict, from_micros
from langchain_workingmem.plans.effects import Pause, Plan, send
from langchain_workingmem.plans.keys import FROM_WHERE, check_id
from langchain_workingmem.plans.revisions import NOTHING, as_seen, write, write_into
from langchain_workingmem.plans.threads import create, owner_of
from langchain_workingmem.plans.threads import update as update_title
from langchain_workingmem.text.formats import Format, Mode
from langchain_workingmem.text.rendering import working_memory_block

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import EllipsisType

    from langchain_workingmem.models import Thread
    from langchain_workingmem.options import WorkingMemoryOptions
    from langchain_workingmem.plans.effects import Command
    from langchain_workingmem.plans.space import Space

_log = logging.getLogger("langchain_workingmem")

Change: TypeAlias = Callable[[Format, str], str]  # from the present document to the next
UPDATE = "update_working_memory"  # the tool, whose name may go on

ATTEMPTS = 100  # before a writer that always loses gives up; 8 processes that write at once need a handful
FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.05  # seconds, doubled per attempt, a random part of it


@dataclass(frozen=True, slots=True)
class Place:
    """Where a working memory is stored."""

    keys: tuple[str, ...]  # the first is the thread's, or the tombstone of the resource; the last: memory, revisions
    thread_id: str | None = None  # None: the memory of a resource
    resource_id: str | None = None
    ids: Ids = field(default_factory=Ids)  # who asks, as far as it is known

    @property
    def key(self) -> str:
        """Return the key of the memory itself."""
        return self.keys[-2]


def find(space: Space, thread_id: str | None, resource_id: str | None) -> Plan[Place]:
    """Find the working memory that the ids and the scope mean; only a thread known, its owner may cost a round trip."""
    if thread_id is not None:
        check_id(thread_id, "thread_id")
    if resource_id is not None:
        check_id(resource_id, "resource_id")
    options = space.remembering
    if options.scope == "thread":
        if thread_id is None:
            raise IdError("working memory of a thread needs a thread_id", remedy=FROM_WHERE.format("thread_id"))
        owner = (yield from owner_of(space, thread_id, resource_id))[1] if options.is_personal else resource_id
        return Place(space.keys.of(thread_id).all, thread_id, resource_id, Ids(thread_id, owner))
    if resource_id is None:
        if thread_id is None:
            raise IdError("working memory of a resource needs a resource_id", remedy=FROM_WHERE.format("resource_id"))
        _, resource_id = yield from owner_of(space, thread_id, None)
    return Place(space.keys.of_resource(resource_id), None, resource_id, Ids(thread_id, resource_id))


def reading(place: Place) -> list[Command]:
    """Give the commands that read a working memory; `state_of` reads their replies."""
    owner: list[Command] = [] if place.thread_id is None else [("HGET", place.keys[0], "resource")]
    return [("HGETALL", place.key), *owner]


def state_of(space: Space, place: Place, replies: list[Any]) -> WorkingMemoryState:
    """Read a working memory, empty when there is none."""
    return _reader(space, place, replies[1:])(as_dict(replies[0]))


def _reader(
    space: Space, place: Place, owner: Sequence[bytes | None]
) -> Callable[[Mapping[bytes, bytes]], WorkingMemoryState]:
    """Give the function that reads rows of a working memory; `owner` is what `reading` asks for beside it."""
    if place.thread_id is not None:
        check_owner(owner[0], place.thread_id, place.resource_id)
    options = space.remembering
    template, instructions = options.template_for(place.ids), options.instructions_for(place.ids)
    return partial(_state, options.along(template), template, instructions, place.key)


def _state(
    form: Format, template: str | None, instructions: str | None, key: str, row: Mapping[bytes, bytes]
) -> WorkingMemoryState:
    text = row.get(b"document", b"").decode()
    try:
        value = form.value(text)
    except WorkingMemoryValidationError as error:
        # whoever changed the schema must be able to read what the old one allowed
        _log.warning("working memory at revision %d: %s", int(row[b"revision"]), error)
        value = text
    return WorkingMemoryState(
        value=value,
        text=text,
        revision=int(row.get(b"revision", 0)),
        updated_at=from_micros(row[b"updated_at"]) if b"updated_at" in row else None,
        is_empty=form.is_empty(text),
        origin=row[b"origin"].decode() if b"origin" in row else None,
        template=template,
        instructions=instructions,
        key=key,
    )


def block(
    space: Space,
    state: WorkingMemoryState,
    *,
    read_only: bool = False,
    tools: Iterable[str] | None = None,
    name: str | None = None,
) -> str:
    """Render working memory for a prompt, which orders only tools that there are.

    `tools` are the names of those at hand; None: those that the options give. `name` is that of the memory, where an agent has
    several.
    """
    options = space.remembering
    if tools is None:
        tools = [f"{tool}_working_memory{f'_{name}' if name else ''}" for tool in options.tools]
    update = next((tool for tool in tools if tool == UPDATE or tool.startswith(f"{UPDATE}_")), None)
    return working_memory_block(
        options.along(state.template),
        state.text,
        options.scope,
        update=None if read_only or options.read_only else update,
        instructions=state.instructions,
        name=name,
    )


def read(space: Space, thread_id: str | None, resource_id: str | None) -> Plan[WorkingMemoryState]:
    """Read working memory. One round trip."""
    place = yield from find(space, thread_id, resource_id)
    replies = yield from send(*reading(place))
    return state_of(space, place, replies)


def change(
    space: Space,
    thread_id: str | None,
    resource_id: str | None,
    make: Change,
    origin: str,
    expected: int | None = None,
) -> Plan[tuple[WorkingMemoryState, WorkingMemoryState]]:
    """Find working memory and change it, as `change_at` does."""
    place = yield from find(space, thread_id, resource_id)
    return (yield from change_at(space, place, make, origin, expected))


def change_at(
    space: Space, place: Place, make: Change, origin: str, expected: int | None = None
) -> Plan[tuple[WorkingMemoryState, WorkingMemoryState]]:
    """Change working memory, and return what it was and what it is.

    Two round trips without rivals, one more with an `expected` that has passed: whose reply was lost may call again, and what
    the revision behind `expected` holds tells whether it was written. A rival's write is taken in and the change made again, on what the refusal brought
    back or after a pause; after `ATTEMPTS` times `WorkingMemoryConflictError`. With `expected` there is one attempt.
    """
    row, *owner = yield from send(*reading(place))
    state = _reader(space, place, owner)
    before = state(as_dict(row))
    form = space.remembering.along(before.template)
    for attempt in range(1, ATTEMPTS + 1):
        if expected is not None and expected != before.revision:
            if attempt == 1 and (yield from _is_written(space, place, form, make, expected)):
                return before, before
            raise WorkingMemoryConflictError(expected=expected, actual=before.revision)
        document = checked(space, make(form, before.text))
        if document == before.text:
            return before, before
        status, row = yield from write(space, place, as_seen(as_dict(row)), origin, "write", document)
        if status:
            return before, state(row)
        rival = state(row)
        if expected is None and attempt % 2 == 0:
            yield Pause(min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE), jitter=True)
            row, *owner = yield from send(*reading(place))
            if place.thread_id is not None:
                check_owner(owner[0], place.thread_id, place.resource_id)
            rival = state(as_dict(row))
        seen, before = before.revision, rival
    raise WorkingMemoryConflictError(expected=seen, actual=before.revision)


def _is_written(space: Space, place: Place, form: Format, make: Change, expected: int) -> Plan[bool]:
    """Tell whether the revision behind `expected` is what this change makes of `expected`. One round trip."""
    (entries,) = yield from send(("XRANGE", place.keys[-1], f"{expected}-0", f"{expected + 1}-0"))
    kept = {int(row[b"revision"]): row[b"document"].decode() for row in (as_dict(fields) for _, fields in entries)}
    old, new = kept.get(expected, "" if expected == 0 else None), kept.get(expected + 1)
    if old is None or new is None:
        return False
    try:
        return bool(checked(space, make(form, old)) == new)
    except WorkingMemoryValidationError:
        return False


def checked(space: Space, document: str) -> str:
    """Return a document that is small enough, and that Redis can hold."""
    limit = space.remembering.max_bytes
    try:
        size = len(document.encode())
    except UnicodeEncodeError as error:
        raise WorkingMemoryValidationError(
            f"working memory was not changed, because the update holds a lone surrogate ({error})",
            remedy="send valid Unicode",
        ) from error
    if size > limit:
        raise WorkingMemoryValidationError(
            f"working memory would have {size} bytes, the limit is {limit}, so nothing was changed",
            remedy="keep only what matters, or raise WorkingMemoryOptions(max_bytes=...)",
        )
    return document


def writable(space: Space) -> WorkingMemoryOptions:
    """Raise `ReadOnlyError` when working memory is only shown."""
    options = space.remembering
    if options.read_only:
        raise ReadOnlyError(
            "working memory is read-only", remedy="make a Memory without WorkingMemoryOptions(read_only=True)"
        )
    return options


def update(
    space: Space,
    thread_id: str | None,
    resource_id: str | None,
    content: Any,
    mode: Mode | None,
    expected: int | None,
) -> Plan[WorkingMemoryState]:
    """Update working memory in a mode. Two round trips without rivals."""
    writable(space)
    if mode is not None:
        one_of(mode, get_args(Mode), "mode")
    if expected is not None:
        at_least(expected, 0, "expected_revision")
    _, after = yield from change(
        space, thread_id, resource_id, lambda form, text: form.apply(text, content, mode), "update", expected
    )
    return after


def clear(space: Space, thread_id: str | None, resource_id: str | None) -> Plan[WorkingMemoryState]:
    """Empty working memory, whatever its revision. One round trip."""
    writable(space)
    place = yield from find(space, thread_id, resource_id)
    _, row = yield from write(space, place, "", "clear", "write", "")
    return _reader(space, place, [None])(row)


def revisions(
    space: Space, thread_id: str | None, resource_id: str | None, limit: int
) -> Plan[list[WorkingMemoryState]]:
    """Read the revisions that are kept, the newest first. One round trip."""
    at_least(limit, 1, "limit")
    place = yield from find(space, thread_id, resource_id)
    _, *owner = reading(place)
    entries, *replies = yield from send(("XREVRANGE", place.keys[-1], "+", "-", "COUNT", limit), *owner)
    state = _reader(space, place, replies)
    return [state(as_dict(fields)) for _, fields in entries]


def revert(space: Space, revision: int, thread_id: str | None, resource_id: str | None) -> Plan[WorkingMemoryState]:
    """Bring a revision back, byte for byte, as a new one. One round trip."""
    writable(space)
    at_least(revision, 1, "revision")
    place = yield from find(space, thread_id, resource_id)
    status, row = yield from write(space, place, "", "revert", "revert", revision)
    if status < 0:
        raise RevisionNotFoundError(revision)
    return _reader(space, place, [None])(row)


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


def create_thread(
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


def update_thread(
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
    thread = yield from update_title(space, thread_id, resource_id, title, metadata)
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
