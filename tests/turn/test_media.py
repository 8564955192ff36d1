"""`HistoryOptions(media=...)`: which pictures, audio and files a model is shown; the others are named in a copy."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import HistoryOptions
from langchain_workingmem._engine.plan import Command
from langchain_workingmem._text.messages import weight_of
from langchain_workingmem.turn.assemble import media_begin
from tests.helpers.media import asks, kept, picture, seen
from tests.helpers.models import CONFIG, Bench, Scripted, agent_of, calling
from tests.helpers.types import Make

TURN: Any = {"thread_id": "t", "user_id": "u"}


def conversation(size: int = 1_500) -> list[BaseMessage]:
    """Two pictures, words, one picture that a tool returns, words."""
    call = AIMessage("", id="5", tool_calls=[{"name": "plot", "args": {}, "id": "c"}])
    return [
        asks("what are these?", 1, 2, id="0", size=size),
        AIMessage("maps", id="1"),
        HumanMessage("thanks", id="2"),
        AIMessage("gladly", id="3"),
        HumanMessage("draw it", id="4"),
        call,
        ToolMessage([picture(3, size=size)], tool_call_id="c", id="6", name="plot"),
        AIMessage("there", id="7"),
        HumanMessage("nice", id="8"),
        AIMessage("yes", id="9"),
    ]


@pytest.mark.parametrize(("media", "wanted"), [("all", "2-----1----"), ("last", "n-----1----"), (2, "2-----1----")])
def test_older_media_are_named(make_memory: Make, media: Any, wanted: str) -> None:
    memory = make_memory(history=HistoryOptions(media=media))
    memory.history.append(conversation(), **TURN)
    context = memory.context("and?", **TURN)
    assert seen(context.messages) == wanted
    given = memory.context([*conversation(), HumanMessage("and?", id="10")], thread_id="new", user_id="u")
    assert seen(given.messages) == wanted
    assert memory.history.messages("t") == conversation()


def test_media_of_a_message_that_cannot_be_read_cost_that_message(
    make_memory: Make, raw: redis.Redis, prefix: str
) -> None:
    memory = make_memory(history=HistoryOptions(max_tokens=None))
    long = HumanMessage("x" * 200_000, id="long")  # so the messages are made behind the others' media
    memory.history.append([asks("look", 1, id="0", size=70_000), AIMessage("a map", id="1"), long], **TURN)
    key = f"{prefix}:messages:{{t}}"
    bodies: Any = raw.hgetall(key)
    (seq,) = (seq for seq, body in bodies.items() if b"look" in body)
    raw.hset(key, seq, bodies[seq].replace(b'"content":[', b'"content":7,"x":['))
    assert [one.id for one in memory.context("and?", **TURN).messages[:-1]] == ["1", "long"]


def test_the_picture_of_the_question_is_always_shown(make_memory: Make) -> None:
    memory = make_memory(history=HistoryOptions(media="last"))
    memory.history.append(conversation(), **TURN)
    asked = [asks("look", 4, id="10"), asks("and this", 5, id="11")]  # one turn
    assert seen(memory.context(asked, **TURN).messages) == "n-----n---11"
    assert media_begin([*asked, AIMessage("so"), HumanMessage("and?")], "last") == 0


def test_what_is_not_shown_is_not_read(make_memory: Make, commands: list[Command], prefix: str) -> None:
    memory = make_memory(history=HistoryOptions(media="last", last_messages=4, step=1))
    memory.history.append(conversation(size=60_000), **TURN)
    media = f"{prefix}:media:{{t}}"

    def read(asked: BaseMessage) -> list[int]:
        commands.clear()
        memory.context([asked], **TURN)
        return [len(command) - 2 for command in commands if command[1] == media]

    assert read(HumanMessage("and?")) == [1]
    memory.history.append([asks("one more", 4, id="10", size=60_000), AIMessage("ok", id="11")], **TURN)
    assert read(asks("this?", 5, id="12")) == []


def test_a_limit_of_tokens_counts_what_is_shown(make_memory: Make) -> None:
    pictures = weight_of(conversation()[:1])
    assert pictures > 1_000
    whole = make_memory(history=HistoryOptions(max_tokens=1_500, last_messages=None))
    whole.history.append(conversation(), **TURN)
    assert seen(whole.context("and?", **TURN).messages) == "----1----"
    assert whole.context("and?", **TURN).omitted == 2
    named = make_memory(history=HistoryOptions(max_tokens=1_500, last_messages=None, media="last"))
    assert seen(named.context("and?", **TURN).messages) == "n-----1----"


@pytest.mark.both_faces
def test_a_context_that_is_sent_back_leaves_the_pictures_in_the_store(
    make_memory: Make, raw: redis.Redis, prefix: str
) -> None:
    memory = make_memory(history=HistoryOptions(media="last"))
    stored = conversation(size=60_000)
    memory.history.append(stored, **TURN)
    asked = HumanMessage("and?", id="10")
    shown = memory.context([asked], **TURN).messages
    assert seen(shown) == "n-----1----"
    wire = [type(one).model_validate_json(one.model_dump_json()) for one in shown]  # through a client
    for sent, id in ((shown, "11"), (wire, "12")):
        memory.history.append(sent, **TURN)
        assert memory.history.messages("t") == [*stored, asked]
        again = memory.context([*sent, AIMessage("so", id=id), HumanMessage("more?", id="more")], **TURN)
        assert seen(again.messages[:11]) == "n-----1----"
        memory.save_turn([*sent, AIMessage("so", id=id)], **TURN)
        assert memory.history.messages("t", superseded=True) == [*stored, asked, AIMessage("so", id=id)]
        memory.history.update(sent[:1], thread_id="t")
        memory.history.delete([id], thread_id="t")
    assert memory.history.messages("t") == [*stored, asked]
    assert kept(raw, prefix) == 3


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
