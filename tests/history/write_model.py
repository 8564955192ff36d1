"""A model of history/lua/write.lua: which messages a thread holds after a save, under which ids, and on which branch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tests.history.branch_model import Entry, Stored, Thread, compare_list, is_data, locate, recognise


class OlderError(Exception):
    """The list begins with messages that are older than the thread, which grows only at its end."""


@dataclass
class Changes:
    """What is saved together with the messages."""

    source: Literal["", "t", "s"] = ""  # a program, a turn, or the state of a checkpointer
    anchor: str = ""  # stored id of the question, or of the first message of the state
    left: Sequence[str] = ()
    back: Sequence[str] = ()
    claimed: Sequence[str] = ()
    edited: Sequence[str] = ()
    aliases: dict[str, str] = field(default_factory=dict)
    seen: float = math.inf  # the next sequence number when the caller's context was read


FORGOTTEN, DELETED = -1, -2  # among the aliases


def save(thread: Thread, entries: Sequence[Entry], changes: Changes, mode: Literal["append", "turn"]) -> list[str]:
    """Save messages, and return their stored ids."""
    words = [entry.words for entry in entries]
    anchor = changes.anchor if changes.source == "t" else None
    asked = next((at for at, one in enumerate(entries) if one.id == anchor), None)
    is_turn = mode == "append" or _is_turn(entries)
    if (mode == "append" or not is_turn) and _is_older(thread, entries, mode, is_turn=is_turn):
        raise OlderError
    is_behind = (
        changes.source == "t" and changes.anchor in thread.superseded
    )  # left by another client while it was answered
    _follow(thread, changes.left, [*changes.back, *[changes.anchor] * is_behind])
    if mode == "turn" and thread.exists:
        locate(thread, entries)
        if (
            asked is not None
        ):  # a question may be asked under the id of a deleted one, and its answer may have such an id
            for entry in entries[asked:]:
                entry.is_forgotten &= thread.aliases.get(entry.id) != DELETED
        if is_turn:
            _follow(thread, _answered_again(thread, entries), ())
        else:
            _, notes_count = recognise(thread, entries, changes.seen)
            _follow(thread, *compare_list(thread, entries, notes_count=notes_count, seen=changes.seen)[:2])
            _mark_copies(entries)
    for entry in entries if mode == "append" else ():
        if not changes.source:
            thread.aliases.pop(entry.id, None)  # a program may store again what was deleted
        elif entry.id not in thread.messages:
            score = thread.aliases.get(entry.id)
            entry.is_forgotten |= score == FORGOTTEN or (score == DELETED and entry.id != anchor)
    for entry in entries:
        is_edited = entry.id in changes.edited and entry.words.startswith("q")
        if is_edited and entry.id in thread.current and thread.messages[entry.id].words != entry.words:
            _keep_version(thread, entry.id)
    lineage = _lineage(thread, changes)
    for id in changes.claimed:
        thread.messages[id].state = lineage
    writer = _Writer(thread, mode, changes.source, lineage, thread.current.get(changes.anchor))
    stored = [
        entry.id if entry.is_copy or entry.is_forgotten else writer.save(entry, said)
        for entry, said in zip(entries, words, strict=True)
    ]
    thread.aliases |= {alias: thread.current[id] for alias, id in changes.aliases.items() if id in thread.current}
    thread.exists = True
    return stored


def _is_turn(entries: Sequence[Entry]) -> bool:
    """Tell whether questions come first, then answers: even with the words of an older turn, it is a new one."""
    kinds = "".join(entry.words[0] for entry in entries if entry.words and not is_data(entry.words))
    return "aq" not in kinds and not kinds.startswith("a")


def _is_older(thread: Thread, entries: Sequence[Entry], mode: str, *, is_turn: bool) -> bool:
    """Tell whether the list begins with a conversation that is older than the thread."""
    begin = next(iter(thread.ids()), None)
    if begin is None:
        return False
    words = None if is_turn else thread.messages[begin].words
    if not any(entry.id == begin or entry.words == words for entry in entries[1:]):
        return False
    copies = [replace(entry) for entry in entries]
    locate(thread, copies)
    if not is_turn:
        recognise(thread, copies)
    at = next((at for at, entry in enumerate(copies) if entry.known == begin), len(copies))
    shared = [entry for entry in copies[at:] if entry.seq is not None and (entry.words or entry is copies[at])]
    is_sure = at < len(copies) and copies[at].id == begin
    # one equal message is not enough to know the thread by, as people say "hi" more than once
    is_known = is_sure or len(shared) > 1 or (len(shared) == 1 and len(thread.said()) == 1)
    older = {entry.words[:1] for entry in copies[:at] if entry.seq is None and not is_data(entry.words)}
    return is_known and "q" in older and ("a" in older or mode == "turn")


def _answered_again(thread: Thread, entries: Sequence[Entry]) -> list[str]:
    """Return what a stored question that gets another answer leaves behind: its own turn."""
    asked = next((entry for entry in reversed(entries) if entry.words.startswith("q")), None)
    has_answer = any(entry.words.startswith("a") for entry in entries)
    if asked is None or asked.seq is None or not has_answer or all(one.seq is not None for one in entries if one.words):
        return []
    kept = {entry.known for entry in entries}
    later = thread.ids(above=asked.seq)
    return [id for id in later if id not in kept and thread.messages[id].state == f"t{asked.seq}"]


def _mark_copies(entries: Sequence[Entry]) -> None:
    """Mark tool traffic without stored ids between messages that the thread has or had: it is stored already, or was deleted."""
    is_between = False
    between: list[Entry] = []
    for entry in entries:
        if not entry.words:
            between += [entry] if entry.seq is None else []
            continue
        is_known = entry.seq is not None or entry.is_forgotten
        for one in between if is_known and is_between else ():
            one.is_copy = True
        is_between, between = is_known, []


def _lineage(thread: Thread, changes: Changes) -> str:
    """Return the state that saved messages belong to: that of the first message, or a new one."""
    if changes.source != "s":
        return ""
    anchor = thread.messages.get(changes.anchor)
    if anchor is not None and anchor.state.isdigit():
        return anchor.state
    return f"{thread.current.get(changes.anchor, thread.next_seq):.0f}"


@dataclass
class _Writer:
    """Saves one message after the other."""

    thread: Thread
    mode: str
    source: str
    lineage: str
    question: float | None  # sequence number of the latest

    def save(self, entry: Entry, words: str) -> str:
        thread = self.thread
        id = _restore(thread, entry.main or entry.known or entry.id)
        if (seq := thread.current.get(id)) is None:
            seq = thread.current[id] = thread.next_seq
            thread.next_seq += 1
            self.question = seq if words.startswith("q") else self.question
            of_turn = f"t{self.question:.0f}" if self.source == "t" and self.question not in {None, seq} else ""
            thread.messages[id] = Stored(words, self.lineage or of_turn or self.source)
            return id
        self.question = seq if words.startswith("q") else self.question
        stored = thread.messages[id]
        if self.lineage and not stored.state.isdigit():
            stored.state = self.lineage
        if self.mode == "turn" and stored.state == "":
            stored.state = "t"
        is_less = self.mode == "turn" and id != entry.id  # the client sends less of it than the thread holds
        is_still_data = not words and self.mode == "append" and is_data(stored.words)  # only a turn knows how it ends
        if not is_less:
            self._change(id, stored.words if is_still_data else words)
        return id

    def _change(self, id: str, words: str) -> None:
        """Give a message other words; a provider may accept them."""
        thread, stored, seq = self.thread, self.thread.messages[id], self.thread.current[id]
        if stored.words == words and not stored.is_refused:
            return
        stored.words, stored.is_refused = words, False
        for version in thread.superseded_ids(seq - 1, seq):
            if thread.messages[version].words == words:  # the message has the words of its older version again
                del thread.superseded[version], thread.messages[version]


# ---------------------------------------------------------------------- branches and versions


def _follow(thread: Thread, left: Sequence[str], back: Sequence[str]) -> None:
    """Make another branch the current one."""
    for id in left:
        if id in thread.current:
            thread.superseded[id] = thread.current.pop(id)
    for id in back:
        _restore(thread, id)


def _restore(thread: Thread, id: str) -> str:
    """Put a superseded message back on the current branch, and return its id: that of the message for an older version."""
    seq = thread.superseded.get(id)
    main = "" if seq is None else thread.main_of(id, seq)
    if seq is not None and main and main != id:
        del thread.superseded[id]
        older = thread.messages.pop(id)
        _keep_version(thread, main)
        thread.messages[main] = older
        id = main
    if id in thread.superseded:
        thread.current[id] = thread.superseded.pop(id)
    return id


def _keep_version(thread: Thread, id: str) -> None:
    """Keep a message as it is as an older version of itself, a fraction below its sequence number."""
    seq = math.ceil(thread.current.get(id, thread.superseded.get(id, 0)))
    version = f"{id}~{thread.messages[id].words}"
    while version in thread.messages:
        version += "~"
    thread.messages[version] = replace(thread.messages[id])
    versions = [*thread.superseded_ids(seq - 1, seq), version]
    for number, one in enumerate(versions, 1):
        thread.superseded[one] = seq - 1 + number / (len(versions) + 1)
