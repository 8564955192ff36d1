"""A guest, a user, and a third one who has nothing to do with them; and all that is known of each."""

from __future__ import annotations

from typing import Any

import redis

from langchain_workingmem import Memory, ObservationOptions, WorkingMemoryOptions
from langchain_workingmem.options import Scope
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.observers import Echo
from tests.keeping.scripted import says
from tests.keeping.world import ANY, SAID, everything, keep, talk

GUEST, USER, THIRD = "anon-7f3", "maya", "tom"
PLACES = {GUEST: "Lisbon", USER: "Xanadu", THIRD: "Oslo"}


def options(scope: Scope = "user", *, keeper: bool = True) -> dict[str, Any]:
    """Return the options of a memory that has all: recall, working memory with values, logs."""
    keeping: dict[str, Any] = {"keeper": says(), "background": False} if keeper else {}
    return {
        "embeddings": WordEmbeddings(),
        "working_memory": WorkingMemoryOptions(schema=ANY, **keeping),
        "observations": ObservationOptions(
            model=Echo(), scope=scope, message_tokens=10, keep_tokens=0, background=False
        ),
    }


def live(memory: Memory) -> None:
    """Let each of them talk in a thread, with values and a log."""
    for at, (name, place) in enumerate(PLACES.items(), SAID):  # the user has said it later than the guest
        thread = f"of {place}"
        talk(memory, f"I live in {place}", "and so on", thread=thread, owner=name)
        keep(memory, {"/city": place, f"/{place}": 1}, "q0", thread=thread, owner=name, at=at)
        memory.working_memory.update({"seen": [place]}, user_id=name)
        memory.observations.observe(thread, user_id=name)


def known(memory: Memory, name: str = USER) -> dict[str, Any]:
    """Return what is known of a user, without the times of writes."""
    threads = memory.threads.list(user_id=name, order_by="created_at", descending=False)
    state = memory.working_memory.get(user_id=name)
    log = memory.observations
    return {
        "threads": {one.id: [row.text for row in memory.history.messages(one.id)] for one in threads},
        "working memory": state.value,
        "city": [(one.value, one.sources) for one in state.history("/city")] if state.is_kept else [],
        "log": [one.text for one in log.get(user_id=name)]
        if memory._core.state.observations and memory._core.state.observations.scope == "user"
        else {one.id: [line.text for line in log.get(thread_id=one.id, user_id=name)] for one in threads},
        "recall": {hit.thread_id for hit in memory.recall.search("live", user_id=name).hits},
    }


def naming(raw: redis.Redis, prefix: str, name: str) -> list[str]:
    """Return the keys that name a user, or hold its name."""
    return [key for key, value in everything(raw, prefix).items() if name in key or name in value]
