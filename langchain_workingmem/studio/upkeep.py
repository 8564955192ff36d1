"""The pages of everything else that belongs to a resource, and of the server: store items, export, deletion, doctor."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from langgraph.store.base import InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from starlette.responses import StreamingResponse

from langchain_workingmem._redis.doctor import diagnose
from langchain_workingmem.errors import OptionError, RedisReplyError
from langchain_workingmem.items import StoreState, run_operations
from langchain_workingmem.studio.reading import as_json
from langchain_workingmem.studio.site import Missing, is_confirmed, number
from langchain_workingmem.users import paths_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_workingmem.studio.site import Studio

NAMESPACES = 200
ITEMS = 50
CHECKED = 100  # threads whose messages the doctor checks for vectors; ten times as many on the command line
COUNTED = 10_000  # threads, whose messages are counted before a deletion


async def _run(studio: Studio, operation: Any) -> Any:
    """Run an operation of a LangGraph store on the Redis of memory. Without an index, or below an odd label, are no items."""
    state = StoreState.of(studio.memory._core.state.keys, None, create=False)
    try:
        (reply,) = await studio.memory._core.arun(run_operations(state, [operation]))
    except OptionError as error:
        if isinstance(error.__cause__, RedisReplyError):  # no program has made the index
            return []
        raise
    except InvalidNamespaceError:
        return []
    return reply


def _allowed(studio: Studio, resource: str) -> list[tuple[str, ...]]:
    """Return the beginnings of the namespaces that a page may show: those of the resource, else all."""
    if studio.resource_id is None and not studio.namespaces:
        return [()]
    return paths_of(studio.namespaces, resource)


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
    offset = number(given.get("offset")) or 0
    chosen, found = None, []
    if "namespace" in given:
        chosen = _namespace(studio, resource, given["namespace"])
        found = await _run(studio, SearchOp(chosen, limit=ITEMS + 1, offset=offset))
    paths = _allowed(studio, resource)
    listed: set[tuple[str, ...]] = set()
    for path in paths:
        conditions = (MatchCondition("prefix", path),) if path else None
        names = await _run(studio, ListNamespacesOp(conditions, limit=NAMESPACES))
        listed.update(name for name in names if name[: len(path)] == path)  # a label * stands for any other
    return studio.page(
        request,
        "store.html",
        user=resource,
        namespaces=[(name, json.dumps(name)) for name in sorted(listed)],
        chosen=chosen,
        items=[(item, as_json(item.value)) for item in found[:ITEMS]],
        offset=offset,
        has_more=len(found) > ITEMS,
        paths=paths,
        size=ITEMS,
    )


async def delete_item(studio: Studio, request: Request) -> Response:
    """Delete an item of a store."""
    resource, given = studio.owner(request), request.query_params
    namespace = _namespace(studio, resource, given.get("namespace", ""))
    await _run(studio, PutOp(namespace, given.get("key", ""), None))
    return studio.go("/store", user=resource, namespace=json.dumps(namespace))


async def data(studio: Studio, request: Request) -> Response:
    """Say what is stored for a resource, and offer its export and its deletion."""
    resource = studio.owner(request)
    page = await studio.memory.threads.alist(resource_id=resource, limit=COUNTED)
    memory, options = studio.documents.get("resource"), studio.memory._core.state.observations
    scope = options and options.scope
    return studio.page(
        request,
        "data.html",
        user=resource,
        total=page.total,
        messages=sum(thread.message_count for thread in page),
        is_counted=page.next_cursor is None,
        state=None if memory is None else await memory.working_memory.aget(resource_id=resource),
        log=await studio.memory.observations.aget(resource_id=resource) if scope in (None, "resource") else None,
    )


async def export(studio: Studio, request: Request) -> Response:
    """Send all data of a resource as JSON lines, which `workingmem import` reads."""
    resource = studio.owner(request)
    vectors = request.query_params.get("vectors") == "1"

    records = studio.memory.users.aexport(resource, vectors=vectors, namespaces=studio.namespaces)
    first = [await anext(records), await anext(records, None)]  # an error is a page, until the file has begun

    async def lines() -> AsyncIterator[str]:
        for record in first:
            yield f"{json.dumps(record)}\n" if record else ""
        async for record in records:
            yield f"{json.dumps(record)}\n"

    name = f"memory-{datetime.now(UTC):%Y-%m-%d}.jsonl"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=headers)


async def delete(studio: Studio, request: Request) -> Response:
    """Delete all data of a resource, if its id was repeated."""
    resource, form = studio.owner(request), await request.form()
    if not is_confirmed(form.get("confirm"), resource):
        remedy = "write the id of the resource into the field to confirm the deletion"
        raise OptionError("nothing was deleted", remedy=remedy)
    report = await studio.memory.users.adelete(resource, namespaces=studio.namespaces)
    return studio.page(request, "deleted.html", user=resource, report=report)


async def doctor(studio: Studio, request: Request) -> Response:
    """Show what the doctor finds. It concerns the server, not a resource."""
    core = studio.memory._core
    found = await core.async_runner.run(diagnose(core.state, core.breaker.open_for, most_threads=CHECKED))
    return studio.page(request, "doctor.html", user=studio.resource_id, found=found)
