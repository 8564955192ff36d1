"""Optional rooms stand on top: a process that does not use them loads nothing of them until it meets their data."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import redis

from langchain_workingmem import FileOptions, _redis, history, recall, threads, turn, users
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.observers import Echo
from tests.helpers.programs import run as forked
from tests.helpers.types import Make
from tests.keeping.world import keep, keeps, keys_with
from tests.keeping.world import talk as say
from tests.observations.test_lifecycle import observed_by, shown, talk

LOADED = """
import sys
from langchain_core.messages import AIMessage, HumanMessage
from langchain_workingmem import LocalEmbeddings, Memory, WorkingMemoryOptions
OPTIONAL = {"observations", "keeping", "files", "studio", "mcp", "cli"}
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
WITH_LOGS = """
memory = Memory(sys.argv[1], key_prefix=sys.argv[2])
assert memory.context("and?", thread_id="s", user_id="u").observations is None
assert loaded() == [], loaded()
{step}
memory.close()
assert loaded() == ["observations"], loaded()
"""
STEPS = {
    "edit": 'memory.history.update([HumanMessage("other words", id="m0")], **IDS)',
    "delete": 'memory.history.delete(["m0"], **IDS)',
    "export": 'assert [one["kind"] for one in memory.users.export("u")].count("observations") == 1',
    "user": 'assert memory.users.delete("u").observations == 4',
}


def run(program: str, url: str, prefix: str) -> None:
    done = forked([sys.executable, "-c", LOADED + program, url, prefix], of="library")
    assert done.returncode == 0, done.stderr


def test_a_plain_memory_loads_no_optional_room_and_touches_no_key_of_it(
    server: EmbeddedRedis, raw: redis.Redis, prefix: str
) -> None:
    run(PLAIN, server.url, prefix)
    assert not [key for room in ("observations", "files") for key in raw.scan_iter(f"{prefix}:{room}*")]


@pytest.mark.parametrize("step", STEPS)
def test_a_thread_that_has_a_log_loads_its_room(
    make_memory: Make, server: EmbeddedRedis, prefix: str, step: str
) -> None:
    memory = make_memory(observations=observed_by("thread", model=Echo()))
    talk(memory, turns=2)
    assert len(memory.observations.observe("t", user_id="u")) == 4
    run(WITH_LOGS.format(step=STEPS[step]), server.url, prefix)
    if step != "user":
        assert len(shown(memory, "t", "u")["log"]) == (4 if step == "export" else 3)


WITH_VALUES = """
memory = Memory(sys.argv[1], key_prefix=sys.argv[2])
memory.context("and?", thread_id="t", user_id="u")
assert loaded() == [], loaded()
{step}
memory.close()
assert loaded() == ["keeping", "observations"], loaded()
"""
VALUE_STEPS = {
    "delete": 'assert memory.history.delete(["q0"], **IDS) == 1',
    "thread": 'assert memory.threads.delete("t")',
}


@pytest.mark.parametrize("step", VALUE_STEPS)
def test_a_process_without_a_keeper_takes_values_along(
    make_memory: Make, server: EmbeddedRedis, raw: redis.Redis, prefix: str, step: str
) -> None:
    memory = make_memory(**keeps("user"))
    say(memory, "I live in Xanadu")
    keep(memory, {"/city": "Xanadu"}, "q0")
    run(WITH_VALUES.format(step=VALUE_STEPS[step]), server.url, prefix)
    assert [key for key in keys_with(raw, prefix, "Xanadu") if ":messages:" not in key] == []


WITH_FILES = """
memory = Memory(sys.argv[1], key_prefix=sys.argv[2])
memory.save_turn([("user", "and?")], **IDS)
memory.threads.clone("t", new_thread_id="c")
memory.threads.transfer("c", user_id="u", to="v")
assert loaded() == [], loaded()
{step}
memory.close()
assert loaded() == ["files"], loaded()
"""
FILE_STEPS = {
    "delete": 'assert memory.users.delete("u").files == 1',
    "export": 'assert [one["path"] for one in memory.users.export("u") if one["kind"] == "file"] == ["/a.md"]',
}


@pytest.mark.parametrize("step", FILE_STEPS)
def test_an_owner_of_files_loads_their_room(make_memory: Make, server: EmbeddedRedis, prefix: str, step: str) -> None:
    memory = make_memory(files=FileOptions())
    memory.files.write("/a.md", "text", user_id="u")
    run(WITH_FILES.format(step=FILE_STEPS[step]), server.url, prefix)
    assert bool(memory.files.list("/", user_id="u")) == (step == "export")


def test_no_core_room_names_an_optional_one() -> None:
    core = [Path(room.__file__ or "").parent for room in (_redis, history, recall, threads, turn, users)]
    core += [core[0].parent / name for name in ("_engine", "_text", "_documents", "items", "working_memory")]
    named = re.compile(r"langchain_workingmem\.(observations|keeping|files|studio|mcp|cli)\b")
    assert [str(path) for room in core for path in room.rglob("*.py") if named.search(path.read_text())] == []
