"""Optional rooms stand on top: a process that does not use them loads nothing of them until it meets their data."""

from __future__ import annotations

import sys

import redis

from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.programs import run as forked

LOADED = """
import sys
from langchain_core.messages import AIMessage, HumanMessage
from langchain_workingmem import LocalEmbeddings, Memory, WorkingMemoryOptions
OPTIONAL = {"files", "studio", "mcp", "cli"}
def loaded():
    names = (name.split(".") for name in sys.modules if name.startswith("langchain_workingmem."))
    return sorted({parts[1] for parts in names} & OPTIONAL)
IDS = {"thread_id": "t", "user_id": "u"}
"""
PLAIN = """
memory = Memory(sys.argv[1], key_prefix=sys.argv[2], embeddings=LocalEmbeddings(), working_memory=WorkingMemoryOptions())
memory.save_turn([("user", "my cat is Tom"), ("assistant", "hello Tom")], **IDS)
memory.context("who is Tom?", **IDS)
memory.save_turn([("user", "who is Tom?"), ("assistant", "your cat")], **IDS)
memory.working_memory.update("# cat Tom", **IDS)
first = memory.history.messages("t")[0]
memory.history.update([HumanMessage("my dog is Tom", id=first.id)], **IDS)
memory.history.truncate("t", after=first.id, user_id="u")
memory.threads.clone("t", new_thread_id="c")
memory.threads.transfer("c", user_id="u", to="v")
records = list(memory.users.export("u"))
memory.recall.search("Tom", user_id="u")
memory.recall.reindex()
memory.users.merge("v", into="u")
memory.users.delete("u")
memory.users.load(records)
memory.history.delete([first.id], **IDS)
memory.threads.delete("t")
memory.close()
assert loaded() == [], loaded()
"""


def run(program: str, url: str, prefix: str) -> None:
    done = forked([sys.executable, "-c", LOADED + program, url, prefix], of="library")
    assert done.returncode == 0, done.stderr


def test_a_plain_memory_loads_no_optional_room_and_touches_no_key_of_it(
    server: EmbeddedRedis, raw: redis.Redis, prefix: str
) -> None:
    run(PLAIN, server.url, prefix)
    assert not list(raw.scan_iter(f"{prefix}:files*"))
