"""Lists that clients really send: reminders under a fixed id, states that were lost, copies of what was said."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import HistoryOptions, IdError, Memory, MemoryMiddleware
from tests.helpers.models import Scripted, agent_of, ask, calling, configured, weather
from tests.helpers.types import Make

IDS: Any = {"thread_id": "t", "user_id": "u"}
CONFIG = configured("t", "u")


def texts(messages: list[BaseMessage]) -> list[str]:
    return [one.text for one in messages]


def said(memory: Memory) -> list[str]:
    return [text for text in texts(memory.history.messages("t", roles=["human", "ai"])) if text]


def clock(hook: str) -> Any:
    """Make a middleware that keeps a message under one id up to date, at this hook."""
    ticks = count()
    return type(
        "Clock", (AgentMiddleware,), {hook: lambda *_: {"messages": [HumanMessage(f"{next(ticks)}", id="clock")]}}
    )()


@pytest.mark.parametrize("hook", ["before_agent", "before_model"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_reminder_under_a_fixed_id_costs_no_turn(plain: Memory, saver: Any, hook: str, is_first: bool) -> None:
    middleware: list[Any] = [MemoryMiddleware(plain), clock(hook)]
    model = Scripted.says(
        *(one for at in range(3) for one in (calling(("weather", {"city": "x"}), id=f"c{at}"), f"a{at}"))
    )
    agent: Any = create_agent(model, [weather], middleware=middleware[:: 1 if is_first else -1], checkpointer=saver)
    thread = f"{hook}{is_first}"
    for at in range(3):
        agent.invoke(ask(f"q{at}"), configured(thread, "u"))
    found = {one.id: one.text for one in plain.history.messages(thread, roles=["human", "ai"]) if one.text}
    assert [text for id, text in found.items() if id != "clock"] == [f"{kind}{at}" for at in range(3) for kind in "qa"]


@pytest.mark.parametrize("changes", [True, False])
def test_a_question_in_front_of_a_stored_message_is_stored(plain: Memory, changes: bool) -> None:
    for at in range(3):
        page = HumanMessage(f"page {at * changes}", id="page")
        plain.save_turn([HumanMessage(f"q{at}"), page, AIMessage("noted")], **IDS)
    assert said(plain) == ["q0", f"page {2 * changes}", "noted", "q1", "noted", "q2", "noted"]


@pytest.mark.parametrize("text", ["q2", "other"])
def test_a_state_that_has_lost_its_checkpoints_is_shown_what_was_said_before(plain: Memory, text: str) -> None:
    """Its last question is asked again, or edited, by its id."""
    before = agent_of(Scripted.says("a0", "a1", "a2"), plain, checkpointer=InMemorySaver())
    for at in range(3):
        before.invoke(ask(f"q{at}"), CONFIG)
    id, model = plain.history.messages("t", roles=["human"])[-1].id, Scripted.says("b2", "b3")
    agent = agent_of(model, plain, checkpointer=InMemorySaver())
    agent.invoke(ask(text, id or ""), CONFIG)
    agent.invoke(ask("q3"), CONFIG)
    assert texts(model.seen[0]) == ["q0", "a0", "q1", "a1", text]
    assert texts(model.seen[1]) == said(plain)[:-1] == ["q0", "a0", "q1", "a1", text, "b2", "q3"]


def test_a_client_may_send_all_without_ids_and_ask_edit_and_go_on(plain: Memory) -> None:
    model = Scripted.says("a0", "a1", "b1", "c1", "a2")
    agent = agent_of(model, plain, checkpointer=InMemorySaver())

    def send(*words: str) -> list[str]:
        kinds = {"q": HumanMessage, "a": AIMessage, "b": AIMessage, "c": AIMessage}
        agent.invoke({"messages": [kinds[one[0]](one) for one in words]}, CONFIG)
        return texts(model.seen[-1])

    assert send("q0") == ["q0"]
    assert send("q0", "a0", "q1") == ["q0", "a0", "q1"]
    assert send("q0", "a0", "q1") == ["q0", "a0", "q1"]  # another answer
    state = agent.get_state(CONFIG).values["messages"]
    at = max(at for at, one in enumerate(state) if one.text == "q1")  # a copy
    edited: Any = [*(RemoveMessage(id=one.id) for one in state[at + 1 :]), HumanMessage("Q1", id=state[at].id)]
    agent.invoke({"messages": edited}, CONFIG)
    assert texts(model.seen[-1]) == ["q0", "a0", "Q1"]
    agent.invoke(ask("q2"), CONFIG)
    assert texts(model.seen[-1]) == ["q0", "a0", "Q1", "c1", "q2"]
    assert said(plain) == ["q0", "a0", "Q1", "c1", "q2", "a2"]


def test_all_of_a_state_is_stored_also_in_a_thread_that_is_known(plain: Memory) -> None:
    saver = InMemorySaver()
    alone: Any = create_agent(Scripted.says("a0"), [], checkpointer=saver)
    alone.invoke(ask("q0"), CONFIG)
    plain.history.append([AIMessage("note")], **IDS)
    agent_of(Scripted.says("a1"), plain, checkpointer=saver).invoke(ask("q1"), CONFIG)
    assert said(plain) == ["note", "q0", "a0", "q1", "a1"]


def test_a_blank_question_at_the_beginning_leaves_no_answer_there(make_memory: Make) -> None:
    model = Scripted.says("a0", "a1")
    agent = agent_of(model, make_memory(history=HistoryOptions(last_messages=None)), checkpointer=InMemorySaver())
    for text in ("", "q1"):
        agent.invoke(ask(text), CONFIG)
    assert [one.type for one in model.seen[-1]] == ["human"]


def test_what_a_client_may_send_in_a_message_is_refused_or_ignored(plain: Memory) -> None:
    with pytest.raises(IdError, match="message id"):
        plain.context([HumanMessage("a"), HumanMessage("b", id="\ud800")], **IDS)
    odd = AIMessage("b", additional_kwargs={"function_call": "text"})
    assert texts(plain.context([HumanMessage("a"), odd, HumanMessage("c")], **IDS).messages) == ["a", "b", "c"]
