"""What clients read: text for the model, without characters that a person would not see, and records for programs.

Ids and cursors are exact, so that a client can send them back. A text quotes ids as JSON, with hidden characters escaped.
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_workingmem._text.observed import to_minute, zone_name
from langchain_workingmem._text.rendering import ROLES, conversations, message_text, passages
from langchain_workingmem._text.unicode import replace_hidden, visible
from langchain_workingmem.display.pictures import counted
from langchain_workingmem.display.safe import cut
from langchain_workingmem.working_memory import describe_change

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._documents.formats import Format
    from langchain_workingmem.mcp import results
    from langchain_workingmem.models import (
        Page,
        RecallHit,
        RecallResult,
        StoredMessage,
        Thread,
        WorkingMemoryState,
        WorkingMemoryValue,
    )


LONGEST_TITLE = 200  # characters that are shown

Answer: TypeAlias = "tuple[str, dict[str, Any]]"  # text for the model, and the same for programs


def quoted(value: Any) -> str:
    """Write a value as JSON in which every character is visible."""
    return replace_hidden(json.dumps(value, ensure_ascii=False), lambda one: json.dumps(one)[1:-1])


def no_thread(thread_id: str) -> str:
    """Tell that a thread does not exist; the same for a thread of somebody else."""
    return f"There is no thread {quoted(thread_id)}. list_threads lists the threads, and save_messages begins one."


def of_threads(page: Page[Thread], zone: ZoneInfo | None) -> Answer:
    """Describe threads, with times in a zone; None: UTC."""
    rows = [_of_thread(thread) for thread in page]
    lines = [
        f"{quoted(row['thread_id'])}: {quoted(row['title']) if row['title'] else '(no title)'}, {counted(row['message_count'], 'message')}, "
        f"changed {to_minute(thread.updated_at, zone)} {zone_name(zone)}"
        for row, thread in zip(rows, page, strict=True)
    ]
    head = (
        f"{len(rows):,} of {counted(page.total, 'thread')}, the latest first:" if rows else "There are no threads here."
    )
    data: results.Threads = {"threads": rows, "total": page.total, "next_cursor": page.next_cursor}
    return "\n".join([head, *lines, *more(page.next_cursor)]), {**data}


def _of_thread(thread: Thread) -> results.ThreadRow:
    return {
        "thread_id": thread.id,
        "title": title_of(thread),
        "message_count": thread.message_count,
        "created_at": thread.created_at.isoformat(),
        "updated_at": thread.updated_at.isoformat(),
    }


def of_messages(thread: Thread, page: Page[StoredMessage], zone: ZoneInfo | None, *, newest: bool) -> Answer:
    """Describe a page of a thread, its messages in their order, with times in a zone; None: UTC."""
    rows = page.items[::-1] if newest else page.items
    found = [_of_message(row.message, row.stored_at) for row in rows]
    head = f"<conversation thread_id={_attribute(thread.id)} title={_attribute(title_of(thread) or '')}>"
    lines = [
        f'<message id={_attribute(one["id"])} role="{one["role"]}"'
        f'{" name=" + quoted(escape(one["name"])) if one["name"] else ""} time="{to_minute(row.stored_at, zone)} {zone_name(zone)}">'
        f"{escape(one['text'], quote=False)}</message>"
        for one, row in zip(found, rows, strict=True)
    ]
    count = f"{len(rows):,} of {counted(page.total, 'message')}:" if rows else "There are no messages here."
    row, following = _of_thread(thread), page.next_cursor
    data: results.Messages = {"thread": row, "messages": found, "total": page.total, "next_cursor": following}
    return "\n".join([count, head, *lines, "</conversation>", *more(following)]), {**data}


def _attribute(id: Any) -> str:
    """Write an id as an attribute: hidden characters and line ends as in JSON, the others escaped."""
    return f'"{escape(quoted(id)[1:-1])}"'


def _of_message(message: BaseMessage, at: datetime) -> results.Message:
    return {
        "id": message.id,
        "role": ROLES.get(message.type, message.type),
        "name": _cleaned(message.name),
        "time": at.isoformat(),
        "text": visible(message_text(message)),
    }


def of_hits(result: RecallResult, zone: ZoneInfo | None) -> Answer:
    """Describe what a search found; the text is that of the tool `search_memory` of agents, with the ids of threads and messages.

    Times in the text are in the zone; None: UTC.
    """
    data: results.Found = {"hits": [_of_hit(hit) for hit in result.hits]}
    if result.files:
        data["passages"] = [
            {
                "path": one.path,
                "first_line": one.first_line,
                "last_line": one.last_line,
                "revision": one.revision,
                "text": visible(one.text),
            }
            for one in result.files
        ]
    attributes = {(row.thread_id, row.message.id): f" id={_attribute(row.message.id)}" for row in result.rows}
    heads = {thread_id: f" thread_id={_attribute(thread_id)}" for thread_id in result.windows()}
    lines = [*conversations(result, zone=zone, attributes=attributes, heads=heads), *passages(result.files)]
    return visible("\n".join(lines)) or "Nothing was found.", {**data}


def _of_hit(hit: RecallHit) -> results.Hit:
    said = _of_message(hit.message, hit.stored_at)
    data: results.Hit = {
        "id": said["id"],
        "role": said["role"],
        "name": said["name"],
        "time": said["time"],
        "text": said["text"],
        "thread_id": hit.thread_id,
        "thread_title": _cleaned(hit.thread_title),
        "similarity": round(hit.similarity, 3),
        "before": [visible(message_text(one)) for one in hit.before],
        "after": [visible(message_text(one)) for one in hit.after],
    }
    return data


def of_working_memory(state: WorkingMemoryState) -> Answer:
    """Describe working memory."""
    template = f" Its template:\n{state.template}" if state.template and state.template.strip() else ""
    head = f"Working memory is empty (revision {state.revision}).{template}"
    if not state.is_empty:
        head = f"Working memory (revision {state.revision}):\n{state.text}"
    data: results.Document = {
        "text": "" if state.is_empty else visible(state.text),
        "revision": state.revision,
        "updated_at": None if state.updated_at is None else state.updated_at.isoformat(),
        "template": _cleaned(state.template),
    }
    if state.timeline is not None:
        data["values"] = _values(state.timeline)
    return head, {**data}


def of_revisions(
    kept: Sequence[WorkingMemoryState], limit: int, zone: ZoneInfo | None, form: Callable[[WorkingMemoryState], Format]
) -> Answer:
    """Describe revisions, the newest first, each with what it changed of the one before it, if that is kept."""
    lines = []
    for new, old in zip(kept[:limit], [*kept[1:], None], strict=False):
        time = "" if new.updated_at is None else f", {to_minute(new.updated_at, zone)} {zone_name(zone)}"
        changes = ["(what it changed is not kept)"] if new.revision > 1 else []
        if old is not None or new.revision == 1:
            changes = describe_change(form(new), "" if old is None else old.text, new.text).splitlines()[1:]
        lines += [f"Revision {new.revision}{time}, by {new.origin}:", *(f"  {line}" for line in changes)]
    data: results.Revisions = {
        "revisions": [
            {
                "revision": one.revision,
                "time": None if one.updated_at is None else one.updated_at.isoformat(),
                "by": one.origin,
                "text": visible(one.text),
            }
            for one in kept[:limit]
        ]
    }
    return "\n".join(lines) or "Working memory was never written.", {**data}


def _values(timeline: Mapping[str, Sequence[WorkingMemoryValue]]) -> list[results.Value]:
    """Describe what holds: since when, and by which messages."""
    return [
        {
            "path": visible(path),
            "since": now.since.isoformat(),
            "by": now.origin,
            "messages": [{"thread_id": thread_id, "id": id} for thread_id, id in now.sources],
        }
        for path, (now, *_) in timeline.items()
        if now.is_set
    ]


def title_of(thread: Thread) -> str | None:
    """Return the title in one line, shortened."""
    return _cleaned(cut(" ".join(thread.title.split()), LONGEST_TITLE)) if thread.title else None


def _cleaned(text: str | None) -> str | None:
    return None if text is None else visible(text)


def more(cursor: str | None) -> list[str]:
    """Tell how to go on."""
    return [] if cursor is None else [f"More with cursor {quoted(cursor)}."]
