"""What one call of the observer reads, and what stands for messages that no model can read: pure functions."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from langchain_core.messages import FunctionMessage, HumanMessage, ToolMessage

from langchain_workingmem._text.said import tool_call_ids, weight_of
from langchain_workingmem.models import Observation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem.models import StoredMessage
    from langchain_workingmem.observations.answers import Line


class Opened(NamedTuple):
    """A message that the observer may read."""

    row: StoredMessage
    digest: str  # of its body: the commit finds out whether it has changed meanwhile


Group = list[Opened]  # a call with its results, or one message


def body_digest(value: bytes) -> str:
    """Return the digest of a stored message without its header, which changes while the message stays the same."""
    return hashlib.sha1(value[value.index(b'"type":') :], usedforsecurity=False).hexdigest()


def groups_of(opened: Sequence[Opened], turn_begins: int, *, is_cut: bool) -> list[Group]:
    """Return the groups that may be read: of the present turn, which begins at `turn_begins`, only calls that are answered.

    With `is_cut` the last group is not whole.
    """
    groups: list[Group] = []
    for one in opened:
        if isinstance(one.row.message, ToolMessage | FunctionMessage) and groups:
            groups[-1].append(one)
        else:
            groups.append([one])
    if is_cut and groups:
        groups.pop()
    return [group for group in groups if group[0].row.seq < turn_begins or turn_begins < 0 or _is_answered(group)]


def first_of(groups: Sequence[Group], most_tokens: int) -> Sequence[Group]:
    """Return the groups of one call: whole turns as far as they fit, of a turn that is too long its first groups."""
    turns: list[list[Group]] = []
    was_question = False
    for group in groups:
        is_question = isinstance(group[0].row.message, HumanMessage)
        if not turns or (is_question and not was_question):
            turns.append([])
        turns[-1].append(group)
        was_question = is_question
    count = size = 0
    for turn in turns:
        sizes = [weight_of(one.row.message for one in group) for group in turn]
        if count and size + sum(sizes) > most_tokens:
            break
        for more in sizes:
            if count and size + more > most_tokens:
                return groups[:count]
            count += 1
            size += more
    return groups[:count]


def _is_answered(group: Group) -> bool:
    calls = tool_call_ids(group[0].row.message)
    return bool(calls) and {*calls} <= {getattr(one.row.message, "tool_call_id", "") for one in group[1:]}


def observation_of(line: Line, rows: Sequence[StoredMessage]) -> Observation:
    """Return the observation of a line, whose numbers count the rows from 1. It gets its id when it is stored."""
    cited = [rows[number - 1] for number in line.numbers]
    return Observation(
        id="",
        text=line.text,
        said_at=cited[0].stored_at,
        priority=line.priority,
        sources=[(row.thread_id, row.message.id or "") for row in cited],
        positions=tuple((row.thread_id, row.seq) for row in cited),
    )
