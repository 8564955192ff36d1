"""Optional rooms stand on top: a process that does not use them loads nothing of them until it meets their data."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from langchain_workingmem import FileOptions, _redis, history, recall, threads, turn, users
from langchain_workingmem._redis import scripts
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.history.operations import WRITE
from langchain_workingmem.history.rows import READ
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
OPTIONAL = {"observations", "keeping", "files", "studio", "mcp", "cli", "evaluation"}
def loaded():
    names = (name.split(".") for name in sys.modules if name.startswith("langchain_workingmem."))
    return sorted({parts[1] for parts in names} & OPTIONAL)
IDS = {"thread_id": "t", "resource_id": "u"}
"""
PLAIN = """
memory = Memory(sys.argv[1], key_prefix=sys.argv[2], embeddings=LocalEmbeddings(), working_memory=WorkingMemoryOptions())
memory.save_turn([("user", "my cat is Tom"), ("assistant", "hello Tom")], **IDS)
memory.context("who is Tom?", **IDS)
memory.save_turn([("user", "who is Tom?"), ("assistant", "your cat")], **IDS)
memory.working_memory.update("# cat Tom", **IDS)
first = memory.history.messages("t")[0]
memory.history.update([HumanMessage("my dog is Tom", id=first.id)], **IDS)
memory.history.truncate("t", after=first.id, resource_id="u")
memory.threads.clone("t", new_thread_id="c")
memory.threads.transfer("c", resource_id="u", to="v")
records = list(memory.users.export("u"))
memory.recall.search("Tom", resource_id="u")
memory.recall.reindex()
memory.users.merge("v", into="u")
memory.users.delete("u")
memory.users.load(records)
memory.history.delete([first.id], **IDS)
memory.threads.delete("t")
memory.close()
assert loaded() == [], loaded()
"""
ASKED = """
memory = Memory(sys.argv[1], key_prefix=sys.argv[2], embeddings=LocalEmbeddings(), working_memory=WorkingMemoryOptions())
context = memory.context("who is Tom?", **IDS)
memory.save_turn([("user", "who is Tom?"), ("assistant", "your cat")], **IDS)
assert memory.recall.search("Tom", resource_id="u").hits
steps = {
    "None": set(),
    "context.usage": {"usage.parts"},
    "memory.users.usage('u')": {"_counting"},
    "memory.threads.clone('t', new_thread_id='c')": {"threads.clones", "threads.restoring"},
    "context._repr_html_()": {"display.html", "display.pictures", "display.records"},
    "memory.users.load(memory.users.export('u'))": {"users.archive", "users.imports", "users.sections"},
}
on_top = set().union({"history.titles"}, *steps.values())
known = set()
for step, modules in steps.items():
    eval(step)
    found = {name for name in on_top if f"langchain_workingmem.{name}" in sys.modules}
    assert found - known == modules, (step, found - known)
    known = found
memory.close()
"""
WITH_LOGS = """
memory = Memory(sys.argv[1], key_prefix=sys.argv[2])
assert memory.context("and?", thread_id="s", resource_id="u").observations is None
assert loaded() == [], loaded()
{step}
memory.close()
assert loaded() == ["observations"], loaded()
"""
STEPS = {
    "edit": 'memory.history.update([HumanMessage("other words", id="m0")], **IDS)',
    "delete": 'memory.history.delete(["m0"], **IDS)',
    "append": 'memory.save_turn([HumanMessage("more"), AIMessage("of it")], **IDS)',
    "clone": 'memory.threads.clone("t", new_thread_id="c")',
    "transfer": 'memory.threads.transfer("t", resource_id="u", to="v")',
    "export": 'assert [one["kind"] for one in memory.users.export("u")].count("observations") == 1',
    "thread": 'assert memory.threads.delete("t")',
    "merge": 'memory.users.merge("u", into="v")',
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


def test_what_few_calls_need_is_loaded_by_them(server: EmbeddedRedis, prefix: str) -> None:
    run(ASKED, server.url, prefix)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("scope", ["thread", "resource"])
def test_a_thread_that_has_a_log_loads_its_room(
    make_memory: Make, server: EmbeddedRedis, prefix: str, scope: Any, step: str
) -> None:
    memory = make_memory(observations=observed_by(scope, model=Echo()))
    talk(memory, turns=2)
    assert len(memory.observations.observe("t", resource_id="u")) == 4
    run(WITH_LOGS.format(step=STEPS[step]), server.url, prefix)
    gone = {"thread": True, "user": True, "transfer": scope == "resource"}.get(step, False)
    owner = "v" if step in {"transfer", "merge"} else "u"
    if not gone:
        found = shown(memory, "t", owner)
        told = [text for text in found["log"] + found["raw"] if "m0" not in text]
        assert len(found["log"]) == (3 if step in {"edit", "delete"} else 4)
        assert len(told) == {"delete": 3, "append": 6}.get(step, 4)


WITH_VALUES = """
memory = Memory(sys.argv[1], key_prefix=sys.argv[2])
memory.context("and?", thread_id="t", resource_id="u")
assert loaded() == [], loaded()
{step}
memory.close()
assert loaded() == ["keeping", "observations"], loaded()
"""
VALUE_STEPS = {
    "delete": 'assert memory.history.delete(["q0"], **IDS) == 1',
    "edit": 'memory.history.update([HumanMessage("other words", id="q0")], **IDS)',
    "clear": 'assert memory.history.clear("t") == 2',
    "thread": 'assert memory.threads.delete("t")',
    "transfer": 'memory.threads.transfer("t", resource_id="u", to="v")',
    "truncate": 'memory.history.truncate("t", after="a0")',
}


@pytest.mark.parametrize("step", VALUE_STEPS)
@pytest.mark.parametrize("scope", ["thread", "resource"])
def test_a_process_without_a_keeper_takes_values_along(
    make_memory: Make, server: EmbeddedRedis, raw: redis.Redis, prefix: str, scope: Any, step: str
) -> None:
    memory = make_memory(**keeps(scope))
    say(memory, "I live in Xanadu")
    keep(memory, {"/city": "Xanadu"}, "q0")
    run(WITH_VALUES.format(step=VALUE_STEPS[step]), server.url, prefix)
    words = keys_with(raw, prefix, "Xanadu")
    stays = step == "truncate" or (step == "transfer" and scope == "thread")
    assert [key for key in words if ":messages:" not in key] == [] or stays


WITH_FILES = """
memory = Memory(sys.argv[1], key_prefix=sys.argv[2])
memory.save_turn([("user", "and?")], **IDS)
memory.threads.clone("t", new_thread_id="c")
memory.threads.transfer("c", resource_id="u", to="v")
assert loaded() == [], loaded()
{step}
memory.close()
assert loaded() == ["files"], loaded()
"""
FILE_STEPS = {
    "delete": 'assert memory.users.delete("u").files == 1',
    "export": 'assert [one["path"] for one in memory.users.export("u") if one["kind"] == "file"] == ["/a.md"]',
    "import": 'assert memory.users.load([{**next(memory.users.export("v")), "ends": False}, [*memory.users.export("u")][-2]]).files == 1',
    "merge": 'assert memory.users.merge("u", into="v").files == 1',
    "doctor": 'assert "1 files of 1 owners" in [one.message for one in memory.doctor() if one.check == "files"][0]',
}


@pytest.mark.parametrize("step", FILE_STEPS)
def test_an_owner_of_files_loads_their_room(make_memory: Make, server: EmbeddedRedis, prefix: str, step: str) -> None:
    memory = make_memory(files=FileOptions(revisions=20))
    for number in range(15):
        memory.files.write("/a.md", f"text {number}", resource_id="u")
    run(WITH_FILES.format(step=FILE_STEPS[step]), server.url, prefix)
    owners = {"delete": [], "export": ["u"], "import": ["u", "v"], "merge": ["v"], "doctor": ["u"]}[step]
    found = [one for one in ("u", "v") if memory.files.list("/", resource_id=one)]
    assert found == owners
    for owner in owners:
        rows = memory.files.history("/a.md", resource_id=owner)
        assert len(rows) == (15 if step != "import" or owner == "u" else 11)


def locals_in(source: str) -> int:
    """Count the local names at the top level of a script, of which Lua takes 200."""
    flat = re.findall(r"^local (?:function (\w+)|([\w, ]+?)(?: =|$))", source, re.MULTILINE)
    return sum(1 if name else names.count(",") + 1 for name, names in flat)


def test_plain_scripts_fit_a_head() -> None:
    plain = {
        "turn": turn.TURN,
        "read": READ,
        "write": WRITE,
        "delete": scripts.DELETE,
        "sweep": scripts.SWEEP,
    }
    sizes = {name: (locals_in(one.source), len(one.source.splitlines())) for name, one in plain.items()}
    assert {name: size for name, size in sizes.items() if size[0] > 120 or size[1] > 740} == {}
    assert not [name for name, one in plain.items() if "observ" in one.source.lower()]


def test_no_core_room_names_an_optional_one() -> None:
    core = [Path(room.__file__ or "").parent for room in (_redis, history, recall, threads, turn, users)]
    core += [core[0].parent / name for name in ("_engine", "_text", "_documents", "items", "working_memory")]
    named = re.compile(r"langchain_workingmem\.(observations|keeping|files|studio|mcp|cli|evaluation)\b")
    assert [str(path) for room in core for path in room.rglob("*.py") if named.search(path.read_text())] == []
