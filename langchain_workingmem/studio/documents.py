"""The pages of what memory has written down: working memory with its revisions, observations with their sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_workingmem._documents.diffs import pretty
from langchain_workingmem._documents.merging import parse_json
from langchain_workingmem.errors import (
    ObservationConflictError,
    OptionError,
    ReadOnlyError,
    WorkingMemoryConflictError,
    WorkingMemoryValidationError,
)
from langchain_workingmem.studio.conversations import thread_of
from langchain_workingmem.studio.site import Missing, number

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_workingmem.memory import Memory
    from langchain_workingmem.options import Scope
    from langchain_workingmem.studio.site import Studio

REVISIONS = 100


async def _ids(studio: Studio, request: Request) -> dict[str, str]:
    """Return whose document a page shows: of a thread if it names one, else of the resource."""
    if request.query_params.get("thread"):
        one = await thread_of(studio, request)
        return {"thread_id": one.id, "resource_id": one.resource_id}
    return {"resource_id": studio.owner(request)}


def _scope(ids: dict[str, str]) -> Scope:
    return "thread" if "thread_id" in ids else "resource"


def _place(ids: dict[str, str]) -> dict[str, Any]:
    """Return the parameters of the address of a document."""
    return {"user": ids["resource_id"], "thread": ids.get("thread_id")}


async def working_memory(
    studio: Studio, request: Request, *, status: int = 200, draft: str | None = None, problem: str | None = None
) -> Response:
    """Show working memory, its revisions, and what changed between two of them; `draft` is a text that was refused."""
    ids, given = await _ids(studio, request), request.query_params
    memory = studio.documents.get(_scope(ids))
    state, revisions, diff = None, [], None
    if memory is not None:
        revisions = await memory.working_memory.arevisions(limit=REVISIONS, **ids)
        state = revisions[0] if revisions else await memory.working_memory.aget(**ids)
        kept = {one.revision: one for one in revisions}
        chosen = (number(given.get(name)) for name in ("earlier", "later"))
        earlier, later = (one if one in kept else None for one in chosen)
        if revisions:
            last = kept[later] if later is not None else revisions[0]
            before = earlier if earlier is not None else max((one for one in kept if one < last.revision), default=0)
            diff = last.diff(kept.get(before))
    return studio.page(
        request,
        "working_memory.html",
        status=status,
        user=ids["resource_id"],
        thread_id=ids.get("thread_id"),
        memory=memory,
        state=state,
        text=pretty(state.text) if state else "",
        draft=draft,
        problem=problem,
        is_conflict=status == 409,
        revisions=revisions,
        diff=diff,
        can_write=studio.write and memory is not None and not memory._core.state.remembering.read_only,
        scopes=[*studio.documents],
    )


async def change_working_memory(studio: Studio, request: Request) -> Response:
    """Edit, clear or revert. What was typed is never lost: a refused text is shown again with the reason."""
    ids, form = await _ids(studio, request), await request.form()
    memory = studio.documents.get(_scope(ids))
    if memory is None:
        raise Missing
    text = str(form.get("text", "")).replace("\r\n", "\n")  # as browsers send it
    try:
        match form.get("action"):
            case "clear":
                await memory.working_memory.aclear(**ids)
            case "revert":
                await memory.working_memory.arevert(number(form.get("revision")) or 0, **ids)
            case "edit":
                await _edit(studio, memory, text, number(form.get("revision")) or 0, ids)
            case other:
                raise OptionError(f"action {other!r}", remedy="use the forms of the page")
    except (WorkingMemoryConflictError, WorkingMemoryValidationError, ReadOnlyError) as error:
        if isinstance(error, WorkingMemoryConflictError):
            late = "Somebody has written since you opened the form."
            return await working_memory(studio, request, status=409, draft=text, problem=late)
        return await working_memory(studio, request, status=422, draft=text, problem=studio.reword(str(error)))
    return studio.go("/working-memory", **_place(ids))


async def _edit(studio: Studio, memory: Memory, text: str, revision: int, ids: dict[str, str]) -> None:
    if not studio.is_program:  # the options of the program are unknown: a document keeps its form
        state = await memory.working_memory.aget(**ids)
        if isinstance(parse_json(state.text), dict) and not isinstance(parse_json(text), dict):
            raise WorkingMemoryValidationError(
                "working memory holds a JSON object, and this text is none, which its program could not read",
                remedy="write a JSON object, or clear working memory first",
            )
    await memory.working_memory.aupdate(text, mode="replace", expected_revision=revision, **ids)


async def observations(
    studio: Studio, request: Request, *, status: int = 200, draft: str | None = None, problem: str | None = None
) -> Response:
    """Show the log of a thread or of a resource, the sources of one line, and the revisions; `draft` was refused."""
    ids, chosen = await _ids(studio, request), request.query_params.get("id")
    part, options = studio.memory.observations, studio.memory._core.state.observations
    log, revisions, sources = None, [], None
    if options is None or options.scope == _scope(ids):  # a program has only logs of its scope
        log = await part.aget(**ids)
        revisions = await part.ahistory(limit=REVISIONS, **ids) if log.revision else []
        sources = await part.asources(chosen, message_range=1, **ids) if chosen else None
    return studio.page(
        request,
        "observations.html",
        status=status,
        user=ids["resource_id"],
        thread_id=ids.get("thread_id"),
        log=log,
        revisions=revisions,
        chosen=chosen,
        sources=sources,
        draft=draft,
        problem=problem,
        scope=options.scope if options else None,
    )


async def change_observations(studio: Studio, request: Request) -> Response:
    """Correct or delete a line, clear the log, or revert it."""
    ids, form = await _ids(studio, request), await request.form()
    part, id, text = studio.memory.observations, str(form.get("id", "")), str(form.get("text", ""))
    try:
        match form.get("action"):
            case "edit":
                await part.aupdate(id, text, **ids)
            case "delete":
                await part.adelete(id, **ids)
            case "clear":
                await part.aclear(**ids)
            case "revert":
                await part.arevert(number(form.get("revision")) or 0, **ids)
            case other:
                raise OptionError(f"action {other!r}", remedy="use the forms of the page")
    except (ObservationConflictError, OptionError) as error:
        return await observations(studio, request, status=409, draft=text, problem=studio.reword(str(error)))
    return studio.go("/observations", **_place(ids))
