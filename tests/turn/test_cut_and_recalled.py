"""What a limit or a line of the log keeps out of the prompt may be recalled; what the prompt shows is not."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import HistoryOptions, ObservationOptions
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import CONFIG, Bench, Scripted, ask

IDS: Any = {"thread_id": "t", "user_id": "ann"}
QUESTION = "what is the name of my dog?"
LONG = "and so on " * 120


@pytest.mark.in_turn("face")
@pytest.mark.parametrize("last", [10, 20, None])
def test_what_the_limit_of_tokens_cuts_is_recalled(bench: Bench, last: int | None) -> None:
    memory = bench.recalling(history=HistoryOptions(last_messages=last, max_tokens=1_000))
    memory.save_turn([("user", "the name of my dog is Nougat"), ("assistant", "nice")], **IDS)
    for turn in range(6):
        memory.save_turn([("user", f"topic {turn}"), ("assistant", LONG)], **IDS)
        context = memory.context(QUESTION, **IDS)
        assert str(context.messages).count("dog is Nougat") == 1, turn
        assert bool(context.omitted) == bool(context.recalled.hits), turn


@pytest.mark.in_turn("face")
@pytest.mark.parametrize("with_saver", [False, True])
def test_what_stands_in_the_state_behind_a_line_of_the_log_is_recalled(bench: Bench, with_saver: bool) -> None:
    observer = Scripted.says("- [1] the user has a pet", *["- [1] more"] * 20)
    options = ObservationOptions(model=observer, message_tokens=600, keep_tokens=100, batch_tokens=300)
    memory = bench.recalling(observations=options)
    model = Scripted.says("nice", *[LONG] * 4, "Nougat")
    saver = InMemorySaver() if with_saver else None
    agent = create_agent(model, [], middleware=[MemoryMiddleware(memory)], checkpointer=saver)
    for text in ("the name of my dog is Nougat", *(f"topic {turn}" for turn in range(4)), QUESTION):
        bench.run(agent, ask(text), CONFIG)
        memory.settled()
    assert memory.observations.get(thread_id="t").observations
    assert str(model.seen[-1]).count("dog is Nougat") == 1
