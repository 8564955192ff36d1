"""Read a part of a conversation with its superseded messages, and pair tool calls with their results."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_workingmem._redis.access import owner_tag, run_script
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem.history import READ, MessageSelection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import StoredMessage

MOST_SUPERSEDED = 200  # on one page


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A part of a conversation, in order."""

    rows: list[StoredMessage]
    first: int | None  # position of its first message on the current branch; None: there is none
    last: int | None
    has_older: bool
    has_newer: bool
    is_cut: bool  # there are more superseded messages than a page shows


def read_slice(
    state: MemoryState,
    thread_id: str,
    resource_id: str,
    *,
    limit: int,
    above: int | None = None,
    below: int | None = None,
    superseded: bool = True,
) -> Plan[Slice]:
    """Read messages above a position, else the newest ones below one. Two round trips, one without superseded ones."""
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    wanted = MessageSelection(limit=limit + 1, newest=above is None, above=above, below=below)
    call = READ.call(keys.all, owner_tag(resource_id), *wanted.arguments())
    (reply,) = yield from run_script(thread_id, resource_id, call)
    rows = yield from wanted.reading(reply, thread_id)
    has_more = len(rows) > limit
    if has_more:
        rows = rows[:-1] if above is not None else rows[1:]
    first, last = (rows[0].seq, rows[-1].seq) if rows else (None, None)
    has_older = has_more if above is None else True
    has_newer = has_more if above is not None else below is not None
    found, is_cut = [(float(row.seq), row) for row in rows], False
    if superseded:
        low = above if above is not None else (first - 1 if has_older and first is not None else None)
        high = below if above is None else (last + 1 if has_newer and last is not None else None)
        other = MessageSelection(limit=MOST_SUPERSEDED + 1, newest=True, above=low, below=high)
        call = READ.call(keys.all, owner_tag(resource_id), *other.arguments(), "superseded", 1)
        (reply,) = yield from run_script(thread_id, resource_id, call)
        left = yield from replace(other, newest=False).reading(reply, thread_id)
        # an older version of a message stands before it, between two positions
        positions = [float(seq) for seq in reply[2::3]]
        is_cut = len(left) > MOST_SUPERSEDED
        pairs = zip(positions, left, strict=True)
        # the older version of a message that the next page begins with belongs there
        end = below - 1 if below is not None else last if has_newer and last is not None else inf
        found += [(at, replace(row, superseded=True)) for at, row in [*pairs][:MOST_SUPERSEDED] if at <= end]
        found.sort(key=lambda one: one[0])
    return Slice(
        rows=[row for _, row in found],
        first=first,
        last=last,
        has_older=has_older,
        has_newer=has_newer,
        is_cut=is_cut,
    )


@dataclass(slots=True)
class Call:
    """A tool call and its result."""

    name: str
    arguments: str
    result: str | None = None  # None: there is none on this page
    is_error: bool = False


@dataclass(slots=True, kw_only=True)
class Said:
    """A message as it is shown, with the results of its tool calls."""

    row: StoredMessage
    parts: list[tuple[str, str]]  # kind and text
    calls: list[Call] = field(default_factory=list)


def as_said(rows: Sequence[StoredMessage]) -> list[Said]:
    """Put tool results below their calls; a result whose call is not here stands by itself."""
    found: list[Said] = []
    waiting: dict[tuple[str, bool], list[Call]] = {}
    for row in rows:
        message = row.message
        calls = waiting.get((message.tool_call_id, row.superseded)) if isinstance(message, ToolMessage) else None
        if isinstance(message, ToolMessage) and calls:
            call = calls.pop(0)
            call.result, call.is_error = "\n".join(text for _, text in parts_of(message)), message.status == "error"
            continue
        said = Said(row=row, parts=parts_of(message))
        for made in message.tool_calls if isinstance(message, AIMessage) else ():
            call = Call(made["name"], as_json(made["args"]))
            said.calls.append(call)
            if made["id"]:
                waiting.setdefault((made["id"], row.superseded), []).append(call)
        for wrong in message.invalid_tool_calls if isinstance(message, AIMessage) else ():
            said.calls.append(
                Call(str(wrong["name"]), str(wrong["args"]), str(wrong["error"] or "invalid"), is_error=True)
            )
        found.append(said)
    return found


def parts_of(message: BaseMessage) -> list[tuple[str, str]]:
    """Return what a message holds: kind and text of each part. What is not text is shown as JSON."""
    if isinstance(message.content, str):
        return [("text", message.content)] if message.content else []
    found = []
    for part in message.content:
        if isinstance(part, str):
            found.append(("text", part))
            continue
        kind = str(part.get("type") or "content")
        if kind == "text":
            found.append((kind, str(part.get("text") or "")))
        elif kind not in {"tool_use", "tool_call", "function_call"}:  # shown as calls
            found.append((kind, as_json({name: value for name, value in part.items() if name != "type"})))
    return found


def as_json(value: Any) -> str:
    """Write a value as JSON, line by line; what JSON cannot hold is written as Python does."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=2, default=str)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
