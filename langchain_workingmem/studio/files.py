"""The pages of files: a directory, one file with its revisions, and what changes it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.responses import Response

from langchain_workingmem._documents.lines import unified
from langchain_workingmem.errors import (
    FileConflictError,
    FileMissingError,
    FilePathError,
    FileQuotaError,
    OptionError,
)
from langchain_workingmem.files import FileDiff, check_directory, compare
from langchain_workingmem.studio.site import Missing, confirm, number
from langchain_workingmem.studio.stored import do

if TYPE_CHECKING:
    from starlette.requests import Request

    from langchain_workingmem.files import File
    from langchain_workingmem.studio.site import Studio

BY = "person"  # in the revisions
ENTRIES = 500
REVISIONS = 100
LINES = 2000  # of a diff
EDITABLE = 256 * 1024  # bytes of a text in a form


async def files(
    studio: Studio,
    request: Request,
    *,
    status: int = 200,
    draft: str | None = None,
    problem: str | None = None,
    clash: FileDiff | None = None,
) -> Response:
    """Show a directory, or a file; `draft` is a text that was refused, and `clash` how it differs from what is stored."""
    owner, where, given = studio.owner(request), _where(request), request.query_params
    part, pattern = studio.memory.files, given.get("q", "").strip()
    info = await part.astat(where, resource_id=owner)
    if info is not None and info.is_dir:
        many = part.aglob(pattern, resource_id=owner, path=where) if pattern else part.alist(where, resource_id=owner)
        values: dict[str, Any] = {"entries": await many, "most": ENTRIES}
        return studio.page(request, "files.html", status, user=owner, problem=problem, **_path(where), **values)
    try:
        revisions = await part.ahistory(where, resource_id=owner, limit=REVISIONS)
    except FileMissingError:
        if draft is None:
            raise Missing from None
        revisions = []  # all was forgotten meanwhile; the text that was typed is not
    chosen, is_deleted = number(given.get("revision")), info is None
    file = None if is_deleted and not chosen else await part.aread(where, resource_id=owner, revision=chosen)
    values = {
        "info": info,
        "file": file,
        "chosen": chosen,
        "revisions": revisions,
        "diff": await _diff(studio, request, where) if revisions else None,
        "can_edit": draft is not None or (chosen is None and _is_editable(file)),
        "base": clash.earlier if clash else revisions[0].revision if revisions else 0,
        "draft": draft,
        "clash": clash,
    }
    return studio.page(request, "file.html", status, user=owner, problem=problem, **_path(where), **values)


def _where(request: Request) -> str:
    return check_directory(request.query_params.get("path") or "/")


def _path(where: str) -> dict[str, Any]:
    """Return a path, and the directories above it."""
    parts = where.split("/")[1:-1]
    return {"where": where, "above": [("/".join(["", *parts[: at + 1]]), name) for at, name in enumerate(parts)]}


async def _diff(studio: Studio, request: Request, where: str) -> FileDiff | None:
    """Compare the revisions that an address names, by default the last two; None where one holds bytes."""
    earlier, later = (number(request.query_params.get(name)) for name in ("earlier", "later"))
    plan = compare(studio.memory.files, where, studio.owner(request), earlier, later)
    try:
        found = await studio.run(plan)
    except OptionError:
        return None
    return replace(found, lines=found.lines[:LINES])


def _is_editable(file: File | None) -> bool:
    """Tell whether a field of a form can hold a text as it is: browsers change carriage returns."""
    return (
        file is not None and file.info.is_text and file.info.size <= EDITABLE and not {"\r", "\0"} & set(file.content)
    )


async def change(studio: Studio, request: Request) -> Response:
    """Edit, restore or delete a file, or delete a directory. What was typed is never lost."""
    owner, where, form = studio.owner(request), _where(request), await request.form()
    part, revision = studio.memory.files, number(form.get("revision"))
    text = str(form.get("text", "")).replace("\r\n", "\n")  # as browsers send it
    purge = form.get("action") == "purge"
    who: dict[str, Any] = {"resource_id": owner, "by": BY}

    async def edit() -> None:
        if revision is None:
            raise OptionError("the form names no revision, so nothing was changed", remedy="open the page again")
        await part.awrite(where, text, base_revision=revision, **who)

    async def delete() -> None:
        info = await part.astat(where, resource_id=owner)
        if purge or (info is not None and info.is_dir):
            await confirm(request, where, "nothing was deleted", "the path")
        await part.adelete(where, purge=purge, **who)

    draft, show = text if form.get("action") == "edit" else None, partial(files, studio, request)
    revert = partial(part.arevert, where, revision or 0, **who)
    try:
        await do(form, edit=edit, revert=revert, delete=delete, purge=delete)
    except FileConflictError as error:
        lines = [*unified(error.stored.split("\n"), text.split("\n"))][:LINES]
        clash = FileDiff(where, error.revision, 0, lines)
        late = "Somebody has changed the same lines since you opened the form."
        return await show(status=409, draft=draft, problem=late, clash=clash)
    except (FileQuotaError, FilePathError, OptionError) as error:
        return await show(status=422, draft=draft, problem=studio.reword(error))
    if await part.astat(where, resource_id=owner) is None and not await _is_known(studio, owner, where):
        while where and await part.astat(where, resource_id=owner) is None:  # an empty directory is none
            where = where.rpartition("/")[0]
    return studio.go("/files", user=owner, path=where, done=form.get("action"))


async def _is_known(studio: Studio, owner: str, where: str) -> bool:
    """Tell whether there are revisions of a file."""
    try:
        return bool(await studio.memory.files.ahistory(where, resource_id=owner, limit=1))
    except FileMissingError:
        return False


async def download(studio: Studio, request: Request) -> Response:
    """Send a file, or a revision of it, as bytes that no browser shows."""
    where, revision = _where(request), number(request.query_params.get("revision"))
    file = await studio.memory.files.aread(where, resource_id=studio.owner(request), revision=revision)
    content = file.content.encode() if isinstance(file.content, str) else file.content
    name = quote(where.rpartition("/")[2], safe="")
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
    return Response(content, media_type="application/octet-stream", headers=headers)
