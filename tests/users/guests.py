"""A guest, a user, and a third one who has nothing to do with them; and all that is known of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, WorkingMemoryOptions
from tests.helpers.canaries import keys_with
from tests.helpers.embeddings import WordEmbeddings

GUEST, USER, THIRD = "anon-7f3", "maya", "tom"
PLACES = {GUEST: "Lisbon", USER: "Xanadu", THIRD: "Oslo"}
ANY = {"type": "object"}


def options() -> dict[str, Any]:
    """Return the options of a memory that has all: recall and working memory."""
    return {"embeddings": WordEmbeddings(), "working_memory": WorkingMemoryOptions(schema=ANY)}


def talk(memory: Memory, *texts: str, thread: str, owner: str) -> None:
    """Store turns, the questions with the ids q0, q1 and so on."""
    for at, text in enumerate(texts):
        turn = [HumanMessage(text, id=f"q{at}"), AIMessage(f"I see, {at}", id=f"a{at}")]
        memory.save_turn(turn, thread_id=thread, user_id=owner)


def live(memory: Memory) -> None:
    """Let each of them talk in a thread, with a working memory."""
    for name, place in PLACES.items():
        talk(memory, f"I live in {place}", "and so on", thread=f"of {place}", owner=name)
        memory.files.write(f"/{place}.md", place, user_id=name)
        memory.working_memory.update({"city": place, place: 1, "seen": [place]}, user_id=name)


def known(memory: Memory, name: str = USER) -> dict[str, Any]:
    """Return what is known of a user, without the times of writes."""
    threads = memory.threads.list(user_id=name, order_by="created_at", descending=False)
    return {
        "threads": {one.id: [row.text for row in memory.history.messages(one.id)] for one in threads},
        "working memory": memory.working_memory.get(user_id=name).value,
        "files": [one.path for one in memory.files.glob("**", user_id=name)],
        "recall": {hit.thread_id for hit in memory.recall.search("live", user_id=name).hits},
    }


def everything(raw: redis.Redis, prefix: str, *, but: Iterable[bytes] = ()) -> dict[str, str]:
    """Return every key of a memory with what it holds, as text; of hashes without some fields."""
    found = {}
    for key in raw.scan_iter(f"{prefix}:*"):
        match raw.type(key):
            case b"hash":
                fields: Any = raw.hgetall(key)
                fields = {name: value for name, value in fields.items() if name not in but}
                if b"labels" in fields:  # in any order
                    fields[b"labels"] = sorted(fields[b"labels"].split(b","))
                value: Any = sorted(fields.items())
            case b"zset":
                value = raw.zrange(key, 0, -1, withscores=True)
            case b"stream":
                value = raw.xrange(key)
            case _:
                value = raw.get(key)
        found[key.decode()] = repr(value)
    return found


naming = keys_with  # the keys that name a user, or hold the name
