"""What clients read: text for the model, without characters that a person would not see, and records for programs.

Ids and cursors are exact, so that a client can send them back. A text quotes ids as JSON, with hidden characters escaped.
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import Field
from typing_extensions import TypedDict

from langchain_workingmem._text.messages import ROLES, conversations, message_text
from langchain_workingmem._text.unicode import replace_hidden, visible
from langchain_workingmem._text.values import to_minute, zone_name
from langchain_workingmem.display.pictures import counted, cut

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from langchain_workingmem.models import Page, RecallHit, RecallResult, Thread, WorkingMemoryState

LONGEST_TITLE = 200  # characters that are shown

Answer: TypeAlias = "tuple[str, Any]"  # text for the model, and the same for programs
Time = Annotated[str, Field(description="ISO 8601, UTC.")]


class ThreadRow(TypedDict):
    """A thread."""

    thread_id: str
    title: str | None
    message_count: int
    created_at: Time
    updated_at: Time


class Hit(TypedDict):
    """A message that was found."""

    id: str | None
    role: Annotated[str, Field(description="user, assistant, tool, or another one.")]
    name: Annotated[str | None, Field(description="Who speaks, where several people or agents do.")]
    time: Time
    text: str
    thread_id: str
    thread_title: str | None
    similarity: Annotated[float, Field(description="From 0 to 1; 1 is the same meaning.")]
    before: Annotated[list[str], Field(description="Texts of the messages before it.")]
    after: Annotated[list[str], Field(description="Texts of the messages after it.")]


class Found(TypedDict):
    """What `search_memory` returns."""

    hits: Annotated[list[Hit], Field(description="The best one first.")]


class Threads(TypedDict):
    """What `list_threads` returns."""

    threads: Annotated[list[ThreadRow], Field(description="The latest one first.")]
    total: int
    next_cursor: Annotated[
        str | None, Field(description="Pass it as `cursor` to get the next page; null: this is the last one.")
    ]


class Saved(TypedDict):
    """What `save_messages` returns."""

    thread_id: str
    message_ids: Annotated[list[str], Field(description="In the order of the messages.")]


class Document(TypedDict):
    """What `get_working_memory` returns."""

    text: Annotated[str, Field(description="Empty if nothing is known.")]
    revision: Annotated[int, Field(description="0: never written.")]
    updated_at: Time | None
    template: Annotated[str | None, Field(description="The form of the text, if it has one.")]


class Changed(TypedDict):
    """What a change of working memory returns."""

    revision: Annotated[int, Field(description="The present one, after the change.")]
    report: Annotated[str, Field(description="What was done, in words.")]


def quoted(value: Any) -> str:
    """Write a value as JSON in which every character is visible."""
    return replace_hidden(json.dumps(value, ensure_ascii=False), lambda char: json.dumps(char)[1:-1])


def no_thread(thread_id: str) -> str:
    """Tell that a thread does not exist; the same for a thread of somebody else."""
    return f"There is no thread {quoted(thread_id)}. list_threads lists the threads, and save_messages begins one."


def of_threads(page: Page[Thread], zone: ZoneInfo | None) -> Answer:
    """Describe threads, with times in a zone; None: UTC."""
    rows: list[ThreadRow] = [
        {
            "thread_id": thread.id,
            "title": _cleaned(cut(" ".join(thread.title.split()), LONGEST_TITLE)) if thread.title else None,
            "message_count": thread.message_count,
            "created_at": thread.created_at.isoformat(),
            "updated_at": thread.updated_at.isoformat(),
        }
        for thread in page
    ]
    lines = [
        f"{quoted(row['thread_id'])}: {quoted(row['title']) if row['title'] else '(no title)'}, {counted(row['message_count'], 'message')}, "
        f"changed {to_minute(thread.updated_at, zone)} {zone_name(zone)}"
        for row, thread in zip(rows, page, strict=True)
    ]
    head = (
        f"{len(rows):,} of {counted(page.total, 'thread')}, the latest first:" if rows else "There are no threads here."
    )
    footer = [] if page.next_cursor is None else [f"More with cursor {quoted(page.next_cursor)}."]
    return "\n".join([head, *lines, *footer]), Threads(threads=rows, total=page.total, next_cursor=page.next_cursor)


def of_hits(result: RecallResult, zone: ZoneInfo | None) -> Answer:
    """Describe what a search found; the text is that of the tool `search_memory` of agents, with the ids of threads.

    Times in the text are in the zone; None: UTC.
    """
    texts = zip(result.windows(), conversations(result, zone=zone), strict=True)
    lines = [text.replace("<conversation", f"<conversation thread_id={_attribute(id)}", 1) for id, text in texts]
    return visible("\n".join(lines)) or "Nothing was found.", Found(hits=[_of_hit(hit) for hit in result.hits])


def _attribute(id: Any) -> str:
    """Write an id as an attribute: hidden characters and line ends as in JSON, the others escaped."""
    return f'"{escape(quoted(id)[1:-1])}"'


def _of_hit(hit: RecallHit) -> Hit:
    message = hit.message
    return {
        "id": message.id,
        "role": ROLES.get(message.type, message.type),
        "name": _cleaned(message.name),
        "time": hit.stored_at.isoformat(),
        "text": visible(message_text(message)),
        "thread_id": hit.thread_id,
        "thread_title": _cleaned(hit.thread_title),
        "similarity": round(hit.similarity, 3),
        "before": [visible(message_text(neighbour)) for neighbour in hit.before],
        "after": [visible(message_text(neighbour)) for neighbour in hit.after],
    }


def of_working_memory(state: WorkingMemoryState, template: str | None) -> Answer:
    """Describe working memory."""
    suffix = f" Its template:\n{template}" if template and template.strip() else ""
    text = f"Working memory is empty (revision {state.revision}).{suffix}"
    if not state.is_empty:
        text = f"Working memory (revision {state.revision}):\n{state.text}"
    return text, Document(
        text="" if state.is_empty else visible(state.text),
        revision=state.revision,
        updated_at=None if state.updated_at is None else state.updated_at.isoformat(),
        template=_cleaned(template),
    )


def of_change(report: str, state: WorkingMemoryState) -> Answer:
    """Describe a change of working memory."""
    return f"{report}\n(revision {state.revision})", Changed(revision=state.revision, report=visible(report))


def of_saved(thread_id: str, message_ids: list[str]) -> Answer:
    """Describe what was saved."""
    text = f"Saved {counted(len(message_ids), 'message')} in thread {quoted(thread_id)}."
    return text, Saved(thread_id=thread_id, message_ids=message_ids)


def _cleaned(text: str | None) -> str | None:
    return None if text is None else visible(text)
