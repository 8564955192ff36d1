"""What was said: `threads`, `show`, `recall`, and `reindex`, which recall depends on."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.text import Text

from langchain_workingmem._text.rendering import ROLES, message_text
from langchain_workingmem.cli.base import (
    AsJson,
    Cursor,
    Dir,
    Limit,
    Model,
    Prefix,
    ResourceId,
    ThreadId,
    Url,
    Yes,
    confirmed,
    misused,
    opened,
    recalling,
    stored_settings,
    tell,
)
from langchain_workingmem.cli.output import show, text
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from langchain_workingmem.models import Page, StoredMessage

Role = Annotated[list[str] | None, typer.Option("--role", help="Only these: user, assistant, tool. Repeatable.")]
Since = Annotated[datetime | None, typer.Option(help="Not before this time (UTC).")]
Until = Annotated[datetime | None, typer.Option(help="Not after this time (UTC).")]


def threads(
    *,
    resource: ResourceId = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    order_by: Annotated[
        Literal["updated_at", "created_at"], typer.Option(help="The latest comes first.")
    ] = "updated_at",
    as_json: AsJson = False,
    url: Url = None,
    directory: Dir = None,
    key_prefix: Prefix = "wm",
) -> None:
    """List threads, of one resource or of all."""
    with opened(url, directory, key_prefix) as memory:
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
    newest_first: Annotated[bool, typer.Option("--newest-first", help="Begin at the end.")] = False,
    as_json: AsJson = False,
    url: Url = None,
    directory: Dir = None,
    key_prefix: Prefix = "wm",
) -> None:
    """Show the messages of a thread, the oldest first."""
    with opened(url, directory, key_prefix) as memory:
        found = memory.threads.get(thread, resource_id=resource)
        if found is None:
            msg = f"there is no thread {thread!r}: `workingmem threads` lists those that are"
            raise OptionError(msg)
        page = memory.history.page(
            thread,
            limit=limit,
            cursor=cursor,
            roles=role,
            since=_utc(since),
            until=_utc(until),
            descending=newest_first,
        )
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
    Console(highlight=False).print(Text("\n").join([head, text(message_text(row.message))]), soft_wrap=True)


def _point(page: Page[Any]) -> None:
    if page.next_cursor is not None:
        tell(f"{len(page)} of {page.total:,}. For the next page add --cursor {shlex.quote(page.next_cursor)}")


def recall(
    query: Annotated[str, typer.Argument(help="What to look for, in any words.")],
    *,
    resource: ResourceId = None,
    thread: ThreadId = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="How many hits (4).")] = None,
    message_range: Annotated[int | None, typer.Option(min=0, help="Messages around a hit (1).")] = None,
    threshold: Annotated[float | None, typer.Option(min=0, max=1, help="Least similarity of a hit.")] = None,
    role: Role = None,
    since: Since = None,
    until: Until = None,
    embeddings: Model = "local",
    as_json: AsJson = False,
    url: Url = None,
    directory: Dir = None,
    key_prefix: Prefix = "wm",
) -> None:
    """Recall messages by meaning: over all threads of a resource, or in one thread."""
    if resource is None and thread is None:
        misused("pass --resource, to search all of somebody's threads, or --thread, to search one")
    with recalling(url, directory, key_prefix, embeddings) as memory:
        result = memory.recall.search(
            query,
            resource_id=resource,
            thread_id=thread,
            scope="resource" if thread is None else "thread",
            top_k=top_k,
            message_range=message_range,
            threshold=threshold,
            roles=role,
            since=_utc(since),
            until=_utc(until),
        )
    show(result, as_json=as_json)


def _utc(time: datetime | None) -> datetime | None:
    return time if time is None or time.tzinfo else time.replace(tzinfo=UTC)


def reindex(
    *,
    resource: ResourceId = None,
    thread: ThreadId = None,
    embeddings: Model = "local",
    role: Annotated[list[str] | None, typer.Option("--role", help="Whose text is embedded. (user, assistant)")] = None,
    chunk_tokens: Annotated[int, typer.Option(min=1, help="Longer texts are embedded in pieces.")] = 400,
    filterable: Annotated[
        list[str] | None, typer.Option(help="A key of message metadata to filter by. Repeatable.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Embed everything again: for other weights under the same name.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    url: Url = None,
    directory: Dir = None,
    key_prefix: Prefix = "wm",
) -> None:
    """Give vectors to messages that lack them; without ids this can also change the embedding model.

    --role, --chunk-tokens and --filterable are those of the program's RecallOptions: messages whose vectors were made with
    others are embedded again.
    """
    chosen = {"chunk_tokens": chunk_tokens, "filterable": filterable or (), **({"roles": role} if role else {})}
    everything = resource is None and thread is None
    with recalling(url, directory, key_prefix, embeddings, make=True, other_model=everything, chosen=chosen) as memory:
        model = memory.core.state.model
        before = memory.core.run(stored_settings(memory.core.state)).get("model", model)
        if before != model:
            confirmed(f"Change all vectors from {before!r} to {model!r}?", yes=yes)
        count = memory.recall.reindex(resource_id=resource, thread_id=thread, force=force, progress=sys.stderr.isatty())
    show({"messages": count} if as_json else f"{count:,} messages have new vectors", as_json=as_json)
