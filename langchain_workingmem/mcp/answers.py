"""What clients read: text for the model, without characters that a person would not see, and records for programs.

Ids and cursors are exact, so that a client can send them back. A text quotes ids as JSON, with hidden characters escaped.
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_workingmem._text.observed import to_minute, zone_name
from langchain_workingmem._text.rendering import ROLES, dated, labels_of, message_text
from langchain_workingmem._text.unicode import replace_hidden, visible
from langchain_workingmem.display.safe import cut

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from langchain_core.messages import BaseMessage

    from langchain_workingmem.models import (
        Page,
        RecallResult,
        StoredMessage,
        Thread,
        WorkingMemoryState,
        WorkingMemoryValue,
    )


LONGEST_TITLE = 200  # characters that are shown

Answer: TypeAlias = (
    "tuple[str, dict[str, Any]]"  # text for the model, and the same for programs, empty where the text says all
)


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
        f"{quoted(row['thread_id'])}: {quoted(row['title']) if row['title'] else '(no title)'}, {row['message_count']:,} messages, "
        f"changed {to_minute(thread.updated_at, zone)} {zone_name(zone)}"
        for row, thread in zip(rows, page, strict=True)
    ]
    head = f"{len(rows):,} of {page.total:,} threads, the latest first:" if rows else "There are no threads here."
    data = {"threads": rows, "total": page.total, "next_cursor": page.next_cursor}
    return "\n".join([head, *lines, *more(page.next_cursor)]), data


def _of_thread(thread: Thread) -> dict[str, Any]:
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
    count = f"{len(rows):,} of {page.total:,} messages:" if rows else "There are no messages here."
    data = {"thread": _of_thread(thread), "messages": found, "total": page.total, "next_cursor": page.next_cursor}
    return "\n".join([count, head, *lines, "</conversation>", *more(page.next_cursor)]), data


def _attribute(id: Any) -> str:
    """Write an id as an attribute: hidden characters and line ends as in JSON, the others escaped."""
    return f'"{escape(quoted(id)[1:-1])}"'


def _of_message(message: BaseMessage, at: datetime) -> dict[str, Any]:
    return {
        "id": message.id,
        "role": ROLES.get(message.type, message.type),
        "name": _cleaned(message.name),
        "time": at.isoformat(),
        "text": visible(message_text(message)),
    }


def of_hits(result: RecallResult, zone: ZoneInfo | None) -> Answer:
    """Describe what a search found; the text is that of the tool `search_memory` of agents, and where to read on.

    Times in the text are in the zone; None: UTC.
    """
    if not result.hits:
        return "Nothing was found.", {"hits": []}
    hits = [
        {
            "thread_id": hit.thread_id,
            "thread_title": _cleaned(hit.thread_title),
            "similarity": round(hit.similarity, 3),
            **_of_message(hit.message, hit.stored_at),
            "before": [visible(message_text(one)) for one in hit.before],
            "after": [visible(message_text(one)) for one in hit.after],
            **({} if hit.observation is None else {"observation": visible(hit.observation.text)}),
            **({} if hit.outdated_by is None else {"outdated": visible(dated(hit.outdated_by, zone))}),
        }
        for hit in result.hits
    ]
    labels = labels_of(result, result.windows())
    threads = (f"{quoted(id)} ({quoted(label)})" for id, label in labels.items())
    return f"{result.as_text(zone_name(zone))}\nread_thread shows more of: {', '.join(threads)}", {"hits": hits}


def of_working_memory(state: WorkingMemoryState) -> Answer:
    """Describe working memory."""
    template = f" Its template:\n{state.template}" if state.template and state.template.strip() else ""
    head = f"Working memory is empty (revision {state.revision}).{template}"
    if not state.is_empty:
        head = f"Working memory (revision {state.revision}):\n{state.text}"
    data = {
        "text": "" if state.is_empty else visible(state.text),
        "revision": state.revision,
        "updated_at": None if state.updated_at is None else state.updated_at.isoformat(),
        "template": _cleaned(state.template),
        **({} if state.timeline is None else {"values": _values(state.timeline)}),
    }
    return head, data


def _values(timeline: Mapping[str, Sequence[WorkingMemoryValue]]) -> list[dict[str, Any]]:
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
