"""Which messages of a thread the caller's list is, which of them it has left behind, and what of it is new. Pure.

Clients edit, regenerate, fork, trim and resend conversations. A list with ids, as in a checkpointer, is compared by
them, others by what was said. Messages behind the first common one that the list does not hold are superseded.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from langchain_workingmem._redis.keys import Facts

# list: a client's conversation. state: all messages of a checkpointer. part: of a subgraph; gaps mean nothing there
Kind: TypeAlias = Literal["list", "state", "part"]


AS_STORED = "*"  # words of a copy that shows less than what is stored


class Entry(NamedTuple):
    """A message of the caller's list."""

    id: str | None
    words: str  # q or a and a digest of what was said; empty for tool traffic and structured answers; or AS_STORED


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a thread: what was read of it for the caller's list, and what the caller has written since."""

    rows: Sequence[Facts] = ()  # stored messages of its ids, those behind the first of them, and what was said last
    deleted: Mapping[str, str] = field(default_factory=dict)  # words of deleted messages by id
    next_seq: int = 0
    version: int | None = None  # of the thread; None: there is none
    created_at: str | None = None
    is_all: bool = True  # `rows` hold all that was said, not only the newest
    read_before: int = 0  # the next seq when the caller read the thread
    saved_before: float = inf  # the next seq when its turn was saved
    written: frozenset[int] = frozenset()  # seqs that the caller has written in between
    branch: Followed | None = None  # what the list of a context has meant, of which perhaps only the last turn is saved

    def could_see(self, row: Facts) -> bool:
        """Tell whether the caller could know of a message: nobody else has stored it while its turn was made."""
        return not self.read_before <= row.seq < self.saved_before or row.seq in self.written

    def ranges(self, drop: Collection[int]) -> list[list[int]]:
        """Return ranges of seqs that hold messages and tool traffic in front of each, but no other known message."""
        found, gone, before = list[list[int]](), {*drop}, None
        for seq in sorted(row.seq for row in self.rows if row.is_current):
            if seq in gone and before in gone:
                found[-1][1] = seq
            elif seq in gone:
                found.append([seq if before is None else before + 1, seq])
            before = seq
        return found

    def with_written(self, written: Iterable[Facts], followed: Followed, version: int) -> Known:
        """Return what is known after a write of this process."""
        changed = dict.fromkeys(followed.drop, False) | dict.fromkeys(followed.back, True)
        rows = {row.seq: row._replace(is_current=changed.get(row.seq, row.is_current)) for row in self.rows}
        own = {row.seq: row for row in written}
        next_seq = max(self.next_seq, max(own, default=0) + 1)
        all_rows = [*(rows | own).values()]
        return replace(self, rows=all_rows, version=version, next_seq=next_seq, written=self.written | own.keys())


@dataclass(slots=True)
class Followed:
    """What a list means for a thread."""

    drop: list[int] = field(default_factory=list)  # seqs that are superseded now
    back: list[int] = field(default_factory=list)  # seqs that are current again
    aliases: dict[int, str] = field(default_factory=dict)  # index in the list -> stored id, where the ids differ
    edited: dict[int, int] = field(default_factory=dict)  # index in the list -> seq, where the words change in place
    seqs: dict[int, int] = field(default_factory=dict)  # index in the list -> seq of the stored message
    again: list[str] = field(default_factory=list)  # ids of edited questions, which are stored a second time
    changes_branch: bool = False  # another branch than the thread's is the current one
    new: list[int] = field(default_factory=list)  # indexes to store at the end, in order
    taken: list[int] = field(default_factory=list)  # those of them whose ids others have: they need ids of their own
    writer: str = "l"  # of the new messages, see `Facts.writer`
    is_older: bool = False  # the list begins before the thread: it is refused


def follow(
    entries: Sequence[Entry], kind: Kind, known: Known, left_out: Collection[int] = (), *, keeps_all: bool = False
) -> Followed:
    """Decide what a list means for a thread. `left_out`: seqs of messages that memory has taken out of the list.

    `keeps_all`: its ids are those of a program, not of LangGraph, so if it agrees nowhere, all of it is new.
    """
    if kind == "list" and known.branch is None and is_one_turn(entries):  # most lists are a new turn
        ids, words = {row.id for row in known.rows} | known.deleted.keys(), {_said(row) for row in known.rows}
        is_known = any(entry.id in ids for entry in entries) or (len(entries) == 1 and entries[0].words in words)
        if not is_known and entries and entries[0].words:
            return Followed(new=[*range(len(entries))])
    comparison = _Comparison(entries, kind, known)
    if kind != "part":
        comparison.match_words()
    matched, held = comparison.matched, comparison.held()
    common = [*held, comparison.edit] if comparison.edit else held  # an edited question begins a branch, too
    followed = Followed(
        edited=comparison.edited, again=[comparison.edit.id] if comparison.edit else [], taken=comparison.taken
    )
    followed.seqs = {at: row.seq for at, row in matched.items()}
    followed.aliases = {at: row.id for at, row in matched.items() if row.id != entries[at].id}
    if kind == "state":
        followed.writer = next((row.writer for row in common if row.writer[:1] == "s"), f"s{known.next_seq}")
    if kind != "part":
        followed.back = sorted({row.seq for row in held if not row.is_current})
        followed.drop = [seq for seq in comparison.left_behind(common, followed.writer) if seq not in left_out]
    if known.branch is not None:  # its context may have held more of the list
        followed.drop = sorted({*followed.drop, *known.branch.drop} - {*followed.seqs.values()})
        followed.back = sorted({*followed.back, *known.branch.back})
    followed.changes_branch = bool(followed.drop or followed.back)
    followed.new = comparison.new(keeps_all=keeps_all)
    before = {entry.words[:1] for entry in comparison.entries[: min(matched, default=0)]}
    is_behind = len(held) > 1 and held[0] is comparison.first and not comparison.gone
    followed.is_older = kind == "list" and {"q", "a"} <= before and is_behind
    return followed


class _Comparison:
    """The entries of a caller's list beside the rows of a thread. At first those with the same id are matched."""

    def __init__(self, entries: Sequence[Entry], kind: Kind, known: Known) -> None:
        self.entries, self.kind, self.known = [*entries], kind, known
        self.rows = sorted(known.rows, key=lambda row: row.seq)
        self.said = [row for row in self.rows if _said(row) and row.is_current]
        self.superseded = [row for row in self.rows if _said(row) and not row.is_current]
        self.first = self.said[0] if self.said and known.is_all else None  # of the thread
        self.versions = defaultdict[str | None, list["Facts"]](list)  # by id, the one that counts first
        for row in sorted(self.rows, key=lambda row: (not row.is_current, -row.seq)):
            self.versions[row.id].append(row)
        self.matched: dict[int, Facts] = {}  # index in the list -> stored message
        self.gone: set[int] = set()  # indexes of what was deleted
        self.taken: list[int] = []  # indexes of answers whose ids others have
        self.edited: dict[int, int] = {}  # index in the list -> seq, where the words change in place
        self.edit: Facts | None = None  # the last that is stored, if its question was edited: it begins a branch
        self.match_ids()

    def match_ids(self) -> None:
        """Match the entries whose ids are stored."""
        asked = last_question(self.entries)
        stored = self.versions.get(self.entries[asked].id, ()) if asked >= 0 else ()
        question = next((row.seq for row in stored), self.known.next_seq)
        for at, (id, words) in enumerate([*self.entries]):
            versions, deleted = self.versions.get(id, []), self.known.deleted.get(id or "")
            same = [row for row in versions if _said(row) == words]  # an edited question has several versions
            found = next(iter(same or versions), None)
            # a fake model gives each answer the id "run-1": the second one, and one to an edited question, need ids
            is_older = found and at > asked >= 0 and found.seq < question
            if found and (is_older or (not same and not found.is_current and words.startswith("a"))):
                self.entries[at], found = Entry(None, words), None
                self.taken.append(at)
            # a copy that shows less, such as one whose pictures are named, stands for what is stored
            if words == AS_STORED:
                self.entries[at] = Entry(id, _said(found) if found else "")
            if found is not None:
                self.matched[at] = found
            # what was deleted is not stored again, unless it says something else now
            elif words == AS_STORED or (deleted is not None and deleted.rstrip("!") in (words, "")):
                self.gone.add(at)
        self.located = [*self.matched]
        for at in self.located:
            words, row = self.entries[at].words, self.matched[at]
            if _said(row) == words or row.is_structured:
                continue
            if words.startswith("q") and at == self.located[-1]:
                self.edit = self.matched.pop(at)
            else:
                self.edited[at] = row.seq

    def match_words(self) -> None:
        """Match by their words the entries that have other ids than what is stored, or none."""
        entries, matched, start = self.entries, self.matched, len(self.entries) if self.located else 0
        if matched:
            matched |= self.agreement(min(matched), matched[min(matched)])
        if self.kind == "state" and self.located:  # a client has sent its list to it: what stands in front is stored
            last = {_said(row): row for row in (*self.superseded, *self.said)}
            for at in range(self.located[-1]):
                if at not in matched and entries[at].words in last:
                    matched[at] = last[entries[at].words]
            start = self.located[-1] + 1
        rest = [at for at in range(start, len(entries)) if entries[at].words and at not in self.gone | matched.keys()]
        if self.kind == "list" and self.said and [*entries] == [Entry(None, _said(self.said[-1]))]:
            matched[0] = self.said[-1]  # asked again, as nobody has answered
        if self.edit or is_one_turn([entries[at] for at in rest]):
            return
        # a list agrees from its beginning on, or is new; but for one that begins before the thread, which is refused
        best = self.longest_agreement(rest[0])
        if not best and self.kind == "list" and self.first:
            begins = [at for at in rest[1:] if entries[at].words == _said(self.first)]
            best = next((found for at in begins if len(found := self.agreement(at, self.first)) > 1), {})
        matched |= best
        rest = [at for at in rest if at not in matched]
        if best and all(row.writer == "b" for row in best.values()) and not is_one_turn([entries[at] for at in rest]):
            matched |= self.longest_agreement(rest[0], is_window=True)  # behind what begins each list of a program

    def longest_agreement(self, at: int, *, is_window: bool = False) -> dict[int, Facts]:
        """Return how the list agrees with the thread from `at` on, where most of it does; of equal places the last.

        It has to reach the newest message that the caller could see; or to have an answer, and two messages or the first
        of the thread, in a window with one turn behind them.
        """
        best = dict[int, "Facts"]()
        newest = max((row.seq for row in self.said if row.writer and self.known.could_see(row)), default=inf)
        has_answer = any(entry.words.startswith("a") for entry in self.entries[at:])
        for first in (*reversed(self.said), *reversed(self.superseded)):
            if _said(first) == self.entries[at].words:
                found = self.agreement(at, first)
                reaches_newest = first.is_current and any(row.seq >= newest for row in found.values())
                goes_on = is_window and not is_one_turn(self.entries[max(found) + 1 :])
                is_long = has_answer and not goes_on and (len(found) > 1 or first is self.first)
                if (reaches_newest or is_long) and len(found) > len(best):
                    best = found
        return best

    def agreement(self, at: int, first: Facts) -> dict[int, Facts]:
        """Return the rows of the entries from `at` on, as far as both agree, if the first of them is `first`."""
        found: dict[int, Facts] = {at: first}
        last: Facts | None = first  # None: they disagree, until the next match by id
        for index in range(at + 1, len(self.entries)):
            words = self.entries[index].words
            if index in self.matched:
                last = self.matched[index]
            elif last and words:
                last = self.following(last.seq, words, is_program=not first.writer)
                if last:
                    found[index] = last
        return found

    def following(self, seq: int, words: str, *, is_program: bool) -> Facts | None:
        """Return the next message of the branch if it has these words, else perhaps a superseded one behind it."""
        for place in range(bisect_right(self.said, seq, key=lambda row: row.seq), len(self.said)):
            row = self.said[place]
            if _said(row) == words:
                return row
            if (row.writer or is_program) and self.known.could_see(row):
                break  # notes of programs, and what the caller could not know, are skipped
        return next((row for row in self.superseded if row.seq > seq and _said(row) == words), None)

    def held(self) -> list[Facts]:
        """Return the rows that the list holds; of several lists in a state, those of the last, in which seqs rise."""
        held: list[Facts] = []
        for at, row in sorted(self.matched.items()):
            if held and self.entries[at].words and row.seq <= held[-1].seq:
                held = []
            held.append(row)
        return held

    def left_behind(self, common: Sequence[Facts], writer: str) -> list[int]:
        """Return the seqs that the list has left behind: what it does not hold behind the first message of both."""
        is_list, held = self.kind == "list", {row.seq: row for row in common if row is not self.edit}
        has_ids = not is_list or self.edit or any(row.id == self.entries[at].id for at, row in self.matched.items())
        if not has_ids:  # what a program sends in front of each first turn, perhaps examples, begins no branch
            common = [row for row in common if row.writer != "b"]
        if not common:
            return []
        # older words of an edited question may begin the thread's branch
        start = min(row.seq for one in common for row in self.versions[one.id])
        first, last = next(iter(held.values()), None), next(reversed(held.values()), None)
        # a question that is asked again: also an answer to it that the caller could not know goes
        asked = last.seq if is_list and last and _said(last).startswith("q") else inf
        asked_next = next((row.seq for row in self.said if row.seq > asked and _said(row).startswith("q")), inf)
        includes_programs = first is not None and not first.writer
        # clients leave out tool traffic: it stays with the message that it led to, as t t in q t t a
        omits_traffic = is_list or len(held) < len(self.matched)
        left, led_to_held = list[int](), False  # whether tool traffic has led to a message that the list holds
        for row in reversed(self.rows):
            if not row.is_current or row.seq < start:
                continue
            is_own = row.writer or includes_programs if is_list else row.writer == writer
            if row.seq in held:
                led_to_held = omits_traffic if _said(row) else led_to_held
            elif is_own and (self.known.could_see(row) or asked < row.seq < asked_next):
                led_to_held = led_to_held and not _said(row)
                if not led_to_held:
                    left.append(row.seq)
        return left[::-1]

    def new(self, *, keeps_all: bool) -> list[int]:
        """Return the indexes of new messages: all of a thread's first list; else those behind what the thread has.

        Of a list that agrees nowhere that is its last turn; with `keeps_all`, where the caller gives ids, all of it.
        """
        entries, begin = self.entries, min(self.matched, default=0)
        has_ids = keeps_all and all(entry.id for entry in entries if entry.words)
        if not self.matched and not self.edit and self.rows and not has_ids:
            begin = max(last_question(entries), 0)
            while begin and entries[begin - 1].words.startswith("q"):
                begin -= 1
        # a list's tool traffic before it is stored already
        said = max((at for at in self.matched if entries[at].words), default=-1)
        others = (at for at in range(begin, len(entries)) if at not in self.matched and at not in self.gone)
        return [at for at in others if entries[at].words or self.kind != "list" or at > said]


def _said(row: Facts) -> str:
    """Return the words of a question or an answer, without the sign of a refusal; structured answers are traffic."""
    return "" if row.is_structured else row.words.rstrip("!")


def is_one_turn(entries: Sequence[Entry]) -> bool:
    """Tell whether one thing was said, or questions, then answers: a new turn, even with words of an older one."""
    return re.fullmatch("q+a+|[qa]?", "".join(entry.words[:1] for entry in entries)) is not None


def last_question(entries: Sequence[Entry]) -> int:
    """Return the index of the last question, -1 if there is none."""
    return max((at for at, entry in enumerate(entries) if entry.words.startswith("q")), default=-1)
