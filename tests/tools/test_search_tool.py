"""`search_memory`: it leaves out what the model has in sight, and tells times and failures in words for the model."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import HistoryOptions, Memory, RecallOptions
from langchain_workingmem.faces.tools import AWAY
from tests.helpers.models import CONFIG, Bench, Scripted, agent_of, ask, calling
from tests.helpers.types import Invoke
from tests.tools.samples import SEARCH, looping, results

QUESTION = "what is the name of my dog?"
OLD = ["my dog is Nougat", "sweet", "it rains", "it does", "my dog sleeps", "good"]


def remembering(bench: Bench, last_messages: int | None = 2, **recall: Any) -> Memory:
    """A memory that finds everything; six messages are in its thread."""
    memory = bench.memory(
        embeddings=bench.embeddings,
        history=HistoryOptions(last_messages=last_messages),
        recall=RecallOptions(**{"top_k": 50, "message_range": 0, **recall}),
    )
    kinds = (HumanMessage, AIMessage)
    old = [kinds[at % 2](text, id=f"m{at}") for at, text in enumerate(OLD)]
    memory.history.append(old, thread_id="t", user_id="ann")
    return memory


def lines(reply: Any) -> list[str]:
    return re.findall(r"<message [^>]*>(.*?)</message>", str(reply.content), re.DOTALL)


def searching(text: str = QUESTION) -> AIMessage:
    return calling((SEARCH, {"query": text}), id="a1", text="let me look for the dog")


@pytest.mark.parametrize("kind", ["agent", "graph"])
def test_the_question_this_turn_and_the_history_are_left_out(
    bench: Bench, saver: InMemorySaver | None, kind: str
) -> None:
    memory = remembering(bench)
    model = Scripted.says(searching(), "Nougat.")
    app = agent_of(model, memory, checkpointer=saver) if kind == "agent" else looping(memory, model, checkpointer=saver)
    (reply,) = results(bench.run(app, ask(QUESTION, "q1"))["messages"])
    assert sorted(lines(reply)) == sorted(OLD[:4])  # the newest two are the history, and stand in the prompt


@pytest.mark.parametrize("kind", ["agent", "graph"])
def test_what_is_in_sight_is_not_brought_back_as_a_neighbour(bench: Bench, kind: str) -> None:
    memory = remembering(bench, message_range=3, top_k=1)
    model = Scripted.says(searching("it rains"), "Yes.")
    app = agent_of(model, memory) if kind == "agent" else looping(memory, model)
    (reply,) = results(bench.run(app, ask("hm", "q1"))["messages"])
    assert lines(reply) == OLD[:4]


@pytest.mark.parametrize("last", [0, 2])
def test_the_turns_of_a_state_are_in_sight_as_far_as_they_are_shown(bench: Bench, last: int) -> None:
    memory = remembering(bench, last_messages=last)
    model = Scripted.says("Which dog?", searching(), "Nougat.")
    agent = agent_of(model, memory, checkpointer=InMemorySaver())
    bench.run(agent, ask("tell me of the dog", "q0"))
    (reply,) = results(bench.run(agent, ask(QUESTION, "q1"))["messages"])
    found = lines(reply)
    assert sorted(found) == sorted(OLD if last else [*OLD, "tell me of the dog", "Which dog?"])


def test_when_the_shown_messages_are_forgotten_everything_is_searched_again(bench: Bench, invoke: Invoke) -> None:
    memory = remembering(bench)
    (search,) = memory.tools()
    everything = invoke(search, {"query": QUESTION}, CONFIG)
    assert all(text in everything for text in OLD)
    for run in (agent_of(Scripted.says("Hm."), memory), looping(memory, Scripted.says("Hm."))):
        bench.run(run, ask(QUESTION))
        assert all(text in invoke(search, {"query": QUESTION}, CONFIG) for text in (*OLD, QUESTION))


def looked(memory: Memory, invoke: Invoke, **times: str | None) -> str:
    (search,) = memory.tools(user_id="ann", include=[SEARCH])
    return str(invoke(search, {"query": "my dog is Nougat", **times}))


@pytest.mark.parametrize("time", ["2026-05", "last week", ""])
@pytest.mark.parametrize("name", ["since", "until"])
def test_what_is_no_time_comes_back_to_the_model_with_an_example(
    bench: Bench, invoke: Invoke, name: str, time: str
) -> None:
    assert "2026-05-03T18:00" in looked(remembering(bench), invoke, **{name: time})


def test_times_are_inclusive_and_without_a_zone_of_utc_as_the_model_is_shown_them(
    bench: Bench, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = remembering(bench)
    named = memory.history.page("t").items[0].stored_at
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        bare = named.replace(tzinfo=None).isoformat()
        reply = looked(memory, invoke, since=bare, until=bare)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert re.findall(r"<message [^>]*>(.*?)</message>", reply) == [OLD[0]]
    assert f'time="{named:%Y-%m-%d %H:%M} UTC"' in reply


def test_a_model_that_is_down_is_told_to_the_chat_model(
    bench: Bench, invoke: Invoke, caplog: pytest.LogCaptureFixture
) -> None:
    memory = remembering(bench)
    bench.embeddings.broken = OSError("no route to https://key@embeddings.internal")
    assert looked(memory, invoke) == AWAY
    assert "embeddings.internal" in caplog.text
