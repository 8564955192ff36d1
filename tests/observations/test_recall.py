"""Recall finds observations as well as messages, and each brings its sources."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import Memory, Observation, ObservationOptions, RecallOptions, RecallResult
from tests.helpers.embedded import wait_until
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import Scripted
from tests.helpers.trips import Trips
from tests.helpers.types import Make

TALK = [
    "my dog got a new collar",
    "how lovely, which colour",
    "a red one with a bell",
    "he will like that",
    "now let us plan the garden",
    "tell me about the soil",
    "it is sandy and dry",
    "then lavender will grow",
]
NOTES = "2026-11-20\n! [1,3] zephyr quartz\n- [5] marble fountain\n- [7,8] granite basin"


def options(*script: Any, **changes: Any) -> ObservationOptions:
    given = {"message_tokens": 1000, "keep_tokens": 0, "background": False} | changes
    return ObservationOptions(model=Scripted.says(*script), **given)


def say(memory: Memory, texts: Sequence[str] = TALK, thread: str = "t", resource: str = "ann") -> None:
    kinds: tuple[type[BaseMessage], ...] = (HumanMessage, AIMessage)
    messages = [kinds[at % 2](text, id=f"{thread}-{at + 1}") for at, text in enumerate(texts)]
    messages.append(HumanMessage("and what now", id=f"{thread}-end"))
    memory.history.append(messages, thread_id=thread, resource_id=resource)


@pytest.fixture(params=["thread", "resource"])
def observed(request: pytest.FixtureRequest, make_memory: Make, embeddings: WordEmbeddings) -> Memory:
    """A memory whose thread `t` has three observations, in the log of the thread or of the resource."""
    memory = make_memory(
        embeddings=embeddings,
        recall=RecallOptions(message_range=0),
        observations=options(NOTES, NOTES, scope=request.param),
    )
    say(memory)
    assert [one.text for one in memory.observations.observe("t", resource_id="ann")] == [
        "zephyr quartz",
        "marble fountain",
        "granite basin",
    ]
    return memory


def search(memory: Memory, text: str, **arguments: Any) -> RecallResult:
    return memory.recall.search(text, resource_id="ann", top_k=1, **arguments)


def found(memory: Memory, text: str) -> Observation | None:
    """Return the observation that a search finds, if it has these words."""
    hits = search(memory, text).hits
    one = hits[0].observation if hits else None
    return one if one is not None and one.text == text else None


def keys_with(raw: redis.Redis, prefix: str, text: bytes) -> list[bytes]:
    """Return the keys that hold a text anywhere."""
    kept: list[bytes] = []
    bare: Any = raw
    for key in bare.scan_iter(f"{prefix}*", count=1000):
        kind = bare.type(key)
        if kind == b"hash":
            value = b"".join(part for pair in bare.hgetall(key).items() for part in pair)
        elif kind == b"zset":
            value = b"".join(bare.zrange(key, 0, -1))
        else:
            value = bare.dump(key)
        if text in value:
            kept.append(key)
    return kept


# ---------------------------------------------------------------------- what is found


def test_an_observation_brings_its_sources(observed: Memory) -> None:
    (hit,) = search(observed, "zephyr quartz").hits
    assert hit.observation is not None
    assert hit.observation.text == "zephyr quartz"
    assert hit.observation.sources == [("t", "t-1"), ("t", "t-3")]
    assert hit.message.id == "t-1"
    assert [message.id for message in hit.after] == ["t-3"]


def test_an_observation_is_found_after_its_source_was_said_again_in_another_thread(observed: Memory) -> None:
    observed.history.append([HumanMessage(TALK[0], id="again")], thread_id="other", resource_id="ann")
    hits = observed.recall.search("zephyr quartz", resource_id="ann", top_k=20).hits
    assert hits[0].observation is not None
    assert hits[0].observation.text == "zephyr quartz"
    assert sum(hit.message.text == TALK[0] for hit in hits) == 1


def test_its_id_leads_back_to_it(observed: Memory) -> None:
    one = found(observed, "zephyr quartz")
    assert one is not None
    behind = observed.observations.sources(one.id, thread_id="t", resource_id="ann", message_range=0)
    assert [hit.message.id for hit in behind.hits] == ["t-1", "t-3"]


def test_the_window_and_the_sources_stand_in_order(observed: Memory) -> None:
    (hit,) = search(observed, "zephyr quartz", message_range=1).hits
    assert [message.id for message in (*hit.before, hit.message, *hit.after)] == ["t-1", "t-2", "t-3"]


def test_a_message_that_matches_better_is_found_as_itself(observed: Memory) -> None:
    (hit,) = search(observed, TALK[0]).hits
    assert (hit.message.id, hit.observation) == ("t-1", None)


def test_the_text_shows_the_line_before_the_messages(observed: Memory) -> None:
    text = search(observed, "zephyr quartz").as_text()
    assert 0 < text.index(">zephyr quartz</observation>") < text.index(TALK[0]) < text.index(TALK[2])


def test_a_gap_between_sources_is_shown(observed: Memory) -> None:
    assert len(search(observed, "zephyr quartz").windows()["t"]) == 2


def test_a_document_holds_the_line_and_the_sources(observed: Memory) -> None:
    (document,) = search(observed, "zephyr quartz").to_documents()
    assert document.metadata["observation"] == "zephyr quartz"
    first, *rest = document.page_content.splitlines()
    assert first.endswith("zephyr quartz")
    assert rest == [f"user: {TALK[0]}", f"user: {TALK[2]}"]


def test_the_tool_finds_both(observed: Memory) -> None:
    (tool,) = observed.tools(thread_id="t", resource_id="ann", include=["search_memory"])
    assert "zephyr quartz" in tool.invoke({"query": "zephyr quartz"})
    assert TALK[5] in tool.invoke({"query": TALK[5]})


def test_a_budget_counts_the_line(observed: Memory) -> None:
    assert found(observed, "zephyr quartz") is not None
    assert search(observed, "zephyr quartz", max_tokens=8).hits == []
    (hit,) = search(observed, "zephyr quartz", max_tokens=100).hits
    assert hit.observation is not None


def test_filters_are_those_of_the_first_source(observed: Memory) -> None:
    assert search(observed, "zephyr quartz", roles=["user"]).hits[0].observation is not None
    assert all(hit.observation is None for hit in search(observed, "zephyr quartz", roles=["assistant"]).hits)


def test_other_users_find_nothing(observed: Memory) -> None:
    assert observed.recall.search("zephyr quartz", resource_id="bob").hits == []


def test_a_search_takes_two_round_trips(observed: Memory, trips: Trips) -> None:
    assert trips.of(lambda: search(observed, "zephyr quartz")) == 2


# ---------------------------------------------------------------------- what is gone


def test_a_deleted_message_takes_its_observations_along(observed: Memory, raw: redis.Redis, prefix: str) -> None:
    observed.history.delete(["t-3"], thread_id="t", resource_id="ann")
    assert keys_with(raw, prefix, b"zephyr") == []
    assert found(observed, "zephyr quartz") is None
    assert found(observed, "granite basin") is not None


def test_an_edited_message_takes_its_observations_along(observed: Memory, raw: redis.Redis, prefix: str) -> None:
    observed.history.update([HumanMessage("a blue one", id="t-3")], thread_id="t", resource_id="ann")
    assert keys_with(raw, prefix, b"zephyr") == []
    assert found(observed, "granite basin") is not None


@pytest.mark.parametrize("what", ["clear", "delete", "resource"])
def test_a_deleted_thread_leaves_no_observation(observed: Memory, raw: redis.Redis, prefix: str, what: str) -> None:
    if what == "clear":
        observed.history.clear("t", resource_id="ann")
    elif what == "delete":
        observed.threads.delete("t", resource_id="ann")
    else:
        observed.users.delete("ann")
    assert keys_with(raw, prefix, b"zephyr") == []
    assert search(observed, "zephyr quartz").hits == []


def test_an_observation_that_a_person_deletes_is_not_found(observed: Memory) -> None:
    one = found(observed, "zephyr quartz")
    assert one is not None
    observed.observations.delete(one.id, thread_id="t", resource_id="ann")
    assert found(observed, "zephyr quartz") is None
    assert found(observed, "marble fountain") is not None
    observed.observations.revert(1, thread_id="t", resource_id="ann")
    assert found(observed, "zephyr quartz") is not None


def test_a_correction_is_found_instead(observed: Memory) -> None:
    one = found(observed, "zephyr quartz")
    assert one is not None
    observed.observations.update(one.id, "amber beacon", thread_id="t", resource_id="ann")
    assert found(observed, "zephyr quartz") is None
    corrected = found(observed, "amber beacon")
    assert corrected is not None
    assert (corrected.id, corrected.sources) == (one.id, one.sources)


def test_a_cleared_log_is_not_found(observed: Memory) -> None:
    observed.observations.clear(thread_id="t", resource_id="ann")
    assert found(observed, "zephyr quartz") is None
    assert search(observed, TALK[0]).hits[0].message.id == "t-1"
    observed.observations.revert(1, thread_id="t", resource_id="ann")
    assert found(observed, "zephyr quartz") is not None


def test_observations_of_another_branch_are_not_found(observed: Memory) -> None:
    observed.history.truncate("t", after="t-6", resource_id="ann")
    assert found(observed, "granite basin") is None
    assert found(observed, "zephyr quartz") is not None


# ---------------------------------------------------------------------- vectors that follow the thread


def test_a_transferred_thread_takes_its_observations_along(make_memory: Make, embeddings: WordEmbeddings) -> None:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions(), observations=options(NOTES))
    say(memory)
    memory.observations.observe("t")
    memory.threads.transfer("t", resource_id="ann", to="bob")
    assert memory.recall.search("zephyr quartz", resource_id="ann").hits == []
    assert memory.recall.search("zephyr quartz", resource_id="bob", top_k=1).hits[0].observation is not None


def test_observations_expire_with_the_vectors(make_memory: Make, embeddings: WordEmbeddings, raw: redis.Redis) -> None:
    memory = make_memory(
        embeddings=embeddings, recall=RecallOptions(), observations=options(NOTES), ttl=timedelta(hours=1)
    )
    say(memory)
    memory.observations.observe("t")
    bare: Any = raw
    expiries = {bare.pexpiretime(key) for key in bare.scan_iter(f"{memory._core.state.keys.vector_prefix}*")}
    assert len(expiries) == 1
    assert min(expiries) > 0


def test_reindex_makes_what_is_missing(
    make_memory: Make, embeddings: WordEmbeddings, caplog: pytest.LogCaptureFixture
) -> None:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions(), observations=options(NOTES))
    say(memory)
    embeddings.broken = RuntimeError("down")
    memory.observations.observe("t")
    assert "until recall.reindex()" in caplog.text
    embeddings.broken = None
    assert found(memory, "zephyr quartz") is None
    memory.recall.reindex(progress=False)
    assert found(memory, "zephyr quartz") is not None


@pytest.mark.parametrize("search", ["semantic", "hybrid"])
def test_another_model_finds_them_after_a_reindex(
    make_memory: Make, raw: redis.Redis, prefix: str, search: Any
) -> None:
    recall = RecallOptions(search=search, message_range=0)
    memory = make_memory(embeddings=WordEmbeddings(), recall=recall, observations=options(NOTES))
    say(memory)
    memory.observations.observe("t")
    other = make_memory(embeddings=WordEmbeddings(32, "others"), recall=recall, observations=options())
    other.recall.reindex(progress=False)
    assert found(other, "zephyr quartz") is not None
    assert len([key for key in raw.scan_iter(f"{prefix}:vector:*") if b":o" in key]) == 3


def test_recall_that_is_turned_on_later_finds_them_after_a_reindex(make_memory: Make) -> None:
    memory = make_memory(observations=options(NOTES))
    say(memory)
    memory.observations.observe("t")
    later = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions())
    later.recall.reindex(progress=False)
    assert found(later, "zephyr quartz") is not None


def test_without_recall_nothing_is_kept_for_it(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    memory = make_memory(observations=options(NOTES))
    say(memory)
    memory.observations.observe("t")
    assert list(raw.scan_iter(f"{prefix}:vector:*")) == []


def test_a_second_reindex_embeds_nothing(observed: Memory, embeddings: WordEmbeddings) -> None:
    observed.recall.reindex(progress=False)
    calls = len(embeddings.calls)
    assert observed.recall.reindex(progress=False) == 0
    assert not any("zephyr quartz" in call for call in embeddings.calls[calls:])


def test_they_return_with_their_branch(observed: Memory) -> None:
    observed.history.truncate("t", after="t-6", resource_id="ann")
    assert found(observed, "granite basin") is None
    messages = observed.history.messages("t", resource_id="ann", superseded=True)
    observed.history.append(messages[6:8], thread_id="t", resource_id="ann")
    wait_until(lambda: found(observed, "granite basin") is not None)


def test_what_was_condensed_still_leads_to_its_messages(make_memory: Make, embeddings: WordEmbeddings) -> None:
    script = options(NOTES.replace("!", "-"), "2026-11-20\n- [1,2,3] velvet anchor", observation_tokens=20)
    memory = make_memory(embeddings=embeddings, recall=RecallOptions(message_range=0), observations=script)
    say(memory)
    (condensed,) = memory.observations.observe("t")
    assert condensed.level == 1
    one = found(memory, "zephyr quartz")
    assert one is not None
    assert one.sources == [("t", "t-1"), ("t", "t-3")]
    memory.observations.delete(condensed.id, thread_id="t")
    assert found(memory, "zephyr quartz") is None


# ---------------------------------------------------------------------- a turn


def test_a_turn_does_not_repeat_a_line_of_the_log_that_it_shows(observed: Memory) -> None:
    context = observed.context("zephyr quartz", thread_id="t", resource_id="ann")
    assert context.observations is not None
    assert "zephyr quartz" in context.observations.as_text()
    assert all(hit.observation is None for hit in context.recalled.hits)


def test_a_turn_recalls_messages_that_the_log_stands_for(observed: Memory) -> None:
    recalled = observed.context("what had a bell", thread_id="t", resource_id="ann").recalled
    assert "t-3" in {row.message.id for row in recalled.rows}


def test_a_turn_finds_observations_of_other_threads(make_memory: Make, embeddings: WordEmbeddings) -> None:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions(), observations=options(NOTES))
    say(memory)
    memory.observations.observe("t")
    context = memory.context("zephyr quartz", thread_id="new", resource_id="ann")
    assert context.recalled.hits[0].observation is not None
    assert "zephyr quartz</observation>" in str(context.messages[-1].text)


def test_a_copy_is_found_by_its_observations(make_memory: Make, embeddings: WordEmbeddings) -> None:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions(message_range=0), observations=options(NOTES))
    say(memory)
    memory.observations.observe("t")
    copy = memory.threads.clone("t").thread.id

    def found() -> set[str]:
        searches = (memory.recall.search("zephyr", thread_id=one, scope="thread") for one in ("t", copy))
        return {hit.thread_id for found in searches for hit in found.hits if hit.observation is not None}

    wait_until(lambda: found() == {"t", copy})
