"""Which messages of a thread the caller's list is, by ids or words, what it has left behind, and what is new. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from langchain_workingmem._redis.keys import IN_FRONT, LIST

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
        was_meanwhile = self.next_seq_when_read <= facts.seq < self.next_seq_when_saved
        return facts.seq in self.written or not was_meanwhile

    def ranges(self, drop: Collection[int]) -> list[list[int]]:
        """Return ranges of seqs that hold messages and tool traffic in front of each, but no other known message."""
        ranges, dropped, previous = list[list[int]](), {*drop}, None
        for seq in sorted(facts.seq for facts in self.facts if facts.is_current):
            if seq in dropped and previous in dropped:
                ranges[-1][1] = seq
            elif seq in dropped:
                start = seq if previous is None else previous + 1  # with the tool traffic in front of it
                ranges.append([start, seq])
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
    if kind == "list" and known.branch is None and is_one_turn(entries):  # most lists: nothing needs to be compared
        ids, words = {one.id for one in known.facts} | known.deleted.keys(), {one.spoken for one in known.facts}
        is_known = any(entry.id in ids for entry in entries) or (len(entries) == 1 and entries[0].words in words)
        if not is_known and entries and entries[0].words:
            return Followed(new=[*range(len(entries))])
    comparison = _Comparison(entries, kind, known)
    comparison.match_ids()
    comparison.tell_moved()
    comparison.tell_edits()
    if kind != "part":
        comparison.match_words()
    matched, held, edit = comparison.matched, comparison.held(), comparison.edited_question
    followed = Followed(edited=comparison.edited, again=[edit.id] if edit else [], need_ids=comparison.need_ids)
    followed.seqs = {at: one.seq for at, one in matched.items()}
    stored = matched | ({comparison.edited_at: edit} if edit else {})
    followed.aliases = {at: one.id for at, one in stored.items() if one.id != entries[at].id}
    if kind == "state":
        new = f"s{known.next_seq}"
        writers = [one.writer for one in held or stored.values() if one.writer[:1] == "s"]
        # a state that begins with an edited question has lost what was said before it: its checkpoints are gone
        followed.writer = new if edit and not held and comparison.has_history(edit) else next(iter(writers), new)
    if kind != "part":
        left_by = edit.writer if edit and not held else followed.writer
        behind = comparison.left_behind([*held, edit] if edit else held, left_by)
        followed.bring_back = sorted({one.seq for one in held if not one.is_current})
        stays = {*left_out, *(matched[at].seq for at in comparison.moved)}
        # of an edited question the older words go in any case, with what was said to them
        after = [one for one in comparison.current if edit and one.seq > edit.seq and one.spoken[:1] == "q"]
        span = (one for one in comparison.facts if edit and edit.seq <= one.seq < (after[0].seq if after else inf))
        replaced = [one.seq for one in span if one.is_current and (one is edit or not one.is_from_program)]
        followed.drop = sorted({*replaced, *(seq for seq in behind if seq not in stays)})
    if kind == "state":
        followed.hidden = comparison.hidden({one.seq for one in held}, {*followed.drop})
    if known.branch is not None:  # its context may have held more of the list
        followed.drop = sorted({*followed.drop, *known.branch.drop} - {*followed.seqs.values()})
        followed.bring_back = sorted({*followed.bring_back, *known.branch.bring_back})
    followed.changes_branch = bool(followed.drop or followed.bring_back)
    followed.new = comparison.new(keeps_all=keeps_all)
    in_front = {entry.words[:1] for entry in comparison.entries[: min(matched, default=0)]}
    holds_first = len(held) > 1 and held[0] is comparison.first and not comparison.deleted
    followed.is_older = kind == "list" and {"q", "a"} <= in_front and holds_first
    return followed


class _Comparison:
    """The entries of a caller's list beside the messages of a thread: which entry is which message."""

    def __init__(self, entries: Sequence[Entry], kind: Kind, known: Known) -> None:
        self.entries, self.kind, self.known = [*entries], kind, known
        self.facts = sorted(known.facts, key=lambda one: one.seq)
        self.current = [one for one in self.facts if one.spoken and one.is_current]  # without tool traffic
        self.superseded = [one for one in self.facts if one.spoken and not one.is_current]
        self.first = self.current[0] if self.current and known.is_all else None  # of the thread
        self.versions = defaultdict[str | None, list["Facts"]](list)  # by id, the one that counts first
        for one in sorted(self.facts, key=lambda one: (not one.is_current, -one.seq)):
            self.versions[one.id].append(one)
        self.matched: dict[int, Facts] = {}  # index in the list -> stored message
        self.located: list[int] = []  # indexes that are matched by their ids, in order
        self.deleted: set[int] = set()  # indexes of what was deleted
        self.need_ids: list[int] = []  # indexes of answers whose ids others have
        self.edited: dict[int, int] = {}  # index in the list -> seq, where the words change in place
        self.turn_at = last_turn(self.entries)
        self.moved: set[int] = set()  # indexes of questions that begin no branch
        self.edited_question: Facts | None = None  # the last that is stored, if it was edited: it begins a branch
        self.edited_at = -1  # its index in the list

    def match_ids(self) -> None:
        """Match the entries whose ids are stored."""
        question_at = last_question(self.entries)
        stored = self.versions.get(self.entries[question_at].id, ()) if question_at >= 0 else ()
        question_seq = next((one.seq for one in stored), self.known.next_seq)
        for at, (id, words) in enumerate([*self.entries]):
            versions = self.versions.get(self.known.aliases.get(id or "", id), [])
            deleted_words = self.known.deleted.get(id or "")
            same = [one for one in versions if one.spoken == words]  # an edited question has several versions
            found = next(iter(same or versions), None)
            if found is not None:  # fake models repeat ids: another answer than the stored one needs its own
                is_of_question = at > question_at >= 0 and found.seq < question_seq
                is_of_branch = not same and not found.is_current and words.startswith("a")
                if is_of_question or is_of_branch:
                    self.entries[at], found = Entry(None, words), None
                    self.need_ids.append(at)
            if words == AS_STORED:  # a copy that shows less, such as one whose pictures are named
                self.entries[at] = Entry(id, found.spoken if found else "")
            if found is not None:
                self.matched[at] = found
            # what was deleted is not stored again, unless it says something else now
            elif words == AS_STORED or (deleted_words is not None and deleted_words.rstrip("!") in (words, "")):
                self.deleted.add(at)
        self.located = [*self.matched]

    def tell_moved(self) -> None:
        """Tell which questions stand behind newer ones of the last turn: reminders that a program sends with each."""
        newest: float = -1
        for at in range(self.turn_at, last_question(self.entries) + 1):
            found = self.matched.get(at)
            if found and found.is_structured:  # another turn begins
                newest = -1
            elif self.entries[at].words and at not in self.deleted:
                if found and found.seq < newest:
                    self.moved.add(at)
                newest = max(newest, found.seq if found else inf)

    def tell_edits(self) -> None:
        """Tell which of the matched entries say something else now; an edited question at their end begins a branch."""
        for at in self.located:
            words, stored = self.entries[at].words, self.matched[at]
            is_last_question = words.startswith("q") and at == self.located[-1] and at not in self.moved
            is_edited = stored.spoken != words and not stored.is_structured
            if is_last_question and (is_edited or self.is_asked_by_a_new_state(stored)):
                self.edited_question, self.edited_at = self.matched.pop(at), at
            elif is_edited:
                self.edited[at] = stored.seq

    def is_asked_by_a_new_state(self, asked: Facts) -> bool:
        """Tell whether a question is asked again by a state that has lost its checkpoints: it is stored again then."""
        has_lost = self.kind == "state" and self.turn_at <= self.located[0] and self.has_history(asked)
        behind = (one for one in self.current if one.seq > asked.seq and not one.is_from_program)
        return has_lost and any(map(self.known.could_see, behind))

    def has_history(self, asked: Facts) -> bool:
        """Tell whether something was said before a question, or before its first version if it was edited."""
        first = min(self.versions[asked.id], key=lambda one: one.seq)
        return first.upto > first.tokens

    def match_words(self) -> None:
        """Match by their words the entries that have other ids than what is stored, or none."""
        entries, matched, begin = self.entries, self.matched, 0
        if placed := matched.keys() - self.moved:
            matched |= self.agreement(min(placed), matched[min(placed)])
        if self.located:  # a client may have sent a list without ids; else ids tell what the whole list is
            self.match_front()
            begin = self.located[-1] + 1 if self.kind == "state" else len(entries)
        if self.kind == "list" and self.current and [*entries] == [Entry(None, self.current[-1].spoken)]:
            matched[0] = self.current[-1]  # asked again, as nobody has answered
        settled = self.deleted | matched.keys()
        rest = [at for at in range(begin, len(entries)) if entries[at].words and at not in settled]
        if self.edited_question or is_one_turn([entries[at] for at in rest]):
            return
        # a list agrees from its beginning on, or is new; but for one that begins before the thread, which is refused
        best = self.longest_agreement(rest[0])
        if not best and self.kind == "list" and self.first:
            begins = [at for at in rest[1:] if entries[at].words == self.first.spoken]
            best = next((found for at in begins if len(found := self.agreement(at, self.first)) > 1), {})
        matched |= best
        rest = [at for at in rest if at not in matched]
        is_in_front = bool(best) and all(one.writer == IN_FRONT for one in best.values())
        if is_in_front and not is_one_turn([entries[at] for at in rest]):
            matched |= self.longest_agreement(rest[0], is_window=True)  # behind what begins each list of a program

    def match_front(self) -> None:
        """Match what stands before the last entry with a stored id: it is stored, too, or begins each list of a program."""
        last_with = {one.spoken: one for one in (*self.superseded, *self.current) if one.writer != IN_FRONT}
        for at in range(self.located[-1]):
            if at not in self.matched and self.entries[at].words in last_with:
                self.matched[at] = last_with[self.entries[at].words]

    def longest_agreement(self, at: int, *, is_window: bool = False) -> dict[int, Facts]:
        """Return how the list agrees with the thread from `at` on: far enough, and of equal places the last."""
        best = dict[int, "Facts"]()
        seen = (one.seq for one in self.current if not one.is_from_program and self.known.could_see(one))
        newest = max(seen, default=inf)
        has_answer = any(entry.words.startswith("a") for entry in self.entries[at:])
        for first in (*reversed(self.current), *reversed(self.superseded)):
            if first.spoken == self.entries[at].words:
                found = self.agreement(at, first)
                reaches_newest = first.is_current and any(one.seq >= newest for one in found.values())
                is_long = has_answer and (len(found) > 1 or first is self.first)
                if is_window:
                    is_long = is_long and is_one_turn(self.entries[max(found) + 1 :])
                if (reaches_newest or is_long) and len(found) > len(best):
                    best = found
        return best

    def agreement(self, at: int, first: Facts) -> dict[int, Facts]:
        """Return the messages of the entries from `at` on, as far as both agree, if the first of them is `first`."""
        found: dict[int, Facts] = {at: first}
        last: Facts | None = first  # None: they disagree, until the next match by id
        for index in range(at + 1, len(self.entries)):
            if index in self.moved or index in self.deleted:
                continue
            words = self.entries[index].words
            if index in self.matched:
                last = self.matched[index]
            elif last and words:
                last = self.following(last.seq, words, from_program=first.is_from_program)
                if last:
                    found[index] = last
        return found

    def following(self, seq: int, words: str, *, from_program: bool) -> Facts | None:
        """Return the next message of the branch if it has these words, else perhaps a superseded one behind it."""
        for place in range(bisect_right(self.current, seq, key=lambda one: one.seq), len(self.current)):
            one = self.current[place]
            if one.spoken == words:
                return one
            is_note = one.is_from_program and not from_program
            if not is_note and self.known.could_see(one):  # others are skipped
                break
        return next((one for one in self.superseded if one.seq > seq and one.spoken == words), None)

    def held(self) -> list[Facts]:
        """Return the messages that the list holds; of several lists in a state, those of the last, in which seqs rise."""
        held: list[int] = []
        seqs = {at: one.seq for at, one in sorted(self.matched.items()) if at not in self.moved}
        for at, seq in seqs.items():
            if held and self.entries[at].words and seq <= seqs[held[-1]]:
                if self.entries[at].id != self.matched[at].id:  # another list begins
                    held = []
                elif len(held) > 1 and seq <= seqs[held[-2]]:  # it was moved
                    self.moved.add(at)
                    continue
                else:  # the one before was
                    self.moved.add(held.pop())
            held.append(at)
        return [self.matched[at] for at in held]

    def hidden(self, held: Collection[int], drop: Collection[int]) -> list[int]:
        """Return the indexes of copies, of which the first counts, but the last in the turn; and of what the state has left."""
        placed = sorted(self.matched.items())
        counts = {one.seq: at for at, one in reversed(placed)}
        counts |= {one.seq: at for at, one in placed if at >= self.turn_at}
        left = {one.seq for one in self.matched.values() if not one.is_current or one.seq in drop}.difference(held)
        return [at for at, one in self.matched.items() if at != counts[one.seq] or one.seq in left]

    def left_behind(self, common: Sequence[Facts], writer: str) -> list[int]:
        """Return the seqs that the list has left behind: what it does not hold behind the first message of both."""
        is_list, edit = self.kind == "list", self.edited_question
        held = {one.seq: one for one in common if one is not edit}
        has_ids = not is_list or edit or any(one.id == self.entries[at].id for at, one in self.matched.items())
        if not has_ids:  # what a program sends in front of each first turn, perhaps examples, begins no branch
            common = [one for one in common if one.writer != IN_FRONT]
        if not common:
            return []
        # older words of an edited question may begin the thread's branch
        start = min(version.seq for one in common for version in self.versions[one.id])
        first, last = next(iter(held.values()), None), next(reversed(held.values()), None)
        # a question that is asked again: also an answer to it that the caller could not know goes
        asked = last.seq if is_list and last and last.spoken.startswith("q") else inf
        asked_next = next((one.seq for one in self.current if one.seq > asked and one.spoken.startswith("q")), inf)
        includes_programs = first is not None and first.is_from_program
        # clients leave out tool traffic: it stays with the message that it led to, as t t in q t t a
        omits_traffic = is_list or len(held) < len(self.matched)
        # backwards: tool traffic stays with what was said next after it, where the list holds that
        behind, next_is_held = list[int](), False
        for one in reversed(self.facts):
            if not one.is_current or one.seq < start:
                continue
            if one.seq in held:
                next_is_held = omits_traffic if one.spoken else next_is_held
                continue
            is_own = (includes_programs or not one.is_from_program) if is_list else one.writer == writer
            if is_own and (self.known.could_see(one) or asked < one.seq < asked_next):
                next_is_held = next_is_held and not one.spoken
                if not next_is_held:
                    behind.append(one.seq)
        return behind[::-1]

    def new(self, *, keeps_all: bool) -> list[int]:
        """Return the indexes of new messages: in a list that is known nowhere and has no ids, those of its last turn."""
        entries = self.entries
        has_ids = self.kind == "state" or (keeps_all and all(entry.id for entry in entries if entry.words))
        known = [*self.matched, *([self.edited_at] if self.edited_question else [])]
        begin = min([self.turn_at, *known]) if known or (self.facts and not has_ids) else 0
        # a list's tool traffic before it is stored already
        last_spoken = max((at for at in self.matched if entries[at].words), default=-1)
        others = (at for at in range(begin, len(entries)) if at not in self.matched and at not in self.deleted)
        return [at for at in others if entries[at].words or self.kind != "list" or at > last_spoken]


def is_one_turn(entries: Sequence[Entry]) -> bool:
    """Tell whether one thing was said, or questions, then answers: a new turn, even with words of an older one."""
    return re.fullmatch("q+a+|[qa]?", "".join(entry.words[:1] for entry in entries)) is not None


def last_turn(entries: Sequence[Entry]) -> int:
    """Return the index at which the last turn begins: of its first question, behind the answer before."""
    end = last_question(entries)
    answered = max((at for at in range(end) if entries[at].words.startswith("a")), default=-1)
    return next((at for at in range(answered + 1, end) if entries[at].words), max(end, 0))


def last_question(entries: Sequence[Entry]) -> int:
    """Return the index of the last question, -1 if there is none."""
    return max((at for at, entry in enumerate(entries) if entry.words.startswith("q")), default=-1)
