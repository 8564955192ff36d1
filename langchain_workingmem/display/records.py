"""The pictures of the records that methods return."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from langchain_workingmem._documents.diffs import pretty
from langchain_workingmem._text.media import attachment
from langchain_workingmem._text.nesting import as_json
from langchain_workingmem._text.rendering import ROLES
from langchain_workingmem.display.pictures import (
    BLOCK,
    Lines,
    Picture,
    Table,
    block,
    changed,
    clock,
    counted,
    excerpt,
    label,
    minutes,
)
from langchain_workingmem.models import MemoryContext, ObservationLog, Page, RecallResult, StoredMessage, Thread
from langchain_workingmem.remembered import WorkingMemoryDiff, WorkingMemoryState, WorkingMemoryValue
from langchain_workingmem.reports import Diagnosis, UserPage
from langchain_workingmem.usage.parts import blocks_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from langchain_core.messages import BaseMessage

    from langchain_workingmem.display.pictures import Part, Row

MOST_VALUES = 200  # values of a picture


@singledispatch
def picture_of(record: object) -> Picture:
    """Return what a record shows of itself."""
    raise NotImplementedError(type(record).__name__)


@picture_of.register(Thread)
def _(thread: Thread) -> Picture:
    cells = _thread_row(thread)
    title, updated = cells.pop("title"), cells.popitem()[1]
    facts = {
        **cells,
        "created": minutes(thread.created_at),
        "updated": f"{updated} {clock()}",
        "clone of": None if thread.source_id is None else label(thread.source_id),
        "metadata": excerpt(as_json(thread.metadata)) if thread.metadata else None,
    }
    return Picture(title, facts)


@picture_of.register(Page)
def _(page: Page[Any]) -> Picture:
    more = {"more": None if page.next_cursor is None else "pass next_cursor"}
    if not page.items:
        return Picture(f"Nothing on this page, {page.total:,} in all", more)
    title, items = f"{len(page):,} of {page.total:,}", list[Any](page.items)
    if isinstance(items[0], Thread):
        return Picture(f"{title} threads", more, [Table([(_thread_row(item), None) for item in items])])
    if isinstance(items[0], StoredMessage):
        return Picture(f"{title} messages", more, [Table([(_message_row(item), None) for item in items])])
    return Picture(f"{title} items", more, [Lines([("plain", excerpt(repr(item))) for item in items])])


@picture_of.register(RecallResult)
def _(result: RecallResult) -> Picture:
    known = {(row.thread_id, row.message.id) for row in result.rows}
    alone = [hit for hit in result.hits if (hit.thread_id, hit.message.id) not in known]
    rows = [StoredMessage(message=a.message, thread_id=a.thread_id, seq=0, stored_at=a.stored_at) for a in alone]
    full = replace(result, rows=sorted([*rows, *result.rows], key=lambda row: row.stored_at))
    ranks = {(hit.thread_id, hit.message.id): (rank, hit.similarity) for rank, hit in enumerate(result.hits, 1)}
    windows, titles, tables = full.windows(), result.titles, []
    time = f"time ({clock()})"
    gap: Row = (dict.fromkeys((time, "role", "message", "rank", "similarity"), "") | {time: "⋯"}, None)
    for thread_id in dict.fromkeys([*titles, *windows]):  # that of the best hit first
        drawn: list[Row] = []
        for window in windows[thread_id]:
            drawn += [gap] * bool(drawn) + [_found(*one, ranks.get((thread_id, one[1].id))) for one in window]
        title = titles.get(thread_id)
        tables.append(Table(drawn, f"{label(title)} ({label(thread_id)})" if title else label(thread_id)))
    if not tables:
        return Picture("Nothing was recalled", {})
    return Picture(f"{counted(len(result.hits), 'hit')} in {counted(len(tables), 'thread')}", {}, tables)


@picture_of.register(ObservationLog)
def _(log: ObservationLog) -> Picture:
    usage, read, written = log.usage, log.usage.input_tokens, log.usage.output_tokens
    newest = log.observations[-BLOCK["lines"] :]
    hidden = len(log) - len(newest)
    facts = {
        "tokens": f"{log.tokens:,}",
        "pending tokens": f"{log.pending_tokens:,}",
        **_last_write(log),
        "model calls": f"{usage.calls:,} ({read:,} tokens read, {written:,} written)" if usage.calls else None,
        "failures": f"{usage.failures:,}" if usage.failures else None,
        "last error": None if usage.last_error is None else excerpt(usage.last_error),
        "not shown": f"the oldest {hidden:,}" if hidden else None,
    }
    return Picture(counted(len(log), "observation") if log else "No observations", facts, _observed(newest))


@picture_of.register(MemoryContext)
def _(context: MemoryContext) -> Picture:
    state, found, log, count = context.working_memory, context.recalled, context.observations, len(context.system)
    facts = {
        "system blocks": str(count),
        "messages": str(len(context.messages)),
        "recalled": counted(len(found.hits), "hit"),
        "working memory": "off" if state is None else "empty" if state.is_empty else f"revision {state.revision}",
        "observations": None if log is None else f"{len(log):,}, revision {log.revision}",
        "left out": counted(context.omitted, "message") if context.omitted else None,
    }
    asked = max((at for at, message in enumerate(context.messages) if message.type == "human"), default=0)
    divided = [blocks_of(message) for message in context.messages]
    texts = [(at, "\n\n".join(blocks)) for at, (own, blocks) in enumerate(divided) if blocks and own is not None]
    # a log is shown as a message
    words = [own or message for message, (own, _) in zip(context.messages, divided, strict=True)]
    parts: list[Part] = [
        *(block(text, f"System block {at} of {count}") for at, text in enumerate(context.system, 1)),
        *(block(text, "In front of the messages") for at, text in texts if at < asked),
        *([Table([(_spoken(message), None) for message in words], "Messages")] if words else []),
        *(block(text, "In front of the question") for at, text in texts if at >= asked),
        *(picture_of(record) for record in (log, found, state) if record is not None),
    ]
    return Picture("What the model is shown", facts, parts)


@picture_of.register(WorkingMemoryValue)
def _(one: WorkingMemoryValue) -> Picture:
    cells: dict[str, str | None] = {name: cell or None for name, cell in value_cells(one, names=True).items()}
    path, value = cells.pop("path") or "/", cells.pop("value") or ""
    return Picture(path, cells, [block(value)])


@picture_of.register(WorkingMemoryState)
def _(state: WorkingMemoryState) -> Picture:
    parts: list[Part] = [block(pretty(state.text))] if state.text.strip() else []
    present = [found[0] for found in (state.timeline or {}).values() if found[0].is_set]
    if present:
        rows = [
            {name: cell for name, cell in value_cells(one).items() if not name.startswith("until ")}
            for one in present[:MOST_VALUES]
        ]
        more = f" (of {len(present):,})" if len(present) > MOST_VALUES else ""
        parts.append(Table([(row, None) for row in rows], f"Values{more}"))
    return Picture("Working memory, empty" if state.is_empty else "Working memory", _last_write(state), parts)


@picture_of.register(WorkingMemoryDiff)
def _(diff: WorkingMemoryDiff) -> Picture:
    title = f"Working memory, revision {diff.earlier} → {diff.later}"
    if not diff.lines:
        return Picture(f"{title}: no change", {})
    facts = {"added": counted(len(diff.added), "line"), "removed": counted(len(diff.removed), "line")}
    return Picture(title, facts, [changed(diff.lines)])


@picture_of.register(Diagnosis)
def _(diagnosis: Diagnosis) -> Picture:
    rows: list[Row] = []
    for one in diagnosis.findings:
        message = excerpt("\n".join(filter(None, (one.message, one.remedy))))
        cells = {"level": one.level, "check": one.check, "message": message}
        rows.append((cells, 0.0 if one.level in {"warning", "error"} else None))
    return Picture(f"Diagnosis: {diagnosis.level}", {}, [Table(rows)])


@picture_of.register(UserPage)
def _(page: UserPage) -> Picture:
    rows: list[Row] = []
    for one in page.users:
        numbers = {"threads": f"{one.threads:,}", "messages": f"{one.messages:,}"}
        updated = {f"updated ({clock()})": minutes(one.updated_at)}
        rows.append(({"resource": label(one.resource_id), **numbers, **updated}, None))
    more = {"more": None if page.next_cursor is None else "pass next_cursor"}
    return Picture(counted(len(rows), "user"), more, [Table(rows)] if rows else [])


def value_cells(value: WorkingMemoryValue, *, names: bool = False) -> dict[str, str]:
    """Return the cells of a table; with `names` the ids of its sources, else their number."""
    ids = ", ".join(label(f"{message} in {thread}") for thread, message in value.sources)
    return {
        "path": label(value.path),
        "value": excerpt(value.text) if value.is_set else "(nothing)",
        f"since ({clock()})": minutes(value.since),
        f"until ({clock()})": "" if value.until is None else minutes(value.until),
        "by": label(value.origin),
        "sources": ids if names else f"{len(value.sources):,}",
    }


def _thread_row(thread: Thread) -> dict[str, str]:
    return {
        "title": label(thread.title) if thread.title else "(no title)",
        "id": label(thread.id),
        "resource": label(thread.resource_id),
        "messages": f"{thread.message_count:,}",
        f"updated ({clock()})": minutes(thread.updated_at),
    }


def _message_row(row: StoredMessage) -> dict[str, str]:
    cells = {"thread": label(row.thread_id), "number": str(row.seq)}
    return cells | {f"time ({clock()})": minutes(row.stored_at)} | _spoken(row.message)


def _last_write(record: Any) -> dict[str, str | None]:
    """Return the facts about the last write to a record."""
    return {
        "revision": str(record.revision),
        "updated": None if record.updated_at is None else f"{minutes(record.updated_at)} {clock()}",
        "by": None if record.origin is None else label(record.origin),
    }


def _spoken(message: BaseMessage) -> dict[str, str]:
    """Return the cells of a message: its speaker; its text, labels for other content, and the tool calls."""
    role = ROLES.get(message.type, message.type)
    content = message.content
    text = content if isinstance(content, str) else "\n".join(filter(None, map(_word, content)))
    calls = getattr(message, "tool_calls", None) or []
    lines = [f"[calls {label(call['name'])}: {label(as_json(call['args']))}]" for call in calls]
    return {
        "role": f"{role} {label(message.name)}" if message.name else role,
        "message": "\n".join([excerpt(text), *lines]).strip("\n") or "[nothing]",
    }


def _found(at: datetime, message: BaseMessage, hit: tuple[int, float] | None) -> Row:
    cells = {f"time ({clock()})": minutes(at), **_spoken(message)}
    if hit is None:
        return {**cells, "rank": "", "similarity": ""}, None
    rank, similarity = hit
    cells |= {"rank": str(rank), "similarity": f"{similarity:.2f}" if similarity else "words only"}
    return cells, min(max(similarity, 0.0), 1.0)


def _observed(observations: Sequence[Any]) -> list[Table]:
    """Show observations by time; a day stands where it begins. An observation of high priority is highlighted."""
    rows: list[Row] = []
    last = ""
    for one in sorted(observations, key=lambda one: one.said_at):
        day, time = minutes(one.said_at).split(" ")
        cells = {
            f"day ({clock()})": day if day != last else "",
            "time": time,
            "priority": one.priority,
            "observation": excerpt(one.text),
            "sources": f"{len(one.sources):,}",
            "id": label(one.id),
        }
        rows.append((cells, 0.0 if one.priority == "high" else None))
        last = day
    return [Table(rows)] if rows else []


def _word(part: str | Mapping[Any, Any]) -> str:
    if isinstance(part, str):
        return part
    kind = str(part.get("type") or "content")
    if kind == "text":
        return str(part.get("text") or "")
    # calls are shown from the message's tool_calls
    return "" if kind in {"tool_use", "tool_call", "function_call"} else attachment(part) or f"[{label(kind)}]"
