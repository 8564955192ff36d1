"""The pages of what else is stored: working memory, the log, and the deletion of all data of a user."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from langchain_workingmem import keeping
from langchain_workingmem._text.values import parse_json
from langchain_workingmem.display.pictures import minutes
from langchain_workingmem.errors import (
    OptionError,
    ReadOnlyError,
    WorkingMemoryConflictError,
    WorkingMemoryValidationError,
)
from langchain_workingmem.studio import reading
from langchain_workingmem.studio.site import Missing, confirm, number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_workingmem.memory import Memory
    from langchain_workingmem.models import WorkingMemoryValue
    from langchain_workingmem.options import Scope
    from langchain_workingmem.studio.site import Studio

REVISIONS = 100


def _ids(studio: Studio, request: Request) -> tuple[Scope, dict[str, Any]]:
    """Return whose document a page shows: of a thread if it names one, else of the user."""
    if request.query_params.get("thread"):
        thread = studio.thread(request)
        return "thread", {"thread_id": thread.id, "user_id": thread.user_id}
    return "user", {"user_id": studio.owner(request)}


def _place(ids: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the address of a document."""
    return {"user": ids["user_id"], "thread": ids.get("thread_id")}


def working_memory(
    studio: Studio, request: Request, *, status: int = 200, draft: str | None = None, problem: str | None = None
) -> Response:
    """Show working memory, its revisions, and the text of one of them; `draft` is a text that was refused."""
    scope, ids = _ids(studio, request)
    memory, state, revisions = studio.documents.get(scope), None, []
    if memory is not None:
        revisions = memory.working_memory.revisions(limit=REVISIONS, **ids)
        state = memory.working_memory.get(**ids)
    revision = number(request.query_params.get("revision"))
    older = next((entry for entry in revisions if entry.revision == revision), None)
    values: dict[str, Any] = {"memory": memory, "state": state, "revisions": revisions, "older": older, "draft": draft}
    values["sources"] = _sources(memory, ids) if memory else []
    return studio.page(request, "working_memory.html", status, problem=problem, **_place(ids), **values)


def _sources(memory: Memory, ids: dict[str, Any]) -> list[WorkingMemoryValue]:
    """Return the present values of which a keeper has noted the messages that they come from."""
    timeline = memory._core.run(keeping.read(memory._core.state, ids.get("thread_id"), ids["user_id"])).timeline or {}
    present = [values[0] for values in timeline.values() if values]
    return [value for value in present if value.sources and value.value is not None][:REVISIONS]


def change_working_memory(studio: Studio, request: Request, form: Mapping[str, str]) -> Response:
    """Edit, clear or revert. What was typed is never lost: a refused text is shown again with the reason."""
    scope, ids = _ids(studio, request)
    memory, revision = studio.documents.get(scope), number(form.get("revision")) or 0
    if memory is None:
        raise Missing
    text, documents = form.get("text", "").replace("\r\n", "\n"), memory.working_memory  # as browsers send it

    def edit() -> None:
        # the options of the program are unknown: a document keeps its form
        if not studio.is_program and _is_object((documents.get(**ids)).text) and not _is_object(text):
            problem = "working memory holds a JSON object, and this text is none, which its program could not read"
            raise WorkingMemoryValidationError(problem, remedy="write a JSON object, or clear working memory first")
        documents.update(text, mode="replace", expected_revision=revision, **ids)

    draft = text if form.get("action") == "edit" else None
    try:
        _do(form, edit=edit, clear=partial(documents.clear, **ids), revert=partial(documents.revert, revision, **ids))
    except WorkingMemoryConflictError:
        problem = "Somebody has written since you opened the form."
        return working_memory(studio, request, status=409, draft=draft, problem=problem)
    except (WorkingMemoryValidationError, ReadOnlyError) as error:
        return working_memory(studio, request, status=422, draft=draft, problem=str(error))
    return studio.go("/working-memory", **_place(ids), done=form.get("action"))


def _is_object(text: str) -> bool:
    return isinstance(parse_json(text), dict)


def _do(form: Mapping[str, str], **actions: Callable[[], object]) -> None:
    """Do what a form asks for."""
    action = actions.get(str(form.get("action")))
    if action is None:
        raise OptionError(f"action {form.get('action')!r}", remedy="use the forms of the page")
    action()


def log(studio: Studio, request: Request) -> Response:
    """Show the observations of a thread, or of the threads of a user that changed last, by day."""
    _, ids = _ids(studio, request)
    with studio.times(ids["user_id"], ids.get("thread_id")):
        observations = studio.memory.observations.get(**ids)
        days = [(day, [*lines]) for day, lines in groupby(observations, lambda line: minutes(line.said_at)[:10])]
    return studio.page(request, "log.html", log=observations, days=days, **_place(ids))


def change_log(studio: Studio, request: Request, form: Mapping[str, str]) -> Response:
    """Delete a line of a log, or all of it."""
    _, ids = _ids(studio, request)
    line = form.get("line", "")
    if line.rpartition(":")[0] != ids.get("thread_id") and form.get("action") == "delete":
        raise Missing
    observations = studio.memory.observations
    _do(form, delete=partial(observations.delete, line, **ids), clear=partial(observations.clear, **ids))
    return studio.go("/log", **_place(ids), done=form.get("action"))


def data(studio: Studio, request: Request) -> Response:
    """Count all that is stored for a user, and offer its deletion."""
    user = studio.owner(request)
    return studio.page(request, "data.html", user=user, stored=_stored(studio, user), report=None)


def _stored(studio: Studio, user: str) -> dict[str, int]:
    """Count the data of a user, by kind."""
    if studio.is_empty():
        return {}
    counts = studio.memory._core.run(reading.counts(studio.state, user))
    threads = studio.memory.threads.list(user_id=user, limit=1).total
    numbers = {"threads": threads, "messages": counts.messages, "vectors": counts.vectors or 0}
    numbers |= {"revisions of working memory": counts.revisions, "threads with a log": counts.logs}
    return numbers | {"threads with values of a keeper": counts.values, "files": counts.files}


def delete(studio: Studio, request: Request, form: Mapping[str, str]) -> Response:
    """Delete all data of a user, if its id was repeated, and show what was deleted."""
    user = studio.owner(request)
    confirm(form, user, "nothing was deleted", "the id of the user")
    report = studio.memory.users.delete(user)
    return studio.page(request, "data.html", user=user, stored=_stored(studio, user), report=report)
