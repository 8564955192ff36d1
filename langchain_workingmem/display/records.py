"""The pictures of the records that methods return."""

from __future__ import annotations

import json
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from langchain_workingmem import models
from langchain_workingmem._text.messages import ROLES, message_text
from langchain_workingmem._text.unicode import to_utf8
from langchain_workingmem._text.values import parse_json
from langchain_workingmem.display.pictures import Block, Picture, Table, clock, counted, excerpt, label, minutes, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.messages import BaseMessage


def pretty(text: str) -> str:
    """Write a JSON object or array over several lines; any other text stays as it is."""
    value = parse_json(text) if text.lstrip().startswith(("{", "[")) else None
    return text if value is None else to_utf8(json.dumps(value, ensure_ascii=False, indent=2))


@singledispatch
def picture_of(record: object) -> Picture:
    """Return what a record shows of itself."""
    raise NotImplementedError(type(record).__name__)


@picture_of.register(models.Page)
def _(page: models.Page[Any]) -> Picture:
    facts = {"more": None if page.next_cursor is None else "pass next_cursor"}
    if not page.items:
        return Picture(f"Nothing on this page, {page.total:,} in all", facts)
    noun, to_row = _KINDS[type(page.items[0])]
    rows = [to_row(item) for item in page.items]
    return Picture(f"{len(page):,} of {page.total:,} {noun}", facts, Table(rows))


@picture_of.register(models.RecallResult)
def _(result: models.RecallResult) -> Picture:
    if not result.hits:
        return Picture("Nothing was recalled", {})
    ranks = {(hit.thread_id, hit.message.id): rank for rank, hit in enumerate(result.hits, 1)}
    titles, rows = {hit.thread_id: hit.thread_title for hit in result.hits}, []
    for row in result.rows:
        rank = ranks.get((row.thread_id, row.message.id), 0)
        similarity = f"{result.hits[rank - 1].similarity:.2f}" if rank else ""
        thread = label(titles.get(row.thread_id) or row.thread_id)
        place = {"thread": thread, f"time ({clock()})": minutes(row.stored_at)}
        rows.append(place | _spoken(row.message) | {"rank": f"{rank or ''}", "similarity": similarity})
    return Picture(counted(len(result.hits), "hit"), {}, Table(rows))


@picture_of.register(models.MemoryContext)
def _(context: models.MemoryContext) -> Picture:
    state, count = context.working_memory, len(context.system)
    facts = {
        "system blocks": str(count),
        "messages": str(len(context.messages)),
        "recalled": counted(len(context.recalled.hits), "hit"),
        "working memory": "off" if state is None else "empty" if state.is_empty else f"revision {state.revision}",
        "left out": counted(context.omitted, "message") if context.omitted else None,
    }
    rows = [{**_spoken(message), "message": whole(message_text(message, whole=True))} for message in context.messages]
    blocks = (Block(text, f"System block {number} of {count}") for number, text in enumerate(context.system, 1))
    return Picture("What the model is shown", facts, *blocks, *([Table(rows, "Messages")] if rows else []))


@picture_of.register(models.WorkingMemoryState)
def _(state: models.WorkingMemoryState) -> Picture:
    facts = {
        "revision": str(state.revision),
        "updated": None if state.updated_at is None else f"{minutes(state.updated_at)} {clock()}",
        "by": None if state.origin is None else label(state.origin),
    }
    title = "Working memory, empty" if state.is_empty else "Working memory"
    return Picture(title, facts, *([Block(pretty(state.text))] if state.text.strip() else []))


@picture_of.register(models.Diagnosis)
def _(diagnosis: models.Diagnosis) -> Picture:
    rows = []
    for finding in diagnosis.findings:
        message = excerpt("\n".join(filter(None, (finding.message, finding.remedy))))
        rows.append({"level": finding.level, "check": finding.check, "message": message})
    return Picture(f"Diagnosis: {diagnosis.level}", {}, Table(rows))


def _thread_row(thread: models.Thread) -> dict[str, str]:
    return {
        "title": label(thread.title) if thread.title else "(no title)",
        "id": label(thread.id),
        "user": label(thread.user_id),
        "messages": f"{thread.message_count:,}",
        f"updated ({clock()})": minutes(thread.updated_at),
    }


def _message_row(row: models.StoredMessage) -> dict[str, str]:
    cells = {"thread": label(row.thread_id), "number": str(row.seq)}
    return cells | {f"time ({clock()})": minutes(row.stored_at)} | _spoken(row.message)


def _user_row(user: models.UserSummary) -> dict[str, str]:
    counts = {"threads": f"{user.threads:,}", "messages": f"{user.messages:,}"}
    return {"user": label(user.user_id)} | counts | {f"updated ({clock()})": minutes(user.updated_at)}


# what a page holds, and how a row shows it
_KINDS: dict[type, tuple[str, Callable[[Any], dict[str, str]]]] = {
    models.Thread: ("threads", _thread_row),
    models.StoredMessage: ("messages", _message_row),
    models.UserSummary: ("users", _user_row),
}


def _spoken(message: BaseMessage) -> dict[str, str]:
    """Return the cells of a message: its speaker; its text, labels for other content, and the tool calls."""
    role = ROLES.get(message.type, message.type)
    text = excerpt(message_text(message, whole=True))
    return {"role": f"{role} {label(message.name)}" if message.name else role, "message": text or "[nothing]"}
