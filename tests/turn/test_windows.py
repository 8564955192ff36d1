"""Which part of a thread a turn shows: the window counts what was said, moves in steps, and fits a limit of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import HistoryOptions, Memory
from langchain_workingmem._text.messages import structured_answers, weight_of, words_digest
from langchain_workingmem._text.sending import provider_valid
from langchain_workingmem.turn.assemble import without_excluded
from tests.helpers.conversations import accept, ai, result
from tests.helpers.examples import examples
from tests.helpers.types import Make
from tests.turn.test_context import TURN


def turn(at: int, calls: int = 0, *, words: str = "") -> list[BaseMessage]:
    """A question, tool traffic, and an answer; ids tell which turn it is."""
    steps = [f"{at}.{step}" for step in range(calls)]
    traffic = [one for call in steps for one in (ai("", call, id=f"c{call}"), result(call, f"r{call}"))]
    return [HumanMessage(f"ask {at}{words}", id=f"q{at}"), *traffic, AIMessage(f"say {at}{words}", id=f"a{at}")]


def talk(memory: Memory, *turns: list[BaseMessage], thread: str = "t") -> None:
    for one in turns:
        memory.save_turn(one, thread_id=thread, user_id="ann")


def ids(messages: Sequence[BaseMessage]) -> list[str]:
    return [str(message.id) for message in messages]


def shown(memory: Memory, asked: str = "new", thread: str = "t") -> list[str]:
    """The ids of what stands in front of a question."""
    context = memory.context(asked, thread_id=thread, user_id="ann")
    accept(context.messages)
    return ids(context.messages)[:-1]


def exactly(last: int, **options: Any) -> HistoryOptions:
    return HistoryOptions(last_messages=last, step=1, **options)


def test_by_default_a_window_holds_ten_to_nineteen_messages_and_moves_rarely(make_memory: Make) -> None:
    memory = make_memory()
    begins = []
    for at in range(25):
        found = shown(memory)
        assert found == ids([message for number in range(at) for message in turn(number)])[-len(found) or 2 * at :]
        assert min(2 * at, 10) <= len(found) < 20
        begins.append(found[0] if found else "q0")
        talk(memory, turn(at))
    assert sum(one != other for one, other in pairwise(begins)) == 3  # once in five turns


GIANT = ToolMessage("x" * 60_000, tool_call_id="1.0", id="r1.0")


def test_a_giant_tool_result_takes_nothing_of_the_conversation_away(make_memory: Make) -> None:
    memory = make_memory(history=HistoryOptions(max_tokens=2_000))
    question, call, _, answer = turn(1, 1)
    talk(memory, turn(0), [question, call, GIANT, answer])
    context = memory.context([HumanMessage("new", id="n")], **TURN)
    accept(context.messages)
    assert ids(context.messages) == ["q0", "a0", "q1", "a1", "n"]
    assert context.omitted == 2


def test_edited_tool_traffic_is_weighed_anew(make_memory: Make) -> None:
    memory = make_memory(history=HistoryOptions(max_tokens=2_000))
    talk(memory, turn(0), turn(1, 1))
    memory.history.update([GIANT], thread_id="t")
    assert shown(memory) == ["q0", "a0", "q1", "a1"]
    memory.history.update([result("1.0", "r1.0")], thread_id="t")
    assert shown(memory) == ids([*turn(0), *turn(1, 1)])


def test_a_limit_holds_and_the_window_keeps_its_beginning_for_a_while(make_memory: Make) -> None:
    memory = make_memory(history=HistoryOptions(last_messages=None, max_tokens=400))
    begins = []
    for at in range(30):
        talk(memory, turn(at, words=" word" * 20))
        context = memory.context("new", **TURN)
        assert weight_of(context.messages[:-1]) <= 400
        assert context.omitted == 2 * at + 2 - len(context.messages[:-1])
        begins.append(context.messages[0].id)
    moves = sum(one != other for one, other in pairwise(begins))
    assert 0 < moves <= 15


@pytest.mark.parametrize("counter", ["approximate", lambda some: 1_000 * len(some)])
def test_the_newest_turn_is_in_sight_whatever_a_counter_says(make_memory: Make, counter: Any) -> None:
    memory = make_memory(history=HistoryOptions(last_messages=None, max_tokens=1, token_counter=counter))
    talk(memory, turn(0), turn(1, 2))
    context = memory.context("new", **TURN)
    assert ids(context.messages)[:-1] == ["q1", "a1"]
    assert context.omitted == 6


def window(stored: Sequence[BaseMessage], options: HistoryOptions) -> list[BaseMessage]:
    """What a turn shows, by the words of `HistoryOptions`."""
    last, step = options.last_messages, options.step or options.last_messages or 1
    if last == 0:
        return []
    roles = options.roles or ("human", "ai", "tool")
    answers = structured_answers(stored, is_over=False)
    spoken = {message.id for message in stored if words_digest(message) or id(message) in answers}
    places = [at for at, message in enumerate(stored) if message.id in spoken]
    step_of = {at: number // step for number, at in enumerate(places)}
    said = [at for at in places if stored[at].type in roles]
    begin = 0
    if last is not None and len(said) > last:
        place = len(said) - last
        while place and step_of[said[place - 1]] == step_of[said[place]]:
            place -= 1
        if "human" in roles and "ai" in roles:
            questions = [at for at in range(place + 1) if isinstance(stored[said[at]], HumanMessage)]
            place = questions[-1] if questions else place
        is_answer = place and not isinstance(stored[said[place]], HumanMessage)
        begin = said[place - 1] + 1 if is_answer else said[place] if place else 0
    return provider_valid(without_excluded(stored[begin:], options, talk_ids=spoken))


turns = st.builds(
    lambda questions, calls, answer: (questions, calls, answer), st.integers(1, 2), st.integers(0, 3), st.booleans()
)


@given(
    st.lists(turns, max_size=9),
    st.sampled_from([None, 0, 1, 2, 3, 4, 7]),
    st.sampled_from([None, 1, 2, 5]),
    st.sampled_from([False, False, True, ["f"], ["g"]]),
    st.sampled_from([None, None, ["human"], ["ai"], ["human", "ai"], ["human", "ai", "tool"]]),
)
@example([(1, 0, True)] * 3, 2, 1, False, ["human"])
@examples(25, server=True)
def test_the_window_of_any_thread_is_what_the_options_say(
    make_memory: Make, script: list[tuple[int, int, bool]], last: int | None, step: int | None, exclude: Any, roles: Any
) -> None:
    options = HistoryOptions(last_messages=last, step=step, exclude_tools=exclude, roles=roles)
    memory, thread = make_memory(history=options), uuid4().hex
    stored: list[BaseMessage] = []
    for at, (questions, calls, has_answer) in enumerate(script):
        question, *traffic, answer = turn(at, calls)
        asked = [
            question,
            *(HumanMessage(f"and {at}.{number}", id=f"q{at}.{number}") for number in range(1, questions)),
        ]
        stored += [*asked, *traffic, *[answer] * has_answer]
    memory.history.append(stored, thread_id=thread, user_id="ann")
    assert shown(memory, thread=thread) == ids(window(stored, options))


def test_answers_without_a_question_end_at_the_boundary(make_memory: Make) -> None:
    memory = make_memory(history=exactly(10))
    memory.history.append([AIMessage(f"{at}", id=f"a{at}") for at in range(40)], thread_id="t", user_id="ann")
    found = memory.context("new", thread_id="t", user_id="ann").messages
    assert ids(found)[:-1] == [f"a{at}" for at in range(30, 40)]


def test_threads_that_expire_show_as_much_as_others(make_memory: Make) -> None:
    memory = make_memory(ttl=timedelta(days=1), history=HistoryOptions(last_messages=2, step=2))
    for thread in "abcdefghij":
        for at in range(4):
            memory.save_turn(turn(at), thread_id=thread, user_id="ann")
        assert len(memory.context("now", thread_id=thread, user_id="ann").messages) == 3
