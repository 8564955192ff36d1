"""Which messages of a thread the caller's list is, what it has left behind, and what of it is new. Pure.

`_Comparison` reads from top to bottom: entries are matched by ids, of which the last may be an edited question, others
by words; then comes what the list holds, what it has left behind (it is superseded: not shown), and what is new.

         sent by               supersedes what it lacks      tool traffic that it lacks   new, if it is not known
  list   a client, a program   but a program's messages      stays with its answer        its last turn (or `keeps_all`)
  state  a checkpointer        if its own runs stored it     is superseded                all of it
  part   a subgraph            never                         stays                        its last turn

Hard cases: q question, a answer, t tool traffic, + of a program, - superseded, ' with other words, ? without an id.
  stored                 sent                      what follows
  q1 a1 q2 a2            q1 a1 q3                  another branch: q2 a2 are superseded, q3 is new
  q1 a1 -q2 -a2 q3 a3    q1 a1 q2 a2 q4            it returns: q2 a2 are current, q3 a3 superseded, q4 is new
  q1 a1 q2 a2            q1 a1 q2'                 edited: q2 a2 are superseded, q2' is stored a second time
  q1 a1 q2 a2            q1' a1 q2 a2              others follow it: q1 gets its new words in place
  q1 r a1                q2 r                      r stands behind a newer question, as reminders do: no branch begins
  q1 t t a1 +a9 q2 a2    a1? q2?                   a2 is superseded; all in front of a1, and a program's a9, stay
  q1 a1 q2 a2            q1?                       a single message without an id is new, but for the thread's newest
  e1 e2 q1 a1            e1? e2? q2?               a list began with e1 e2 (IN_FRONT), perhaps examples: no branch
  q2 a2                  q1? a1? q2? a2?           it begins before the thread: refused
  q1 a1 q2 a2 (state)    q1 a1 q2 a2 q1? a1? q3?   its client sent a whole list: the last copy counts, q3 is a branch
  q1 a1 q2 a2 (state)    q2                        its checkpoints are lost: q2 is stored again, as a new state
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from langchain_workingmem._redis.keys import IN_FRONT, LIST

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from langchain_workingmem._redis.keys import Facts

Kind: TypeAlias = Literal["list", "state", "part"]

AS_STORED = "*"  # words of a copy that shows less than what is stored


class Entry(NamedTuple):
    """A message of the caller's list."""

    id: str | None
    words: str  # q or a and a digest of what was said; empty for tool traffic and structured answers; or AS_STORED


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a thread: what was read of it for the caller's list, and what the caller has written since."""

    facts: Sequence[Facts] = ()  # stored messages of its ids, those behind the first of them, and what was said last
    deleted: Mapping[str, str] = field(default_factory=dict)  # words of deleted messages by id; empty: any words
    aliases: Mapping[str, str] = field(default_factory=dict)  # other ids of the list -> stored id
    next_seq: int = 0
    version: int | None = None  # of the thread; None: there is none
    created_at: str | None = None
    is_all: bool = True  # `facts` hold all that was said, not only the newest
    next_seq_when_read: int = 0  # by the caller
    next_seq_when_saved: float = inf  # its turn; inf: it is not saved
    written: frozenset[int] = frozenset()  # seqs that the caller has written in between
    branch: Followed | None = None  # what the list of a context has meant, of which perhaps only the last turn is saved

    def could_see(self, facts: Facts) -> bool:
        """Tell whether the caller could know of a message: nobody else has stored it while its turn was made."""
        return facts.seq in self.written or not self.next_seq_when_read <= facts.seq < self.next_seq_when_saved

    def ranges(self, drop: Collection[int]) -> list[list[int]]:
        """Return ranges of seqs that hold messages and tool traffic in front of each, but no other known message."""
        ranges, dropped, previous = list[list[int]](), {*drop}, None
        for seq in sorted(facts.seq for facts in self.facts if facts.is_current):
            if seq in dropped and previous in dropped:
                ranges[-1][1] = seq
            elif seq in dropped:  # with the tool traffic in front of it
                ranges.append([seq if previous is None else previous + 1, seq])
            previous = seq
        return ranges

    def with_written(self, written: Iterable[Facts], followed: Followed, version: int) -> Known:
        """Return what is known after a write of this process."""
        changed = dict.fromkeys(followed.drop, False) | dict.fromkeys(followed.bring_back, True)
        before = {one.seq: one._replace(is_current=changed.get(one.seq, one.is_current)) for one in self.facts}
        own = {one.seq: one for one in written}
        next_seq = max(self.next_seq, max(own, default=0) + 1)
        facts = [*(before | own).values()]
        return replace(self, facts=facts, version=version, next_seq=next_seq, written=self.written | own.keys())


@dataclass(slots=True)
class Followed:
    """What a list means for a thread."""

    drop: list[int] = field(default_factory=list)  # seqs that are superseded now
    bring_back: list[int] = field(default_factory=list)  # seqs that are current again
    aliases: dict[int, str] = field(default_factory=dict)  # index in the list -> stored id, where the ids differ
    edited: dict[int, int] = field(default_factory=dict)  # index in the list -> seq, where the words change in place
    seqs: dict[int, int] = field(default_factory=dict)  # index in the list -> seq of the stored message
    again: list[str] = field(default_factory=list)  # ids of edited questions, which are stored a second time
    changes_branch: bool = False  # another branch than the thread's is the current one
    new: list[int] = field(default_factory=list)  # indexes to store at the end, in order
    need_ids: list[int] = field(default_factory=list)  # indexes of answers whose ids others have
    writer: str = LIST  # of the new messages
    hidden: list[int] = field(default_factory=list)  # indexes in a state of what another copy stands for, or was left
    is_older: bool = False  # the list begins before the thread: it is refused


def follow(
    entries: Sequence[Entry], kind: Kind, known: Known, left_out: Collection[int] = (), *, keeps_all: bool = False
) -> Followed:
    """Decide what a list means. `left_out`: seqs that memory took out of it; `keeps_all`: a program gave its ids."""
    if kind == "list" and known.branch is None and entries and entries[0].words and is_one_turn(entries):
        ids = {one.id for one in known.facts} | known.deleted.keys()  # most lists: nothing needs to be compared
        is_repeated = len(entries) == 1 and entries[0].words in {one.spoken for one in known.facts}
        if not is_repeated and ids.isdisjoint(entry.id for entry in entries):
            return Followed(new=[*range(len(entries))])
    compared = _Comparison(entries, kind, known)
    edit, matched, (held, in_order) = compared.edited_question, compared.matched, compared.last_list
    followed = Followed(need_ids=compared.need_ids, again=[edit.id] if edit else [], writer=compared.writer)
    followed.seqs = {at: one.seq for at, one in matched.items()}
    followed.edited = {at: matched[at].seq for at in compared.edited if at in matched}
    followed.aliases = {at: one.id for at, one in (compared.by_id | matched).items() if one.id != entries[at].id}
    followed.new = compared.new(keeps_all=keeps_all)
    if kind != "part":
        followed.bring_back = sorted({one.seq for one in held.values() if not one.is_current})
        followed.drop = compared.left_behind(left_out)
    if kind == "state":
        followed.hidden = compared.hidden(followed.drop)
    if known.branch is not None:  # its context may have held more of the list
        followed.drop = sorted({*followed.drop, *known.branch.drop} - {*followed.seqs.values()})
        followed.bring_back = sorted({*followed.bring_back, *known.branch.bring_back})
    followed.changes_branch = bool(followed.drop or followed.bring_back)
    in_front = {entry.words[:1] for entry in compared.entries[: min(matched, default=0)]}
    holds_first = len(in_order) > 1 and in_order[0] is compared.first and not compared.deleted
    followed.is_older = kind == "list" and {"q", "a"} <= in_front and holds_first
    return followed


class _Comparison:
    """The entries of a caller's list beside the messages of a thread. Each property is made of those above it."""

    def __init__(self, entries: Sequence[Entry], kind: Kind, known: Known) -> None:
        self.entries, self.kind, self.known = [*entries], kind, known
        self.facts = sorted(known.facts, key=lambda one: one.seq)
        self.current = [one for one in self.facts if one.spoken and one.is_current]  # without tool traffic
        self.superseded = [one for one in self.facts if one.spoken and not one.is_current]
        self.first = self.current[0] if self.current and known.is_all else None  # of the thread
        self.versions = defaultdict[str | None, list["Facts"]](list)  # by id, the one that counts first
        for one in sorted(self.facts, key=lambda one: (not one.is_current, -one.seq)):
            self.versions[one.id].append(one)
        self.by_id: dict[int, Facts] = {}  # index in the list -> message that is stored under the entry's id
        self.edited: list[int] = []  # indexes of those that say something else now
        self.deleted: set[int] = set()  # indexes of what was deleted
        self.need_ids: list[int] = []  # indexes of answers whose ids others have
        self._match_ids(entries)

    def _match_ids(self, entries: Sequence[Entry]) -> None:
        """Match the entries whose ids are stored."""
        versions = [self.versions.get(self.known.aliases.get(entry.id or "", entry.id), []) for entry in entries]
        for at, some in enumerate(versions):
            if entries[at].words == AS_STORED:  # a copy that shows less, such as one whose pictures are named
                self.entries[at] = Entry(entries[at].id, some[0].spoken if some else "")
        self.question_at = last_question(self.entries)
        asked = versions[self.question_at] if self.question_at >= 0 else []
        question_seq = next((one.seq for one in asked), self.known.next_seq)
        for at, (id, words) in enumerate(self.entries):
            same = [one for one in versions[at] if one.spoken == words]  # an edited question has several versions
            found, deleted = next(iter(same or versions[at]), None), self.known.deleted.get(id or "")
            is_of_branch = words.startswith("a") and not same and found is not None and not found.is_current
            if found is None:  # what was deleted is not stored again, unless it says something else now
                if entries[at].words == AS_STORED or (deleted is not None and deleted.rstrip("!") in (words, "")):
                    self.deleted.add(at)
            elif is_of_branch or (at > self.question_at >= 0 and found.seq < question_seq):
                # fake models repeat ids: another answer than the stored one needs its own
                self.entries[at] = Entry(None, words)
                self.need_ids.append(at)
            else:
                self.by_id[at] = found
                if not same and not found.is_structured:
                    self.edited.append(at)

    @cached_property
    def turn_at(self) -> int:
        """The index at which the last turn begins: of its first question, behind the answer before."""
        before = range(max(self.question_at, 0))
        structured = {at for at, one in self.by_id.items() if one.is_structured}
        answered = max((at for at in before if self.entries[at].words[:1] == "a" or at in structured), default=-1)
        return next((at for at in before[answered + 1 :] if self.entries[at].words), len(before))

    @cached_property
    def reminders(self) -> set[int]:
        """The indexes of questions behind newer ones of the last turn: a program sends them with each turn."""
        reminders, newest = set[int](), -1.0
        for at in range(self.turn_at, self.question_at + 1):
            if self.entries[at].words and at not in self.deleted:
                seq = self.by_id[at].seq if at in self.by_id else inf
                reminders |= {at} if seq < newest else set()
                newest = max(newest, seq)
        return reminders

    @cached_property
    def edited_question(self) -> Facts | None:
        """The last message with a stored id, if it is a question and begins a branch: edited, or its state was lost."""
        at = max(self.by_id, default=-1)
        if at < 0 or at in self.reminders or not self.entries[at].words.startswith("q"):
            return None
        behind = (one for one in self.current if one.seq > self.by_id[at].seq and not one.is_from_program)
        is_asked_again = self._has_lost_its_past(self.by_id[at]) and any(map(self.known.could_see, behind))
        return self.by_id[at] if at in self.edited or is_asked_again else None

    def _has_lost_its_past(self, asked: Facts) -> bool:
        """Tell whether a state begins with this question, though something was said before it: checkpoints are lost."""
        first = min(self.versions[asked.id], key=lambda one: one.seq)  # before it was edited
        return self.kind == "state" and self.turn_at <= min(self.by_id) and first.upto > first.tokens

    @cached_property
    def matched(self) -> dict[int, Facts]:
        """Index in the list -> stored message, by its id, or else by its words; without the edited question."""
        entries, edit, last = self.entries, self.edited_question, max(self.by_id, default=-1)
        matched = {at: one for at, one in self.by_id.items() if at != last or not edit}
        if self.kind == "part":
            return matched
        if self.kind == "list" and self.current and entries == [Entry(None, self.current[-1].spoken)]:
            return {0: self.current[-1]}  # asked again, as nobody has answered
        if placed := matched.keys() - self.reminders:
            matched |= self._agreement(min(placed), matched[min(placed)])
        # what stands in front of the last stored id is stored, too, or begins each list of a program
        last_with = {one.spoken: one for one in (*self.superseded, *self.current) if one.writer != IN_FRONT}
        front = (at for at in range(last) if at not in matched and entries[at].words in last_with)
        matched |= {at: last_with[entries[at].words] for at in front}
        # ids tell what a whole list is; behind those of a state, a client may have sent a list without ids
        begin = len(entries) if self.by_id and self.kind == "list" else last + 1
        settled = self.deleted | matched.keys()
        rest = [at for at in range(begin, len(entries)) if entries[at].words and at not in settled]
        if not edit and not is_one_turn(entries[at] for at in rest):
            matched |= self._match_turns(rest)
        return matched

    def _match_turns(self, rest: Sequence[int]) -> dict[int, Facts]:
        """Match by words several turns without ids: they agree with the thread from their beginning on, or are new."""
        best = self._longest_agreement(rest[0])
        if not best and self.kind == "list" and self.first:  # or they begin before the thread, and are refused
            begins = (at for at in rest[1:] if self.entries[at].words == self.first.spoken)
            return next((found for at in begins if len(found := self._agreement(at, self.first)) > 1), {})
        behind = [at for at in rest if at not in best]
        is_in_front = bool(best) and all(one.writer == IN_FRONT for one in best.values())
        if is_in_front and not is_one_turn(self.entries[at] for at in behind):
            # what begins each list of a program may stand in front of a window of the thread, and this of one new turn
            window = self._longest_agreement(behind[0])
            new = "".join(self.entries[at].words[0] for at in behind if at not in window)
            best |= window if "aq" not in new else {}
        return best

    def _longest_agreement(self, at: int) -> dict[int, Facts]:
        """Return how the list agrees with the thread from `at` on: far enough, and of equal places the last."""
        best = dict[int, "Facts"]()
        seen = (one for one in reversed(self.current) if not one.is_from_program and self.known.could_see(one))
        newest = next((one.seq for one in seen), inf)
        has_answer = any(entry.words.startswith("a") for entry in self.entries[at:])
        for first in (*reversed(self.current), *reversed(self.superseded)):
            if first.spoken == self.entries[at].words:
                found = self._agreement(at, first)
                reaches_newest = first.is_current and any(one.seq >= newest for one in found.values())
                is_long = has_answer and (len(found) > 1 or first is self.first)
                if (reaches_newest or is_long) and len(found) > len(best):
                    best = found
        return best

    def _agreement(self, at: int, first: Facts) -> dict[int, Facts]:
        """Return the messages of the entries from `at` on, as far as both agree, if the first of them is `first`."""
        found: dict[int, Facts] = {at: first}
        last: Facts | None = first  # None: they disagree, until the next match by id
        for index in range(at + 1, max(self.by_id) if self.edited_question else len(self.entries)):
            if index in self.by_id:
                last = last if index in self.reminders else self.by_id[index]
            elif last and self.entries[index].words and index not in self.deleted:
                last = self._following(last.seq, self.entries[index].words, from_program=first.is_from_program)
                found |= {index: last} if last else {}
        return found

    def _following(self, seq: int, words: str, *, from_program: bool) -> Facts | None:
        """Return the next message of the branch if it has these words, else perhaps a superseded one behind it."""
        for one in self.current[bisect_right(self.current, seq, key=lambda one: one.seq) :]:
            if one.spoken == words:
                return one
            is_note = one.is_from_program and not from_program
            if not is_note and self.known.could_see(one):  # others are skipped
                break
        return next((one for one in self.superseded if one.seq > seq and one.spoken == words), None)

    @cached_property
    def last_list(self) -> tuple[dict[int, Facts], list[Facts]]:
        """What the list holds (of several copies in a state, the last one), and those of it that were not moved."""
        held, in_order = dict[int, "Facts"](), list["Facts"]()
        for at, one in sorted(self.matched.items()):
            goes_back = in_order and at not in self.reminders and one.seq <= in_order[-1].seq
            if goes_back and one.id != self.entries[at].id:  # another copy begins
                held, in_order, goes_back = {}, [], False
            held[at] = one
            if at in self.reminders or (goes_back and len(in_order) > 1 and one.seq <= in_order[-2].seq):
                continue  # it was moved
            if goes_back:  # it fits to those before, so the last of these was moved
                in_order.pop()
            in_order.append(one)
        return held, in_order

    @cached_property
    def writer(self) -> str:
        """Of new messages: a list, or a state, which is named after the seq at which it began."""
        (_, in_order), edit, new = self.last_list, self.edited_question, f"s{self.known.next_seq}"
        if self.kind != "state":
            return LIST
        others = [] if edit and self._has_lost_its_past(edit) else (self.by_id | self.matched).values()
        return next((one.writer for one in in_order or others if one.writer.startswith("s")), new)

    def left_behind(self, left_out: Collection[int]) -> list[int]:
        """Return the seqs that the list has left behind: what it does not hold behind the first message of both."""
        is_list, edit, (in_list, in_order) = self.kind == "list", self.edited_question, self.last_list
        has_ids = edit or any(one.id == self.entries[at].id for at, one in self.matched.items())
        common = [one for one in in_order if has_ids or one.writer != IN_FRONT] + ([edit] if edit else [])
        if not common:
            return []
        # older words of an edited question may begin the thread's branch
        start = min(version.seq for one in common for version in self.versions[one.id])
        asked = edit or (common[-1] if is_list and common[-1].spoken.startswith("q") else None)
        replaced = self._answered(asked) if asked and asked.is_current else set[int]()
        held = ({one.seq for one in in_list.values()} | {*left_out}) - (replaced if edit else set())
        includes_programs = bool(in_order) and in_order[0].is_from_program
        writer = edit.writer if edit and not in_order else self.writer
        # clients leave out tool traffic: it stays with the message that it led to, as t t in q t t a
        omits_traffic = is_list or len(in_list) < len(self.matched)
        behind, next_is_held = list[int](), False
        for one in reversed([one for one in self.facts if one.is_current and one.seq >= start]):
            is_own = (includes_programs or not one.is_from_program) if is_list else one.writer == writer
            if one.seq in held:
                next_is_held = omits_traffic if one.spoken else next_is_held
            elif one.seq in replaced or (is_own and self.known.could_see(one)):
                next_is_held = next_is_held and not one.spoken
                behind += [] if next_is_held else [one.seq]
        return behind[::-1]

    def _answered(self, asked: Facts) -> set[int]:
        """Return the seqs of a question and of all that was said to it, whoever has said it, but for programs."""
        end = next((one.seq for one in self.current if one.seq > asked.seq and one.spoken.startswith("q")), inf)
        span = (one for one in self.facts if asked.seq <= one.seq < end)
        return {one.seq for one in span if one is asked or not one.is_from_program}

    def hidden(self, drop: Collection[int]) -> list[int]:
        """Return the indexes in a state of what it has left, and of all copies but the first or the turn's last."""
        (in_list, _), placed = self.last_list, sorted(self.matched.items())
        counts = {one.seq: at for at, one in reversed(placed)}
        counts |= {one.seq: at for at, one in placed if at >= self.turn_at}
        left = {one.seq for _, one in placed if not one.is_current or one.seq in drop}
        left -= {one.seq for one in in_list.values()}
        return [at for at, one in placed if at != counts[one.seq] or one.seq in left]

    def new(self, *, keeps_all: bool) -> list[int]:
        """Return the indexes of new messages: of a list that agrees nowhere and has no ids, those of its last turn."""
        entries, known = self.entries, self.by_id | self.matched
        has_ids = self.kind == "state" or (keeps_all and all(entry.id for entry in entries if entry.words))
        begin = min([self.turn_at, *known]) if known or (self.facts and not has_ids) else 0
        # a list's tool traffic before it is stored already
        last_spoken = max((at for at in self.matched if entries[at].words), default=-1)
        others = (at for at in range(begin, len(entries)) if at not in self.matched and at not in self.deleted)
        return [at for at in others if entries[at].words or self.kind != "list" or at > last_spoken]


def is_one_turn(entries: Iterable[Entry]) -> bool:
    """Tell whether one thing was said, or questions, then answers: a new turn, even with words of an older one."""
    return re.fullmatch("q+a+|[qa]?", "".join(entry.words[:1] for entry in entries)) is not None


def last_question(entries: Sequence[Entry]) -> int:
    """Return the index of the last question, -1 if there is none."""
    return max((at for at, entry in enumerate(entries) if entry.words.startswith("q")), default=-1)
