"""Random conversations of a client against a small model: the thread is the branch that the client shows, and nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import Memory
from tests.helpers.examples import examples

ACTIONS = ("ask", "ask", "ask with a tail", "say again", "regenerate", "edit", "go back", "append")


def is_said(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage) or (isinstance(message, AIMessage) and not message.tool_calls)


def words(messages: list[BaseMessage]) -> list[str]:
    return [str(one.text) for one in messages if is_said(one)]


@dataclass
class Client:
    """A client that keeps its conversation, and the ones that it has left: with the ids of its messages, or without."""

    memory: Memory
    has_ids: bool
    thread_id: str = field(default_factory=lambda: uuid4().hex)
    shown: list[BaseMessage] = field(default_factory=list)  # its branch
    branches: list[list[BaseMessage]] = field(default_factory=list)  # all that it has shown
    ever: set[str] = field(default_factory=set)  # all that was said
    numbers: Any = field(default_factory=count)

    @property
    def ids(self) -> dict[str, Any]:
        return {"thread_id": self.thread_id, "user_id": "u"}

    def question(self, id: str | None = None) -> BaseMessage:
        return HumanMessage(f"question {next(self.numbers)}", id=id or uuid4().hex)

    def answers(self, *, uses_tool: bool) -> list[BaseMessage]:
        number = next(self.numbers)
        call: Any = {"name": "look", "args": {"at": number}, "id": f"c{number}"}
        traffic = [
            AIMessage("", tool_calls=[call], id=uuid4().hex),
            ToolMessage(f"seen {number}", tool_call_id=f"c{number}", id=uuid4().hex),
        ]
        return [*(traffic if uses_tool else ()), AIMessage(f"answer {number}", id=uuid4().hex)]

    def sent(self, messages: list[BaseMessage]) -> list[BaseMessage]:
        """Return messages as they go over the wire: new objects, without ids if the client keeps none."""
        return [one.model_copy(update={} if self.has_ids else {"id": None}) for one in messages]

    def turn(
        self, before: list[BaseMessage], asked: list[BaseMessage], *, uses_tool: bool, looks: bool, sent_from: int = 0
    ) -> None:
        """Take a turn behind `before`, of which the client sends what stands from an index on."""
        branch = [*before, *asked]
        if looks:
            context = self.memory.context(self.sent(branch[sent_from:]), **self.ids)
            shown = words(context.messages)
            assert shown == words(branch)[-len(shown) :]
            assert len(shown) >= min(10, len(words(branch)))  # as many as the history shows by default
        branch += self.answers(uses_tool=uses_tool)
        self.memory.save_turn(self.sent(branch[sent_from:]), **self.ids)
        self.shown = branch
        self.branches.append(branch)
        self.ever.update(words(branch))

    def turns(self) -> list[int]:
        """Return where the questions of its branch stand."""
        return [at for at, one in enumerate(self.shown) if isinstance(one, HumanMessage)]

    def begins(self) -> list[int]:
        """Return the questions that it may ask in another way; one that is all of a list without ids is a new turn."""
        return self.turns() if self.has_ids else self.turns()[1:]

    def step(self, action: str, number: int, *, uses_tool: bool, looks: bool) -> None:
        more: dict[str, Any] = {"uses_tool": uses_tool, "looks": looks}
        match action:
            case "ask with a tail" if places := self.turns():
                self.turn(self.shown, [self.question()], **more, sent_from=places[number % len(places)])
            case "say again" if self.shown:
                places = [0, *self.turns()]
                self.again(self.shown[places[number % len(places)] :])
            case "regenerate" if places := self.begins():
                at = places[number % len(places)]
                self.turn(self.shown[:at], [self.shown[at]], **more)
            case "edit" if places := self.begins():
                at = places[number % len(places)]
                keeps_id = at == 0 or number % 2 == 0
                self.turn(self.shown[:at], [self.question(self.shown[at].id if keeps_id else None)], **more)
            case "go back" if self.branches:
                self.turn(self.branches[number % len(self.branches)], [self.question()], **more)
            case "append" if self.shown:  # a program goes on, in the words of the client
                self.shown = [*self.shown, self.question(), *self.answers(uses_tool=False)]
                self.memory.save_turn(self.sent(self.shown[-2:]), **self.ids)
                self.branches.append(self.shown)
                self.ever.update(words(self.shown))
            case _:
                self.turn(self.shown, [self.question()], **more)

    def again(self, messages: list[BaseMessage]) -> None:
        """Save what is stored: nothing changes."""
        if len(words(messages)) == 2 and not self.has_ids:
            return  # a question and an answer without ids are a new turn
        before = self.stored(superseded=True), self.stored()
        self.memory.save_turn(self.sent(messages), **self.ids)
        assert (self.stored(superseded=True), self.stored()) == before

    def stored(self, *, superseded: bool = False) -> list[tuple[str | None, str]]:
        found = self.memory.history.messages(self.thread_id, superseded=superseded)
        return [(one.id, str(one.text)) for one in found]

    def check(self) -> None:
        """Hold the thread against the model."""
        if not self.shown:
            return
        current = self.memory.history.messages(self.thread_id)
        assert words(current) == words(self.shown)
        everything = words(self.memory.history.messages(self.thread_id, superseded=True))
        assert self.ever == {*everything}
        thread = self.memory.threads.get(self.thread_id)
        assert thread is not None
        assert thread.message_count == len(current)
        results = [one.tool_call_id for one in current if isinstance(one, ToolMessage)]
        calls = [call["id"] for one in current if isinstance(one, AIMessage) for call in one.tool_calls]
        assert results == calls  # of a current answer, both or none
        if self.has_ids:
            assert [one.id for one in current if is_said(one)] == [one.id for one in self.shown if is_said(one)]
            assert len(everything) == len({*everything})  # an id is stored once, and each of its words


steps = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 20), st.booleans(), st.booleans()), min_size=1, max_size=12
)


@pytest.mark.parametrize("has_ids", [True, False], ids=["ids", "no ids"])
@given(steps=steps)
@examples(300, server=True)
def test_the_thread_is_the_branch_of_its_client_and_nothing_is_lost(
    plain: Memory, steps: list[tuple[str, int, bool, bool]], *, has_ids: bool
) -> None:
    client = Client(plain, has_ids=has_ids)
    for action, number, uses_tool, looks in steps:
        client.step(action, number, uses_tool=uses_tool, looks=looks)
        client.check()


@given(turns=st.integers(1, 4), steps=steps)
@examples(100, server=True)
def test_a_conversation_that_came_whole_goes_on_by_its_ids(
    plain: Memory, turns: int, steps: list[tuple[str, int, bool, bool]]
) -> None:
    client = Client(plain, has_ids=True)
    for at in range(turns):
        client.shown += [client.question(), *client.answers(uses_tool=at % 2 == 1)]
    client.turn(client.shown, [client.question()], uses_tool=False, looks=False)
    for action, number, uses_tool, looks in steps:
        client.check()
        client.step(action, number, uses_tool=uses_tool, looks=looks)
    client.check()
