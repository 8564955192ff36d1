"""What a record shows of itself, as plain text. `html` and `terminal` draw it."""

from __future__ import annotations

import json
import reprlib
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from langchain_workingmem._text.media import attachment
from langchain_workingmem._text.observed import to_minute, zone_name
from langchain_workingmem._text.rendering import ROLES
from langchain_workingmem.display.safe import cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from langchain_core.messages import BaseMessage

BLOCK = {"characters": 10_000, "lines": 200}  # the most of a system block, a diff, working memory or a log
WIDE = frozenset({"message", "observation", "value"})  # columns of text, which may take many lines

Tone: TypeAlias = Literal["plain", "quiet", "added", "removed"]
# A record knows no user, so its times are UTC. Terminal and browser have one who looks: they say in which zone.
SHOWN_IN: ContextVar[ZoneInfo | None] = ContextVar("SHOWN_IN", default=None)
_TONES: dict[str, Tone] = {"+": "added", "-": "removed", "@": "quiet"}  # by the first character of a line of a diff


# plain classes: every program imports this module, and a dataclass takes longer to make than the module to load


class Table:
    """Rows: cells by column, and None, or how full the bar of a highlighted row is (0 to 1)."""

    def __init__(self, rows: Sequence[Row], caption: str = "") -> None:
        self.columns = tuple(rows[0][0]) if rows else ()
        self.rows, self.caption = rows, caption


class Lines:
    """Text, line by line."""

    def __init__(self, lines: Sequence[tuple[Tone, str]], caption: str = "") -> None:
        self.lines, self.caption = lines, caption


class Picture:
    """A title, a few facts, and the parts below them. Facts that are None are left out."""

    def __init__(self, title: str, facts: Mapping[str, str | None], parts: Sequence[Part] = ()) -> None:
        self.title, self.parts = title, parts
        self.facts = {name: value for name, value in facts.items() if value is not None}


Row: TypeAlias = "tuple[Mapping[str, str], float | None]"
Part: TypeAlias = Table | Lines | Picture


def label(text: str) -> str:
    """Shorten an id, a title or a name."""
    return cut(text, 80)


def excerpt(text: str) -> str:
    """Shorten a message."""
    return cut(text, 600, 12)


@contextmanager
def shown_in(zone: ZoneInfo | None) -> Iterator[None]:
    """Write the times of pictures in a zone, None: UTC."""
    token = SHOWN_IN.set(zone)
    try:
        yield
    finally:
        SHOWN_IN.reset(token)


def clock() -> str:
    """Return the name of the zone in which times are written."""
    return zone_name(SHOWN_IN.get())


def minutes(at: datetime) -> str:
    """Write a time to the minute, without its zone, which is `clock`."""
    return to_minute(at, SHOWN_IN.get())


def counted(number: int, noun: str) -> str:
    """Write a number with its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def last_write(record: Any) -> dict[str, str | None]:
    """Return the facts about the last write to a record."""
    return {
        "revision": str(record.revision),
        "updated": None if record.updated_at is None else f"{minutes(record.updated_at)} {clock()}",
        "by": None if record.origin is None else label(record.origin),
    }


def as_json(value: Any, indent: int | None = None) -> str:
    """Write a JSON value. Values that JSON cannot hold, or that are nested too deeply, are written as Python does."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    except (TypeError, ValueError, RecursionError):
        return reprlib.repr(value)


def block(text: str, caption: str = "") -> Lines:
    """Show a text as it is."""
    return Lines([("plain", line) for line in cut(text.rstrip("\n"), **BLOCK).split("\n")], caption)


def changed(diff: Sequence[str]) -> Lines:
    """Show the lines of a unified diff."""
    most = BLOCK["lines"]
    lines = [(_TONES.get(line[:1], "plain"), cut(line, BLOCK["characters"])) for line in diff[:most]]
    if len(diff) > most:
        lines.append(("quiet", f"… [{len(diff) - most:,} more lines]"))
    return Lines(lines)


def spoken(message: BaseMessage) -> dict[str, str]:
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


def recalled(
    found: Mapping[str, Sequence[Sequence[tuple[datetime, BaseMessage]]]],
    titles: Mapping[str, str | None],
    ranks: Mapping[tuple[str, str | None], tuple[int, float]],
) -> list[Table]:
    """Show windows by thread, that of the best hit first. `ranks` holds rank and similarity of each hit."""
    time = f"time ({clock()})"
    gap: Row = (dict.fromkeys((time, "role", "message", "rank", "similarity"), "") | {time: "⋯"}, None)
    tables = []
    for thread_id in dict.fromkeys([*titles, *found]):
        rows: list[Row] = []
        for window in found[thread_id]:
            rows += [gap] * bool(rows) + [_found(*one, ranks.get((thread_id, one[1].id))) for one in window]
        title = titles.get(thread_id)
        tables.append(Table(rows, f"{label(title)} ({label(thread_id)})" if title else label(thread_id)))
    return tables


def _found(at: datetime, message: BaseMessage, hit: tuple[int, float] | None) -> Row:
    cells = {f"time ({clock()})": minutes(at), **spoken(message)}
    if hit is None:
        return {**cells, "rank": "", "similarity": ""}, None
    rank, similarity = hit
    cells |= {"rank": str(rank), "similarity": f"{similarity:.2f}" if similarity else "words only"}
    return cells, min(max(similarity, 0.0), 1.0)


def observed(observations: Sequence[Any]) -> list[Table]:
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


def without_memory(messages: Sequence[BaseMessage]) -> tuple[list[BaseMessage], list[str], list[str]]:
    """Separate the user's words from the memory in front of them.

    Return the messages, the texts in front of earlier messages, and the text in front of the user's last one.
    """
    from langchain_workingmem.usage.parts import blocks_of

    asked = max((at for at, message in enumerate(messages) if message.type == "human"), default=0)
    own: list[BaseMessage] = []
    front: list[str] = []
    question: list[str] = []
    for at, message in enumerate(messages):
        words, blocks = blocks_of(message)
        own.append(message if words is None else words)  # a log is shown as a message
        if words is not None and blocks:
            (front if at < asked else question).append("\n\n".join(blocks))
    return own, front, question
