"""Media in observations: a line has their names, its sources have them whole."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import ObservationOptions
from langchain_workingmem._text.said import weight_of
from tests.helpers.media import asks, picture
from tests.helpers.types import Make
from tests.observations.observers import Echo

TURN: dict[str, Any] = {"thread_id": "t", "user_id": "u"}


def later() -> list[BaseMessage]:
    """Give the turns after which media that the observer's model does not read are named."""
    turns = ((HumanMessage(f"more {at}", id=f"h{at}"), AIMessage("yes", id=f"y{at}")) for at in range(3))
    return [one for turn in turns for one in turn]


def test_an_observer_reads_the_names_of_media_and_the_sources_have_them_whole(make_memory: Make) -> None:
    options = ObservationOptions(model=Echo(), message_tokens=1, keep_tokens=0, background=False)
    memory = make_memory(observations=options)
    said = asks("where is this?", 1, 2, id="q")
    thanks = HumanMessage("thanks", id="r")
    memory.history.append([said, AIMessage("in Oslo", id="a"), *later(), thanks], **TURN)
    waiting = memory.observations.get(thread_id="t").pending_tokens
    assert waiting == weight_of([said, AIMessage("in Oslo"), *later(), thanks]) > 2_000
    (first, *_) = memory.observations.observe("t").observations
    assert memory.observations.get(thread_id="t").pending_tokens == weight_of([thanks])
    assert "[picture: map.png]" in first.text
    assert memory.observations.sources(first.id, thread_id="t").messages[0] == said
    clone = memory.threads.clone("t").thread.id
    assert memory.observations.sources(first.id, thread_id=clone).messages[0].content == said.content
    assert memory.context("and?", **TURN).observations


def test_a_line_goes_when_the_picture_of_its_answer_is_another_one(make_memory: Make) -> None:
    """Its words stay the same, which is all that history compares of an answer."""
    memory = make_memory(
        observations=ObservationOptions(model=Echo(), message_tokens=1, keep_tokens=0, background=False)
    )
    drawn = AIMessage([{"type": "text", "text": "here"}, picture(1, "cat.png")], id="a")
    memory.history.append([HumanMessage("draw", id="q"), drawn, *later(), HumanMessage("thanks", id="r")], **TURN)
    assert "cat.png" in str(memory.observations.observe("t").observations)
    kept_words = drawn.model_copy(update={"response_metadata": {"took": 1}})
    memory.history.update([kept_words], thread_id="t")
    assert "cat.png" in str(memory.observations.get(thread_id="t").observations)
    memory.history.update([AIMessage([drawn.content[0], picture(2, "dog.png")], id="a")], thread_id="t")
    assert "cat.png" not in str(memory.observations.get(thread_id="t").observations)
    assert "dog.png" in str(memory.observations.observe("t").observations)
