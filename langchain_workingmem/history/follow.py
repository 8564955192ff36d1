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
  e1 e2 q1 a1 q2 a2      e1? e2? q1?               a list began with e1 e2 (IN_FRONT), perhaps examples: q1 is new, too
  q1 a1 q2 a2 q3 a3      q1? a1? q3? a3? q4?       a window of the newest counts: q2 a2 were trimmed, and stay
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
from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from langchain_workingmem._redis.keys import IN_FRONT, LIST

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from langchain_workingmem._redis.keys import Facts

Kind: TypeAlias = Literal["list", "state", "part"]

AS_STORED = "*"  # digest of a copy that shows less than what is stored


class Entry(NamedTuple):
    """A message of the caller's list."""

    id: str | None
    digest: str  # q or a and a digest of what was said; empty for tool traffic and structured answers; or AS_STORED
    letter: str  # q for a question, a for an answer, also a structured one; empty for tool traffic; or AS_STORED


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a thread: what was read of it for the caller's list, and what the caller has written since."""

    facts: Sequence[Facts] = ()  # stored messages of its ids, those behind the first of them, and what was said last
    deleted: Mapping[str, str] = field(default_factory=dict)  # digests of deleted messages by id; empty: any
    aliases: Mapping[str, str] = field(default_factory=dict)  # other ids of the list -> stored id
    next_seq: int = 0
    version: int | None = None  # of the thread; None: there is none
    created_at: str | None = None
    is_all: bool = True  # `facts` hold all that was said, not only the newest
    next_seq_when_read: int = 0  # `next_seq` when the caller read the thread
    next_seq_when_saved: float = inf  # `next_seq` when the turn was saved; inf: it is not
    written: frozenset[int] = frozenset()  # seqs that the caller has written in between
    branch: Followed | None = None  # what `follow` said in the context of this turn, whose list was perhaps longer

    @property
    def is_saved(self) -> bool:
        """Tell whether the turn is saved for which it was read."""
        return self.next_seq_when_saved < inf

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
        before = {fact.seq: fact._replace(is_current=changed.get(fact.seq, fact.is_current)) for fact in self.facts}
        new = {fact.seq: fact for fact in written}
        next_seq = max(self.next_seq, max(new, default=0) + 1)
        facts = [*(before | new).values()]
        return replace(self, facts=facts, version=version, next_seq=next_seq, written=self.written | new.keys())


@dataclass(slots=True)
class Followed:
    """What a list means for a thread."""

    drop: list[int] = field(default_factory=list)  # seqs that are superseded now
    bring_back: list[int] = field(default_factory=list)  # seqs that are current again
    aliases: dict[int, str] = field(default_factory=dict)  # index in the list -> stored id, where the ids differ
    edited: dict[int, int] = field(default_factory=dict)  # index in the list -> seq, where it is written anew in place
    seqs: dict[int, int] = field(default_factory=dict)  # index in the list -> seq of the stored message
    again: dict[str, int] = field(default_factory=dict)  # id of an edited question, stored a second time -> newest seq
    changes_branch: bool = False  # another branch than the thread's is the current one
    new: list[int] = field(default_factory=list)  # indexes to store at the end, in order
    need_ids: list[int] = field(default_factory=list)  # indexes of answers whose ids others have
    writer: str = LIST  # of the new messages
    hidden: list[int] = field(default_factory=list)  # indexes in a state that no model sees: copies, older branches
    is_older: bool = False  # the list begins before the thread: it is refused


def follow(
    entries: Sequence[Entry], kind: Kind, known: Known, left_out: Collection[int] = (), *, keeps_all: bool = False
) -> Followed:
    """Decide what a list means. `left_out`: seqs that memory took out of it; `keeps_all`: a program gave its ids."""
    if kind == "list" and known.branch is None and entries and entries[0].digest and is_one_turn(entries):
        # most lists: nothing needs to be compared
        ids = {fact.id for fact in known.facts} | known.deleted.keys() | known.aliases.keys()
        is_repeated = len(entries) == 1 and entries[0].digest in {fact.spoken for fact in known.facts}
        if not is_repeated and ids.isdisjoint(entry.id for entry in entries):
            return Followed(new=[*range(len(entries))])
    compared = _Comparison(entries, kind, known)
    edit, matched, (in_list, in_order) = compared.edited_question, compared.matched, compared.last_list
    followed = Followed(need_ids=compared.need_ids, writer=compared.writer)
    followed.again = {edit.id: max(fact.seq for fact in compared.versions[edit.id])} if edit else {}
    followed.seqs = {index: fact.seq for index, fact in matched.items()}
    followed.edited = {index: matched[index].seq for index in compared.edited if index in matched}
    stored = compared.by_id | matched
    followed.aliases = {index: fact.id for index, fact in stored.items() if fact.id != entries[index].id}
    followed.new = compared.new(keeps_all=keeps_all)
    refused = {index for index, fact in matched.items() if fact.is_refused}
    for end in (index for index in followed.new if entries[index].letter == "a"):
        # a model has answered what a provider had refused before: it is shown again
        turn = refused.intersection(range(turn_start(entries[:end], refused), end))
        followed.edited |= {index: matched[index].seq for index in turn}
    if kind != "part":
        followed.bring_back = sorted({fact.seq for fact in in_list.values() if not fact.is_current})
        followed.drop = compared.left_behind(left_out)
    if kind == "state":
        followed.hidden = compared.hidden(followed.drop)
    if known.branch is not None:  # its context may have held more of the list
        followed.drop = sorted({*followed.drop, *known.branch.drop} - {*followed.seqs.values()})
        followed.bring_back = sorted({*followed.bring_back, *known.branch.bring_back})
    followed.changes_branch = bool(followed.drop or followed.bring_back)
    in_front = {entry.digest[:1] for entry in compared.entries[: min(matched, default=0)]}
    holds_first = len(in_order) > 1 and in_order[0] is compared.first and not compared.deleted
    followed.is_older = kind == "list" and {"q", "a"} <= in_front and holds_first
    return followed


class _Comparison:
    """The entries of a caller's list beside the messages of a thread. Each property is made of those above it."""

    def __init__(self, entries: Sequence[Entry], kind: Kind, known: Known) -> None:
        self.entries, self.kind, self.known = [*entries], kind, known
        self.facts = sorted(known.facts, key=lambda fact: fact.seq)
        self.current = [fact for fact in self.facts if fact.spoken and fact.is_current]  # without tool traffic
        self.superseded = [fact for fact in self.facts if fact.spoken and not fact.is_current]
        self.by_digest = defaultdict[str, list["Facts"]](list)  # current ones in front, and the newest in front
        for fact in (*reversed(self.current), *reversed(self.superseded)):
            self.by_digest[fact.spoken].append(fact)
        self.first = self.current[0] if self.current and known.is_all else None  # of the thread
        self.versions = defaultdict[str | None, list["Facts"]](list)  # by id, the one that counts first
        for fact in sorted(self.facts, key=lambda fact: (not fact.is_current, -fact.seq)):
            self.versions[fact.id].append(fact)
        self.by_id: dict[int, Facts] = {}  # index in the list -> message that is stored under the entry's id
        self.edited: list[int] = []  # indexes of those that say something else now
        self.deleted: set[int] = set()  # indexes of what was deleted
        self.need_ids: list[int] = []  # indexes of answers whose ids others have
        self._match_ids(entries)

    def _match_ids(self, entries: Sequence[Entry]) -> None:
        """Match the entries whose ids are stored."""
        versions = [self.versions.get(self.known.aliases.get(entry.id or "", entry.id), []) for entry in entries]
        for index, stored in enumerate(versions):
            if entries[index].digest == AS_STORED:  # a copy that shows less, such as one whose pictures are named
                digest = stored[0].spoken if stored else ""
                self.entries[index] = entries[index]._replace(digest=digest, letter=digest[:1])
        self.question_at = last_question(self.entries)
        asked = versions[self.question_at] if self.question_at >= 0 else []
        question_seq = next((fact.seq for fact in asked), self.known.next_seq)
        for index, (id, digest, _) in enumerate(self.entries):
            same = [fact for fact in versions[index] if fact.spoken == digest]  # an edited question has versions
            match, deleted = next(iter(same or versions[index]), None), self.known.deleted.get(id or "")
            is_of_branch = digest.startswith("a") and not same and match is not None and not match.is_current
            if match is None:  # what was deleted is not stored again, unless it says something else now
                if entries[index].digest == AS_STORED or (deleted is not None and deleted.rstrip("!") in (digest, "")):
                    self.deleted.add(index)
            elif is_of_branch or (index > self.question_at >= 0 and match.seq < question_seq):
                # fake models repeat ids: another answer than the stored one needs its own
                self.entries[index] = self.entries[index]._replace(id=None)
                self.need_ids.append(index)
            else:
                self.by_id[index] = match
                if not same and not match.is_structured:
                    self.edited.append(index)

    @cached_property
    def turn_at(self) -> int:
        """The index at which the last turn begins: of its first question, behind the answer before."""
        before = range(max(self.question_at, 0))
        structured = {index for index, fact in self.by_id.items() if fact.is_structured}
        answers = (index for index in before if self.entries[index].letter == "a" or index in structured)
        answered = max(answers, default=-1)
        return next((index for index in before[answered + 1 :] if self.entries[index].digest), len(before))

    @cached_property
    def reminders(self) -> set[int]:
        """The indexes of questions behind newer ones of the last turn: a program sends them with each turn."""
        reminders, newest = set[int](), -1.0
        for index in range(self.turn_at, self.question_at + 1):
            if self.entries[index].digest and index not in self.deleted:
                seq = self.by_id[index].seq if index in self.by_id else inf
                reminders |= {index} if seq < newest else set()
                newest = max(newest, seq)
        return reminders

    @cached_property
    def has_lost_its_past(self) -> bool:
        """Whether a state begins with its last turn, though more was said before it: its checkpoints are lost."""
        first = min(self.versions[self.by_id[min(self.by_id)].id], key=lambda fact: fact.seq)  # before it was edited
        return self.kind == "state" and self.turn_at <= min(self.by_id) and first.total_tokens > first.tokens

    @cached_property
    def edited_question(self) -> Facts | None:
        """The last message with a stored id, if it is a question and begins a branch: edited, or its state was lost."""
        index = max(self.by_id, default=-1)
        if index < 0 or index in self.reminders or self.entries[index].letter != "q":
            return None
        behind = (fact for fact in self.current if fact.seq > self.by_id[index].seq and not fact.is_from_program)
        is_asked_again = self.has_lost_its_past and any(map(self.known.could_see, behind))
        return self.by_id[index] if index in self.edited or is_asked_again else None

    @cached_property
    def matched(self) -> dict[int, Facts]:
        """Index in the list -> stored message, by its id, or else by its words; without the edited question."""
        entries, edit, last = self.entries, self.edited_question, max(self.by_id, default=-1)
        matched = {index: fact for index, fact in self.by_id.items() if index != last or not edit}
        if self.kind == "part":
            return matched
        newest = self.current[-1:]
        if self.kind == "list" and newest and [entry[:2] for entry in entries] == [(None, newest[0].spoken)]:
            return {0: newest[0]}  # asked again, as nobody has answered
        if placed := matched.keys() - self.reminders:
            matched |= self._agreement(min(placed), matched[min(placed)])
        matched = self._match_in_front(matched, last)
        # a list with one stored id needs no words; behind a state, a client may add a list without ids
        begin = len(entries) if self.by_id and self.kind == "list" else last + 1
        settled = self.deleted | matched.keys()
        rest = [index for index in range(begin, len(entries)) if entries[index].digest and index not in settled]
        behind = (entries[index] for index in range(min(rest, default=0), len(entries)) if index not in settled)
        if rest and not edit and not is_one_turn(behind):
            matched |= self._match_turns(rest)
        return matched

    def _match_in_front(self, matched: dict[int, Facts], last: int) -> dict[int, Facts]:
        """Match by words what stands in front of the `last` stored id, but behind what the thread began with."""
        began = zip(self.entries, (fact.spoken for fact in self.current if fact.writer == IN_FRONT), strict=False)
        begin = sum(1 for _ in takewhile(lambda pair: pair[0].digest == pair[1], began))
        end = self.by_id[last].seq if self.by_id and self.kind == "list" else inf
        for index in reversed(range(begin, last)):
            if index not in matched:
                places = self.by_digest[self.entries[index].digest]
                alike = (fact for fact in places if fact.seq < end and fact.writer != IN_FRONT)
                matched |= zip((index,), alike, strict=False)
            if index in matched and index not in self.reminders and self.kind == "list":  # a state may hold copies
                end = matched[index].seq
        return matched

    def _match_turns(self, rest: Sequence[int]) -> dict[int, Facts]:
        """Match by words several turns without ids: they agree with the thread from their beginning on, or are new."""
        window = self._newest_window(rest)
        if rest[0] in window:  # q1 a1 q2 a2: q2? a2? q3?
            return window
        best = self._longest_agreement(rest[0])
        front = {index: fact for index, fact in best.items() if fact.writer == IN_FRONT}
        behind = [index for index in rest if index not in front]
        if not is_one_turn(self.entries[index] for index in rest if index not in best):
            if window and (best or len(window) > 1):  # e1 e2 q1 a1 q2 a2: e1? e2? q2? a2? q3?
                return front | window
            older = self._longest_agreement(behind[0]) if front else {}
            if older and is_one_turn(self.entries[max(older) + 1 :]):  # e1 e2 q1 a1 q2 a2: e1? e2? q1? a1? q3?
                return front | older
            if not best and self.kind == "list" and self.first:  # q2 a2: q1? a1? q2? a2?, which is refused
                begins = (index for index in rest[1:] if self.entries[index].digest == self.first.spoken)
                return next((agreed for index in begins if len(agreed := self._agreement(index, self.first)) > 1), {})
        elif front and behind:  # e1 e2 q1 a1 q2 a2: e1? e2? q1? or q2?, or what agrees in two places
            newest = max(fact.seq for fact in best.values())
            is_older = any(fact.spoken.startswith("q") and fact.seq > newest for fact in self.current)
            if behind[0] in window or (is_older and is_one_turn(self.entries[index] for index in behind)):
                return front | window
        return best

    def _newest_window(self, rest: Sequence[int]) -> dict[int, Facts]:
        """Return which of these entries are the thread's newest messages: in front of new turns, or all of them."""
        newest = [fact for fact in reversed(self.current) if self.known.could_see(fact)]
        for count in range(len(rest), 0, -1):
            window, left = dict[int, "Facts"](), [*rest[:count]]
            for fact in newest:
                if left and self.entries[left[-1]].digest == fact.spoken:
                    window[left.pop()] = fact
                elif not (left and fact.is_from_program):  # notes are skipped
                    break
            if window and (min(window) < self.turn_at or rest[0] in window):
                return window
        return {}

    def _longest_agreement(self, start: int) -> dict[int, Facts]:
        """Return how the list agrees with the thread from `start` on: far enough, and of equal places the last."""
        best, longest = dict[int, "Facts"](), -1
        has_answer = any(entry.letter == "a" for entry in self.entries[start:])
        for first in self.by_digest[self.entries[start].digest] if has_answer else ():
            agreed = self._agreement(start, first)
            # The last turn is new, even with words of an older one.
            length = sum(index < self.turn_at for index in agreed)
            if (len(agreed) > 1 or first is self.first) and length > longest:
                best, longest = agreed, length
        return best

    def _agreement(self, start: int, first: Facts) -> dict[int, Facts]:
        """Return the messages of the entries from `start` on, as far as both agree, if the first of them is `first`."""
        agreed: dict[int, Facts] = {start: first}
        last: Facts | None = first  # None: they disagree, until the next match by id
        for index in range(start + 1, max(self.by_id) if self.edited_question else len(self.entries)):
            if index in self.by_id:
                last = last if index in self.reminders else self.by_id[index]
            elif last and self.entries[index].digest and index not in self.deleted:
                last = self._following(last.seq, self.entries[index].digest, from_program=first.is_from_program)
                agreed |= {index: last} if last else {}
        return agreed

    def _following(self, seq: int, digest: str, *, from_program: bool) -> Facts | None:
        """Return the next message of the branch if it has this digest, else perhaps a superseded one behind it."""
        for fact in self.current[bisect_right(self.current, seq, key=lambda fact: fact.seq) :]:
            if fact.spoken == digest:
                return fact
            is_note = fact.is_from_program and not from_program
            if not is_note and self.known.could_see(fact):  # others are skipped
                break
        return next((fact for fact in self.superseded if fact.seq > seq and fact.spoken == digest), None)

    @cached_property
    def last_list(self) -> tuple[dict[int, Facts], list[Facts]]:
        """What the list holds (of several copies in a state, the last one), and those of it that were not moved."""
        in_list, in_order = dict[int, "Facts"](), list["Facts"]()
        for index, fact in sorted(self.matched.items()):
            goes_back = in_order and index not in self.reminders and fact.seq <= in_order[-1].seq
            if goes_back and fact.id != self.entries[index].id:  # another copy begins
                in_list, in_order, goes_back = {}, [], False
            in_list[index] = fact
            if index in self.reminders or (goes_back and len(in_order) > 1 and fact.seq <= in_order[-2].seq):
                continue  # it was moved
            if goes_back:  # it fits to those before, so the last of these was moved
                in_order.pop()
            in_order.append(fact)
        return in_list, in_order

    @cached_property
    def writer(self) -> str:
        """Of new messages: a list, or a state, which is named after the seq at which it began."""
        (_, in_order), edit, new = self.last_list, self.edited_question, f"s{self.known.next_seq}"
        if self.kind != "state":
            return LIST
        others = [] if edit and self.has_lost_its_past else (self.by_id | self.matched).values()
        return next((fact.writer for fact in in_order or others if fact.writer.startswith("s")), new)

    def left_behind(self, left_out: Collection[int]) -> list[int]:
        """Return the seqs that the list has left behind: what it does not hold behind the first message of both."""
        is_list, edit, (in_list, in_order) = self.kind == "list", self.edited_question, self.last_list
        has_ids = edit or any(fact.id == self.entries[index].id for index, fact in self.matched.items())
        common = [fact for fact in in_order if has_ids or fact.writer != IN_FRONT] + ([edit] if edit else [])
        if not common:
            return []
        # older words of an edited question may begin the thread's branch
        start = min(version.seq for fact in common for version in self.versions[fact.id])
        asked = edit or (common[-1] if is_list and common[-1].spoken.startswith("q") else None)
        replaced = self._answered(asked) if asked and asked.is_current else set[int]()
        held = ({fact.seq for fact in in_list.values()} | {*left_out}) - (replaced if edit else set())
        includes_programs = bool(in_order) and in_order[0].is_from_program  # the list is that of a program
        writer = edit.writer if edit and not in_order else self.writer
        # clients leave out tool traffic: it stays with the message that it led to, as t t in q t t a
        omits_traffic = is_list or len(in_list) < len(self.matched)
        behind, next_is_held = list[int](), False
        for fact in reversed([fact for fact in self.facts if fact.is_current and fact.seq >= start]):
            is_own = (includes_programs or not fact.is_from_program) if is_list else fact.writer == writer
            if fact.seq in held:
                next_is_held = omits_traffic if fact.spoken else next_is_held
            elif fact.seq in replaced or (is_own and self.known.could_see(fact)):
                next_is_held = next_is_held and not fact.spoken
                behind += [] if next_is_held else [fact.seq]
        return behind[::-1]

    def _answered(self, asked: Facts) -> set[int]:
        """Return the seqs of a question and of all that was said to it, whoever has said it, but for programs."""
        end = next((fact.seq for fact in self.current if fact.seq > asked.seq and fact.spoken.startswith("q")), inf)
        span = (fact for fact in self.facts if asked.seq <= fact.seq < end)
        return {fact.seq for fact in span if fact is asked or not fact.is_from_program}

    def hidden(self, drop: Collection[int]) -> list[int]:
        """Return the indexes in a state that are not shown: what it left, and copies (the turn's last is shown)."""
        (in_list, _), placed = self.last_list, sorted(self.matched.items())
        shown_at = {fact.seq: index for index, fact in reversed(placed)}
        shown_at |= {fact.seq: index for index, fact in placed if index >= self.turn_at}
        left = {fact.seq for _, fact in placed if not fact.is_current or fact.seq in drop}
        left -= {fact.seq for fact in in_list.values()}
        return [index for index, fact in placed if index != shown_at[fact.seq] or fact.seq in left]

    def new(self, *, keeps_all: bool) -> list[int]:
        """Return the indexes of new messages: of a list that agrees nowhere and has no ids, those of its last turn."""
        entries, stored = self.entries, self.by_id | self.matched
        has_ids = self.kind == "state" or (keeps_all and all(entry.id for entry in entries if entry.digest))
        begin = min([self.turn_at, *stored]) if stored or (self.facts and not has_ids) else 0
        # a list's tool traffic before this index is old
        last_spoken = max((index for index in self.matched if entries[index].digest), default=-1)
        settled = self.deleted | self.matched.keys()
        rest = (index for index in range(begin, len(entries)) if index not in settled)
        return [index for index in rest if entries[index].digest or self.kind != "list" or index > last_spoken]


def is_one_turn(entries: Iterable[Entry]) -> bool:
    """Tell whether one thing was said, or questions, then answers: a new turn, even with words of an older one."""
    return re.fullmatch("q+a+|[qa]?", "".join(entry.letter for entry in entries)) is not None


def last_question(entries: Sequence[Entry]) -> int:
    """Return the index of the last question, -1 if there is none."""
    return max((index for index, entry in enumerate(entries) if entry.letter == "q"), default=-1)


def turn_start(entries: Sequence[Entry], refused: Collection[int]) -> int:
    """Return the index of the last question, or of the first of those that a provider has refused with it."""
    start = last_question(entries)
    while {start, start - 1} <= {*refused} and entries[start - 1].letter == "q":
        start -= 1
    return start
