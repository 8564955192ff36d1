"""Which messages of a thread the caller's list is, which of them it has left, and what of it is new. Pure.

Clients edit, regenerate, fork, trim and resend conversations. A list with ids, as in a checkpointer, is compared by
them, others by what was said. Messages behind the first common one that the list does not hold are superseded.
"""

from __future__ import annotations

from bisect import bisect_right
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
    """What a thread knows of the caller's list."""

    rows: Sequence[Facts] = ()  # stored messages of its ids, those behind the first of them, and what was said last
    deleted: Mapping[str, str] = field(default_factory=dict)  # words of deleted messages by id
    seen: float = inf  # the next seq of the thread when it was first read: what is newer was unknown to the caller
    until: float = inf  # the next seq when its turn was saved: what is newer than that is known again
    own: frozenset[int] = frozenset()  # seqs that the caller has written since
    next_seq: int = 0
    version: int | None = None  # of the thread; None: there is none
    created_at: str | None = None
    is_all: bool = True  # `rows` hold all that was said, not only the newest
    branch: Followed | None = None  # what the list of a context has meant, of which perhaps only the last turn is saved

    def ranges(self, drop: Collection[int]) -> list[list[int]]:
        """Join seqs to ranges that hold no other known message, each with the tool traffic in front."""
        found, gone, before = list[list[int]](), {*drop}, inf
        for row in sorted((row for row in self.rows if row.is_current), key=lambda row: row.seq):
            if row.seq in gone and before in gone:
                found[-1][1] = row.seq
            elif row.seq in gone:
                found.append([min(int(before) + 1, row.seq) if before < inf else row.seq, row.seq])
            before = row.seq
        return found

    def with_written(self, rows: Iterable[Facts], followed: Followed, version: int) -> Known:
        """Return what is known after a write of this process."""
        changed = dict.fromkeys(followed.drop, False) | dict.fromkeys(followed.back, True)
        fresh = {row.seq: row for row in rows}
        kept = [
            row._replace(is_current=changed.get(row.seq, row.is_current)) for row in self.rows if row.seq not in fresh
        ]
        next_seq = max([self.next_seq, *(seq + 1 for seq in fresh)])
        return replace(
            self, rows=[*kept, *fresh.values()], version=version, next_seq=next_seq, own=self.own | fresh.keys()
        )


@dataclass(slots=True)
class Followed:
    """What a list means for a thread."""

    start: int | None = None  # seq of the first message that both have
    drop: list[int] = field(default_factory=list)  # seqs that are superseded now
    back: list[int] = field(default_factory=list)  # seqs that are current again
    aliases: dict[int, str] = field(default_factory=dict)  # index in the list -> stored id, where the ids differ
    edited: dict[int, int] = field(default_factory=dict)  # index in the list -> seq, where the words change in place
    seqs: dict[int, int] = field(default_factory=dict)  # index in the list -> seq of the stored message
    again: list[str] = field(default_factory=list)  # ids of edited questions, which are stored a second time
    new: list[int] = field(default_factory=list)  # indexes to store at the end, in order
    writer: str = "l"  # of the new messages, see `Facts.writer`
    is_older: bool = False  # the list begins before the thread: it is refused

    @property
    def changes_branch(self) -> bool:
        """Tell whether another branch than the thread's is the current one."""
        return bool(self.drop or self.back)


class _Comparison:
    """The rows of a thread beside the entries of a caller's list."""

    def __init__(self, entries: Sequence[Entry], kind: Kind, known: Known) -> None:
        self.rows = sorted(known.rows, key=lambda row: row.seq)
        self.said = [row for row in self.rows if _said(row) and row.is_current]
        self.superseded = [row for row in self.rows if _said(row) and not row.is_current]
        self.seqs = [row.seq for row in self.said]
        self.unseen = {row.seq for row in self.rows if known.seen <= row.seq < known.until} - known.own
        self.end = max((row.seq for row in self.said if row.writer and row.seq not in self.unseen), default=inf)
        self.first = self.said[0] if self.said and known.is_all else None
        self.by_id: dict[str, list[Facts]] = {}  # versions, the one that counts first
        for row in sorted(self.rows, key=lambda row: (not row.is_current, -row.seq)):
            self.by_id.setdefault(row.id, []).append(row)
        self.kind = kind
        self.found = [self.find(entry) for entry in entries]  # the stored message of each entry
        pairs = zip(entries, self.found, strict=True)
        self.entries = [
            Entry(one.id, _said(row) if row else "") if one.words == AS_STORED else one for one, row in pairs
        ]
        self.gone = {  # indexes of what was deleted
            at
            for at, entry in enumerate(self.entries)
            if (entry.id and known.deleted.get(entry.id, ".").rstrip("!") in (entry.words, ""))
            or (entries[at].words == AS_STORED and not self.found[at])
        }
        self.edit: Facts | None = None  # the question that was edited: all behind it is superseded
        self.edited_at = -1

    def find(self, entry: Entry) -> Facts | None:
        """Return the message of an id: of several versions that with the same words, else the one that counts."""
        versions = self.by_id.get(entry.id or "", ())
        return next((row for row in versions if _said(row) == entry.words), versions[0] if versions else None)

    def edits(self) -> dict[int, int]:
        """Return what changes in place, as indexes and seqs; note an edited question that ends what is stored."""
        edited = {}
        for at, row in enumerate(self.found):
            if row and _said(row) != self.entries[at].words and not row.is_structured:
                if self.entries[at].words.startswith("q") and not any(self.found[at + 1 :]):
                    self.edit, self.edited_at, self.found[at] = row, at, None
                else:
                    edited[at] = row.seq
        return edited

    def following(self, position: int, words: str, *, is_program: bool, superseded: bool) -> Facts | None:
        """Return the next message of the branch if it has these words, else perhaps a superseded one behind it."""
        for place in range(bisect_right(self.seqs, position), len(self.said)):
            row = self.said[place]
            if _said(row) == words:
                return row
            if row.seq not in self.unseen and (row.writer or is_program):
                break  # notes of programs, and what the caller could not know, are skipped
        others = self.superseded if superseded else ()
        return next((row for row in others if row.seq > position and _said(row) == words), None)

    def walk(self, at: int, first: Facts, *, superseded: bool = True) -> dict[int, Facts]:
        """Return the rows of the entries from `at` on, as far as both agree, if the first of them is `first`."""
        matched, position, is_lost, has_known = {at: first}, first.seq, False, any(self.found)
        for index in range(at + 1, len(self.entries)):
            if is_lost and not has_known:
                break
            row, words = self.found[index], self.entries[index].words
            if row is None and words and not is_lost:
                row = self.following(position, words, is_program=not first.writer, superseded=superseded)
                is_lost = row is None
                if row is not None:
                    matched[index] = row
            if row is not None:
                position, is_lost = row.seq, False
        return matched

    def begin(self, at: int) -> dict[int, Facts]:
        """Return how the list agrees with the thread from `at` on, where most of it does; of equal places the last."""
        best, most = dict[int, "Facts"](), 0
        has_answer = any(entry.words.startswith("a") for entry in self.entries[at:])
        for first in (*reversed(self.said), *reversed(self.superseded)):
            if _said(first) == self.entries[at].words:
                matched = self.walk(at, first, superseded=not first.is_current)
                is_tail = any(row.seq >= self.end for row in matched.values()) and first.is_current
                fits = is_tail or (has_answer and (len(matched) > 1 or first is self.first))
                if fits and len(matched) > most:
                    best, most = self.walk(at, first), len(matched)
        return best

    def recognise(self) -> None:
        """Find by their words the messages that have other ids, or none."""
        entries, found = self.entries, self.found
        located = [at for at, row in enumerate(found) if row]
        if located and (first := found[located[0]]):
            self.note(self.walk(located[0], first))
        if self.kind == "state" and located:  # a client has sent its list to it: what stands in front is stored
            last = {_said(row): row for row in (*self.superseded, *self.said)}
            for at in range(max(located[-1], self.edited_at)):
                found[at] = found[at] or (last.get(entries[at].words) if entries[at].words else None)
        start = 0 if not located else located[-1] + 1 if self.kind == "state" else len(entries)
        rest = [at for at in range(start, len(entries)) if entries[at].words and at not in self.gone and not found[at]]
        if rest and self.kind == "list" and len(entries) == 1 and self.said and not entries[0].id:
            newest = self.said[-1]
            found[0] = newest if _said(newest) == entries[0].words else None  # asked again, as nobody has answered
        if (
            len(rest) < 2
            or self.edit
            or (self.kind == "state" and located and is_one_turn([entries[at] for at in rest]))
        ):
            return  # one message is a new question, and one turn behind a state that is known is a new turn
        best = self.begin(rest[0])  # a list agrees from its beginning on, or is new
        older = [at for at in rest[1:] if self.first and entries[at].words == _said(self.first)] if not best else []
        for at in older if self.kind == "list" else ():  # but for one that begins before the thread, which is refused
            match = self.walk(at, self.first) if self.first else {}
            if len(match) > 1:
                best = match
                break
        self.note(best)

    def note(self, rows: Mapping[int, Facts]) -> None:
        """Note the stored messages of entries."""
        for at, row in rows.items():
            self.found[at] = row

    def held(self) -> list[Facts]:
        """Return the rows that the list holds; of several lists in a state, those of the last, in which seqs rise."""
        held: list[Facts] = []
        for entry, row in zip(self.entries, self.found, strict=True):
            if row and held and entry.words and row.seq <= held[-1].seq:
                held = []
            if row:
                held.append(row)
        return held

    def left(self, held: Sequence[Facts], done: Followed) -> list[int]:
        """Return the seqs that the list has left behind: what it does not hold behind its first message."""
        is_list = self.kind == "list"
        by_words = is_list and not self.edit and len(done.aliases) == len(done.seqs)
        if done.start is None or (by_words and all(row.writer == "b" for row in held)):
            return []  # it shares only what a program sends in front of each first turn: perhaps examples
        seqs = {row.seq for row in held}
        # a question that is asked again: also an answer to it that the caller could not know goes
        asked = held[-1].seq if is_list and held and _said(held[-1]).startswith("q") else inf
        until = next((row.seq for row in self.said if row.seq > asked and _said(row).startswith("q")), inf)
        includes_programs = bool(held) and not held[0].writer
        rides = is_list or len(held) < len(done.seqs)  # clients leave out tool traffic
        left: list[int] = []
        waiting: list[int] = []  # such traffic stays with the message that it led to
        for row in self.rows:
            is_own = row.writer or includes_programs if self.kind != "state" else row.writer == done.writer
            if not row.is_current or row.seq < done.start:
                continue
            if row.seq in seqs:
                waiting = [] if _said(row) and rides else waiting
            elif (row.seq not in self.unseen or asked < row.seq < until) and is_own:
                waiting.append(row.seq)
                if _said(row):
                    left, waiting = [*left, *waiting], []
        return [*left, *waiting]

    def new(self, *, keeps_all: bool) -> list[int]:
        """Return the indexes of new messages: all of a thread's first list; else those behind what the thread has.

        Of a list that agrees nowhere that is its last turn; with `keeps_all`, where the caller gives ids, all of it.
        """
        entries, matched = self.entries, [at for at, row in enumerate(self.found) if row]
        turn = max(last_question(entries), 0)
        while turn and entries[turn - 1].words.startswith("q"):
            turn -= 1
        has_ids = keeps_all and all(entry.id for entry in entries if entry.words)
        begin = matched[0] if matched else 0 if self.edit or not self.rows or has_ids else turn
        # a list's tool traffic before it is stored already
        said = max((at for at in matched if entries[at].words), default=-1)
        others = (at for at in range(begin, len(entries)) if not self.found[at] and at not in self.gone)
        return [at for at in others if entries[at].words or self.kind != "list" or at > said]


def _said(row: Facts) -> str:
    """Return the words of a question or an answer, without the sign of a refusal; structured answers are traffic."""
    return "" if row.words.startswith("as") else row.words.rstrip("!")


def follow(
    entries: Sequence[Entry], kind: Kind, known: Known, left_out: Collection[int] = (), *, keeps_all: bool = False
) -> Followed:
    """Decide what a list without the seqs `left_out` means; with `keeps_all` one that agrees nowhere is all new."""
    if kind == "list" and known.branch is None and is_new_turn(entries, known):
        return Followed(new=[*range(len(entries))])
    both, done = _Comparison(entries, kind, known), Followed()
    done.edited = both.edits()
    if kind != "part":
        both.recognise()
    found, held, edited = both.found, both.held(), [both.edit] if both.edit else []
    done.again = [row.id for row in edited]
    done.aliases = {at: row.id for at, row in enumerate(found) if row and row.id != entries[at].id}
    done.seqs = {at: row.seq for at, row in enumerate(found) if row}
    if held or edited:  # an edited question begins a branch, too; its older words may begin the thread's
        done.start = min(one.seq for row in (*held, *edited) for one in both.by_id[row.id])
    if kind == "state":
        own = (row.writer for row in (*held, *edited) if row.writer.startswith("s"))
        done.writer = next(own, f"s{known.next_seq}")
    if kind != "part":
        done.back = sorted({row.seq for row in held if not row.is_current})
        done.drop = [seq for seq in both.left(held, done) if seq not in left_out]
    if known.branch is not None:  # its context may have held more of the list
        done.drop = sorted({*done.drop, *known.branch.drop} - {*done.seqs.values()})
        done.back = sorted({*done.back, *known.branch.back})
    done.new = both.new(keeps_all=keeps_all)
    before = {both.entries[at].words[:1] for at in range(min(done.seqs, default=0))}
    is_behind = len(held) > 1 and held[0] is both.first and not both.gone
    done.is_older = kind == "list" and {"q", "a"} <= before and is_behind
    return done


def is_new_turn(entries: Sequence[Entry], known: Known) -> bool:
    """Tell whether a list is a question, and perhaps its answer, of which the thread knows nothing: most lists are."""
    if not entries or not entries[0].words.startswith("q") or not is_one_turn(entries):
        return False
    ids = {row.id for row in known.rows} | known.deleted.keys()
    if any(entry.id in ids for entry in entries):
        return False
    if entries[-1].words.startswith("a"):
        return True
    # else it is perhaps asked again, as nobody has answered
    return len(entries) == 1 and not any(_said(row) == entries[0].words for row in known.rows)


def last_question(entries: Sequence[Entry]) -> int:
    """Return the index of the last question, -1 if there is none."""
    return max((at for at, entry in enumerate(entries) if entry.words.startswith("q")), default=-1)


def is_one_turn(entries: Sequence[Entry]) -> bool:
    """Tell whether questions come first, then answers: even with the words of an older turn, that is a new one."""
    kinds = "".join(entry.words[:1] for entry in entries)
    return kinds == "q" * kinds.count("q") + "a" * kinds.count("a")
