"""The pages of what else is stored: working memory, observations, store items, all data of a resource; and the doctor."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from langgraph.store.base import InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from starlette.responses import StreamingResponse

from langchain_workingmem._documents.formats import JsonFormat
from langchain_workingmem._documents.merging import parse_json
from langchain_workingmem._redis.doctor import diagnose
from langchain_workingmem._redis.indexes import lacks_index
from langchain_workingmem._text.observed import in_zone
from langchain_workingmem.errors import (
    ObservationConflictError,
    OptionError,
    ReadOnlyError,
    WorkingMemoryConflictError,
    WorkingMemoryValidationError,
)
from langchain_workingmem.items import StoreState, run_operations
from langchain_workingmem.keeping import messages_behind
from langchain_workingmem.studio.overview import LOGS, threads_with_logs
from langchain_workingmem.studio.site import Missing, number
from langchain_workingmem.users import sections

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_workingmem.models import WorkingMemoryState, WorkingMemoryValue
    from langchain_workingmem.options import Scope
    from langchain_workingmem.studio.site import Studio

REVISIONS = 100
VALUES = 300
NAMESPACES = 200
ITEMS = 50
CHECKED = 100  # threads whose messages the doctor checks for vectors; ten times as many on the command line
COUNTED = 10_000  # threads, whose messages are counted before a deletion


# ---------------------------------------------------------------------- working memory and observations


async def _ids(studio: Studio, request: Request) -> tuple[Scope, dict[str, Any]]:
    """Return whose document a page shows: of a thread if it names one, else of the resource."""
    if request.query_params.get("thread"):
        one = await studio.thread(request)
        return "thread", {"thread_id": one.id, "resource_id": one.resource_id}
    return "resource", {"resource_id": studio.owner(request)}


def _place(ids: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the address of a document."""
    return {"user": ids["resource_id"], "thread": ids.get("thread_id")}


async def working_memory(
    studio: Studio,
    request: Request,
    *,
    status: int = 200,
    draft: str | None = None,
    problem: str | None = None,
    remark: str = "",
) -> Response:
    """Show working memory, its values, its revisions, and what changed between two; `draft` is a text that was refused."""
    scope, ids = await _ids(studio, request)
    memory, state, revisions, diff = studio.documents.get(scope), None, [], None
    chosen, messages = request.query_params.get("value"), None
    if memory is not None:
        revisions = await memory.working_memory.arevisions(limit=REVISIONS, **ids)
        state = await memory.working_memory.aget(**ids)
        if chosen is not None:
            plan = messages_behind(memory._core.state, _sources(state, chosen), ids["resource_id"])
            messages = await memory._core.arun(plan)
    if revisions:
        kept = {one.revision: one for one in revisions}
        earlier, later = (kept.get(number(request.query_params.get(name)) or 0) for name in ("earlier", "later"))
        last = later or revisions[0]
        diff = last.diff(earlier or kept.get(max((one for one in kept if one < last.revision), default=0)))
    now = in_zone(datetime.now(UTC), studio.zone(request, **ids))
    values = {
        "memory": memory,
        "state": state,
        "lines": timeline(state.timeline, now) if state and state.timeline else [],
        "chosen": chosen,
        "messages": messages,
        "revisions": revisions,
        "diff": diff,
        "draft": draft,
        "remark": remark,
    }
    return studio.page(request, "working_memory.html", status, problem=problem, **_place(ids), **values)


def _sources(state: WorkingMemoryState, path: str) -> list[tuple[str, str]]:
    """Return the messages behind what a value is and was."""
    try:
        return [source for one in state.history(path) for source in one.sources]
    except OptionError:
        raise Missing from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one value is and was."""

    now: WorkingMemoryValue
    earlier: Sequence[WorkingMemoryValue]
    bars: Sequence[
        tuple[float, float]
    ]  # where something held: beginning and length, in percent of the time of all values


def timeline(values: Mapping[str, Sequence[WorkingMemoryValue]], now: datetime) -> list[Line]:
    """Draw values over the time of all of them, which ends with this day, in the zone of `now`."""
    end = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    start = min((one.since for history in values.values() for one in history), default=end)
    length = max(end - start, timedelta(days=1))

    def bar(one: WorkingMemoryValue) -> tuple[float, float]:
        return 100 * ((one.since - start) / length), 100 * (((one.until or end) - one.since) / length)

    return [
        Line(now=first, earlier=earlier, bars=[bar(one) for one in (first, *earlier) if one.is_set])
        for first, *earlier in [*values.values()][:VALUES]
    ]


async def change_working_memory(studio: Studio, request: Request) -> Response:
    """Edit, clear or revert. What was typed is never lost: a refused text is shown again with the reason."""
    (scope, ids), form = await _ids(studio, request), await request.form()
    memory, revision = studio.documents.get(scope), number(form.get("revision")) or 0
    path = request.query_params.get("value", "")  # in the address, where every character can be written
    if memory is None:
        raise Missing
    text, part = str(form.get("text", "")).replace("\r\n", "\n"), memory.working_memory  # as browsers send it
    remark = ""

    async def edit() -> None:
        nonlocal remark
        if not studio.is_program:  # the options of the program are unknown: a document keeps its form
            state = await part.aget(**ids)
            if isinstance(parse_json(state.text), dict) and not isinstance(parse_json(text), dict):
                seen = "working memory holds a JSON object, and this text is none, which its program could not read"
                raise WorkingMemoryValidationError(seen, remedy="write a JSON object, or clear working memory first")
        state = await part.aupdate(text, mode="replace", expected_revision=revision, **ids)
        kept = memory._core.state.remembering.format
        if isinstance(kept, JsonFormat):
            remark = kept.remark(parse_json(text), (), "", state.text)

    clear, revert, undo = (
        partial(part.aclear, **ids),
        partial(part.arevert, revision, **ids),
        partial(part.aundo, path, **ids),
    )
    draft = text if form.get("action") == "edit" else None
    try:
        await do(form, edit=edit, clear=clear, revert=revert, undo=undo)
    except WorkingMemoryConflictError:
        late = "Somebody has written since you opened the form."
        return await working_memory(studio, request, status=409, draft=draft, problem=late)
    except (WorkingMemoryValidationError, ReadOnlyError, OptionError) as error:
        if isinstance(error, OptionError) and form.get("action") != "undo":
            raise
        return await working_memory(studio, request, status=422, draft=draft, problem=studio.reword(error))
    if remark:
        return await working_memory(studio, request, remark=f"Stored. {remark}.")
    return studio.go("/working-memory", **_place(ids), done=form.get("action"))


async def do(form: FormData, **actions: Callable[[], Awaitable[object]]) -> None:
    """Do what a form asks for."""
    action = actions.get(str(form.get("action")))
    if action is None:
        raise OptionError(f"action {form.get('action')!r}", remedy="use the forms of the page")
    await action()


async def observations(studio: Studio, request: Request, *, status: int = 200, problem: str | None = None) -> Response:
    """Show the log of a thread or of a resource, and the sources of one line."""
    (of, ids), chosen = await _ids(studio, request), request.query_params.get("id")
    part, options = studio.memory.observations, studio.state.observations
    scope, log, sources, logs = options and options.scope, None, None, []
    if of == "resource" and scope != "resource":
        logs = await studio.run(threads_with_logs(studio.state, ids["resource_id"], LOGS + 1))
    if scope in (None, of):  # a program has only logs of its scope
        log = await part.aget(**ids)
        sources = await part.asources(chosen, message_range=1, **ids) if chosen else None
    values: dict[str, Any] = {"log": log, "chosen": chosen, "sources": sources}
    values |= {"scope": scope, "logs": logs, "most": LOGS}
    return studio.page(request, "observations.html", status, problem=problem, **_place(ids), **values)


async def change_observations(studio: Studio, request: Request) -> Response:
    """Delete a line, or clear the log."""
    (_, ids), form = await _ids(studio, request), await request.form()
    part, id = studio.memory.observations, str(form.get("id", ""))
    actions = {
        "delete": partial(part.adelete, id, **ids),
        "clear": partial(part.aclear, **ids),
    }
    try:
        await do(form, **actions)
    except (ObservationConflictError, OptionError) as error:
        return await observations(studio, request, status=409, problem=studio.reword(error))
    return studio.go("/observations", **_place(ids), done=form.get("action"))


# ---------------------------------------------------------------------- store items


async def _run(studio: Studio, operation: Any) -> Any:
    """Run an operation of a LangGraph store on the Redis of memory. Without an index, or below an odd label, are no items."""
    state = StoreState.of(studio.state.keys, None, create=False)
    try:
        (reply,) = await studio.run(run_operations(state, [operation]))
    except (OptionError, InvalidNamespaceError) as error:
        if isinstance(error, OptionError) and not lacks_index(error):
            raise
        return []  # no program has made the index, or none can have this namespace
    return reply


def _allowed(studio: Studio, resource: str) -> list[tuple[str, ...]]:
    """Return the beginnings of the namespaces that a page may show: those of the resource, else all."""
    is_open = studio.resource_id is None and not studio.namespaces
    return [()] if is_open else sections.paths_of(studio.namespaces, resource)


def _namespace(studio: Studio, resource: str, given: str) -> tuple[str, ...]:
    """Read a namespace of an address, a JSON array, if a page may show it."""
    try:
        labels = json.loads(given)
    except (ValueError, RecursionError):
        raise Missing from None
    if not isinstance(labels, list) or not all(isinstance(one, str) for one in labels) or not labels:
        raise Missing
    if not any(tuple(labels[: len(path)]) == path for path in _allowed(studio, resource)):
        raise Missing
    return tuple(labels)


async def items(studio: Studio, request: Request) -> Response:
    """List the namespaces of a resource, and the items of one."""
    resource, given = studio.owner(request), request.query_params
    offset, chosen, found = number(given.get("offset")) or 0, None, []
    if "namespace" in given:
        chosen = _namespace(studio, resource, given["namespace"])
        found = await _run(studio, SearchOp(chosen, limit=ITEMS + 1, offset=offset))
    paths, listed = _allowed(studio, resource), set[tuple[str, ...]]()
    for path in paths:
        conditions = (MatchCondition("prefix", path),) if path else None
        names = await _run(studio, ListNamespacesOp(conditions, limit=NAMESPACES))
        listed.update(name for name in names if name[: len(path)] == path)  # a label * stands for any other
    namespaces = [(name, json.dumps(name)) for name in sorted(listed)]
    values = {
        "namespaces": namespaces,
        "paths": paths,
        "chosen": chosen,
        "found": found,
        "offset": offset,
        "size": ITEMS,
    }
    return studio.page(request, "store.html", user=resource, **values)


async def delete_item(studio: Studio, request: Request) -> Response:
    """Delete an item of a store."""
    resource, given = studio.owner(request), request.query_params
    namespace = _namespace(studio, resource, given.get("namespace", ""))
    await _run(studio, PutOp(namespace, given.get("key", ""), None))
    return studio.go("/store", user=resource, namespace=json.dumps(namespace), done="delete")


# ---------------------------------------------------------------------- all data of a resource, and the server


async def data(studio: Studio, request: Request) -> Response:
    """Say what is stored for a resource, and offer its export and its deletion."""
    resource = studio.owner(request)
    threads = await studio.memory.threads.alist(resource_id=resource, limit=COUNTED)
    memory, options = studio.documents.get("resource"), studio.state.observations
    state = None if memory is None else await memory.working_memory.aget(resource_id=resource)
    is_shown = options is None or options.scope == "resource"
    log = await studio.memory.observations.aget(resource_id=resource) if is_shown else None
    usage = await studio.memory.files.ausage(resource_id=resource)
    values = {"threads": threads, "state": state, "log": log, "usage": usage}
    return studio.page(request, "data.html", user=resource, **values)


async def export(studio: Studio, request: Request) -> Response:
    """Send all data of a resource as JSON lines, which `workingmem import` reads."""
    resource, vectors = studio.owner(request), request.query_params.get("vectors") == "1"
    records = studio.memory.users.aexport(resource, vectors=vectors, namespaces=studio.namespaces)
    first = [await anext(records), await anext(records, None)]  # an error is a page, until the file has begun

    async def lines() -> AsyncIterator[str]:
        for record in filter(None, first):
            yield f"{json.dumps(record)}\n"
        async for record in records:
            yield f"{json.dumps(record)}\n"

    name = f"memory-{datetime.now(UTC):%Y-%m-%d}.jsonl"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=headers)


async def doctor(studio: Studio, request: Request) -> Response:
    """Show what the doctor finds. It concerns the server, not a resource."""
    core = studio.memory._core
    found = await core.async_runner.run(diagnose(core.state, core.breaker.open_for, most_threads=CHECKED))
    return studio.page(request, "doctor.html", user=studio.resource_id, found=found)
