"""`MemoryMiddleware` alone: what the model is sent, what state and streams show, and what it costs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import RecallOptions, WorkingMemoryOptions
from tests.helpers.models import CONFIG, Bench, Scripted, agent_of, ask, calling, remembered, said, weather
from tests.helpers.trips import Trips
from tests.middleware.samples import PROMPT, TURN, seed

pytestmark = pytest.mark.both_faces


ASKED = "how is my cat named"


def test_recall_then_working_memory_stand_in_front_of_the_question(bench: Bench) -> None:
    memory = bench.recalling(working_memory=WorkingMemoryOptions(template=""))
    memory.working_memory.update("Ann has a cat", **TURN)
    seed(memory, "my cat is named Molly", thread="pets")
    model = Scripted.says("Molly")
    bench.run(agent_of(model, memory, system_prompt=PROMPT), ask(ASKED, "q"))
    system, question = model.seen[0]
    assert system == SystemMessage(PROMPT)
    assert question.text.index("Molly") < question.text.index("Ann has a cat") < question.text.index(ASKED)
    assert question.text.endswith(f"</working_memory>\n\n{ASKED}")
    assert [question] == memory.context([HumanMessage(ASKED, id="q")], **TURN).messages


def test_the_user_s_content_blocks_stay_behind_those_of_memory(bench: Bench) -> None:
    memory = bench.memory(working_memory=WorkingMemoryOptions(template=""))
    blocks: list[str | dict[str, Any]] = [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]
    model = Scripted.says("a cat")
    result = bench.run(agent_of(model, memory), {"messages": [HumanMessage(blocks, id="q")]})
    first: Any
    first, *rest = list(model.seen[0][0].content)
    assert rest == blocks
    assert first["type"] == "text"
    assert first["text"].startswith("<working_memory>")
    assert result["messages"][0] == memory.history.messages("t")[0] == HumanMessage(blocks, id="q")


def test_placement_system_puts_recall_and_then_working_memory_after_the_prompt(bench: Bench) -> None:
    memory = bench.recalling(
        recall=RecallOptions(top_k=1, message_range=0, placement="system"),
        working_memory=WorkingMemoryOptions(template="", placement="system"),
    )
    memory.working_memory.update("Ann has a cat", **TURN)
    seed(memory, "my cat is named Molly", thread="pets")
    model = Scripted.says("Molly", "hi")
    bench.run(agent_of(model, memory, system_prompt=PROMPT), ask(ASKED, "q"))
    recalled, known = memory.context([HumanMessage(ASKED, id="q")], **TURN).system
    assert ("Molly" in recalled, "Ann has a cat" in known) == (True, True)
    assert said(model.seen[0]) == [*(f"system: {block}" for block in (PROMPT, recalled, known)), f"human: {ASKED}"]
    assert remembered(model.seen[0]) == ""
    blocks: list[Any] = [{"type": "text", "text": one} for one in memory.context("hello", **NEW).system]
    bench.run(agent_of(model, memory), ask("hello"), {"configurable": NEW})  # without a prompt memory is the prompt
    assert model.seen[1][0] == SystemMessage(blocks)


NEW: Any = {"thread_id": "new", "user_id": "ann"}
SECRETS = ("Molly", "Rome", "Ann has")


def test_nothing_of_ours_is_in_state_or_result(bench: Bench) -> None:
    memory, saver = bench.recalling(working_memory=WorkingMemoryOptions(template="")), InMemorySaver()
    seed(memory, "my cat is named Molly", thread="pets")
    seed(memory, "I live in Rome", "fine")
    memory.working_memory.update("Ann has a dog", **TURN)
    model = Scripted.says(calling(("weather", {"city": "Oslo"}), id="a"), "yes")
    agent = agent_of(model, memory, tools=[weather], checkpointer=saver)
    result = bench.run(agent, ask("is my cat named so", "q"))
    assert all(secret in str(model.seen[0]) for secret in SECRETS)
    assert list(result) == ["messages"]
    assert agent.get_state(CONFIG).values == result
    seen = repr((result, saver.storage, saver.writes, saver.blobs))
    assert "sunny in Oslo" in seen
    assert not any(secret in seen for secret in (*SECRETS, "memory_turn"))


def test_a_turn_asks_recall_once_and_embeds_each_text_once(bench: Bench) -> None:
    memory = bench.recalling(working_memory=WorkingMemoryOptions(template=""))
    memory.setup()
    bench.embeddings.calls.clear()
    one, two = (calling(("weather", {"city": city}), id=city) for city in ("Oslo", "Rome"))
    bench.run(agent_of(Scripted.says(one, two, "sunny"), memory, tools=[weather]), ask("my umbrella?"))
    # as a query and as a document: for many models that makes two vectors
    assert bench.embeddings.calls == [["my umbrella?"], ["my umbrella?"], ["sunny"]]


def test_round_trips_of_a_turn(bench: Bench, trips: Trips) -> None:
    memory = bench.recalling(working_memory=WorkingMemoryOptions(template=""))
    seed(memory, "my cat is named Molly", thread="pets")
    marks: list[int] = []

    def answering(message: AIMessage) -> Any:
        def line(_: Any) -> AIMessage:
            marks.append(trips.count)
            return message

        return line

    steps = [calling(("weather", {"city": "x"}), id=f"c{at}") for at in (1, 2)]
    agent = agent_of(Scripted.says("warm", *map(answering, [*steps, AIMessage("end")])), memory, tools=[weather])
    bench.run(agent, ask("my cat"))
    marks.append(trips.count)
    bench.run(agent, ask("how is my cat named"))
    marks.append(trips.count)
    # the context, what is recalled, the question; a fresh look at working memory for each further call; the rest
    assert [after - before for before, after in pairwise(marks)] == [3, 1, 1, 1]
