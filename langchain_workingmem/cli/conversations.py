"""Threads and messages: `threads`, `show`, `recall`, and `reindex`, which recall depends on."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.text import Text

from langchain_workingmem._text.rendering import ROLES, message_text
from langchain_workingmem.cli import base
from langchain_workingmem.cli.base import AsJson, Cursor, Limit, Model, Owner, ResourceId, Target, Yes
from langchain_workingmem.cli.streams import show, text

if TYPE_CHECKING:
    from langchain_workingmem.models import Page, StoredMessage

Role = Annotated[list[str] | None, typer.Option("--role", help="Only of user, assistant or tool. Repeatable.")]
Since = Annotated[datetime | None, typer.Option(help="Only from this time on (UTC).")]
Until = Annotated[datetime | None, typer.Option(help="Only up to this time (UTC).")]


def threads(
    *,
    resource: ResourceId = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    order_by: Annotated[Literal["updated_at", "created_at"], typer.Option(help="The latest is first.")] = "updated_at",
    as_json: AsJson = False,
    target: Target,
) -> None:
    """List threads, of one resource or of all."""
    with target.opened() as memory:
        page = memory.threads.list(resource_id=resource, limit=limit, cursor=cursor, order_by=order_by)
    show(page if as_json else replace(page, next_cursor=None), as_json=as_json, wide=True)
    _point(page)


def show_(
    thread: Annotated[str, typer.Argument(help="The id of a thread.")],
    *,
    resource: ResourceId = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    role: Role = None,
    since: Since = None,
    until: Until = None,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="Begin with the newest.")] = False,
    as_json: AsJson = False,
    target: Target,
) -> None:
    """Show the messages of a thread, the oldest first."""
    filters = _filters(role, since, until)
    with target.opened() as memory:
        found = base.existing(memory, thread, resource)
        page = memory.history.page(thread, limit=limit, cursor=cursor, descending=newest_first, **filters)
    if as_json:
        show({"thread": found, "messages": page}, as_json=True)
    else:
        show(found, as_json=False)
        for row in page:
            _message(row)
    _point(page)


def _message(row: StoredMessage) -> None:
    role = ROLES.get(row.message.type, row.message.type)
    name = f" {row.message.name}" if row.message.name else ""
    head = text(f"\n{row.stored_at:%Y-%m-%d %H:%M}  {role}{name}  {row.message.id}", "dim")
    Console(highlight=False).print(Text("\n").join([head, text(message_text(row.message, whole=True))]), soft_wrap=True)


def _point(page: Page[Any]) -> None:
    if page.next_cursor is not None:
        base.tell(f"{len(page)} of {page.total:,}. For the next page add --cursor {shlex.quote(page.next_cursor)}")


def recall(
    query: Annotated[str, typer.Argument(help="The words to search for; similar meanings are found too.")],
    *,
    owner: Owner,
    top_k: Annotated[int | None, typer.Option(min=1, help="The number of hits (4).")] = None,
    message_range: Annotated[int | None, typer.Option(min=0, help="Messages before and after a hit (1).")] = None,
    threshold: Annotated[float | None, typer.Option(min=0, max=1, help="The least similarity of a hit.")] = None,
    role: Role = None,
    since: Since = None,
    until: Until = None,
    embeddings: Model = "local",
    as_json: AsJson = False,
    target: Target,
) -> None:
    """Search messages by meaning: in all threads of a resource, or in one thread."""
    scope = owner.scope()
    with target.recalling(embeddings) as memory:
        result = memory.recall.search(
            query,
            scope=scope,
            top_k=top_k,
            message_range=message_range,
            threshold=threshold,
            **_filters(role, since, until),
            **vars(owner),
        )
    show(result, as_json=as_json)


def _filters(role: list[str] | None, since: datetime | None, until: datetime | None) -> dict[str, Any]:
    if until is not None and until.time() == time.min:  # a date alone: to the end of the day
        until += timedelta(days=1) - timedelta(microseconds=1)
    times = {"since": since, "until": until}
    return {"roles": role, **{name: at and at.replace(tzinfo=UTC) for name, at in times.items()}}


def reindex(
    *,
    owner: Owner,
    embeddings: Model = "local",
    role: Annotated[list[str] | None, typer.Option("--role", help="Roles to embed (user, assistant).")] = None,
    chunk_tokens: Annotated[int, typer.Option(min=1, help="Embed longer texts in chunks.")] = 400,
    filterable: Annotated[
        list[str] | None, typer.Option(help="A key of message metadata to filter by. Repeatable.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Embed everything again, after a change of weights.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    target: Target,
) -> None:
    """Embed messages that have no vectors. Without --resource and --thread, it can also change the embedding model.

    Pass --role, --chunk-tokens and --filterable as in the program's RecallOptions: vectors made with other values are made
    again.
    """
    chosen = {"chunk_tokens": chunk_tokens, "filterable": filterable or (), **({"roles": role} if role else {})}
    everything = owner == Owner()
    with target.recalling(embeddings, make=True, other_model=everything, chosen=chosen) as memory:
        model = memory._core.state.model
        before = base.stored_settings(memory).get("model", model)
        if before != model and not yes:
            base.confirm(f"Change all vectors from {before!r} to {model!r}?")
        count = memory.recall.reindex(**vars(owner), force=force, progress=sys.stderr.isatty())
    show({"messages": count} if as_json else f"{count:,} messages have new vectors", as_json=as_json)


COMMANDS = (threads, show_, recall, reindex)
