"""What a turn has to save, decided from the list of messages alone."""

from __future__ import annotations

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem.turn import turn_of, unsaved


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


def test_a_turn_begins_with_all_that_the_user_says_in_a_row() -> None:
    messages = [HumanMessage("a"), AIMessage("b"), HumanMessage("c"), HumanMessage("d"), AIMessage("e")]
    assert turn_of(messages) == messages[2:]
    assert turn_of(messages[1:2]) == messages[1:2]
    assert turn_of([]) == []
