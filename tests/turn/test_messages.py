"""Which messages of a list are the present turn."""

from __future__ import annotations

from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem.turn.assemble import turn_of


def test_a_turn_begins_with_all_that_the_user_says_in_a_row() -> None:
    messages = [HumanMessage("a"), AIMessage("b"), HumanMessage("c"), HumanMessage("d"), AIMessage("e")]
    assert turn_of(messages) == messages[2:]
    assert turn_of(messages[1:2]) == messages[1:2]
    assert turn_of([]) == []
