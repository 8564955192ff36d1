"""Threads and messages: `threads`, `show`, `recall`, and `reindex`, which recall depends on."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from langchain_workingmem._documents.filters import both
from langchain_workingmem._documents.metadata import metadata_filter
from langchain_workingmem._redis.codec import aware
from langchain_workingmem._text.rendering import ROLES, message_text
from langchain_workingmem.cli import base
from langchain_workingmem.cli.base import Cursor, Limit, Model, Output, Owner, ResourceId, Target, Yes
from langchain_workingmem.cli.streams import parsed, text
from langchain_workingmem.display.pictures import SHOWN_IN, minutes
from langchain_workingmem.memory import Memory  # noqa: TC001 - typer reads annotations

if TYPE_CHECKING:
    from langchain_workingmem.models import Page

Role = Annotated[list[str] | None, typer.Option("--role", help="Only of user, assistant or tool. Repeatable.")]
Metadata = Annotated[
    str | None,
    typer.Option(
        "--metadata", metavar="JSON", help='A filter of message metadata: {"topic": "huts"}, {"rank": {"$gte": 3}}.'
    ),
]
ThreadMetadata = Annotated[
    str | None,
    typer.Option(
        "--thread-metadata", metavar="JSON", help='A filter of thread metadata: {"project": {"$in": ["a", "b"]}}.'
    ),
]
Since = Annotated[datetime | None, typer.Option(help="Only from this time on.")]
Until = Annotated[datetime | None, typer.Option(help="Only up to this time; a day lasts to its end.")]


def threads(
    *,
    resource: ResourceId = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    thread_metadata: ThreadMetadata = None,
    target: Target,
    order_by: Annotated[Literal["updated_at", "created_at"], typer.Option(help="The latest is first.")] = "updated_at",
) -> Output:
    """List threads, of one resource or of all."""
    wanted, keys = _filter(thread_metadata)
    with target.opened(thread_filters=keys) as memory:
        page = memory.threads.list(resource_id=resource, metadata=wanted, limit=limit, cursor=cursor, order_by=order_by)
    yield page, replace(page, next_cursor=None)
    _point(page)


def show(
    memory: Memory,
    thread: Annotated[str, typer.Argument(help="The id of a thread.")],
    *,
    resource: ResourceId = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    role: Role = None,
    since: Since = None,
    until: Until = None,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="Begin with the newest.")] = False,
) -> Output:
    """Show the messages of a thread, the oldest first."""
    found = base.existing(memory, thread, resource)
    filters = _filters(role, since, until)
    page = memory.history.page(thread, limit=limit, cursor=cursor, descending=newest_first, **filters)
    yield {"thread": found, "messages": page}, found
    for row in page:
        name = f" {row.message.name}" if row.message.name else ""
        role_of = ROLES.get(row.message.type, row.message.type)
        head = text(f"\n{minutes(row.stored_at)}  {role_of}{name}  {row.message.id}\n", "dim")
        yield None, Text.assemble(head, text(message_text(row.message, whole=True)))
    _point(page)


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
    metadata: Metadata = None,
    thread_metadata: ThreadMetadata = None,
    embeddings: Model = "local",
    target: Target,
) -> Output:
    """Search messages by meaning: in all threads of a resource, or in one thread."""
    scope = owner.scope()
    (of_messages, filterable), (of_threads, keys) = _filter(metadata), _filter(thread_metadata)
    with target.recalling(embeddings, chosen={"filterable": filterable}, thread_filters=keys) as memory:
        yield memory.recall.search(
            query,
            scope=scope,
            metadata=both(of_messages, of_threads),
            top_k=top_k,
            message_range=message_range,
            threshold=threshold,
            **_filters(role, since, until),
            **vars(owner),
        )


def _filter(text: str | None) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """Read a filter, and return it with its keys, which are declared for this command."""
    if text is None:
        return None, ()
    wanted = parsed(text, "the filter", 'write an object, such as {"project": "a"}')
    return wanted, (*sorted(metadata_filter(wanted).keys),)


def _filters(role: list[str] | None, since: datetime | None, until: datetime | None) -> dict[str, Any]:
    if until is not None and until.time() == time.min:  # a date alone: to the end of the day
        until += timedelta(days=1) - timedelta(microseconds=1)
    zone = SHOWN_IN.get()
    return {"roles": role, "since": aware(since, zone), "until": aware(until, zone, last=True)}


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
    target: Target,
) -> Output:
    """Embed messages that have no vectors. Without --resource and --thread, it can also change the embedding model.

    Pass --role, --chunk-tokens and --filterable as in the program's RecallOptions: vectors made with other values are made
    again.
    """
    chosen = {"chunk_tokens": chunk_tokens, "filterable": filterable or (), **({"roles": role} if role else {})}
    everything = owner == Owner()
    with target.recalling(embeddings, make=True, other_model=everything, chosen=chosen) as memory:
        model = memory._core.state.indexes.model
        before = base.stored_settings(memory).get("model", model)
        if before != model and not yes:
            base.confirm(f"Change all vectors from {before!r} to {model!r}?")
        count = memory.recall.reindex(**vars(owner), force=force, progress=sys.stderr.isatty())
    yield {"messages": count}, f"{count:,} messages have new vectors"


COMMANDS = (threads, show, recall, reindex)
