"""An agent that keeps notes as files: a guest logs in, the data moves elsewhere, one user leaves, another one stays."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
from langchain.agents import create_agent

from langchain_workingmem import Memory, MemoryMiddleware, ThreadOwnershipError
from langchain_workingmem.adapters.claude_middleware import ClaudeMemoryMiddleware
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embedded import read
from tests.helpers.models import Bench, Scripted, ask, calling, configured
from tests.helpers.programs import Forked
from tests.users.guests import GUEST, THIRD, USER, naming
from tests.users.test_files import holding

MAYA: Any = {"user_id": USER}
IMPORTER = """
import json, sys
from langchain_workingmem import Memory
url, prefix, path = sys.argv[1:]
def records():
    yield from map(json.loads, open(path))
with Memory(url, key_prefix=prefix) as memory:
    print("ready", flush=True)
    memory.users.load(records())
"""


def answer(bench: Bench, agent: Any, words: str, thread: str, owner: str) -> str:
    found = bench.run(agent, ask(words), configured(thread, owner))["messages"]
    return "\n".join(one.text for one in found if one.type == "tool")


@pytest.mark.in_turn("face")
def test_the_notes_of_an_agent_are_the_users_data(
    bench: Bench, server: EmbeddedRedis, raw: redis.Redis, prefix: str, tmp_path: Path
) -> None:
    memory = bench.memory()
    model = Scripted.says()
    agent = create_agent(model, middleware=[MemoryMiddleware(memory), ClaudeMemoryMiddleware(memory)])

    for text, id, thread, owner in (
        ("Maya: canary in Rome\n", "1", "hers", USER),
        ("third: sparrow in Oslo\n", "2", "his", THIRD),
        ("a guest: canary in Lisbon\n", "3", "visit", GUEST),
    ):
        note = {"command": "create", "path": "/memories/trip.md", "file_text": text}
        model.script += [calling(("memory", note), id=id), "Noted."]
        answer(bench, agent, "note it", thread, owner)
    edit = {"command": "str_replace", "path": "/memories/trip.md", "old_str": "Lisbon", "new_str": "Porto"}
    model.script += [calling(("memory", edit), id="4"), "Changed."]
    answer(bench, agent, "I mean Porto", "visit", GUEST)

    # the guest logs in, and the same conversation goes on
    report = memory.users.merge(GUEST, into=USER)
    assert (report.threads, report.files) == (1, 1)
    assert report.files_renamed == {"/memories/trip.md": "/memories/trip (merged).md"}
    views = [{"command": "view", "path": f"/memories/trip{end}.md"} for end in ("", " (merged)")]
    model.script += [calling(*(("memory", view) for view in views), id="5"), "In Rome and Porto."]
    said = answer(bench, agent, "where was I?", "visit", USER)
    assert "Rome" in said
    assert "Porto" in said
    assert "Oslo" not in said
    with pytest.raises(ThreadOwnershipError):
        answer(bench, agent, "where was I?", "visit", GUEST)
    first = memory.files.read("/memories/trip (merged).md", revision=1, **MAYA)
    assert first.text == "a guest: canary in Lisbon\n"
    assert naming(raw, prefix, GUEST) == []

    # all goes to another database, by a process that is killed half-way
    for number in range(200):
        memory.files.write(f"/log/{number:03}.md", f"canary {number}", **MAYA)
    path = tmp_path / "maya.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in memory.users.export(USER)))
    victim = Forked(
        [sys.executable, "-c", IMPORTER, server.url, f"{prefix}x", str(path)], of="library", stdout=subprocess.PIPE
    )
    assert read(victim) == "ready"
    with Memory(server.url, key_prefix=f"{prefix}x") as other:
        while not other.files.list("/log", **MAYA):
            pass
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
        done = len(other.files.glob("**", **MAYA))
        assert done < 202  # it was half-way
        again = other.users.load(map(json.loads, path.read_text().splitlines()))
        assert (again.files, again.files_left) == (202 - done, [])
        records = [list(one.users.export(USER)) for one in (memory, other)]
        files = [[one for one in found if one["kind"] == "file"] for found in records]
        assert files[0] == files[1]

        # one leaves
        assert other.users.delete(USER).files == 202
        assert list(raw.scan_iter(f"{prefix}x:*{{*")) == []
    memory.files.delete("/memories", purge=True, **MAYA)
    memory.history.clear("hers", user_id=USER)
    memory.history.clear("visit", user_id=USER)
    assert memory.files.delete("/log", purge=True, **MAYA) == 200
    assert holding(raw, f"{prefix}", "canary") == []
    memory.users.delete(USER)
    assert memory.files.read("/memories/trip.md", user_id=THIRD).text == "third: sparrow in Oslo\n"
    assert naming(raw, prefix, USER) == []
