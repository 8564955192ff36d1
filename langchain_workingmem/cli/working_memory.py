"""`working-memory`: read and change the facts that an agent keeps.

Redis does not hold the program's template or schema. So a document is either text or a JSON object, only `clear` allows a
change from one to the other, and no command drops an old revision.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from langchain_workingmem._text.values import parse_json
from langchain_workingmem.cli.base import KEEP_ALL, Form, Target, ThreadId, UserId, existing, misused, owner, scope
from langchain_workingmem.cli.streams import printed, reading, table
from langchain_workingmem.display.pictures import clock, minutes
from langchain_workingmem.errors import OptionError
from langchain_workingmem.options import WorkingMemoryOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_workingmem.models import WorkingMemoryState


@contextmanager
def _opened(
    target: Target, user: str | None, thread: str | None, **options: Any
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Open the working memory of an owner, and return it with the ids."""
    ids = owner(user, thread)
    settings = WorkingMemoryOptions(**{"template": "", **options}, scope=scope(thread), revisions=KEEP_ALL)
    with target.opened(working_memory=settings) as memory:
        existing(memory, thread, user)
        yield memory.working_memory, ids


def get(*, user: UserId = None, thread: ThreadId = None, form: Form = "table", target: Target) -> None:
    """Show working memory."""
    with _opened(target, user, thread) as (documents, ids):
        _show(form, documents.get(**ids))


def set_(
    content: Annotated[str, typer.Argument(help="The new content; - is standard input.")],
    *,
    mode: Annotated[
        Literal["replace", "merge", "append"],
        typer.Option(help="Replace the document, merge fields of JSON (null deletes), or append."),
    ] = "replace",
    user: UserId = None,
    thread: ThreadId = None,
    form: Form = "table",
    target: Target,
) -> None:
    """Write working memory: text, or a JSON object.

    A JSON object stays a JSON object and text stays text, so that the program can still read it. Run `clear` before a
    change from one to the other.
    """
    if content == "-":
        with reading(content) as lines:
            content = lines.read()
    if not content.strip():
        misused("the content is empty: `workingmem working-memory clear` empties working memory")
    options: dict[str, Any] = {"template": None, "schema": {"type": "object"}} if is_object(content) else {}
    with _opened(target, user, thread, **options) as (documents, ids):
        state = documents.get(**ids)
        if state.text.strip() and is_object(state.text) != is_object(content):
            names = ("text", "a JSON object")
            raise OptionError(
                f"working memory holds {names[is_object(state.text)]}, and the content is {names[is_object(content)]}, "
                "which its program could not read",
                remedy="to replace it, run `workingmem working-memory clear` first",
            )
        _show(form, documents.update(content, mode=mode, expected_revision=state.revision, **ids))


def clear(*, user: UserId = None, thread: ThreadId = None, form: Form = "table", target: Target) -> None:
    """Empty working memory; `revert` restores it."""
    with _opened(target, user, thread) as (documents, ids):
        _show(form, documents.clear(**ids))


def history(
    *,
    limit: Annotated[int, typer.Option(min=1, help="The number of revisions.")] = 20,
    user: UserId = None,
    thread: ThreadId = None,
    form: Form = "table",
    target: Target,
) -> None:
    """List the kept revisions, the newest first."""
    with _opened(target, user, thread) as (documents, ids):
        revisions = documents.revisions(limit=limit, **ids)
    rows = (
        (
            str(state.revision),
            minutes(state.updated_at) if state.updated_at else "",
            state.origin or "",
            " ".join(state.text[:200].split())[:60],
        )
        for state in revisions
    )
    columns = ("revision", f"written ({clock()})", "by", "begins with")
    printed(form, revisions, table(columns, rows, "nothing was written yet"))


def revert(
    revision: Annotated[int, typer.Argument(min=1, help="The revision to restore.")],
    *,
    user: UserId = None,
    thread: ThreadId = None,
    form: Form = "table",
    target: Target,
) -> None:
    """Restore a revision, as a new one."""
    with _opened(target, user, thread) as (documents, ids):
        _show(form, documents.revert(revision, **ids))


def is_object(document: str) -> bool:
    """Tell whether a document is a JSON object; else it is text."""
    return isinstance(parse_json(document), dict)


def _show(form: str, state: WorkingMemoryState) -> None:
    printed(form, replace(state, value=json.loads(state.text)) if is_object(state.text) else state, state)


COMMANDS = {"get": get, "set": set_, "clear": clear, "history": history, "revert": revert}
