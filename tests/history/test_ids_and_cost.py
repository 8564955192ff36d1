from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from langchain_core.messages import HumanMessage

from langchain_workingmem import IdError, Memory
from tests.helpers.odd_ids import BAD_IDS, NASTY_IDS
from tests.helpers.threads import append, said, texts, vectors
from tests.helpers.trips import Trips


def test_no_thread_id_reaches_the_messages_of_another(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    for id in NASTY_IDS:
        append(memory, f"word {id}", thread_id=id, user_id=id)
    for id in NASTY_IDS:
        assert texts(memory.history.messages(id, user_id=id)) == [f"word {id}"]
        assert [row.thread_id for row in memory.history.for_user(id)] == [id]
        hits = memory.recall.search("word", user_id=id, top_k=100).hits
        assert [hit.thread_id for hit in hits] == [id]
        hits = memory.recall.search("word", thread_id=id, scope="thread", top_k=100).hits
        assert [hit.thread_id for hit in hits] == [id]
    for id in NASTY_IDS[::2]:
        assert memory.history.clear(id) == 1
    left = {id: texts(memory.history.messages(id)) for id in NASTY_IDS}
    assert left == {id: [] if place % 2 == 0 else [f"word {id}"] for place, id in enumerate(NASTY_IDS)}
    assert len(vectors(raw, prefix)) == len(NASTY_IDS) // 2


def test_any_message_id_of_512_bytes_is_kept_as_it_is(plain: Memory) -> None:
    messages = [HumanMessage(str(place), id=id) for place, id in enumerate(NASTY_IDS)]
    plain.history.append(messages, thread_id="t", user_id="u")
    assert [message.id for message in plain.history.messages("t")] == NASTY_IDS
    for place, id in enumerate(NASTY_IDS):
        assert len(plain.history.messages("t", before=id)) == place
    assert plain.history.delete(NASTY_IDS[1:], thread_id="t") == len(NASTY_IDS) - 1
    assert texts(plain.history.messages("t")) == ["0"]


CALLS: dict[str, Callable[[Memory, Any, Any], object]] = {
    "append": lambda memory, thread, owner: memory.history.append(said("x"), thread_id=thread, user_id=owner),
    "messages": lambda memory, thread, owner: memory.history.messages(thread, user_id=owner),
    "page": lambda memory, thread, owner: memory.history.page(thread, user_id=owner),
    "update": lambda memory, thread, owner: memory.history.update(said("a"), thread_id=thread, user_id=owner),
    "delete": lambda memory, thread, owner: memory.history.delete(["a"], thread_id=thread, user_id=owner),
    "truncate": lambda memory, thread, owner: memory.history.truncate(thread, after="a", user_id=owner),
    "clear": lambda memory, thread, owner: memory.history.clear(thread, user_id=owner),
}


@pytest.mark.parametrize("id", BAD_IDS)
def test_bad_ids_are_refused(ten: Memory, id: Any) -> None:
    for name, call in CALLS.items():
        with pytest.raises(IdError, match="thread_id"):
            call(ten, id, "u")
        if id is not None or name == "append":  # elsewhere None means: whoever owns it
            with pytest.raises(IdError, match="user_id"):
                call(ten, "t", id)
    if isinstance(id, str):
        with pytest.raises(IdError, match="message id"):
            ten.history.append([HumanMessage("x", id=id)], thread_id="t", user_id="u")
        with pytest.raises(IdError, match="message id"):
            ten.history.delete(["1", id], thread_id="t")
    assert texts(ten.history.messages("t")) == list("0123456789")


@pytest.mark.parametrize("in_turns", [False, True])
def test_a_page_of_a_user_costs_three_round_trips(plain: Memory, trips: Trips, in_turns: bool) -> None:
    threads, messages, limit = 40, 12, 30
    for batch in [range(at, at + 4) for at in range(0, messages, 4)] if in_turns else [range(messages)]:
        for number in range(threads):
            append(plain, *(f"{number}/{place}" for place in batch), thread_id=f"t{number}")
    everything = plain.history.for_user("u", limit=threads * messages)
    assert [row.stored_at for row in everything] == sorted(row.stored_at for row in everything)
    assert (len(everything), everything.total) == (threads * messages, threads * messages)
    cursor = None
    for place in range(0, 90, limit):
        before = trips.count
        page = plain.history.for_user("u", limit=limit, cursor=cursor)
        assert page.items == everything.items[place : place + limit]
        assert trips.count - before == 3
        cursor = page.next_cursor
