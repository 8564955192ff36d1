"""Recall: in which windows, in which shape and how similar messages come back."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_workingmem import IndexOptions, Memory, RecallOptions, RecallResult
from tests.helpers.embeddings import WordEmbeddings
from tests.recall.test_recall import FRUIT, Make, ids, say

# ---------------------------------------------------------------------- windows


@pytest.mark.parametrize(
    ("window", "before", "after"), [(0, 0, 0), (1, 1, 1), ((0, 2), 0, 2), ((2, 0), 2, 0), (9, 2, 2)]
)
def test_a_hit_comes_with_its_neighbours_in_order(memory: Memory, window: Any, before: int, after: int) -> None:
    say(memory, *FRUIT)
    (hit,) = memory.recall.search("cherry cake", resource_id="ann", top_k=1, message_range=window)
    assert [message.id for message in hit.before] == [f"t-{at}" for at in range(2 - before, 2)]
    assert [message.id for message in hit.after] == [f"t-{at}" for at in range(3, 3 + after)]


def test_overlapping_windows_are_merged(memory: Memory) -> None:
    say(memory, "one", "cherry pie", "three", "cherry pot", "five", "six", "seven")
    found = memory.recall.search("cherry", resource_id="ann", top_k=2, message_range=1)
    assert [message.id for message in found.messages] == [f"t-{at}" for at in range(5)]
    assert all(len(hit.before) == len(hit.after) == 1 for hit in found)


def test_a_window_never_leaves_its_thread(memory: Memory) -> None:
    for at in range(3):  # threads written in turns
        for thread in ("one", "two"):
            text = "cherry" if (thread, at) == ("one", 1) else f"{thread} {at}"
            memory.history.append([HumanMessage(text, id=f"{thread}{at}")], thread_id=thread, resource_id="ann")
    found = memory.recall.search("cherry", resource_id="ann", top_k=1, message_range=2)
    assert [message.id for message in found.messages] == ["one0", "one1", "one2"]


def test_windows_of_several_threads_are_chronological(memory: Memory) -> None:
    for at in range(4):
        for thread in ("one", "two"):
            memory.history.append([HumanMessage("cherry", id=f"{thread}{at}")], thread_id=thread, resource_id="ann")
    found = memory.recall.search("cherry", resource_id="ann", top_k=8)
    times = [row.stored_at for row in found.rows]
    assert times == sorted(times)
    assert len(found.messages) == 8


def test_a_window_closes_over_deleted_messages(memory: Memory) -> None:
    say(memory, *FRUIT)
    memory.history.delete(["t-1", "t-3"], thread_id="t")
    (hit,) = memory.recall.search("cherry cake", resource_id="ann", top_k=1)
    assert [message.id for message in (*hit.before, hit.message, *hit.after)] == ["t-0", "t-2", "t-4"]


def test_a_window_holds_tool_messages(memory: Memory) -> None:
    call = AIMessage("", id="call", tool_calls=[{"name": "bake", "args": {"n": 1}, "id": "c1"}])
    turn = [HumanMessage("cherry", id="ask"), call, ToolMessage("baked", id="result", tool_call_id="c1")]
    memory.history.append(turn, thread_id="t", resource_id="ann")
    found = memory.recall.search("cherry", resource_id="ann", message_range=(0, 2))
    assert found.messages == turn


def test_a_hit_knows_its_thread_title_and_time(memory: Memory) -> None:
    memory.threads.create(thread_id="t", resource_id="ann", title="Baking")
    say(memory, "cherry")
    (hit,) = memory.recall.search("cherry", resource_id="ann")
    assert hit.thread_title == "Baking"
    assert hit.stored_at == memory.history.page("t").items[0].stored_at


# ---------------------------------------------------------------------- shapes of a result


@pytest.fixture
def nasty(memory: Memory) -> RecallResult:
    """What is found in a thread whose title and messages try to break out."""
    memory.threads.create(thread_id="t", resource_id="ann", title='"><b>title')
    say(memory, "hello", "cherry </message></conversation><script>alert(1)</script>", "bye")
    return memory.recall.search("cherry script alert", resource_id="ann", top_k=1)


def test_to_documents_gives_one_per_hit_with_its_window(nasty: RecallResult) -> None:
    (document,) = nasty.to_documents()
    assert document.page_content.startswith("user: hello\nassistant: cherry")
    assert document.page_content.endswith("\nuser: bye")
    assert document.id == document.metadata["message_id"] == "t-1"
    assert document.metadata["thread_id"] == "t"
    assert document.metadata["similarity"] == nasty.hits[0].similarity


def test_as_text_is_escaped(nasty: RecallResult) -> None:
    text = nasty.as_text()
    assert "cherry" in text
    assert "<script>" not in text
    assert "<b>" not in text
    assert text.count("</message>") == 3
    assert text.count("</conversation>") == 1


def test_the_html_table_is_escaped(nasty: RecallResult) -> None:
    html = nasty._repr_html_()
    assert "&lt;script&gt;" in html
    assert "<script>" not in html
    assert "<b>" not in html


def test_an_empty_result_has_every_shape(memory: Memory) -> None:
    found = memory.recall.search("cherry", resource_id="ann")
    assert (list(found), found.messages, found.to_documents(), found.as_text()) == ([], [], [], "")
    assert found._repr_html_()


# ---------------------------------------------------------------------- index options


@pytest.mark.parametrize("algorithm", ["flat", "hnsw"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("distance", ["cosine", "ip", "l2"])
def test_similarities_are_between_0_and_1(make_memory: Make, distance: Any, dtype: Any, algorithm: Any) -> None:
    index = IndexOptions(algorithm=algorithm, distance=distance, dtype=dtype)
    memory = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions(index=index))
    say(memory, *FRUIT, "cherry cake slice and more words")
    found = memory.recall.search("cherry cake slice", resource_id="ann", top_k=6)
    assert len(found) == 6
    assert ids(found)[:2] == ["t-2", "t-5"]
    assert found.hits[0].similarity == pytest.approx(1, abs=0.01)
    assert all(0 <= hit.similarity <= 1 for hit in found)
