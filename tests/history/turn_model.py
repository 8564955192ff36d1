"""A model of the beginning of turn/lua/turn.lua: where the caller's list begins, what it leaves behind, what the history shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.history.branch_model import (
    Entry,
    Found,
    Thread,
    compare_list,
    count_said,
    in_order,
    locate,
    recognise,
    resent_traffic,
)


@dataclass
class Verdict:
    """What a turn finds out about its list."""

    entries: list[Entry]
    start: int = 0  # index at which the list begins: a state may hold several
    left: list[str] = field(default_factory=list)
    back: list[str] = field(default_factory=list)
    claimed: set[str] = field(default_factory=set)
    first: int | None = None  # sequence number at which the list begins
    asked: int | None = None  # sequence number of the question
    hidden: set[str] = field(default_factory=set)  # ids that the history leaves out, because the list has them


def compare(thread: Thread, entries: list[Entry], kind: Literal["list", "state", "part"]) -> Verdict:
    """Compare a list of the caller with the thread: a client's list, a checkpointer's state, or some of its messages."""
    verdict = Verdict(entries)
    is_list, notes_count = kind == "list", False
    if thread.exists:
        locate(thread, entries)
        if kind != "part":
            located = [at for at, entry in enumerate(entries) if entry.seq is not None]
            start = 0 if is_list or not located else located[-1] + 1  # a client may send its list at the end of a state
            is_found = False
            if count_said(entries[start:]) > 1:
                is_found, notes_count = recognise(thread, entries[start:])
            if is_found:
                is_list, verdict.start = True, start
            elif not is_list and (last := _last_list(entries)) is not None:
                is_list, verdict.start = True, last
    if is_list:
        _compare_as_list(thread, entries[verdict.start :], verdict, notes_count=notes_count)
    else:
        _compare_as_state(thread, verdict, is_whole=kind == "state")
    questions = [entry for entry in entries[verdict.start :] if entry.words.startswith("q")]
    verdict.asked = questions[-1].seq if questions else None
    verdict.hidden = resent_traffic(thread, entries[verdict.start :]) if is_list else set()
    verdict.hidden |= {entry.known for entry in entries[verdict.start :] if entry.seq is not None} | set(verdict.left)
    if kind == "state":
        verdict.hidden |= _trimmed(thread, entries)
    return verdict


def _last_list(entries: Sequence[Entry]) -> int | None:
    """Return the index of the last list in a state that holds several: there the sequence numbers fall."""
    located = [at for at, entry in enumerate(entries) if entry.seq is not None]
    seqs = [entry.seq for entry in entries if entry.seq is not None]
    if all(entries[at].id == entries[at].known for at in located):
        return None
    return next((located[at] for at in reversed(range(1, len(seqs))) if seqs[at - 1] >= min(seqs[at:])), None)


def _compare_as_list(thread: Thread, entries: Sequence[Entry], verdict: Verdict, *, notes_count: bool) -> None:
    """A single message is a new question and leaves nothing behind, unless its words have changed under a known id."""
    anchor = next((entry for entry in entries if entry.seq is not None), None)
    if anchor is None:
        return
    is_edited = count_said([anchor]) > 0 and thread.messages[anchor.known].words != anchor.words
    if count_said(entries) > 1 or is_edited:
        verdict.left, verdict.back, verdict.first = compare_list(thread, entries, notes_count=notes_count)
    else:
        verdict.first = anchor.seq


def _compare_as_state(thread: Thread, verdict: Verdict, *, is_whole: bool) -> None:
    """A state leaves behind only what belongs to it; one that is new to memory claims the messages it has."""
    located = {entry.known: entry for entry in verdict.entries if entry.seq is not None}
    verdict.first = min((entry.seq or 0 for entry in located.values()), default=None)
    if not is_whole or verdict.first is None:
        return
    verdict.back = list(dict.fromkeys(entry.known for entry in located.values() if entry.is_back))
    if (own := _own_state(thread, verdict.entries)) is None:
        verdict.claimed = set(located)
    else:
        later = thread.ids(above=verdict.first - 1)
        verdict.left = [id for id in later if id not in located and thread.messages[id].state == own]


def _own_state(thread: Thread, entries: Sequence[Entry]) -> str | None:
    """Return the state that the first message of a list belongs to: a number."""
    located = [entry for entry in entries if entry.seq is not None]
    state = thread.messages[min(located, key=lambda entry: entry.seq or 0).known].state if located else ""
    return state if state.isdigit() else None


def _trimmed(thread: Thread, entries: Sequence[Entry]) -> set[str]:
    """Return the messages of a state that its caller has trimmed off in front."""
    if (own := _own_state(thread, entries)) is None:
        return set()
    first = min(entry.seq for entry in entries if entry.seq is not None)
    return {id for id in thread.ids(below=first) if thread.messages[id].state == own}


# ---------------------------------------------------------------------- what the history shows


def history(thread: Thread, verdict: Verdict, last: int | None, step: int) -> tuple[float, list[str]]:
    """Return the sequence number where the history begins, and the ids that it shows in front of the list."""
    end = math.inf if verdict.asked is None else verdict.asked
    if last == 0:
        return end, []
    back = {id: thread.superseded[id] for id in verdict.back}
    said = [one for one in thread.said() if one.seq < end and one.id not in verdict.left]
    for id, seq in back.items():
        one = thread.messages[id]
        if one.words and not one.is_refused and seq < end:
            said.append(Found(math.ceil(seq), one.words, id))
    begins = _window(sorted(said, key=lambda one: one.seq, reverse=True), last, step)
    shown = {id: thread.current[id] for id in thread.ids(above=begins - 1, below=end)} | back
    ids = [id for id, seq in in_order(shown) if seq >= begins and id not in verdict.hidden]
    return begins, [id for id in ids if not thread.messages[id].is_refused]


def _window(newest: Sequence[Found], last: int | None, step: int) -> float:
    """Return where the last N begin; they grow to the question of their first answer, by 20 at most."""
    skipped = 0 if last is None or len(newest) <= last else (len(newest) - last) // step * step
    older = newest[len(newest) - skipped - 1 :] if skipped else []
    if not older:
        return -math.inf
    question = next((one for one in older[:20] if one.words.startswith("q")), None)
    if question is not None:
        return question.seq
    return older[1].seq + 1 if len(older) > 1 else -math.inf
