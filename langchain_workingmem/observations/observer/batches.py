"""What one call of the observer reads, and what stands for messages that no model can read: pure functions.

Calls about a range of messages that give nothing usable are counted in `tried` of the log (lua/tried.lua). Then the range is read in
halves, so that all but one group of a filtered message is found with a call for each halving.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from langchain_core.messages import FunctionMessage, HumanMessage, ToolMessage

from langchain_workingmem._text.said import tool_call_ids, weight_of
from langchain_workingmem.models import Observation
from langchain_workingmem.observations.answers import Line
from langchain_workingmem.observations.log import MOST_SOURCES
from langchain_workingmem.observations.reflecting import ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem.models import StoredMessage
    from langchain_workingmem.options import ObservationOptions


class Opened(NamedTuple):
    """A message that the observer may read."""

    row: StoredMessage
    digest: str  # of its body: the commit finds out whether it has changed meanwhile


_PLURALS = {
    "tool result": "tool results",
    "message by the user": "messages by the user",
    "message by the assistant": "messages by the assistant",
}

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


def read_ahead_of(options: ObservationOptions) -> int | None:
    """Return how many tokens have to wait so that a whole call of the observer may read ahead; None where it does not.

    From half of `message_tokens` on whole calls are made, of which the prompt shows nothing until `message_tokens` are reached:
    then it changes once for all of them. Where no two calls fit, and in the log of a user, nothing is read ahead.
    """
    fits = options.keep_tokens + 2 * options.batch_tokens <= options.message_tokens
    return options.keep_tokens + options.batch_tokens if fits and options.scope == "thread" else None


class Batch(NamedTuple):
    """The messages of one call of the observer."""

    groups: Sequence[Group]
    failures: int = 0  # calls about them that gave nothing usable
    depth: int = 0  # how often they were halved

    @property
    def opened(self) -> list[Opened]:
        """Return the messages."""
        return [one for group in self.groups for one in group]

    @property
    def first(self) -> int:
        """Return the position of the first message."""
        return self.groups[0][0].row.seq

    @property
    def last(self) -> int:
        """Return the position of the last message."""
        return self.groups[-1][-1].row.seq

    @property
    def middle(self) -> int | None:
        """Return the position at which it is halved; None for one group."""
        return self.groups[len(self.groups) // 2][0].row.seq if len(self.groups) > 1 else None

    @property
    def most_failures(self) -> int:
        """Return the failures after which it is halved or passed over; of a half the model has been told what is wrong."""
        return 1 if self.depth and len(self.groups) > 1 else ATTEMPTS

    @property
    def attempts(self) -> int:
        """Return the calls that may be made at once."""
        return max(1, self.most_failures - self.failures)


def batches_of(
    groups: Sequence[Group], most_tokens: int, tried: str, *, is_whole: bool, is_ahead: bool = False
) -> list[Batch]:
    """Divide groups into calls, those first that were halved least, and then the oldest.

    None reaches beyond a range that was tried. If there is more than the groups (`is_whole`), the last call may lack something
    and is left out. With `is_ahead` so is a last one that is not full yet.
    """
    entries = [tuple(map(int, one.replace("-", "/").split("/"))) for one in tried.split(";") if one]

    def entry_of(group: Group) -> tuple[int, ...]:
        return next((one for one in entries if one[0] <= group[0].row.seq <= one[1]), (0, 0, 0, 0))

    found: list[Batch] = []
    for (_, _, failures, depth), part in groupby(groups, entry_of):
        left = [*part]
        while left:
            taken = first_of(left, most_tokens)
            found.append(Batch(taken, failures, depth))
            left = left[len(taken) :]
    if not is_whole and len(found) > 1:
        found.pop()
    elif is_ahead and found and not found[-1].failures and not found[-1].depth:
        size = weight_of(one.row.message for one in found[-1].opened)
        if len(found) > 1 or size < most_tokens // 2:
            found.pop()
    return sorted(found, key=lambda one: one.depth)


def unread(group: Group) -> Line:
    """Return the line for messages that the model cannot read, with none of their words."""
    kinds = Counter(_kind(one) for one in group)
    what = " and ".join(f"{count} {kind if count == 1 else _PLURALS[kind]}" for kind, count in kinds.items())
    tokens = weight_of(one.row.message for one in group)
    text = (
        f"Not noted: {what} (about {tokens:,} tokens). The model that writes these notes gave no usable answer about that. "
        "A search of memory finds what was said, and the sources of this note are the messages."
    )
    return Line(text, "normal", tuple(range(1, min(len(group), MOST_SOURCES) + 1)))


def _kind(one: Opened) -> str:
    message = one.row.message
    if isinstance(message, ToolMessage | FunctionMessage):
        return "tool result"
    return "message by the user" if isinstance(message, HumanMessage) else "message by the assistant"


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
