"""What stands in the way of a hit: threads that are gone, copies of a text, messages of many chunks, hundreds of names."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from redis import Redis

from langchain_workingmem import LocalEmbeddings, RecallOptions
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
