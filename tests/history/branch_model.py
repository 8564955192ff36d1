"""A model of branches: how a list of messages is compared with a thread.

It decides the same as history/lua/branch.lua; turn_model.py and write_model.py go on as turn.lua and write.lua do, and
test_branch_model.py holds the scripts against them. They know no Redis, no limits and no cost. Words begin with q (question), a (answer) or as (structured answer); tool traffic has none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Stored:
    words: str
    state: str  # who saved it: '' a program, 't<question>' a turn, a number a checkpointer
    is_refused: bool = False


@dataclass
class Entry:
    """A message of the caller's list, and where the thread holds it."""

    id: str
    words: str
    seq: int | None = None
    known: str = ""  # stored id
    is_back: bool = False  # it is superseded
    main: str = ""  # of an older version: the id of its message
    is_copy: bool = False  # tool traffic that the thread holds under other ids
    is_forgotten: bool = False  # it was deleted by its id, or by that of a message in whose place it is


@dataclass
class Found:
    """A question or answer of the thread."""

    seq: int
    words: str
    id: str


@dataclass
class Thread:
    current: dict[str, float] = field(default_factory=dict)
    superseded: dict[str, float] = field(default_factory=dict)
    aliases: dict[str, float] = field(default_factory=dict)
    messages: dict[str, Stored] = field(default_factory=dict)
    next_seq: int = 0
    exists: bool = False

    def ids(self, *, above: float = -math.inf, below: float = math.inf) -> list[str]:
        """Return the ids of the current branch, in order."""
        return [id for id, seq in in_order(self.current) if above < seq < below]

    def superseded_ids(self, above: float, below: float) -> list[str]:
        return [id for id, seq in in_order(self.superseded) if above < seq < below]

    def said(self) -> list[Found]:
        """Return the questions and answers of the current branch that no provider has refused."""
        ids = [id for id in self.ids() if self.messages[id].words and not self.messages[id].is_refused]
        return [Found(int(self.current[id]), self.messages[id].words, id) for id in ids]

    def superseded_said(self) -> list[Found]:
        ranked = [(id, seq, self.messages[id].words) for id, seq in in_order(self.superseded)]
        return [Found(math.ceil(seq), words, id) for id, seq, words in ranked if words]

    def id_at(self, seq: float) -> str:
        return next((id for id, one in self.current.items() if one == seq), "")

    def any_id_at(self, seq: float) -> str:
        return self.id_at(seq) or next((id for id, one in self.superseded.items() if one == seq), "")

    def is_note(self, id: str) -> bool:
        return not self.messages[id].state

    def main_of(self, id: str, seq: float) -> str:
        """Return the message that `id` is an older version of, or ''."""
        return "" if seq == math.ceil(seq) else self.any_id_at(math.ceil(seq)) or id


def in_order(scores: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(scores.items(), key=lambda pair: (pair[1], pair[0]))


def is_data(words: str) -> bool:
    return words.startswith("as")


def count_said(entries: Sequence[Entry]) -> int:
    return sum(1 for entry in entries if entry.words and not is_data(entry.words))


# ---------------------------------------------------------------------- which messages of the thread a list contains


def locate(thread: Thread, entries: Sequence[Entry]) -> None:
    """Find the entries that are stored under their ids, or under ids that theirs are aliases of."""
    for entry in entries:
        if (seq := thread.current.get(entry.id, thread.superseded.get(entry.id))) is not None:
            entry.seq, entry.known, entry.is_back = math.ceil(seq), entry.id, entry.id not in thread.current
            entry.main = thread.main_of(entry.id, seq)
        elif (seq := thread.aliases.get(entry.id)) is not None:
            known, entry.is_forgotten = thread.any_id_at(seq), seq < 0
            if known and thread.messages[known].words == entry.words:
                entry.seq, entry.known, entry.is_back = int(seq), known, known not in thread.current


def recognise(thread: Thread, entries: Sequence[Entry], seen: float = math.inf) -> tuple[bool, bool]:
    """Find the other entries by their words; tell whether any was found, and whether the list holds what programs added."""
    position: int | None = None
    is_lost, is_found, is_forgotten = False, False, False
    asked = max((at for at, entry in enumerate(entries) if entry.words.startswith("q")), default=-1)
    notes_count: bool | None = None
    for at, entry in enumerate(entries):
        if not entry.words or (entry.seq is None and (is_lost or entry.is_forgotten)):
            is_forgotten = is_forgotten and entry.seq is None
            continue
        if entry.seq is not None:
            position, is_lost = max(-1 if position is None else position, entry.seq), False
        else:
            if position is None:
                found = _beginning(thread, entries[at:])
            else:
                found = _following(thread, position, entry.words, notes_count=bool(notes_count), seen=seen)
            if found is not None:
                entry.seq, entry.known, entry.is_back = found.seq, found.id, found.id in thread.superseded
                entry.main = thread.main_of(found.id, thread.superseded.get(found.id, found.seq))
                position, is_found = found.seq, True
            elif is_data(entry.words):
                entry.words = ""  # the thread has it as tool traffic, or not at all
            else:
                gap = None if position is None or at >= asked else _forgotten_after(thread, position, entry.words)
                goes_on = is_forgotten and at < asked and entry.words.startswith("a")
                is_forgotten = entry.is_forgotten = gap is not None or goes_on
                position = position if gap is None else gap
                is_lost = position is not None and not is_forgotten
        is_forgotten = is_forgotten and entry.seq is None
        if entry.seq is not None and notes_count is None:
            notes_count = thread.is_note(entry.known)
    return is_found, bool(notes_count)


def _following(thread: Thread, position: int, words: str, *, notes_count: bool, seen: float) -> Found | None:
    """Return the next message, where it has these words, else the first superseded one that has."""
    for found in thread.said():
        if found.seq > position:
            if found.words == words:
                return found
            if found.seq < seen and not is_data(found.words) and (notes_count or not thread.is_note(found.id)):
                break
    return next((one for one in thread.superseded_said() if one.words == words and one.seq > position), None)


def _forgotten_after(thread: Thread, position: int, words: str) -> int | None:
    """Return the place of a deleted message of this kind, if one lies between a message and the next one."""
    end = next((found.seq for found in thread.said() if found.seq > position), math.inf)
    places = (at for name, at in in_order(thread.aliases) if name.startswith(f"forgotten:{words[:1]}:"))
    return next((int(at) for at in places if position < at < end), None)


def _beginning(thread: Thread, entries: Sequence[Entry]) -> Found | None:
    """Return the message at which a list begins: where the most of it agrees, as near to the end as possible."""
    said, superseded = thread.said(), thread.superseded_said()
    has_answer = any(entry.words.startswith("a") for entry in entries)
    best, length, reaches = None, 0, False
    for at in reversed(range(len(said))):
        if said[at].words == entries[0].words:
            count, ends = _agreement(thread, entries, said[at:], may_skip=not thread.is_note(said[at].id))
            fits = ends or (has_answer and (count >= 2 or at == 0))
            if fits and (count, ends) > (length, reaches):
                best, length, reaches = said[at], count, ends
    for at in range(len(superseded) if has_answer else 0):
        if superseded[at].words == entries[0].words:
            count, _ = _agreement(thread, entries, superseded[at:], may_skip=False)
            if count >= 2 and count > length:
                best, length = superseded[at], count
    return best


def _agreement(thread: Thread, entries: Sequence[Entry], said: Sequence[Found], *, may_skip: bool) -> tuple[int, bool]:
    """Count the messages that the beginnings of both have in common; tell whether that is all of `said`."""
    at = position = count = 0
    while at < len(entries) and position < len(said):
        mine, theirs = entries[at].words, said[position]
        if mine and mine == theirs.words:
            at, position, count = at + 1, position + 1, count + 1
        elif not mine or is_data(mine):
            at += 1
        elif is_data(theirs.words) or (may_skip and thread.is_note(theirs.id)):
            position += 1
        else:
            return count, False
    return count, position == len(said)


def resent_traffic(thread: Thread, entries: Sequence[Entry]) -> set[str]:
    """Return the tool traffic in whose position the list has its own, without stored ids."""
    found: set[str] = set()
    last: int | None = None
    has_own = False
    for entry in entries:
        if not entry.words or is_data(entry.words):
            has_own = has_own or entry.id != entry.known
        elif entry.seq is not None or entry.is_forgotten:
            if last is not None and has_own:
                after = next((one.seq for one in thread.said() if one.seq > (last or 0)), math.inf)
                end = after if entry.seq is None else entry.seq
                between = [*thread.ids(above=last, below=end), *thread.superseded_ids(last, end)]
                words = {id: thread.messages[id].words for id in between}
                found |= {id for id in between if not words[id] or is_data(words[id])}
            last, has_own = last if entry.seq is None else entry.seq, False
    return found


# ---------------------------------------------------------------------- what a list leaves behind


def compare_list(
    thread: Thread, entries: Sequence[Entry], *, notes_count: bool, seen: float = math.inf
) -> tuple[list[str], list[str], int | None]:
    """Return what a list leaves behind, what it takes up again, and the sequence number at which it begins.

    What is stored from `seen` on is unknown to the caller: it stays, unless it answers the same question.
    """
    kept, left, back = resent_traffic(thread, entries), list[str](), list[str]()
    first: int | None = None
    last: int | None = None
    for entry in entries:
        if entry.seq is None:
            continue
        notes_count = notes_count or (first is None and thread.is_note(entry.known))
        kept.add(entry.known)
        first = entry.seq if first is None else min(first, entry.seq)
        if entry.is_back:
            back.append(entry.known)
            if last is not None and entry.words:
                led = [id for id in thread.superseded_ids(last, entry.seq) if not thread.messages[id].words]
                back += led
                kept.update(led)
        last = entry.seq if entry.words else last
    back = list(dict.fromkeys(back))
    located = [entry for entry in entries if entry.seq is not None]
    if all(entry.id != entry.known and thread.messages[entry.known].state == "b" for entry in located):
        return left, back, first  # what a program sends in front of each first turn: perhaps examples
    asked = next((f"t{entry.seq}" for entry in reversed(entries) if entry.words.startswith("q")), None)
    waiting: list[str] = []
    for id in thread.ids(above=(first or 0) - 1):
        one = thread.messages[id]
        if id in kept:
            waiting = waiting if not one.words else []  # the tool traffic before a message stays with it
        elif (one.state or notes_count) and (thread.current[id] < seen or one.state == asked):
            waiting.append(id)
            if one.words and not is_data(one.words):
                left += waiting
                waiting = []
    if entries[-1].seq is not None and entries[-1].words.startswith("q"):
        left += waiting  # a question that is asked again leaves all of its turn behind
    return left, back, first
