"""The pages of what else is stored: working memory, and the deletion of all data of a user."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_workingmem._text.values import parse_json
from langchain_workingmem.errors import (
    OptionError,
    ReadOnlyError,
    WorkingMemoryConflictError,
    WorkingMemoryValidationError,
)
from langchain_workingmem.studio.site import Missing, confirm, number

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_workingmem.options import Scope
    from langchain_workingmem.studio.site import Studio

REVISIONS = 100


async def _ids(studio: Studio, request: Request) -> tuple[Scope, dict[str, Any]]:
    """Return whose document a page shows: of a thread if it names one, else of the user."""
    if request.query_params.get("thread"):
        one = await studio.thread(request)
        return "thread", {"thread_id": one.id, "user_id": one.user_id}
    return "user", {"user_id": studio.owner(request)}


def _place(ids: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the address of a document."""
    return {"user": ids["user_id"], "thread": ids.get("thread_id")}


async def working_memory(
    studio: Studio, request: Request, *, status: int = 200, draft: str | None = None, problem: str | None = None
) -> Response:
    """Show working memory, its revisions, and the text of one of them; `draft` is a text that was refused."""
    scope, ids = await _ids(studio, request)
    memory, state, revisions = studio.documents.get(scope), None, []
    if memory is not None:
        revisions = await memory.working_memory.arevisions(limit=REVISIONS, **ids)
        state = await memory.working_memory.aget(**ids)
    asked = number(request.query_params.get("revision"))
    older = next((one for one in revisions if one.revision == asked), None)
    values = {"memory": memory, "state": state, "revisions": revisions, "older": older, "draft": draft}
    return studio.page(request, "working_memory.html", status, problem=problem, **_place(ids), **values)


async def change_working_memory(studio: Studio, request: Request) -> Response:
    """Edit, clear or revert. What was typed is never lost: a refused text is shown again with the reason."""
    (scope, ids), form = await _ids(studio, request), await request.form()
    memory, revision = studio.documents.get(scope), number(form.get("revision")) or 0
    if memory is None:
        raise Missing
    text, part = str(form.get("text", "")).replace("\r\n", "\n"), memory.working_memory  # as browsers send it

    async def edit() -> None:
        # the options of the program are unknown: a document keeps its form
        if not studio.is_program and _is_object((await part.aget(**ids)).text) and not _is_object(text):
            seen = "working memory holds a JSON object, and this text is none, which its program could not read"
            raise WorkingMemoryValidationError(seen, remedy="write a JSON object, or clear working memory first")
        await part.aupdate(text, mode="replace", expected_revision=revision, **ids)

    draft = text if form.get("action") == "edit" else None
    try:
        await _do(form, edit=edit, clear=partial(part.aclear, **ids), revert=partial(part.arevert, revision, **ids))
    except WorkingMemoryConflictError:
        late = "Somebody has written since you opened the form."
        return await working_memory(studio, request, status=409, draft=draft, problem=late)
    except (WorkingMemoryValidationError, ReadOnlyError) as error:
        return await working_memory(studio, request, status=422, draft=draft, problem=str(error))
    return studio.go("/working-memory", **_place(ids), done=form.get("action"))


def _is_object(text: str) -> bool:
    return isinstance(parse_json(text), dict)


async def _do(form: FormData, **actions: Callable[[], Awaitable[object]]) -> None:
    """Do what a form asks for."""
    action = actions.get(str(form.get("action")))
    if action is None:
        raise OptionError(f"action {form.get('action')!r}", remedy="use the forms of the page")
    await action()


async def data(studio: Studio, request: Request) -> Response:
    """Offer the deletion of all data of a user."""
    user = studio.owner(request)
    threads = await studio.memory.threads.alist(user_id=user, limit=1)
    return studio.page(request, "data.html", user=user, threads=threads.total, report=None)


async def delete(studio: Studio, request: Request) -> Response:
    """Delete all data of a user, if its id was repeated, and show what was deleted."""
    user = studio.owner(request)
    await confirm(request, user, "nothing was deleted", "the id of the user")
    report = await studio.memory.users.adelete(user)
    return studio.page(request, "data.html", user=user, threads=0, report=report)
