"""The scripts decide about branches as their models do, for any thread and any list.

Each example begins a thread of its own. After each step, what the scripts said and stored is compared with what the models make
of the thread as it was stored before. The examples are the same in each run; `make nightly` tries others, and many more.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Literal

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import HistoryOptions, Memory, OptionError
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem._text.said import structured_answers, words_of
from langchain_workingmem.history import Branch, refuse_messages, save_messages
from langchain_workingmem.turn import Gathered, Turn, to_save
from tests.helpers.examples import NIGHTLY, examples
from tests.history.branch_model import Entry, Stored, Thread
from tests.history.turn_model import Verdict, compare, history
from tests.history.write_model import Changes, OlderError, save

HEADER = re.compile(rb'.*?"said":"(\w*)/\d+/\d+(!?)","state":"([^"]*)"')
THREADS = count()

COMMON = ["yes", "no", "why?"]  # people say the same more than once; a higher number is something new
parts = st.tuples(st.sampled_from(["question", "answer", "tools", "data"]), st.integers(0, 6))
questions = st.tuples(st.just("question"), st.integers(0, 6))
positions = st.integers(0, 9)


@dataclass(frozen=True)
class Program:
    """What a program does to the thread."""

    what: Literal["append", "truncate", "delete", "refuse"]
    position: int
    parts: list[tuple[str, int]]


@dataclass(frozen=True)
class Call:
    """The list of a caller: made of what is stored or of what was sent before, and what is done with it."""

    kind: Literal["list", "state", "part"] = "list"
    base: Literal["current", "everything"] | int = "current"  # a number: that of a list that was sent before
    changes: Sequence[tuple[Literal["trim", "cut", "drop", "edit", "replace", "move", "insert"], int]] = ()
    ids: Literal["kept", "none", "some", "own", "twice"] = "kept"
    has_traffic: bool = True
    asks: Sequence[tuple[str, int]] = ()
    answers: Sequence[tuple[str, int]] = ()
    reads: bool = True
    saves: bool = True
    is_late: bool = False  # it is saved after the next step
    window: tuple[int | None, int] = (None, 1)  # the messages that the history shows, in steps


mostly = st.sampled_from([True, True, True, False])
begun = st.lists(
    st.builds(
        Call,
        kind=st.sampled_from(["list", "list", "state"]),
        asks=st.lists(questions, min_size=1, max_size=1),
        answers=st.lists(parts, min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=3,
)
programs = st.builds(
    Program,
    st.sampled_from(["append", "append", "truncate", "delete", "refuse"]),
    positions,
    st.lists(parts, max_size=3),
)
calls = st.builds(
    Call,
    kind=st.sampled_from(["list", "list", "list", "state", "state", "part"]),
    base=st.sampled_from(["current", "everything"]) | positions,
    changes=st.lists(
        st.tuples(
            st.sampled_from(["trim", "cut", "cut", "drop", "edit", "edit", "replace", "move", "insert"]), positions
        ),
        max_size=2,
    ),
    ids=st.sampled_from(["kept", "kept", "kept", "none", "none", "some", "own", "twice"]),
    has_traffic=mostly,
    asks=st.lists(questions, max_size=1),
    answers=st.lists(parts, max_size=2),
    reads=mostly,
    saves=mostly,
    is_late=st.sampled_from([False, False, False, True]),
    window=st.tuples(st.sampled_from([None, None, 0, 1, 2, 3, 5]), st.integers(1, 3)),
)


@dataclass
class Talk:
    """One thread, and what callers have sent to it."""

    memory: Memory
    keys: Any
    client: redis.Redis
    thread_id: str
    numbers: Any = field(default_factory=count)
    sent: list[list[BaseMessage]] = field(default_factory=list)
    late: list[Callable[[], None]] = field(default_factory=list)  # saves that are still to come

    # what is stored

    def thread(self) -> Thread:
        """Read the thread as it is stored."""
        names = self.keys.of(self.thread_id)
        with self.client.pipeline(transaction=False) as pipeline:
            pipeline.hmget(names.thread, "user", "next_seq")
            for key in (names.order, names.superseded, names.aliases):
                pipeline.zrange(key, 0, -1, withscores=True)
            pipeline.hgetall(names.messages)
            (owner, next_seq), *ranked, values = pipeline.execute()
        order, superseded, aliases = ({id.decode(): seq for id, seq in pairs} for pairs in ranked)
        messages = {id.decode(): _stored(value) for id, value in values.items()}
        return Thread(order, superseded, aliases, messages, int(next_seq or 0), owner is not None)

    # messages

    def new_id(self, prefix: str = "m") -> str:
        return f"{prefix}{next(self.numbers)}"

    def messages(self, some: Sequence[tuple[str, int]]) -> list[BaseMessage]:
        return [one for kind, text in some for one in self._make(kind, text)]

    def _make(self, kind: str, number: int) -> list[BaseMessage]:
        text = COMMON[number] if number < len(COMMON) else f"words of {self.new_id()}"
        if kind in {"question", "answer"}:
            return [(HumanMessage if kind == "question" else AIMessage)(text, id=self.new_id())]
        call = {"name": kind, "args": {"text": text}, "id": self.new_id("call")}
        result = ToolMessage("done", tool_call_id=call["id"], id=self.new_id())
        return [AIMessage("", tool_calls=[call], id=self.new_id()), result]

    def made(self, call: Call) -> list[BaseMessage]:
        """Make the list of a call; every message has an id, if need be one that is new."""
        if isinstance(call.base, int):
            base = self.sent[call.base % len(self.sent)]
        else:
            base = self.memory.history.messages(self.thread_id, superseded=call.base == "everything")
        found = [one.model_copy(deep=True) for one in base if call.has_traffic or words_of(one)]
        for change, position in call.changes:
            self._change(found, change, position)
        for at, one in enumerate(found):
            if call.ids == "none" or (call.ids == "some" and at % 2):
                one.id = self.new_id()
            elif call.ids == "own":
                one.id = f"own-{one.id}"
        if call.ids == "twice":  # a client sends its list, without ids, to a state that holds it
            found += [one.model_copy(update={"id": self.new_id()}) for one in found]
        return [*found, *self.messages(call.asks)]

    def _change(self, found: list[BaseMessage], change: str, position: int) -> None:
        at = position % max(1, len(found))
        if change == "trim":
            del found[:at]
        elif change == "cut":
            del found[len(found) - at :]
        elif change == "insert":
            found[at:at] = self.messages([("question", position), ("answer", position)][: 1 + position % 2])
        elif not found:
            return
        elif change == "drop":
            del found[at]
        elif change == "move":
            found.insert(position // 2, found.pop(at))
        else:
            found[at].content = COMMON[position] if position < len(COMMON) else f"words of {self.new_id()}"
            found[at].id = found[at].id if change == "edit" else self.new_id()

    # steps

    def program(self, step: Program) -> None:
        stored = [one.id or "" for one in self.memory.history.messages(self.thread_id)]
        one = stored[step.position % len(stored)] if stored else ""
        owned = {"thread_id": self.thread_id, "user_id": "ann"}
        if step.what == "append" and step.parts:
            before = self.thread()
            messages = self.messages(step.parts)
            self.memory.history.append(deepcopy(messages), **owned)
            save(before, _entries(messages, structured_answers(messages, is_over=False)), Changes(), "append")
            assert self.thread() == before
        elif stored and step.what == "truncate":
            self.memory.history.truncate(self.thread_id, after=one)
        elif stored and step.what == "delete":
            self.memory.history.delete([one], thread_id=self.thread_id)
        elif stored and step.what == "refuse":
            self.memory._core.run(refuse_messages(self.memory._core.state, self.thread_id, "ann", [one]))

    def call(self, call: Call) -> None:
        messages = self.made(call)
        answers = self.messages(call.answers)
        self.sent.append(deepcopy([*messages, *answers]))
        branch, seqs = Branch(kind=call.kind), dict[str, int]()
        if call.reads and messages:
            found = self._compared(call, messages)
            branch, seqs = found.branch, dict(found.seqs)
            for one in messages if call.kind == "list" else ():  # as `Memory.context` does
                one.id = branch.aliases.get(one.id or "", one.id)
        save = partial(self._saved, call, [*messages, *answers], branch, seqs)
        if call.saves and call.is_late:
            self.late.append(save)
        elif call.saves:
            save()

    def _compared(self, call: Call, messages: list[BaseMessage]) -> Gathered:
        """Compare a list with the thread, as the script and the model do."""
        thread = self.thread()
        last, step = call.window
        options = HistoryOptions(last_messages=last, step=step, exclude_tools=False)
        turn = Turn(self.memory._core, options)
        found = self.memory._core.run(turn.gather(messages, self.thread_id, "ann", kind=call.kind))
        verdict = compare(thread, _entries(messages, structured_answers(messages, is_over=False)), call.kind)
        assert _read(found, messages) == _decided(thread, verdict)
        begins, shown = history(thread, verdict, last, step)
        given = {one.id for one in messages} - found.branch.hidden
        assert (found.begins, [one.id for one in found.stored]) == (begins, [id for id in shown if id not in given])
        return found

    def _saved(self, call: Call, messages: list[BaseMessage], branch: Branch, seqs: dict[str, int]) -> None:
        """Save a list, as the script and the model do: all of it, or what an agent has not saved yet."""
        is_turn = call.kind == "list"
        structured = structured_answers(messages, is_over=True)
        fresh = messages if is_turn else to_save(messages, branch, seqs)
        if not fresh and not branch.has_changes:
            return
        thread = self.thread()
        before = deepcopy(thread)
        entries = _entries(fresh, structured)
        mode: Literal["turn", "append"] = "turn" if is_turn else "append"
        try:
            expected = save(thread, entries, _changes(branch), mode)
        except OlderError:
            thread, expected = before, None
        plan = save_messages(
            self.memory._core, fresh, self.thread_id, "ann", mode=mode, branch=branch, structured=structured
        )
        with nullcontext() if expected is not None else pytest.raises(OptionError, match="grows only at its end"):
            assert [one.id for one in self.memory._core.run(plan)] == expected
        assert self.thread() == thread


def _stored(value: bytes) -> Stored:
    found = HEADER.match(value)
    assert found is not None
    words, refused, state = found.groups()
    return Stored(words.decode(), state.decode(), refused == b"!")


def _entries(messages: Sequence[BaseMessage], structured: set[int]) -> list[Entry]:
    return [Entry(one.id or "", words_of(one, structured=id(one) in structured)) for one in messages]


def _changes(branch: Branch) -> Changes:
    edited = [id for id in branch.edited if id not in branch.redacted]
    if branch.kind == "state":
        return Changes("s", branch.anchor, branch.left, branch.back, branch.claimed, edited, dict(branch.aliases))
    seen = math.inf if branch.seen is None else branch.seen
    return Changes("t", branch.question, branch.left, branch.back, branch.claimed, edited, seen=seen)


def _read(found: Gathered, messages: Sequence[BaseMessage]) -> dict[str, Any]:
    """Return what the script has said about a list."""
    ids = [one.id or "" for one in messages]
    return {
        "left": found.branch.left,
        "left_seqs": found.left_seqs,
        "back": found.branch.back,
        "claimed": set(found.branch.claimed),
        "stored": [found.branch.aliases.get(id, id) if id in found.seqs else "" for id in ids],
        "seqs": [found.seqs.get(id) for id in ids],
        "anchor": found.branch.anchor,
        "end": found.end,
        "hidden": found.branch.hidden,
    }


def _decided(thread: Thread, verdict: Verdict) -> dict[str, Any]:
    """Return what the model says about a list."""
    stored = [entry.main or entry.known for entry in verdict.entries]
    asked = next((entry for entry in reversed(verdict.entries) if entry.words.startswith("q")), None)
    located = [entry for entry in verdict.entries if entry.seq is not None]
    refused = {
        one.id for one in located if thread.messages[one.known].is_refused and (asked is None or one.id != asked.id)
    }
    before = verdict.entries[: verdict.entries.index(asked)] if asked is not None else []
    refused |= {one.id for one in before if one.is_forgotten}
    return {
        "left": verdict.left,
        "left_seqs": {int(thread.current[id]) for id in verdict.left},
        "back": verdict.back,
        "claimed": verdict.claimed,
        "stored": stored,
        "seqs": [entry.seq for entry in verdict.entries],
        "anchor": next((id for id in stored[verdict.start :] if id), ""),
        "end": float("inf") if verdict.asked is None else verdict.asked,
        "hidden": {entry.id for entry in verdict.entries[: verdict.start] if entry.seq is not None} | refused,
    }


def run(memory: Memory, raw: redis.Redis, prefix: str, steps: Sequence[Call | Program]) -> None:
    talk = Talk(memory, Keys(prefix), raw, f"t{next(THREADS)}")
    for step in steps:
        late, talk.late = talk.late, []
        if isinstance(step, Program):
            talk.program(step)
        else:
            talk.call(step)
        for save_late in late:
            save_late()
    for save_late in talk.late:
        save_late()


@given(begun, st.lists(st.one_of(calls, calls, calls, programs), min_size=2, max_size=7))
@examples(100, server=True, derandomize=not NIGHTLY)
def test_scripts_and_models_agree(
    plain: Memory, raw: redis.Redis, prefix: str, first: list[Call], steps: list[Call | Program]
) -> None:
    run(plain, raw, prefix, [*first, *steps])


def asked(kind: Literal["list", "state", "part"] = "list", **options: Any) -> Call:
    """A turn of a caller: a question and an answer that nobody has said before."""
    return Call(kind, asks=[("question", 5)], answers=options.pop("answers", [("answer", 5)]), **options)


# in the thread: question, call, result, answer; question, answer
TWO = [asked(answers=[("tools", 5), ("answer", 5)]), asked()]
STATES = [asked("state"), asked("state")]
EDITED = Call(changes=[("cut", 5), ("edit", 0)], answers=[("answer", 5)])


CASES: dict[str, list[Call | Program]] = {
    "a list goes back by ids": [*TWO, Program("truncate", 0, []), asked(base=1)],
    "a list goes back by words": [*TWO, Program("truncate", 0, []), asked(base=1, ids="none")],
    "a program has added what no list holds": [
        *TWO,
        Program("append", 0, [("answer", 5)]),
        asked(ids="none", changes=[("cut", 1)]),
    ],
    "what a question says was said on another branch": [
        asked(),
        Call(asks=[("question", 0)]),
        Program("truncate", 1, []),
        asked(),
        Call(asks=[("question", 0)]),
    ],
    "a list holds only what a program has added": [
        *TWO,
        Program("append", 0, [("question", 5), ("answer", 5), ("question", 5), ("answer", 5)]),
        asked(ids="none", changes=[("trim", 6), ("drop", 1)]),
    ],
    "an answer is made again": [*TWO, Call(changes=[("cut", 1)], answers=[("answer", 5)])],
    "a turn is saved again": [
        asked(),
        asked(),
        Call(base=0, changes=[("drop", 1)], answers=[("answer", 5)], reads=False),
    ],
    "a list takes older words back": [*TWO, EDITED, asked(base=1, ids="none"), EDITED, asked(base=1)],
    "a state takes older words back": [
        *STATES,
        asked("state", changes=[("cut", 1), ("edit", 2)]),
        asked("state", base=1),
    ],
    "a list begins before the thread": [
        *TWO,
        Call(ids="none", has_traffic=False, changes=[("cut", 1), ("insert", 3)]),
    ],
    "a list ends with the first question of the thread": [
        *TWO,
        Call(ids="none", has_traffic=False, changes=[("cut", 3), ("insert", 3)], answers=[("answer", 5)], reads=False),
    ],
    "a state claims what it holds": [*TWO, asked("state"), asked("state", changes=[("drop", 2)])],
    "a state holds two lists": [*STATES, asked("state", ids="twice"), asked("state", base=2)],
    "its second list begins where the first one ends": [
        *STATES,
        asked("state", ids="twice", changes=[("trim", 3)]),
        asked("state", base=2),
    ],
    "a message that has another id is deleted": [
        *STATES,
        asked("state", ids="own"),
        asked("state", base=2),
        Program("delete", 1, []),
        asked("part", base=2),
    ],
    "the history is a window": [*TWO, asked(window=(1, 1)), asked(window=(3, 2))],
    "a provider has refused a message": [*TWO, Program("refuse", 4, []), asked(ids="some")],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_each_case_is_among_them(plain: Memory, raw: redis.Redis, prefix: str, steps: list[Call | Program]) -> None:
    run(plain, raw, prefix, steps)
