"""What stands in the way of a hit: threads that are gone, copies of a text, messages of many chunks, hundreds of names."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from redis import Redis

from langchain_workingmem import IndexOptions, LocalEmbeddings, Memory, RecallOptions
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.trips import Trips
from tests.helpers.types import Make

FACT = "We have a dog whose name is a secret"
NEW: Any = {"thread_id": "new", "user_id": "u"}


def texts(found: Any) -> list[str]:
    return [str(message.text) for message in found.messages]


@pytest.mark.parametrize("search", ["semantic", "hybrid"])
def test_vectors_of_threads_that_are_gone_hide_nothing(
    make_memory: Make, local_model: LocalEmbeddings, raw: Redis, trips: Trips, search: Any
) -> None:
    memory = make_memory(embeddings=local_model, recall=RecallOptions(search=search))
    for at in range(8):
        memory.save_turn([("user", f"My dog is called Nougat {at}."), ("ai", "ok")], thread_id=f"o{at}", user_id="u")
    memory.save_turn([("user", FACT)], thread_id="fresh", user_id="u")
    raw.delete(*(memory._core.state.keys.of(f"o{at}").thread for at in range(8)))  # as when they expire
    asked = "What is my dog called Nougat?"
    assert texts(memory.recall.search(asked, user_id="u")) == [FACT]
    assert texts(memory.context(asked, **NEW, read_only=True).recalled) == [FACT]
    assert trips.of(lambda: memory.recall.search(asked, user_id="u")) == 4


def test_hundreds_of_copies_hide_nothing_and_the_newest_is_the_hit(make_memory: Make) -> None:
    memory = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions(message_range=0))
    memory.save_turn([("user", "red fox in the wood")], thread_id="told", user_id="u")
    copies = [HumanMessage("where is the red fox", id=str(at)) for at in range(230)]
    memory.history.append(copies, thread_id="cron", user_id="u")
    newest, told = memory.recall.search("where is the red fox", user_id="u", top_k=2).hits
    assert (newest.message.id, told.message.text) == ("229", "red fox in the wood")


def test_chunks_of_a_few_messages_take_no_place_from_a_better_one(make_memory: Make) -> None:
    memory = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions(chunk_tokens=4, message_range=0))
    long = " ".join(["dog cake story"] * 300)
    memory.history.append([*[f"{long} {at}" for at in range(4)], "dog ate the cake"], thread_id="t", user_id="u")
    best = [memory.recall.search("dog cake", user_id="u", top_k=top_k).hits[0].message.text for top_k in (1, 4)]
    assert best == ["dog ate the cake"] * 2


def test_names_of_hundreds_of_authors_cost_no_time(make_memory: Make) -> None:
    memory = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions())
    said = [HumanMessage(f"cake {at}", name=f"user-{at}") for at in range(300)]
    memory.history.append(said, thread_id="room", user_id="team")
    memory.recall.search("cake", user_id="team", top_k=300)
    before = time.process_time()
    memory.recall.search("Which user likes cake?", user_id="team")
    assert time.process_time() - before < 0.25


def test_products_of_long_vectors_have_a_floor_on_their_scale(make_memory: Make, local_model: LocalEmbeddings) -> None:
    class Long(LocalEmbeddings):
        model = "long vectors"

        def embed_documents(self, given: Any) -> list[list[float]]:
            return [[7 * number for number in vector] for vector in super().embed_documents(given)]

    options = RecallOptions(index=IndexOptions(distance="ip", dtype="float32"), message_range=0)
    memory = make_memory(embeddings=Long(), recall=options)
    memory.history.append([f"Note {at} about the garden" for at in range(30)], thread_id="g", user_id="u")
    memory.save_turn([("user", "My dog is called Nougat.")], thread_id="d", user_id="u")
    for _ in range(2):  # the first teaches the floor
        shown = memory.context("My dog is called Nougat.", **NEW, read_only=True).recalled
        memory.settled()
    assert texts(shown) == ["My dog is called Nougat."]
    assert [hit.similarity for hit in shown.hits] == [1.0]
    assert memory.context("asdf qwer", **NEW, read_only=True).recalled.silent == "far"


def test_a_follow_up_asks_for_no_time_of_what_stands_before_it(walled: Memory) -> None:
    before: Any = [
        HumanMessage(f"My appointment was on {datetime.now(UTC):%Y-%m-%d}"),
        ("ai", "Nice!"),
        HumanMessage("ok, thank you"),
    ]
    assert walled.context(before, **NEW, read_only=True).recalled.rows == []


@pytest.fixture
def walled(make_memory: Make, local_model: LocalEmbeddings) -> Memory:
    memory = make_memory(embeddings=local_model, recall=RecallOptions())
    memory.history.append([f"Printer {at} lacks toner" for at in range(30)], thread_id="notes", user_id="u")
    return memory
