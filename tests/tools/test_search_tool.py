"""The tool by which a model searches what was said earlier."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import BaseTool

from langchain_workingmem import Memory, RecallOptions
from langchain_workingmem.faces.tools import AWAY
from tests.helpers.embeddings import WordEmbeddings

pytestmark = pytest.mark.in_turn("face")

Make = Callable[..., Memory]
Invoke = Callable[..., str]

OLD = ["hello", "hi", "my dog is Nougat", "sweet", "it rains", "it does", "bye", "see you"]


@pytest.fixture
def filled(make_memory: Make, embeddings: WordEmbeddings) -> Memory:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions(top_k=1))
    kinds = (HumanMessage, AIMessage)
    messages = [kinds[at % 2](text, id=f"m{at}") for at, text in enumerate(OLD)]
    memory.threads.create(user_id="ann", thread_id="pets", title="Pets")
    memory.history.append(messages, thread_id="pets", user_id="ann")
    memory.history.append([HumanMessage("my dog is Kestrel")], thread_id="b", user_id="bob")
    return memory


def search_tool(memory: Memory, **ids: Any) -> BaseTool:
    (tool,) = memory.tools(include=["search_memory"], **ids)
    return tool


def lines(reply: str) -> list[str]:
    """The words of each message that a reply holds."""
    return re.findall(r"<message [^>]*>(.*)</message>", reply)


def test_a_hit_comes_with_its_window(filled: Memory, invoke: Invoke) -> None:
    reply = invoke(search_tool(filled, user_id="ann"), {"query": "dog Nougat"})
    assert lines(reply) == ["hi", "my dog is Nougat", "sweet"]


# ---------------------------------------------------------------------- times


@pytest.fixture
def middle(filled: Memory) -> datetime:
    """When the dog was named; times rise strictly within a thread."""
    return filled.history.page("pets").items[2].stored_at


def found(filled: Memory, invoke: Invoke, **times: str | None) -> str:
    return invoke(search_tool(filled, user_id="ann"), {"query": "my dog is Nougat", **times})


def test_times_are_inclusive(filled: Memory, invoke: Invoke, middle: datetime) -> None:
    reply = found(filled, invoke, since=middle.isoformat(), until=middle.isoformat())
    assert "my dog is Nougat" in lines(reply)


@pytest.mark.parametrize("time", ["2026-05", "last week", ""])
def test_what_is_no_time_comes_back_to_the_model_with_an_example(filled: Memory, invoke: Invoke, time: str) -> None:
    for name in ("since", "until"):
        assert "2026-05-03T18:00" in found(filled, invoke, **{name: time})


def test_times_without_a_zone_are_utc_as_the_model_is_shown_them(
    filled: Memory, invoke: Invoke, middle: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        bare = middle.replace(tzinfo=None).isoformat()
        assert "my dog is Nougat" in lines(found(filled, invoke, since=bare, until=bare))
        reply = found(filled, invoke)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert f'time="{middle:%Y-%m-%d %H:%M} UTC"' in reply


# ---------------------------------------------------------------------- ids


def test_somebody_elses_thread_is_no_way_in(make_memory: Make, embeddings: WordEmbeddings, invoke: Invoke) -> None:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions(scope="thread"))
    memory.save_turn([HumanMessage("my dog is Nougat")], thread_id="pets", user_id="ann")
    reply = invoke(
        search_tool(memory), {"query": "my dog is"}, {"configurable": {"thread_id": "pets", "user_id": "bob"}}
    )
    assert "Nougat" not in reply


# ---------------------------------------------------------------------- in a graph


def test_a_model_that_is_down_is_told_to_the_chat_model(
    filled: Memory, embeddings: WordEmbeddings, invoke: Invoke, caplog: pytest.LogCaptureFixture
) -> None:
    embeddings.broken = OSError("no route to https://key@embeddings.internal")
    assert invoke(search_tool(filled, user_id="ann"), {"query": "a new one"}) == AWAY
    assert "embeddings.internal" in caplog.text
