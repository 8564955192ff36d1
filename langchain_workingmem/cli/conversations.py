"""Threads and messages: `users`, `threads`, `show`, `tail`, `recall`, and `reindex`, which recall depends on."""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from langchain_workingmem.cli import base
from langchain_workingmem.cli.base import AThread, Cursor, Limit, Model, Output, Owner, ResourceId, Target, Yes
from langchain_workingmem.cli.streams import parsed, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.text import Text

    from langchain_workingmem.memory import Memory
    from langchain_workingmem.models import Page, StoredMessage, Thread
    from langchain_workingmem.reports import UserPage

SECONDS = 1.0  # between two looks
_PAGE = 100

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


def users(memory: Memory, *, limit: Limit = 20, cursor: Cursor = None) -> Output:
    """List the users who have threads, the latest change first.

    Users who have only working memory, files or items of a store are not listed.

    Examples:
        workingmem users
        workingmem users --format jsonl | jq -r .resource_id
    """
    from langchain_workingmem.reports import UserPage

    page = UserPage(users=[])
    with base.listing():
        page = memory.users.list(limit=limit, cursor=cursor)
    yield page, replace(page, next_cursor=None)
    _point(page)


def threads(
    *,
    resource: ResourceId = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    thread_metadata: ThreadMetadata = None,
    target: Target,
    order_by: Annotated[
        Literal["updated_at", "created_at"], typer.Option(help="Sort by this time, the latest first.")
    ] = "updated_at",
) -> Output:
    """List threads, of one resource or of all.

    Examples:
        workingmem threads --resource maya --limit 50
        workingmem threads --thread-metadata '{"project": "huts"}'
    """
    from langchain_workingmem.models import Page

    wanted, keys = _filter(thread_metadata)
    page: Page[Thread] = Page(items=[], total=0)
    with target.opened(thread_filters=keys) as memory, base.listing():
        page = memory.threads.list(resource_id=resource, metadata=wanted, limit=limit, cursor=cursor, order_by=order_by)
    yield page, replace(page, next_cursor=None)
    _point(page)


def show(
    memory: Memory,
    thread: AThread,
    *,
    resource: ResourceId = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    role: Role = None,
    since: Since = None,
    until: Until = None,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="Begin with the newest.")] = False,
) -> Output:
    """Show the messages of a thread, the oldest first.

    Examples:
        workingmem show trip --role user --since 2026-05-01
        workingmem show trip --newest-first --limit 10
        workingmem show trip --format csv > trip.csv
    """
    found = base.existing(memory, thread, resource)
    filters = _filters(role, since, until)
    page = memory.history.page(thread, limit=limit, cursor=cursor, descending=newest_first, **filters)
    yield {"thread": found, "messages": page}, found
    for row in page:
        yield None, _drawn(row)
    _point(page)


def _drawn(row: StoredMessage, *, of: str = "") -> Text:
    """Draw a message below its time, its speaker and its id; `of` names its thread, where there are several."""
    from rich.text import Text

    from langchain_workingmem._text.rendering import ROLES, message_text
    from langchain_workingmem.display.pictures import minutes

    role = ROLES.get(row.message.type, row.message.type)
    words = (minutes(row.stored_at), of, f"{role} {row.message.name or ''}".strip(), str(row.message.id))
    head = text(f"\n{'  '.join(filter(None, words))}\n", "dim")
    return Text.assemble(head, text(message_text(row.message, whole=True)))


def tail(
    *,
    owner: Owner,
    last: Annotated[int, typer.Option(min=0, help="First show this many stored messages.")] = 10,
    target: Target,
) -> Output:
    """Follow a thread, or all threads of a resource: print messages as they arrive, until Ctrl-C.

    Examples:
        workingmem tail --resource maya
        workingmem tail --thread trip --last 0 --format jsonl

    It asks once a second: one round trip, and one more for each thread that has changed.
    """
    with suppress(KeyboardInterrupt), target.opened_for(owner) as memory:
        for row in _following(memory, owner, last):
            yield row, _drawn(row, of="" if owner.thread_id else row.thread_id)


def _point(page: Page[Any] | UserPage) -> None:
    if page.next_cursor is not None:
        number = f"{len(page)} of {page.total:,}. " if hasattr(page, "total") else ""
        base.tell(f"{number}For the next page add --cursor {shlex.quote(page.next_cursor)}")


def _following(memory: Memory, owner: Owner, last: int) -> Iterator[StoredMessage]:
    """Yield the `last` messages of a thread or of a user, and then each new one, for ever."""
    number = max(last, 1)  # one is read in any case, for its position
    found: list[Thread] = []
    if owner.thread_id is None:
        with base.listing():
            found = memory.threads.list(resource_id=owner.resource_id, limit=number).items
    last_change = begin = found[0].updated_at if found else datetime.fromtimestamp(0, UTC)
    cursors: dict[str, str | None] = {}  # by thread: the last message that was read, None before the first
    rows: list[StoredMessage] = []
    ids = [one.id for one in found] if owner.thread_id is None else [owner.thread_id]
    for id in ids:
        newest = memory.history.page(id, limit=number, descending=True).items
        cursors[id] = str(newest[0].seq) if newest else None
        rows += newest
    yield from sorted(rows, key=lambda row: row.stored_at)[-last or len(rows) :]
    while True:
        sleep(SECONDS)
        if owner.thread_id is None:
            changed = _changed(memory, owner.resource_id, last_change)
            last_change, ids = max([last_change, *(one.updated_at for one in changed)]), [one.id for one in changed]
        rows = []
        for id in ids:
            since = None if id in cursors else begin + timedelta(microseconds=1)
            new = _after(memory, id, cursors.get(id), since)
            cursors[id] = str(new[-1].seq) if new else cursors.get(id)
            rows += new
        yield from sorted(rows, key=lambda row: row.stored_at)


def _changed(memory: Memory, resource: str | None, since: datetime) -> list[Thread]:
    """Return the threads that have changed since a time; one that has changed just then is read twice."""
    found: list[Thread] = []
    cursor: str | None = None
    with base.listing(hint=False):
        while True:
            page = memory.threads.list(resource_id=resource, limit=_PAGE, cursor=cursor)
            new = [one for one in page if one.updated_at >= since]
            found += new
            cursor = page.next_cursor
            if cursor is None or len(new) < len(page):
                break
    return found


def _after(memory: Memory, id: str, cursor: str | None, since: datetime | None) -> list[StoredMessage]:
    """Read what stands after a cursor."""
    rows: list[StoredMessage] = []
    while True:
        page = memory.history.page(id, limit=_PAGE, cursor=cursor, since=since)
        rows += page
        cursor = page.next_cursor
        if cursor is None:
            return rows


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
    """Search messages by meaning: in all threads of a resource, or in one thread.

    Examples:
        workingmem recall "What is my dog called?" --resource maya
        workingmem recall "the hut" --thread trip --top-k 1
    """
    from langchain_workingmem._documents.filters import both

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
    from langchain_workingmem._documents.metadata import metadata_filter

    with base.checking():
        wanted = parsed(text, "the filter", 'write an object, such as {"project": "a"}')
        return wanted, (*sorted(metadata_filter(wanted).keys),)


def _filters(role: list[str] | None, since: datetime | None, until: datetime | None) -> dict[str, Any]:
    from langchain_workingmem._redis.codec import aware
    from langchain_workingmem.display.pictures import SHOWN_IN

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

    Examples:
        workingmem reindex --resource maya
        workingmem reindex --embeddings openai:text-embedding-3-small

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
    from langchain_workingmem.display.pictures import counted

    have = "has a new vector" if count == 1 else "have new vectors"
    yield {"messages": count}, f"{counted(count, 'message')} {have}"
