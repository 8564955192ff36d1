"""Every public operation by both faces: the call and its twin give the same reply in as many round trips."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, assert_type

from langchain_workingmem import Memory
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.models import RecallResult, Thread
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.faces import AsyncFace, public_methods, twins
from tests.helpers.fault_bench import masked
from tests.helpers.operations import OPERATIONS, STORE_OPERATIONS, Caller, options
from tests.helpers.trips import Trips, counted_trips

# titles are made in the background, in their own time: threads/test_titles.py runs by both faces
COMPARED = [name for name in OPERATIONS if name != "titles"]
Told = dict[str, tuple[str, int]]  # the reply and the round trips of each operation


def test_every_method_with_a_twin_is_in_the_list() -> None:
    assert public_methods(Memory()) - {"close"} <= OPERATIONS.keys()
    assert twins(RedisMemoryStore) - {"close"} <= STORE_OPERATIONS.keys()


def told(memory: Any, store: Any, runner: asyncio.Runner | None, trips: Trips) -> Told:
    """Call everything twice: first connections are opened and scripts loaded, then round trips are counted."""
    replies = {}
    for thread in ("first", "second"):
        caller = Caller(memory=memory, runner=runner, thread=thread, user=f"u of {thread}")
        calls: dict[str, Callable[[], Any]] = {
            **{name: partial(OPERATIONS[name].call, caller) for name in COMPARED},
            **{
                f"store.{name}": partial(one.call, store, (thread,), "a", "b") for name, one in STORE_OPERATIONS.items()
            },
        }
        for name, call in calls.items():
            before = trips.count
            said = masked(repr(call()))
            memory.settled()  # what goes on in the background counts, too
            replies[name] = said, trips.count - before
    return replies


def by_both(loop_runner: asyncio.Runner) -> tuple[Told, Told]:
    """Call a memory and a store by their sync face and by their async face, on servers that hold nothing else."""
    replies = []
    index: Any = {"dims": 64, "embed": WordEmbeddings(), "fields": ["text", "tags[*]"]}
    for runner in (None, loop_runner):
        with counted_trips() as trips, EmbeddedRedis() as server:
            memory: Any = Memory(server.url, **{**options(), "title": None})
            store: Any = RedisMemoryStore(server.url, index=index)
            if runner:
                memory, store = AsyncFace(memory, runner), AsyncFace(store, runner)
            replies.append(told(memory, store, runner, trips))
            memory.close()
            store.close()
    return replies[0], replies[1]


def test_each_twin_gives_the_same_reply_in_as_many_round_trips(loop_runner: asyncio.Runner) -> None:
    sync, by_async = by_both(loop_runner)
    assert len(sync) == len(COMPARED) + len(STORE_OPERATIONS)
    assert {name: (reply, sync[name]) for name, reply in by_async.items() if reply != sync[name]} == {}


async def check_types(memory: Memory) -> None:
    """For mypy, which reads this and does not run it: what callers get of a twin, also of several at once."""
    assert_type(memory.threads.get("t"), Thread | None)
    assert_type(await memory.threads.aget("t"), Thread | None)
    both = asyncio.gather(memory.threads.aget("t"), memory.recall.asearch("dog", user_id="ann"))
    assert_type(await both, tuple[Thread | None, RecallResult])
    assert_type(asyncio.create_task(memory.threads.aget("t")), asyncio.Task[Thread | None])
