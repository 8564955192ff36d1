"""What a keeper of its own reads of a thread: whole turns behind its cursor, and what was edited since."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from langchain_workingmem._redis.access import owner_tag, run_script
from langchain_workingmem._redis.codec import decode_message
from langchain_workingmem._text.ranges import contains, ranges_of
from langchain_workingmem._text.said import is_said, tool_call_ids, weight_of
from langchain_workingmem.history import READ, MessageSelection
from langchain_workingmem.keeping.store import digest_of, mark_command
from langchain_workingmem.observations import Opened, groups_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem._text.ranges import Ranges
    from langchain_workingmem.keeping.store import Kept
    from langchain_workingmem.models import StoredMessage
    from langchain_workingmem.observations import Group

MOST_TOKENS = 10_000  # of messages in one call
_EARLIER = 3  # questions and answers before them
_MOST_READ = 200  # messages of one round trip
_SAID = re.compile(rb'"said":"([qa]?)')  # in the header of a stored message: a question, an answer, or neither


class Waiting(NamedTuple):
    """What a keeper reads of a thread in one call, in groups: a call of a tool with its results, or one message."""

    groups: Sequence[Group]
    earlier: Sequence[StoredMessage] = ()  # what was said before: an answer such as "yes" means something only with it
    has_more: bool = False

    @property
    def opened(self) -> list[Opened]:
        """Return the messages."""
        return [one for group in self.groups for one in group]

    def halves(self) -> tuple[Waiting, Waiting]:
        """Return both halves."""
        middle = len(self.groups) // 2
        first, second = Waiting(self.groups[:middle], self.earlier), Waiting(self.groups[middle:])
        return first, second._replace(earlier=[one.row for one in first.opened if is_said(one.row.message)][-_EARLIER:])


def read_waiting(
    state: MemoryState, thread_id: str, owner: str | None, kept: Kept, scope: str, *, goes_on: bool
) -> Plan[Waiting]:
    """Read the oldest messages of a thread that no keeper has read. One round trip; `ThreadOwnershipError`.

    From now on the thread tells what is deleted of it. Messages of other branches are left out; so is the last turn, if it
    `goes_on` until it has an answer.
    """
    keys, tag, again = state.keys.of(thread_id), owner_tag(owner), kept.again(thread_id)
    wanted = [MessageSelection(above=first - 1, below=last + 1, limit=_MOST_READ) for first, last in again]
    cursor = kept.cursor(thread_id)
    wanted.append(MessageSelection(above=cursor, limit=_MOST_READ))
    wanted.append(MessageSelection(below=cursor + 1, limit=2 * _EARLIER, newest=True))
    calls = [READ.call(keys.all, tag, *one.arguments()) for one in wanted]
    telling = mark_command(state, thread_id, owner, scope)
    _, *replies = yield from run_script(thread_id, owner, telling, *calls, in_order=True)
    *older, newer, before = [_opened(reply, thread_id) for reply in replies]
    earlier = [one.row for one, kind in before if kind and not one.row.refused and not contains(again, one.row.seq)][
        :_EARLIER
    ]
    is_end = len(newer) < _MOST_READ
    groups = [[one] for some in older for one, _ in some]
    groups += _finished(newer, is_end=is_end, goes_on=goes_on)
    taken, size = 0, 0
    for group in groups:
        size += weight_of(one.row.message for one in group)
        if taken and size > MOST_TOKENS:
            break
        taken += 1
    return Waiting(groups[:taken], earlier[::-1], taken < len(groups) or not is_end)


def _opened(reply: list[bytes], thread_id: str) -> list[tuple[Opened, str]]:
    """Return messages, and what each is: q for a question, a for an answer, empty for tool traffic."""
    found: list[tuple[Opened, str]] = []
    for id, seq, value in zip(reply[1::3], reply[2::3], reply[3::3], strict=True):
        said = _SAID.search(value)
        opened = Opened(decode_message(id, seq, value, thread_id), digest_of(value))
        found.append((opened, said[1].decode() if said else ""))
    return found


def _finished(newer: list[tuple[Opened, str]], *, is_end: bool, goes_on: bool) -> list[Group]:
    """Return the groups of messages that may be read: of a turn that goes on only what is finished, and only when it is long."""
    kinds = "".join(kind or "-" for _, kind in newer)
    opened = [one for one, _ in newer]
    if not is_end or kinds.rfind("a") > kinds.rfind("q"):
        return groups_of(opened, -1, is_cut=not is_end)
    begins = max(0, kinds.rfind("q"))  # 0 without one: the question of these steps was read
    while begins and kinds[begins - 1] == "q":  # a turn may begin with several questions
        begins -= 1
    if goes_on and weight_of(one.row.message for one in opened[begins:]) <= MOST_TOKENS:
        return groups_of(opened[:begins], -1, is_cut=False)
    groups = groups_of(opened, -1, is_cut=False)
    while groups and _waits(groups[-1]):
        groups.pop()
    return groups


def _waits(group: Group) -> bool:
    """Tell whether a call lacks a result."""
    answered = {getattr(one.row.message, "tool_call_id", "") for one in group[1:]}
    return not answered.issuperset(tool_call_ids(group[0].row.message))


def seqs_of(opened: Sequence[Opened], again: Ranges) -> tuple[int, Ranges]:
    """Return the last position of messages, and the positions that were to be read again."""
    seqs = [one.row.seq for one in opened]
    return max(seqs), ranges_of(seq for seq in seqs if contains(again, seq))
