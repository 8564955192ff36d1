from __future__ import annotations

import redis
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory
from tests.helpers.odd_ids import NASTY_IDS
from tests.helpers.threads import append, texts, vectors


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
