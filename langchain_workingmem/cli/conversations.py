"""Threads and messages: `users`, `threads`, `show`, `recall`, and `reindex`, which recall depends on."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime
from typing import Annotated, Any

import typer

from langchain_workingmem.cli import base
from langchain_workingmem.cli.base import Cursor, Form, Limit, Model, OneThread, Program, Target, ThreadId, UserId, Yes
from langchain_workingmem.cli.streams import printed, table
from langchain_workingmem.display.pictures import SHOWN_IN, clock, counted, minutes
from langchain_workingmem.models import Page, RecallResult

Role = Annotated[list[str] | None, typer.Option("--role", help="Only of user, assistant or tool. Repeatable.")]
Since = Annotated[datetime | None, typer.Option(help="Only from this time on.")]
Until = Annotated[datetime | None, typer.Option(help="Only up to this time.")]


def users(*, limit: Limit = 20, cursor: Cursor = None, form: Form = "table", target: Target) -> None:
    """List the users who have threads, the latest change first."""
    with target.opened() as memory:
        page: Page[Any] = Page(items=[], total=0)
        if not base.nothing_yet(memory):
            page = memory.users.list(limit=limit, cursor=cursor)
    printed(form, page)
    _point(page)


def threads(
    *,
    user: UserId = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    form: Form = "table",
    target: Target,
) -> None:
    """List threads, of one user or of all, the latest change first."""
    with target.opened() as memory:
        page: Page[Any] = Page(items=[], total=0)
        if not base.nothing_yet(memory):
            page = memory.threads.list(user_id=user, limit=limit, cursor=cursor)
    printed(form, page)
    _point(page)


def show(
    *,
    thread: OneThread,
    user: UserId = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    role: Role = None,
    since: Since = None,
    until: Until = None,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="Begin with the newest.")] = False,
    form: Form = "table",
    target: Target,
) -> None:
    """Show the messages of a thread, whole, the oldest first."""
    from langchain_workingmem._text.messages import ROLES, message_text

    with target.opened() as memory:
        base.existing(memory, thread, user)
        page = memory.history.page(
            thread, limit=limit, cursor=cursor, descending=newest_first, **_filters(role, since, until)
        )
    rows = (
        (
            minutes(row.stored_at),
            f"{ROLES.get(row.message.type, row.message.type)} {row.message.name or ''}",
            message_text(row.message, whole=True),
        )
        for row in page
    )
    printed(form, page, table((f"time ({clock()})", "role", "message"), rows, "no messages"))
    _point(page)


def _point(page: Page[Any]) -> None:
    if page.next_cursor is not None:
        base.tell(f"For the next page add --cursor {shlex.quote(page.next_cursor)}")


def recall(
    query: Annotated[str, typer.Argument(help="The words to search for; similar meanings are found too.")],
    *,
    user: UserId = None,
    thread: ThreadId = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="The number of hits.")] = None,
    role: Role = None,
    since: Since = None,
    until: Until = None,
    embeddings: Model = "local",
    program: Program = None,
    form: Form = "table",
    target: Target,
) -> None:
    """Search messages by meaning: in all threads of a user, or in one thread."""
    ids = base.owner(user, thread)
    with target.of_program(program, embeddings) as memory:
        result = RecallResult()
        if not base.nothing_yet(memory):
            options = {"scope": base.scope(thread), "top_k": top_k, **_filters(role, since, until), **ids}
            result = memory.recall.search(query, **options)
    printed(form, result)


def _filters(role: list[str] | None, since: datetime | None, until: datetime | None) -> dict[str, Any]:
    from langchain_workingmem._text.values import aware

    zone = SHOWN_IN.get()
    return {"roles": role, "since": aware(since, zone), "until": aware(until, zone, last=True)}


def reindex(
    *,
    user: UserId = None,
    thread: ThreadId = None,
    embeddings: Model = "local",
    program: Program = None,
    force: Annotated[bool, typer.Option("--force", help="Embed everything again, after a change of weights.")] = False,
    yes: Yes = False,
    form: Form = "table",
    target: Target,
) -> None:
    """Embed messages that have no vectors. Without --user and --thread, it can also change the embedding model.

    A program with RecallOptions passes its --memory: vectors that were made with other options are made again.
    """
    everything = user is None and thread is None
    options: dict[str, Any] = {} if program else {"other_model": everything}
    with target.of_program(program, embeddings, make=True, **options) as memory:
        model = memory._core.state.indexes.model
        stored_model = base.stored_settings(memory).get("model", model)
        if stored_model != model and not yes:
            base.confirm(f"Change all vectors from {stored_model!r} to {model!r}?")
        count = memory.recall.reindex(user_id=user, thread_id=thread, force=force, progress=sys.stderr.isatty())
    printed(form, {"messages": count}, f"{counted(count, 'message')} embedded")
