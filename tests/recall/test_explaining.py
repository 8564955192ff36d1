"""Why a search finds what it finds: the parts of a score, and the reasons of what is left out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, MemoryContext, RecallOptions, RecallResult, ThreadOwnershipError
from langchain_workingmem.recall import PARTS, Explanation, Query, explain
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.trips import Trips
from tests.helpers.types import Make

QUESTION = "when does the red boat sail?"


def explained(memory: Memory, text: str = QUESTION, missed: int = 8, **arguments: Any) -> Explanation:
    query = Query.of(memory._core.state.recalling, text, resource_id="maya", **arguments)
    result = memory.recall.search(text, resource_id="maya", **arguments)
    return memory._core.run(explain(memory._core.state, query, result, missed=missed))


def explained_turn(memory: Memory, text: str, thread_id: str, missed: int = 5) -> tuple[MemoryContext, Explanation]:
    query = Query.of_turn(memory._core.state.recalling, text, thread_id, "maya", {})
    context = memory.context(text, thread_id=thread_id, resource_id="maya")
    shown = [message.id for message in context.messages[:-1] if message.id]
    plan = explain(memory._core.state, query, context.recalled, missed=missed, shown=shown)
    return context, memory._core.run(plan)


@pytest.fixture
def talked(memory: Memory) -> Memory:
    for thread, lines in {
        "sea": ["the red boat sails at nine", "I shall be there", "the blue boat rests", "good"],
        "land": ["a red house", "it is old", "the boat is sold", "what a pity"],
    }.items():
        turn = [AIMessage(line) if at % 2 else HumanMessage(line, name="maya") for at, line in enumerate(lines)]
        memory.history.append(turn, thread_id=thread, resource_id="maya")
    memory.save_turn([("user", "the red boat of jonas")], thread_id="other", resource_id="jonas")
    return memory


@pytest.mark.parametrize("arguments", [{}, {"top_k": 1}, {"top_k": 2, "message_range": 0}, {"max_tokens": 40}])
def test_the_hits_are_those_of_the_search(talked: Memory, arguments: dict[str, Any]) -> None:
    found = explained(talked, **arguments)
    hits = talked.recall.search(QUESTION, resource_id="maya", **arguments).hits
    assert [one.hit for one in found.messages if one.hit] == hits
    assert [one.hit for one in found.messages][: len(hits)] == hits


def test_the_parts_of_a_score_add_up(talked: Memory) -> None:
    found = explained(talked)
    assert len(found.messages) > 4
    for one in found.messages:
        assert [*one.parts] == list(PARTS)
        assert sum(one.parts.values()) == pytest.approx(one.score, abs=1e-9) or one.score in (0, 1)
    best = found.messages[0]
    assert best.parts["similarity"] > 0
    assert best.parts["words"] > 0


@pytest.mark.parametrize("search", ["semantic", "hybrid"])
def test_each_kind_of_search_is_explained(make_memory: Make, embeddings: WordEmbeddings, search: Any) -> None:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions(search=search))
    memory.save_turn([("user", "the red boat sails"), ("assistant", "well")], thread_id="t", resource_id="maya")
    (best, *_) = explained(memory).messages
    assert (best.parts["words"] > 0) == (search == "hybrid")
    assert sum(best.parts.values()) == pytest.approx(best.score, abs=1e-9)


def test_length_names_and_times_have_their_parts(make_memory: Make, embeddings: WordEmbeddings) -> None:
    memory = make_memory(embeddings=embeddings)
    for name in ("ada", "bob"):
        long = HumanMessage(f"the red boat {'and the sea ' * 60}", name=name)
        memory.history.append([long], thread_id="t", resource_id="maya")
    explained(memory)  # now the authors are known
    found = explained(
        memory, "what did Ada say about the red boat yesterday?", now=datetime.now(UTC) + timedelta(days=1)
    )
    parts = {one.message.name: one.parts for one in found.messages}
    assert parts["ada"]["name"] > 0 == parts["bob"]["name"]
    assert parts["ada"]["length"] < 0
    assert parts["ada"]["time"] > 0


def reasons(found: Explanation) -> dict[str, str]:
    return {str(one.message.text): one.reason for one in found.messages if one.hit is None}


def test_what_comes_after_the_best_is_named(talked: Memory) -> None:
    found = reasons(explained(talked, top_k=1, message_range=(0, 1)))
    assert found.pop("I shall be there") == "it is shown beside a hit"
    assert set(found.values()) == {"the best 1 are taken"}


def test_what_lies_below_a_threshold_is_named(talked: Memory) -> None:
    found = explained(talked, threshold=0.5)
    assert all(one.similarity >= 0.5 for one in found.messages if one.hit)
    assert "its similarity is below the threshold of 0.5" in reasons(found).values()


def test_what_has_no_room_is_named(talked: Memory) -> None:
    found = explained(talked, max_tokens=8, message_range=0)
    assert "there is no room left in 8 tokens" in reasons(found).values()


def test_the_floor_of_a_model_is_named(make_memory: Make) -> None:
    memory = make_memory(embeddings="local")
    memory.save_turn([("user", "Assam tea is nice"), ("assistant", "I agree")], thread_id="t", resource_id="maya")
    context, found = explained_turn(memory, "Who painted the chapel?", "new")
    assert found.floor is not None
    assert not context.recalled.hits
    assert all("too little in common" in one for one in reasons(found).values())


def test_a_repeated_question_is_replaced_by_its_answer(memory: Memory) -> None:
    turn = [HumanMessage(QUESTION), AIMessage("At nine.")]
    memory.save_turn(turn, thread_id="t", resource_id="maya")
    _, found = explained_turn(memory, QUESTION, "new")
    assert [str(one.message.text) for one in found.messages if one.hit] == ["At nine."]
    assert reasons(found)[QUESTION] == "it is the question itself, asked before"


def test_a_reranker_is_named(make_memory: Make, embeddings: WordEmbeddings) -> None:
    memory = make_memory(
        embeddings=embeddings, recall=RecallOptions(reranker=lambda query, documents: list(documents)[:1])
    )
    for number in range(3):
        memory.save_turn([("user", f"red boat {number}")], thread_id=f"t{number}", resource_id="maya")
    found = explained(memory, message_range=0)
    assert len([one for one in found.messages if one.hit]) == 1
    assert set(reasons(found).values()) == {"the reranker has left it out, or placed it lower"}


def test_nothing_of_others_is_a_candidate_and_a_foreign_thread_is_refused(talked: Memory) -> None:
    found = explained(talked, "the red boat of jonas", missed=100)
    assert "jonas" not in str([one.message for one in found.messages])
    query = Query.of_turn(talked._core.state.recalling, QUESTION, "other", "maya", {})
    with pytest.raises(ThreadOwnershipError):
        talked._core.run(explain(talked._core.state, query, RecallResult(), missed=1))


def test_a_blank_question_has_no_explanation(memory: Memory) -> None:
    assert explained(memory, " ") == Explanation()


def test_what_the_history_shows_is_named(talked: Memory) -> None:
    context, found = explained_turn(talked, QUESTION, "sea")
    assert "the history of the turn shows it" in reasons(found).values()
    assert [one.hit for one in found.messages if one.hit] == context.recalled.hits


def test_an_explanation_takes_two_round_trips_after_the_search(talked: Memory, trips: Trips) -> None:
    explained(talked)
    assert trips.of(lambda: explained(talked)) == 4


def test_a_search_that_is_not_explained_has_no_parts(talked: Memory) -> None:
    from langchain_workingmem.recall import find_candidates

    query = Query.of(talked._core.state.recalling, QUESTION, resource_id="maya")
    ranked, *_ = talked._core.run(find_candidates(talked._core.state, query, []))
    assert {one.parts for one in ranked} == {()}
    ranked, *_ = talked._core.run(find_candidates(talked._core.state, replace(query, explained=True), []))
    assert all(len(one.parts) == len(PARTS) for one in ranked)
