"""`Memory.context` and `save_turn` with observations, for clients that keep the conversation themselves, and those that do not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import HistoryOptions, Memory, MemoryContext, WorkingMemoryOptions
from langchain_workingmem._text.copies import is_from_memory, without_memory
from langchain_workingmem._text.said import weight_of
from tests.helpers.conversations import accept
from tests.helpers.models import calling, own
from tests.observations.noting import MARK, Noting, check_shown_once, notes_in, observing, raw_marks, words
from tests.helpers.trips import Trips
from tests.helpers.types import Make

pytestmark = pytest.mark.in_turn("face")

TURNS = 14
IDS: dict[str, Any] = {"thread_id": "t", "user_id": "ann"}


def marks(count: int) -> list[str]:
    return [f"mark{at}x" for at in range(count)]


def checked(context: MemoryContext, expected: list[str]) -> int:
    return check_shown_once(context.messages, expected, context.system)


def bare(messages: list[BaseMessage]) -> list[BaseMessage]:
    """As a browser keeps them: role and text."""
    return [type(one)(str(one.text)) for one in messages]


CLIENTS: dict[str, Callable[[list[BaseMessage]], list[BaseMessage]]] = {
    "the whole list": lambda whole: [*whole],
    "the whole list without ids": bare,
    "the last message": lambda whole: whole[-1:],
    "the last messages": lambda whole: bare(whole[-5:]),
}


def turn(memory: Memory, sent: list[BaseMessage], answer: str) -> MemoryContext:
    context = memory.context(sent, **IDS)
    memory.save_turn([*sent, AIMessage(answer)], **IDS)
    return context


@pytest.mark.parametrize("scope", ["thread", "user"])
@pytest.mark.parametrize("client", CLIENTS)
def test_each_message_is_shown_once_whatever_a_client_sends(make_memory: Make, client: str, scope: str) -> None:
    memory = make_memory(observations=observing(Noting(), scope=scope))
    whole: list[BaseMessage] = []
    for at in range(TURNS):
        whole.append(HumanMessage(words(2 * at), id=f"q{at}"))
        context = turn(memory, CLIENTS[client](whole), words(2 * at + 1))
        whole.append(AIMessage(words(2 * at + 1), id=f"a{at}"))
        noted = checked(context, marks(2 * at + 1))
        memory.observations.observe("t", user_id="ann")
    assert noted > 10
    rows = memory.history.messages("t")
    assert [*raw_marks(rows)] == marks(2 * TURNS)
    assert own(rows) == rows


@pytest.mark.parametrize("client", ["the whole list", "the whole list without ids"])
@pytest.mark.parametrize("back", [2, 9])
def test_a_client_that_edits_or_regenerates_sees_its_own_branch(make_memory: Make, client: str, back: int) -> None:
    """What was said after the edited question, observed or not, is not shown; it returns with the branch."""
    memory = make_memory(observations=observing(Noting()))
    whole: list[BaseMessage] = []
    for at in range(TURNS):
        whole.append(HumanMessage(words(2 * at), id=f"q{at}"))
        turn(memory, CLIENTS[client](whole), words(2 * at + 1))
        whole.append(AIMessage(words(2 * at + 1), id=f"a{at}"))
        memory.observations.observe("t")

    kept = whole[: 2 * (TURNS - back)]
    branch = [*kept, HumanMessage(words(500), id="edited")]
    context = turn(memory, CLIENTS[client](branch), words(501))
    checked(context, [*marks(len(kept)), "mark500x"])
    memory.observations.observe("t")
    branch += [AIMessage(words(501), id="again"), HumanMessage(words(502), id="more")]
    checked(memory.context(CLIENTS[client](branch), **IDS), [*marks(len(kept)), "mark500x", "mark501x", "mark502x"])

    # the other branch again
    context = turn(memory, CLIENTS[client]([*whole, HumanMessage(words(600), id="on")]), words(601))
    checked(context, [*marks(2 * TURNS), "mark600x"])


def test_the_messages_of_a_context_may_be_sent_again(make_memory: Make) -> None:
    """A client that goes on with what `context` returned: copies and blocks of memory are not stored, or shown twice."""
    memory = make_memory(observations=observing(Noting()), working_memory=WorkingMemoryOptions())
    sent: list[BaseMessage] = []
    for at in range(TURNS):
        sent.append(HumanMessage(words(2 * at), id=f"q{at}"))
        context = memory.context(sent, **IDS)
        checked(context, marks(2 * at + 1))
        sent = [*context.messages, AIMessage(words(2 * at + 1), id=f"a{at}")]
        memory.save_turn(sent, **IDS)
        memory.observations.observe("t")
    rows = memory.history.messages("t")
    assert [*raw_marks(rows)] == marks(2 * TURNS)
    assert own(rows) == rows
    assert not notes_in(rows)
    assert not any(is_from_memory(one) for one in rows)


def test_a_context_begins_with_the_whole_context_of_the_turn_before(make_memory: Make) -> None:
    memory = make_memory(
        working_memory=WorkingMemoryOptions(),
        observations=observing(Noting(), message_tokens=800, keep_tokens=100, batch_tokens=800),
    )
    contexts, revisions = [], []
    for at in range(30):
        contexts.append(turn(memory, [HumanMessage(words(2 * at))], words(2 * at + 1)))
        if memory.observations.get(thread_id="t").pending_tokens > 800:
            memory.observations.observe("t")
        revisions.append(memory.observations.get(thread_id="t").revision)
    stable = 0
    for at in range(2, 30):
        before, after = contexts[at - 1].messages, contexts[at].messages
        if revisions[at - 1] == revisions[at - 2]:
            assert after[: len(before) - 1] == before[:-1]
            assert contexts[at].system == contexts[at - 1].system
            stable += 1
    assert stable > 20
    assert revisions[-1] >= 2


@pytest.mark.parametrize("placement", ["system", "question", None])
def test_the_log_stands_where_the_options_say(make_memory: Make, placement: Any) -> None:
    memory = make_memory(observations=observing(Noting(), placement=placement, keep_tokens=160))
    for at in range(TURNS):
        turn(memory, [HumanMessage(words(2 * at))], words(2 * at + 1))
    memory.observations.observe("t")

    context = memory.context([HumanMessage("mark999x")], **IDS)
    assert context.observations is not None
    assert len(context.observations) > 10
    first = context.messages[0]
    assert str(without_memory(first).text).startswith("mark24x")
    if placement == "system":
        assert context.system[0].startswith("<observations>")
        assert own(context.messages) == context.messages
    else:
        assert context.system == []
        assert str(first.text).startswith("<observations>")


def test_what_a_limit_of_tokens_cuts_is_counted(make_memory: Make) -> None:
    memory = make_memory(
        history=HistoryOptions(max_tokens=150), observations=observing(Noting(), message_tokens=800, keep_tokens=300)
    )
    for at in range(TURNS):
        turn(memory, [HumanMessage(words(2 * at))], words(2 * at + 1))
        if at == 10:
            memory.observations.observe("t")

    context = memory.context([HumanMessage("mark999x")], **IDS)
    noted, raw = set(MARK.findall(notes_in(context.messages))), raw_marks(context.messages)
    assert noted
    assert not noted & set(raw)
    assert set(raw.values()) == {1}
    assert len(noted) + len(raw) + context.omitted == 2 * TURNS + 1


def steps_of(at: int) -> list[BaseMessage]:
    return [
        calling(("look", {"number": at}), id=f"c{at}"),
        ToolMessage(words(1000 + at, 100), tool_call_id=f"c{at}-0", id=f"r{at}"),
    ]


@pytest.mark.parametrize("sends", ["what it has", "what it was shown"])
def test_a_limit_leaves_out_the_oldest_steps_of_a_turn_that_goes_on(make_memory: Make, sends: str) -> None:
    """Nobody observes; a loop of a program's own saves each step, and goes on with its list, or with what it was shown."""
    memory = make_memory(history=HistoryOptions(max_tokens=1_000), observations=observing(Noting()))
    turn(memory, [HumanMessage(words(0), id="q0")], words(1))
    whole: list[BaseMessage] = [HumanMessage(words(2), id="q2")]
    for at in range(30):
        context = memory.context(whole, **IDS)
        if sends == "what it was shown":
            whole = [*context.messages]
        shown = own(context.messages)
        accept(shown)
        assert "mark2x" in raw_marks(shown)
        assert not at or f"mark{1000 + at - 1}x" in raw_marks(shown)
        assert weight_of(shown) <= 1_000
        if sends == "what it has":
            assert len(raw_marks(shown)) + context.omitted - context.omitted // 2 >= at
        whole += steps_of(at)
        memory.save_turn(whole, **IDS)
    assert context.omitted
    assert [*raw_marks(memory.history.messages("t"))] == [*marks(3), *(f"mark{1000 + at}x" for at in range(30))]

    memory.observations.observe("t")
    checked(
        memory.context([*whole, AIMessage(words(3)), HumanMessage("mark4x")], **IDS),
        [*marks(5), *(f"mark{1000 + at}x" for at in range(30))],
    )


def test_a_turn_takes_the_same_round_trips_with_and_without_a_log(make_memory: Make, trips: Trips, prefix: str) -> None:
    counts = []
    for at, options in enumerate((None, observing(Noting()), observing(Noting(), scope="user"))):
        memory = make_memory(
            key_prefix=f"{prefix}{at}", observations=options, history=HistoryOptions(last_messages=None)
        )
        for number in range(TURNS):
            turn(memory, [HumanMessage(words(2 * number))], words(2 * number + 1))
        if options is not None:
            memory.observations.observe("t", user_id="ann")
        turn(memory, [HumanMessage("hm")], "well")
        before = trips.count
        context = turn(memory, [HumanMessage("mark999x")], "yes")
        counts.append(trips.count - before)
        assert bool(notes_in(context.messages)) == (options is not None)
    assert counts == [2, 2, 2]


def test_no_turn_waits_for_the_observer(make_memory: Make, face: str) -> None:
    """The turns of many users end while the model of the observer does not answer; none of them calls it."""
    observer = Noting()
    observer.gate.clear()
    memory = make_memory(observations=observing(observer, background=True))
    for at in range(10):
        for user in range(5):
            ids: dict[str, Any] = {"thread_id": f"t{user}", "user_id": f"u{user}"}
            memory.context([HumanMessage(words(2 * at))], **ids)
            memory.save_turn([HumanMessage(words(2 * at)), AIMessage(words(2 * at + 1))], **ids)
    assert all(memory.observations.get(thread_id=f"t{user}").revision == 0 for user in range(5))

    observer.gate.set()
    memory.close()

    assert threading.get_ident() not in observer.threads
    assert len(observer.asked) >= 1
    again = make_memory(observations=observing(observer))
    assert sum(again.observations.get(thread_id=f"t{user}").revision for user in range(5)) == len(observer.asked)
