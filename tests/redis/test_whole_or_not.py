"""A script decides before it writes: when something in it fails, nothing has happened."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, RecallOptions, WorkingMemError, WorkingMemoryOptions
from langchain_workingmem._redis.scripts import change_thread
from langchain_workingmem.history.save import save_turn
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.types import Make
from tests.users.samples import HEADER, THREAD, message

IDS: dict[str, Any] = {"thread_id": "t", "user_id": "u"}
SAID = [HumanMessage("one", id="q"), AIMessage("two", id="a"), HumanMessage("three", id="b")]

WRITES: dict[str, Callable[[Memory], object]] = {
    "append": lambda memory: memory.history.append([HumanMessage("next", id="n"), AIMessage("yes", id="y")], **IDS),
    "save_turn": lambda memory: memory.save_turn([HumanMessage("next", id="n"), AIMessage("yes", id="y")], **IDS),
    "save another answer": lambda memory: memory._core.run(
        save_turn(memory._core, [SAID[0], AIMessage("other", id="c")], "t", "u", kind="state")
    ),
    "update": lambda memory: memory.history.update([HumanMessage("changed", id="q")], thread_id="t"),
    "refuse": lambda memory: memory._core.run(change_thread(memory._core.state, "t", "u", "refuse", refused=["q"])),
    "delete one": lambda memory: memory.history.delete(["q"], thread_id="t"),
    "clear": lambda memory: memory.history.clear("t"),
    "truncate": lambda memory: memory.history.truncate("t", after="q"),
    "threads.update": lambda memory: memory.threads.update("t", title="new", metadata={"a": 1}),
    "threads.delete": lambda memory: memory.threads.delete("t"),
    "transfer": lambda memory: memory.threads.transfer("t", user_id="u", to="v"),
    "create": lambda memory: memory.threads.create(thread_id="fresh", user_id="u"),
    "remember": lambda memory: memory.working_memory.update("milk", **IDS),
    "forget": lambda memory: memory.working_memory.clear(**IDS),
    "revert": lambda memory: memory.working_memory.revert(1, **IDS),
    "clone": lambda memory: memory.threads.clone("t", new_thread_id="fresh"),
    "import": lambda memory: memory.users.load([HEADER, THREAD, message("late")]),
}


# begin by making some
ROOM = {"clear", "threads.delete", "delete one", "truncate", "save another answer", "update", "refuse"}


@pytest.fixture
def full(make_memory: Make) -> Memory:
    """A thread that has something under each of its names."""
    memory = make_memory(
        embeddings=WordEmbeddings(8),
        recall=RecallOptions(),
        working_memory=WorkingMemoryOptions(template="", scope="thread"),
        ttl=timedelta(days=1),
    )
    memory.history.append([*SAID, AIMessage("four", id="gone")], **IDS)
    memory.history.truncate("t", after="b")
    picture = {"type": "image", "base64": "A" * 70_000, "mime_type": "image/png"}
    memory.history.append([AIMessage([picture], id="d")], **IDS)
    memory.working_memory.update("tea", **IDS)
    memory.working_memory.update("coffee", **IDS)
    return memory


def everything(raw: redis.Redis, prefix: str) -> dict[bytes, Any]:
    def content(key: bytes) -> Any:
        # a dump has the fields of a hash in the order of their buckets, which reading alone can change in Redis 8
        return raw.hgetall(key) if raw.type(key) == b"hash" else raw.dump(key)

    return {key: (content(key), raw.pexpiretime(key)) for key in raw.scan_iter(f"{prefix}:*", count=1000)}


def refusal(call: Callable[[], object]) -> WorkingMemError | None:
    try:
        call()
    except WorkingMemError as error:
        return error
    return None


@pytest.mark.parametrize("name", WRITES)
def test_a_write_to_a_full_server_changes_nothing(full: Memory, raw: Any, prefix: str, name: str) -> None:
    before = everything(raw, prefix)
    raw.config_set("maxmemory", "1")
    try:
        error = refusal(lambda: WRITES[name](full))
    finally:
        raw.config_set("maxmemory", "0")
    if error is None:
        assert name in ROOM
    else:
        assert str(error).startswith("OOM")
        assert everything(raw, prefix) == before
