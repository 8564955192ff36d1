"""What there is to see in a record, as plain text; how it is drawn is the matter of `html` and `terminal`."""

from __future__ import annotations

import json
import reprlib
from dataclasses import dataclass, field
from functools import singledispatch
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from langchain_workingmem._documents.diffs import pretty
from langchain_workingmem._text.rendering import ROLES
from langchain_workingmem.display.safe import cut
from langchain_workingmem.models import (
    Diagnosis,
    MemoryContext,
    Page,
    RecallHit,
    RecallResult,
    StoredMessage,
    Thread,
    WorkingMemoryDiff,
    WorkingMemoryState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from langchain_core.messages import BaseMessage

LABEL = 80  # characters of an id, a title, a name
ORIGINAL = "langchain_workingmem_original"  # as in plans.windows, a layer above
MESSAGE = {"characters": 600, "lines": 12}
BLOCK = {"characters": 10_000, "lines": 200}  # of a system block, of working memory

Tone: TypeAlias = Literal["plain", "quiet", "added", "removed"]
_TONES: dict[str, Tone] = {"+": "added", "-": "removed", "@": "quiet"}  # of a diff's lines, by their first character


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table."""

    cells: tuple[str, ...]
    stands_out: bool = False
    share: float = 0.0  # how full the bar behind the last cell is, 0 to 1


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below each other; the column "message" may take many lines."""

    heads: tuple[str, ...]
    rows: list[Row]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Lines:
    """Text as it stands, line by line."""

    lines: list[tuple[Tone, str]]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """A title, a few facts, and what is below them."""

    title: str
    facts: dict[str, str] = field(default_factory=dict)
    parts: list[Table | Lines | Picture] = field(default_factory=list)


@singledispatch
def picture(record: object) -> Picture:
    """Make a picture of a record."""
    return Picture(cut(repr(record), **MESSAGE))


@picture.register
def _(thread: Thread) -> Picture:
    facts = {
        "id": _label(thread.id),
        "resource": _label(thread.resource_id),
        "messages": f"{thread.message_count:,}",
        "created": _time(thread.created_at),
        "updated": f"{_time(thread.updated_at)} UTC",
    }
    if thread.clone_of is not None:
        facts["clone of"] = _label(thread.clone_of)
    if thread.metadata:
        facts["metadata"] = cut(_json(thread.metadata), **MESSAGE)
    return Picture(_title(thread), facts)


@picture.register
def _(page: Page) -> Picture:  # type: ignore[type-arg] # singledispatch takes bare classes only
    more = {"more": "pass next_cursor"} if page.next_cursor is not None else {}
    if not page.items:
        return Picture(f"Nothing on this page, {page.total:,} in all", more)
    kind = type(page.items[0])
    what, drawn = _LISTINGS.get(kind, ("items", _anything))
    return Picture(f"{len(page):,} of {page.total:,} {what}", more, [drawn(page.items)])


@picture.register
def _(result: RecallResult) -> Picture:
    threads = _windows(result)
    if not threads:
        return Picture("Nothing was recalled")
    places = _counted(len(threads), "conversation")
    shown = Picture(f"{_counted(len(result.hits), 'hit')} in {places}")
    titles = {hit.thread_id: hit.thread_title for hit in result.hits}
    ranks = {(hit.thread_id, hit.message.id): (rank, hit) for rank, hit in enumerate(result.hits, 1)}
    for thread_id, rows in threads.items():
        label = _label(thread_id)
        title = titles.get(thread_id)
        caption = f"{_label(title)} ({label})" if title else label
        lines = []
        for row, before in zip(rows, [None, *rows], strict=False):
            if before is not None and row.seq > before.seq + 1:
                lines.append(_GAP)
            lines.append(_recalled_row(row, *ranks.get((thread_id, row.message.id), (0, None))))
        shown.parts.append(Table(("time (UTC)", "role", "message", "rank", "similarity"), lines, caption))
    return shown


@picture.register
def _(state: WorkingMemoryState) -> Picture:
    facts = {"revision": str(state.revision)}
    if state.updated_at is not None:
        facts["updated"] = f"{_time(state.updated_at)} UTC"
    if state.origin is not None:
        facts["by"] = _label(state.origin)
    parts: list[Table | Lines | Picture] = [_block(pretty(state.text))] if state.text.strip() else []
    return Picture("Working memory, empty" if state.is_empty else "Working memory", facts, parts)


@picture.register
def _(diff: WorkingMemoryDiff) -> Picture:
    title = f"Working memory, revision {diff.earlier} → {diff.later}"
    if not diff.lines:
        return Picture(f"{title}: no change")
    most = BLOCK["lines"]
    lines = [(_TONES.get(line[:1], "plain"), cut(line, BLOCK["characters"])) for line in diff.lines[:most]]
    if missing := len(diff.lines) - len(lines):
        lines.append(("quiet", f"… [{missing:,} more lines]"))
    facts = {"added": _counted(len(diff.added), "line"), "removed": _counted(len(diff.removed), "line")}
    return Picture(title, facts, [Lines(lines)])


@picture.register
def _(context: MemoryContext) -> Picture:
    state, recalled = context.working_memory, context.recalled
    facts = {
        "system blocks": str(len(context.system)),
        "messages": str(len(context.messages)),
        "recalled": _counted(len(recalled.hits), "hit"),
        "working memory": "off" if state is None else "empty" if state.is_empty else f"revision {state.revision}",
    }
    if context.omitted:
        facts["left out"] = _counted(context.omitted, "message")
    of = len(context.system)
    blocks = [_block(text, f"System block {at} of {of}") for at, text in enumerate(context.system, 1)]
    front, own = _apart(context.messages)
    messages: list[Table | Lines | Picture] = [_sent(own)] if own else []
    messages += [_block(text, "In front of the question") for text in front]
    memory = [] if state is None else [picture(state)]
    return Picture("What the model is shown", facts, [*blocks, *messages, picture(recalled), *memory])


@picture.register
def _(diagnosis: Diagnosis) -> Picture:
    rows = [
        Row(
            (one.level, one.check, cut("\n".join(filter(None, (one.message, one.remedy))), **MESSAGE)),
            stands_out=one.level in {"warning", "error"},
        )
        for one in diagnosis
    ]
    return Picture(f"Diagnosis: {diagnosis.level}", {}, [Table(("level", "check", "message"), rows)])


# ---------------------------------------------------------------------- pieces


def _windows(result: RecallResult) -> dict[str, list[StoredMessage]]:
    """Return the windows by thread, that of the best hit first; a hit without a row gets one."""
    rows = {(row.thread_id, row.message.id): row for row in result.rows}
    threads: dict[str, list[StoredMessage]] = {hit.thread_id: [] for hit in result.hits}
    for hit in result.hits:
        if (hit.thread_id, hit.message.id) not in rows:
            threads[hit.thread_id].append(
                StoredMessage(message=hit.message, thread_id=hit.thread_id, seq=0, stored_at=hit.stored_at)
            )
    for row in result.rows:
        threads.setdefault(row.thread_id, []).append(row)
    return {thread_id: sorted(found, key=lambda row: row.stored_at) for thread_id, found in threads.items()}


_GAP = Row(("⋯", "", "", "", ""))  # between two windows of a thread


def _recalled_row(row: StoredMessage, rank: int, hit: RecallHit | None) -> Row:
    cells = (_time(row.stored_at), _role(row.message), _said(row.message))
    if hit is None:
        return Row((*cells, "", ""))
    return Row(
        (*cells, str(rank), _similarity(hit.similarity)), stands_out=True, share=min(max(hit.similarity, 0.0), 1.0)
    )


def _similarity(similarity: float) -> str:
    return f"{similarity:.2f}" if similarity else "words only"


def _apart(messages: Sequence[BaseMessage]) -> tuple[list[str], list[BaseMessage]]:
    """Take what memory has put in front of a question apart from the words of the user."""
    front, own = [], []
    for message in messages:
        said = message.additional_kwargs.get(ORIGINAL)
        if isinstance(said, str | list):
            words = message.model_copy(update={"content": said})
            front.append(str(message.text).removesuffix(str(words.text)).rstrip("\n"))
            own.append(words)
        else:
            own.append(message)
    return front, own


def _sent(messages: Sequence[BaseMessage]) -> Table:
    return Table(("role", "message"), [Row((_role(one), _said(one))) for one in messages], "Messages")


def _threads(threads: Sequence[Thread]) -> Table:
    rows = [
        Row((_title(one), _label(one.id), _label(one.resource_id), f"{one.message_count:,}", _time(one.updated_at)))
        for one in threads
    ]
    return Table(("title", "id", "resource", "messages", "updated (UTC)"), rows)


def _messages(rows: Sequence[StoredMessage]) -> Table:
    heads = ("thread", "number", "time (UTC)", "role", "message")
    return Table(
        heads,
        [
            Row((_label(row.thread_id), str(row.seq), _time(row.stored_at), _role(row.message), _said(row.message)))
            for row in rows
        ],
    )


def _anything(items: Sequence[object]) -> Lines:
    return Lines([("plain", cut(repr(item), **MESSAGE)) for item in items])


_LISTINGS: dict[type, tuple[str, Callable[[Any], Table | Lines]]] = {
    Thread: ("threads", _threads),
    StoredMessage: ("messages", _messages),
}


def _block(text: str, caption: str = "") -> Lines:
    return Lines([("plain", line) for line in cut(text.rstrip("\n"), **BLOCK).split("\n")], caption)


def _title(thread: Thread) -> str:
    return _label(thread.title) if thread.title else "(no title)"


def _label(text: str) -> str:
    return cut(text, LABEL)


def _time(at: datetime) -> str:
    return at.isoformat(" ", "minutes")[:16]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _role(message: BaseMessage) -> str:
    role = ROLES.get(message.type, message.type)
    return f"{role} {_label(message.name)}" if message.name else role


def _said(message: BaseMessage) -> str:
    """Put a message into words: text, a label for what is none, the names of the tools that it calls."""
    content = message.content
    words = [content] if isinstance(content, str) else [word for word in map(_word, content) if word]
    calls = [
        f"[calls {_label(call['name'])}: {cut(_json(call['args']), LABEL)}]"
        for call in getattr(message, "tool_calls", None) or []
    ]
    return "\n".join([cut("\n".join(words), **MESSAGE), *calls]).strip("\n") or "[nothing]"


def _word(block: str | dict[Any, Any]) -> str:
    if isinstance(block, str):
        return block
    kind = str(block.get("type") or "content")
    if kind == "text":
        return str(block.get("text") or "")
    # what is called stands in the message's tool_calls
    return "" if kind in {"tool_use", "tool_call", "function_call"} else f"[{_label(kind.removesuffix('_url'))}]"


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return reprlib.repr(value)  # whatever it is, and however deep
