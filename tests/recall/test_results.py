"""Recall: in which windows, in which shape and how similar messages come back."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import IndexOptions, Memory, RecallOptions
from langchain_workingmem._redis.scripts import change_thread
from tests.helpers.embeddings import WordEmbeddings
from tests.recall.test_recall import FRUIT, Make, ids, say


@pytest.mark.parametrize(("window", "before", "after"), [(0, 0, 0), ((0, 2), 0, 2), (9, 2, 2)])
def test_a_hit_comes_with_its_neighbours_in_order(memory: Memory, window: Any, before: int, after: int) -> None:
    say(memory, *FRUIT)
    (hit,) = memory.recall.search("cherry cake", user_id="ann", top_k=1, message_range=window)
    assert [message.id for message in hit.before] == [f"t-{at}" for at in range(2 - before, 2)]
    assert [message.id for message in hit.after] == [f"t-{at}" for at in range(3, 3 + after)]


def traffic(at: int, calls: int = 2, text: str = "") -> list[BaseMessage]:
    """Give calls of a tool, each with its result, as they stand between a question and its answer."""
    found: list[BaseMessage] = []
    for number in range(calls):
        id = f"{at}-{number}"
        found.append(AIMessage(text, id=f"call{id}", tool_calls=[{"name": "look", "args": {"n": number}, "id": id}]))
        found.append(ToolMessage("seen", id=f"result{id}", tool_call_id=id))
    return found


def talk(*said: str, calls: int = 2) -> list[BaseMessage]:
    """Give questions and answers, the answers after calls of tools."""
    found: list[BaseMessage] = []
    for at, text in enumerate(said):
        if at % 2:
            found += traffic(at, calls)
        found.append((HumanMessage, AIMessage)[at % 2](text, id=str(at)))
    return found


@pytest.mark.parametrize("calls", [1, 40])
@pytest.mark.parametrize(
    ("question", "before", "after"), [("cherry", ["1"], ["3"]), ("plum", ["2"], ["4"]), ("apple", [], ["1"])]
)
def test_a_window_counts_what_was_said(memory: Memory, calls: int, question: str, before: Any, after: Any) -> None:
    said = talk("apple?", "a pie", "cherry?", "plum!", "thanks", "welcome", calls=calls)
    memory.history.append(said, thread_id="t", user_id="ann")
    found = memory.recall.search(question, user_id="ann", top_k=1, message_range=1)
    (hit,) = found.hits
    assert [message.id for message in hit.before] == before
    assert [message.id for message in hit.after] == after
    ((window,),) = found.windows().values()  # no gap is marked where only tool traffic is left out
    assert [row.message.id for row in window] == [*before, hit.message.id, *after]


def test_no_window_shows_what_is_superseded_or_was_refused(memory: Memory) -> None:
    say(memory, *FRUIT)
    memory.history.append([HumanMessage("two plums", id="new")], thread_id="t", user_id="ann")
    memory.history.truncate("t", after="t-3")
    (hit,) = memory.recall.search("plum jam jar", user_id="ann", top_k=1).hits
    assert [message.id for message in (*hit.before, *hit.after)] == ["t-2"]
    memory._core.run(change_thread(memory._core.state, "t", "ann", "refuse", refused=["t-2"]))
    (hit,) = memory.recall.search("plum jam jar", user_id="ann", top_k=1).hits
    assert [message.id for message in (*hit.before, *hit.after)] == ["t-1"]


@pytest.mark.parametrize("algorithm", ["flat", "hnsw"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("distance", ["cosine", "ip", "l2"])
def test_similarities_are_between_0_and_1(make_memory: Make, distance: Any, dtype: Any, algorithm: Any) -> None:
    index = IndexOptions(algorithm=algorithm, distance=distance, dtype=dtype)
    memory = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions(index=index))
    say(memory, *FRUIT, "cherry cake slice and more words")
    found = memory.recall.search("cherry cake slice", user_id="ann", top_k=6)
    assert len(found) == 6
    assert ids(found)[:2] == ["t-2", "t-5"]
    assert found.hits[0].similarity == pytest.approx(1, abs=0.01)
    assert all(0 <= hit.similarity <= 1 for hit in found)
