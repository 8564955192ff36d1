from __future__ import annotations

import pytest
import redis
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory
from tests.helpers.odd_ids import NASTY_IDS
from tests.helpers.threads import append, texts, vectors
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
