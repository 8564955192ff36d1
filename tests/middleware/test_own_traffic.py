"""What a model is shown of earlier turns: memory's own calls, tools, structured answers, how much of a state."""

from __future__ import annotations

import re
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from pydantic import BaseModel, Field

from langchain_workingmem import HistoryOptions, RecallOptions, WorkingMemoryOptions
from langchain_workingmem.errors import RedisReplyError
from langchain_workingmem.history import save
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.conversations import accept
from tests.helpers.models import Bench, Scripted, agent_of, ask, calling, configured, remembered, said, weather
from tests.middleware.samples import UPDATE, seed, stored
from tests.tools.samples import looping

pytestmark = pytest.mark.in_turn("face")
IDS: Any = {"thread_id": "t", "user_id": "u"}


def everything(model: Scripted, call: int) -> str:
    return "\n".join(f"{message.content} {getattr(message, 'tool_calls', '')}" for message in model.seen[call])


def test_each_version_of_working_memory_is_shown_in_its_own_turn_only(
    bench: Bench, saver: InMemorySaver | None
) -> None:
    memory = bench.recalling(working_memory=WorkingMemoryOptions(template=""))
    cities = ["Bonn", "Rome", "Oslo", "Lima", "Kyiv"]
    lines: list[Any] = []
    for at, city in enumerate(cities):
        edit = {"edits": [{"find": cities[at - 1], "replace": city}]} if at else {"memory": f"lives in {city}"}
        lines += [calling((UPDATE, edit), ("search_memory", {"query": "home"}), id=f"u{at}"), "noted"]
    model = Scripted.says(*lines, "Kyiv")
    agent = agent_of(model, memory, checkpointer=saver)
    for city in cities:
        bench.run(agent, ask(f"I moved to {city[0]}."))
    bench.run(agent, ask("where do I live?"))
    assert "lives in Bonn" in everything(model, 1).replace(remembered(model.seen[1]), "")  # it sees what it did
    assert "<data>\nlives in Bonn\n</data>" in remembered(model.seen[1])
    last = everything(model, -1)
    assert [city for city in cities if city in last] == ["Kyiv"]
    assert (UPDATE in last.replace(remembered(model.seen[-1]), ""), "search_memory" in last) == (False, False)
    accept(model.seen[-1])
    assert len([line for line in stored(memory) if UPDATE in line]) == 5  # all of it stays stored


def test_mixed_calls_keep_the_other_tools_and_the_text(bench: Bench, saver: InMemorySaver | None) -> None:
    memory = bench.memory(working_memory=WorkingMemoryOptions(template=""))
    blocks: list[Any] = [
        {"type": "text", "text": "I look"},
        *(
            {"type": "tool_use", "id": f"m-{at}", "name": name, "input": {}}
            for at, name in enumerate([UPDATE, "weather"])
        ),
    ]
    mixed = calling((UPDATE, {"memory": "is in Rome"}), ("weather", {"city": "Rome"}), id="m")
    mixed.content = blocks
    signed = calling((UPDATE, {"memory": "is in Oslo"}), ("weather", {"city": "Oslo"}), id="s")
    signed.content = [{"type": "thinking", "thinking": "hm", "signature": "abc"}, {"type": "text", "text": "again"}]
    model = Scripted.says(mixed, "sunny", signed, "sunny, too", "bye")
    agent = agent_of(model, memory, tools=[weather], checkpointer=saver)
    for text in ("weather?", "and in Oslo?", "thanks"):
        bench.run(agent, ask(text))
    shown = {message.id: message for message in model.seen[-1]}
    assert [shown[id].content for id in "ms"] == ["I look", "again"]  # providers refuse reasoning that was changed
    for id in "ms":
        assert [call["name"] for call in shown[id].tool_calls] == ["weather"]  # type: ignore[attr-defined]
    accept(model.seen[-1])


def test_what_a_left_out_call_leaves_is_in_a_form_that_providers_accept(bench: Bench) -> None:
    """Gemini refuses a call behind words of the model, Claude blank text, its adapter a text in the form of blocks."""
    memory = bench.memory(working_memory=WorkingMemoryOptions(template=""))
    alone = calling((UPDATE, {"memory": "x"}), id="n", text="I note that.")
    both = calling((UPDATE, {"memory": "y"}), ("weather", {"city": "Rome"}), id="m")
    both.content = [{"type": "text", "text": "\n\n"}, {"type": "tool_use", "id": "m-1", "name": "weather", "input": {}}]
    both.response_metadata = {"output_version": "v1"}
    results = [ToolMessage("done", tool_call_id=id) for id in ("n-0", "m-0", "m-1")]
    memory.save_turn([HumanMessage("hi"), alone, results[0], both, *results[1:], AIMessage("sunny")], **IDS)
    _, call, *_ = shown = memory.context("more", **IDS).messages
    assert [one.type for one in shown] == ["human", "ai", "tool", "ai", "human"]
    assert (call.content, call.response_metadata) == ("", {})


@tool
def ask_user() -> str:
    """Ask the user."""
    return str(interrupt("?"))


@tool
def photo(id: Annotated[str, InjectedToolCallId]) -> Any:
    """Take a photo: tools return it as words of the user, as OpenAI takes no pictures from tools."""
    return Command(update={"messages": [ToolMessage("it follows", tool_call_id=id), HumanMessage("a photo")]})


def test_words_that_a_tool_adds_are_not_the_question(bench: Bench, saver: InMemorySaver | None) -> None:
    memory = bench.recalling(history=HistoryOptions(last_messages=0))
    model = Scripted.says(calling(("search_memory", {"query": "roses"}), id="s"), calling(("photo", {}), id="p"), "yes")
    agent = agent_of(model, memory, tools=[photo], checkpointer=saver)
    bench.run(agent, ask("do my roses need water?"))
    assert [one.type for one in model.seen[-1]] == ["human", "ai", "tool", "ai", "tool", "human"]
    assert not remembered(model.seen[-1][-1:])


def test_a_question_that_comes_with_a_resume_is_the_question(bench: Bench) -> None:
    memory = bench.memory(working_memory=WorkingMemoryOptions())
    model = Scripted.says(calling(("ask_user", {}), id="c"), "yes")
    agent = agent_of(model, memory, tools=[ask_user], checkpointer=InMemorySaver())
    bench.run(agent, ask("where was I?"))
    bench.run(agent, Command(resume="here", update={"messages": [HumanMessage("and my dog?", id="q2")]}))
    assert [bool(remembered([one])) for one in model.seen[-1] if one.type == "human"] == [False, True]


def test_calls_that_stand_only_in_the_content_keep_their_results(bench: Bench) -> None:
    memory, id = bench.memory(), "c1"
    call = AIMessage([{"type": "computer_call", "id": "cu", "call_id": id, "action": {"type": "screenshot"}}])
    result = ToolMessage("screen", tool_call_id=id, additional_kwargs={"type": "computer_call_output"})
    shown = memory.context([HumanMessage("look"), call, result], **IDS).messages
    assert [one.type for one in shown] == ["human", "ai", "tool"]


def test_what_the_store_does_not_hold_is_never_cut_from_a_state(bench: Bench) -> None:
    memory = bench.memory(history=HistoryOptions(last_messages=2, step=1))
    saver = InMemorySaver()
    quiet = create_agent(
        Scripted.says("b", "d"), middleware=[MemoryMiddleware(memory, persist=False)], checkpointer=saver
    )
    for text in ("a", "c"):
        bench.run(quiet, ask(text))
    seed(memory, "other", thread="t")  # the thread is known, the state's messages are not
    model = Scripted.says("f")
    bench.run(agent_of(model, memory, checkpointer=saver), ask("e"))
    assert said(model.seen[0])[-5:] == ["human: a", "ai: b", "human: c", "ai: d", "human: e"]


class Trip(BaseModel):
    """A trip."""

    city: str = Field(description="where to")
    nights: int = 1


def test_a_structured_answer_is_an_answer(bench: Bench, saver: InMemorySaver | None) -> None:
    memory = bench.recalling(history=HistoryOptions(last_messages=2, step=1, exclude_tools=True))
    trip = calling(("Trip", {"city": "Lisbon", "nights": 3}), id="s")
    bad = calling(("Trip", {"nights": "many"}), id="bad")
    plans = Scripted.says(calling(("weather", {"city": "Lisbon"}), id="w"), bad, trip)
    planner = agent_of(plans, memory, tools=[weather], response_format=ToolStrategy(Trip), checkpointer=saver)
    result = bench.run(planner, ask("plan my trip", "q"))
    assert result["structured_response"] == Trip(city="Lisbon", nights=3)
    model = Scripted.says("three", "one night", "to Lisbon")
    agent = agent_of(model, memory, checkpointer=saver)
    bench.run(agent, ask("how many nights"))
    assert said(model.seen[0]) == ["human: plan my trip", "ai: city: Lisbon\nnights: 3", "human: how many nights"]
    bench.run(agent, ask("and then"))
    assert said(model.seen[1]) == ["human: how many nights", "ai: three", "human: and then"]
    bench.run(agent, ask("which city was Lisbon"), configured("u", "ann"))
    assert "Lisbon" in remembered(model.seen[2])
    assert memory.recall.search("city Lisbon nights", user_id="ann").hits[0].message.id == "s"
    assert memory.history.messages("t")[5] == trip  # stored as it was given


def test_nodes_with_a_checkpointer_lose_no_tool_call(bench: Bench, saver: InMemorySaver | None) -> None:
    memory = bench.memory(working_memory=WorkingMemoryOptions(template=""))
    mixed = calling(("weather", {"city": "Rome"}), (UPDATE, {"memory": "is in Rome"}), id="m")
    model = Scripted.says(mixed, "sunny", "b", "c", "d")
    app = looping(memory, model, weather, checkpointer=saver)
    for text in ("weather?", "and now", "thanks", "bye"):
        bench.run(app, ask(text))
    assert len(memory.history.messages("t")) == len(memory.history.messages("t", superseded=True)) == 11
    assert said(model.seen[-1])[:3] == ["human: weather?", "ai: weather#m-0", "tool: sunny in Rome"]
    accept(model.seen[-1])


@pytest.mark.parametrize("front", [[AIMessage("Hello!")], [HumanMessage("ex q"), AIMessage("ex a")]])
def test_what_a_program_sends_in_front_of_each_question_supersedes_nothing(bench: Bench, front: list[Any]) -> None:
    memory = bench.memory()
    model = Scripted.says("a1", "a2", "a3")
    agent = agent_of(model, memory)
    for text in ("q1", "q2", "q3"):
        bench.run(agent, {"messages": [*(one.model_copy() for one in front), *ask(text)["messages"]]})
    lines = [line for line in stored(memory) if line not in said(front)]
    assert lines == ["human: q1", "ai: a1", "human: q2", "ai: a2", "human: q3", "ai: a3"]
    assert [one for one in ("q1", "a1", "q2", "a2") if one in [message.text for message in model.seen[-1]]]


def test_a_conversation_that_is_new_to_memory_has_no_hole_after_a_failure(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = bench.memory(on_error="log")
    memory.threads.create(thread_id="t", user_id="ann")  # without messages: memory does not know it yet
    older = [kind(f"m{at}", id=f"m{at}") for at, kind in enumerate([HumanMessage, AIMessage] * 125)]
    write, calls = save.write, []

    def failing(*arguments: Any, **more: Any) -> Any:
        calls.append(more)
        if len(calls) == 2:  # the second step of the question's save
            raise RedisReplyError("OOM command not allowed", remedy="raise maxmemory")
        return write(*arguments, **more)

    monkeypatch.setattr(save, "STEP_SIZE", 100)
    monkeypatch.setattr(save, "write", failing)
    agent = agent_of(Scripted.says("one"), memory)
    bench.run(agent, {"messages": [*older, *ask("now")["messages"]]})
    assert stored(memory) == [*said(older), "human: now", "ai: one"]


MONDAY, FRIDAY = configured("monday", "ann"), configured("friday", "ann")


def shown(messages: list[BaseMessage]) -> list[str]:
    """Return the lines of the recalled messages, without their times."""
    found = re.findall(r'<message role="(\w+)"[^>]*>(.*?)</message>', remembered(messages), re.DOTALL)
    return [": ".join(one) for one in found]


@pytest.mark.parametrize("calls", [1, 12])
def test_a_recalled_question_of_an_agent_with_tools_comes_with_its_answer(bench: Bench, calls: int) -> None:
    memory = bench.memory(embeddings=bench.embeddings, recall=RecallOptions(top_k=1))
    looks = [calling(("weather", {"city": f"Oslo {at}"}), id=f"c{at}") for at in range(calls)]
    model = Scripted.says("hello", *looks, "bring a coat", "welcome", "as before")
    agent = agent_of(model, memory, tools=[weather])
    for text in ("hi", "what should I wear in Oslo?", "thanks"):
        bench.run(agent, ask(text), MONDAY)
    bench.run(agent, ask("Oslo again: what should I wear?"), FRIDAY)
    assert shown(model.seen[-1]) == ["assistant: hello", "user: what should I wear in Oslo?", "assistant: bring a coat"]
