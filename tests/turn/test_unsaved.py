"""What a turn has to save, decided from the list of messages alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem.turn import turn_of, unsaved


class Counted(list[BaseMessage]):
    """A list that counts how many of its messages were read."""

    def __init__(self, messages: Iterable[BaseMessage]) -> None:
        super().__init__(messages)
        self.reads = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.reads += len(found) if isinstance(at, slice) else 1
        return Counted(found) if isinstance(at, slice) else found


def asked(at: int) -> list[BaseMessage]:
    """A turn that ends with a call that nobody has answered."""
    call = {"name": "approve", "args": {}, "id": f"call-{at}"}
    return [HumanMessage("may I?", id=f"q{at}"), AIMessage("", id=f"a{at}", tool_calls=[call])]


def test_all_turns_that_wait_for_an_answer_are_unsaved() -> None:
    messages = [*asked(0), *asked(1), HumanMessage("hello", id="q2")]
    assert unsaved(messages) == messages
    assert unsaved([HumanMessage("an example"), AIMessage("of an answer"), *messages]) == messages


def test_what_follows_the_last_stored_message_is_unsaved() -> None:
    messages = [*asked(0), ToolMessage("yes", tool_call_id="call-0", id="r0"), HumanMessage("hello", id="q1")]
    assert unsaved(messages, {"q0"}) == messages[1:]
    assert unsaved(messages, {"q0", "a0", "r0"}) == messages[3:]


def test_5000_turns_that_wait_are_read_once_and_not_for_each_other() -> None:
    messages = Counted(message for at in range(5_000) for message in asked(at))
    assert unsaved(messages) == messages
    assert messages.reads < 10 * len(messages)


def test_a_turn_begins_with_all_that_the_user_says_in_a_row() -> None:
    messages = [HumanMessage("a"), AIMessage("b"), HumanMessage("c"), HumanMessage("d"), AIMessage("e")]
    assert turn_of(messages) == messages[2:]
    assert turn_of(messages[1:2]) == messages[1:2]
    assert turn_of([]) == []
