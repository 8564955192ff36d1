"""Agents are shown the media that `HistoryOptions(media=...)` says, and store all of them."""

from __future__ import annotations

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import HistoryOptions
from tests.helpers.media import asks, seen
from tests.helpers.models import CONFIG, Bench, Scripted, agent_of, calling


@pytest.mark.parametrize("saver", [None, InMemorySaver()], ids=["forgetful", "checkpointed"])
@pytest.mark.in_turn("face")
def test_an_agent_is_shown_the_pictures_of_the_last_turn(bench: Bench, saver: InMemorySaver | None) -> None:
    memory = bench.memory(history=HistoryOptions(media="last"))
    model = Scripted.says("maps", calling(("weather", {"city": "Oslo"}), id="a"), "rain", "a plan")
    agent = agent_of(model, memory, checkpointer=saver)
    turns = [asks("what are these?", 1, 2, id="0"), HumanMessage("and the weather?", id="1"), asks("this?", 3, id="2")]
    for asked in turns:
        state = bench.run(agent, {"messages": [asked]}, CONFIG)
    assert [seen(messages) for messages in model.seen] == ["2", "2--", "2----", "n-----1"]
    whole = [one for one in memory.history.messages("t") if isinstance(one, HumanMessage)]
    assert whole == turns
    if saver:
        assert [one for one in state["messages"] if isinstance(one, HumanMessage)] == turns
