"""Several clients of one thread at once: what one has not seen it leaves alone, and what was deleted stays deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import Memory, MemoryContext, OptionError
from langchain_workingmem._text.sending import provider_valid
from tests.helpers.conversations import ai, result
from tests.helpers.examples import examples
from tests.helpers.types import Make

TURN: dict[str, Any] = {"thread_id": "t", "user_id": "ann"}
TWO = ("q0", "a0", "q1", "a1")


def said(*names: str) -> list[BaseMessage]:
    return [(HumanMessage if name[0] == "q" else AIMessage)(name, id=name) for name in names]


def texts(messages: Sequence[BaseMessage]) -> list[str]:
    return [str(message.text) for message in messages]


def stored(memory: Memory) -> list[str]:
    return texts(memory.history.messages("t"))


def everything(memory: Memory) -> list[str]:
    return texts(memory.history.messages("t", superseded=True))


@pytest.fixture
def talked(plain: Memory) -> Memory:
    plain.save_turn(said(*TWO), **TURN)
    return plain


@pytest.mark.both_faces
@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize("is_new", [True, False])
def test_two_turns_at_once_keep_each_other(plain: Memory, *, has_ids: bool, is_new: bool) -> None:
    if not is_new:
        plain.save_turn(said(*TWO), **TURN)
    questions: list[Any] = [said("q2"), said("q3")] if has_ids else ["q2", "q3"]
    first, second = (plain.context(question, **TURN) for question in questions)
    plain.save_turn([*first.messages, AIMessage("a2")], **TURN)
    plain.save_turn([*second.messages, AIMessage("a3")], **TURN)
    begin = [] if is_new else [*TWO]
    assert stored(plain) == everything(plain) == [*begin, "q2", "a2", "q3", "a3"]
    plain.save_turn([*second.messages, AIMessage("a3")], **TURN)  # once more, as after a lost reply
    assert stored(plain)[: len(begin) + 3] == [*begin, "q2", "a2", "q3"]


@pytest.mark.parametrize("deleted", [[], ["q1"], ["q0", "a0"], ["c1", "r1", "a1"]])
def test_tool_calls_of_a_list_without_ids_are_there_once(plain: Memory, deleted: list[str]) -> None:
    sent: list[BaseMessage] = []
    for at in "01":
        turn = [*said(f"q{at}"), ai("", f"call{at}", id=f"c{at}"), result(f"call{at}", "done"), *said(f"a{at}")]
        turn[2].id = f"r{at}"
        plain.save_turn(turn, **TURN)
        sent += turn
    plain.history.delete(deleted, thread_id="t")
    left = [one.id for one in plain.history.messages("t")]

    def calls(messages: Sequence[BaseMessage]) -> list[str | None]:
        return [call["id"] for one in messages if isinstance(one, AIMessage) for call in one.tool_calls]

    sent = [one.model_copy(update={"id": None}) for one in (*sent, *said("q2", "a2"))]
    shown = plain.context([one.model_copy() for one in sent[:-1]], **TURN).messages
    assert calls(shown) == ["call0", "call1"]
    if deleted == ["q0", "a0"]:  # the list begins before the thread
        with pytest.raises(OptionError, match="older"):
            plain.save_turn(sent, **TURN)
        return
    plain.save_turn(sent, **TURN)
    assert deleted or [one.id for one in plain.history.messages("t")][:-2] == left
    assert calls(plain.history.messages("t")) == ["call0", "call1"]
    assert stored(plain)[-2:] == ["q2", "a2"]


@pytest.mark.parametrize("is_list", [True, False])
def test_ids_of_deleted_messages_may_stand_for_new_ones(talked: Memory, *, is_list: bool) -> None:
    """A client numbers its messages, so after a deletion it uses numbers again."""
    talked.history.delete(["q1", "a1"], thread_id="t")
    asked, answer = HumanMessage("another", id="q1"), AIMessage("other", id="a1")
    context = talked.context([*said("q0", "a0"), asked], **TURN)
    assert texts(context.messages)[-1] == "another"
    talked.save_turn([*(said("q0", "a0") if is_list else ()), asked, answer], **TURN)
    assert everything(talked) == ["q0", "a0", "another", "other"]
    talked.save_turn([*said("q0", "a0"), asked, answer, *said("q2", "a2")], **TURN)
    assert everything(talked) == ["q0", "a0", "another", "other", "q2", "a2"]


def test_a_turn_of_a_thread_that_is_another_by_now_is_not_saved(talked: Memory) -> None:
    context = talked.context(said("q2"), **TURN)
    talked.threads.delete("t")
    talked.history.append(said("q9"), **TURN)
    talked.save_turn([*context.messages, *said("a2")], **TURN)
    assert everything(talked) == ["q9"]


def test_a_program_may_store_again_what_was_deleted(make_memory: Make, talked: Memory, prefix: str) -> None:
    talked.history.delete(["q1"], thread_id="t")
    talked.history.append(said("q1"), **TURN)
    assert stored(talked) == ["q0", "a0", "a1", "q1"]
    assert texts(talked.context(said(*TWO, "q2"), **TURN).messages)[-2:] == ["a1", "q2"]
    copy = make_memory(key_prefix=f"{prefix}x")
    copy.users.load(talked.users.export("ann"))
    assert stored(copy) == ["q0", "a0", "a1", "q1"]


@dataclass(frozen=True)
class Step:
    """What a client does; `position` chooses the message."""

    what: Literal["ask", "edit", "replace", "again", "save", "delete"]
    client: int
    position: int = 0
    saves: Literal["whole", "turn", "its own list"] = "whole"
    has_tools: bool = False


@dataclass
class Open:
    """A turn that a client has begun: its list, the context, and what was stored by then."""

    sent: list[BaseMessage]
    context: MemoryContext
    seen: set[str]


@dataclass
class Talk:
    memories: Sequence[Memory]
    thread_id: str
    numbers: Iterator[int] = field(default_factory=count)
    open: dict[int, Open] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    answered: dict[str, str] = field(default_factory=dict)  # ids of a turn -> id of its question

    def ids(self, *, superseded: bool = False) -> list[str]:
        return [one.id or "" for one in self.memories[0].history.messages(self.thread_id, superseded=superseded)]

    def run(self, step: Step) -> None:
        if step.what == "save":
            if found := self.open.pop(step.client, None):
                self.save(step, found)
        elif step.what == "delete":
            if ids := self.ids():
                self.deleted.add(ids[step.position % len(ids)])
                self.memories[step.client].history.delete([ids[step.position % len(ids)]], thread_id=self.thread_id)
        else:
            self.begin(step)
        assert not self.deleted & {*self.ids(superseded=True)}

    def begin(self, step: Step) -> None:
        memory = self.memories[step.client]
        sent = memory.history.messages(self.thread_id)
        questions = [at for at, one in enumerate(sent) if one.type == "human"]
        name = f"q{next(self.numbers)}"
        if step.what != "ask" and questions:
            del sent[questions[step.position % len(questions)] + 1 :]
        if step.what == "edit" and questions:  # under its id
            sent[-1] = HumanMessage(name, id=sent[-1].id)
        elif step.what == "ask" or not questions:
            sent = said(name) if step.position % 2 else [*sent, *said(name)]
        elif step.what == "replace":
            sent[-1] = HumanMessage(name, id=name)
        context = memory.context([one.model_copy(deep=True) for one in sent], thread_id=self.thread_id, user_id="ann")
        shown = [one.id for one in context.messages]
        assert len({*shown}) == len(shown)
        assert not self.deleted & {*shown}
        assert provider_valid(context.messages) == context.messages
        self.open[step.client] = Open(sent, context, {*self.ids(superseded=True)})

    def save(self, step: Step, found: Open) -> None:
        name = next(self.numbers)
        answer: list[BaseMessage] = said(f"a{name}")
        if step.has_tools:
            answer = [ai("", f"c{name}", id=f"call{name}"), result(f"c{name}", f"result{name}"), *answer]
        asked = found.sent[-1].id or ""
        begin = {"whole": found.context.messages, "turn": found.sent[-1:], "its own list": found.sent}[step.saves]
        before = self.ids()
        self.memories[step.client].save_turn([*begin, *answer], thread_id=self.thread_id, user_id="ann")
        self.answered |= {one.id or "": asked for one in answer}
        after = self.ids()
        unseen = [id for id in before if id not in found.seen and self.answered.get(id) != asked]
        assert [id for id in unseen if id not in after] == []
        assert {one.id for one in answer} <= {*after}


steps = st.builds(
    Step,
    what=st.sampled_from(["ask", "ask", "edit", "replace", "again", "save", "save", "save", "delete"]),
    client=st.integers(0, 2),
    position=st.integers(0, 9),
    saves=st.sampled_from(["whole", "turn", "its own list"]),
    has_tools=st.booleans(),
)
THREADS = count()


@pytest.fixture
def processes(make_memory: Make) -> list[Memory]:
    return [make_memory() for _ in range(3)]


@given(st.lists(steps, min_size=4, max_size=16))
@examples(150, server=True, derandomize=True)
def test_clients_lose_nothing_that_they_have_not_seen(processes: list[Memory], done: list[Step]) -> None:
    talk = Talk(processes, f"t{next(THREADS)}")
    for number in range(2):
        processes[0].save_turn(said(f"q-{number}", f"a-{number}"), thread_id=talk.thread_id, user_id="ann")
    for step in done:
        talk.run(step)
