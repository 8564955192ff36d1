"""A deep agent and Claude's memory tool on the same files of two users, with recall of files in each turn."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from langchain_workingmem import FileOptions, MemoryMiddleware
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import Bench, Scripted, ask, calling, configured

QUESTION = "What is the hotel called, and its door code?"


def test_what_one_agent_writes_is_in_the_turns_of_the_other(bench: Bench, raw: redis.Redis, prefix: str) -> None:
    deep = pytest.importorskip("deepagents")
    pytest.importorskip("anthropic")
    from langchain_workingmem.adapters.anthropic import MemoryTool
    from langchain_workingmem.adapters.deepagents import FilesBackend

    maya, jonas = "maya", "jonas|{x}*"
    memory = bench.memory(embeddings=WordEmbeddings(), files=FileOptions(recall=True))
    memory.files.write("/memories/AGENTS.md", "Be brief.\n", resource_id=maya)
    memory.files.write("/memories/AGENTS.md", "Be long.\n", resource_id=jonas)
    model = Scripted.says()
    agent = deep.create_deep_agent(
        model,
        backend=FilesBackend(memory),
        memory=["/memories/AGENTS.md"],
        middleware=[MemoryMiddleware(memory)],
    )

    def told(words: str, thread: str, owner: str) -> str:
        bench.run(agent, ask(words), configured(thread, owner))
        return "\n".join(str(one.content) for one in model.seen[-1])

    for owner, text in ((maya, "The hotel Aurora has the door code 1234.\n"), (jonas, "The hotel Borealis in Oslo.\n")):
        write: dict[str, Any] = {"file_path": "/memories/trip.md", "content": text}
        model.script += [calling(("write_file", write), id=owner[:3]), "Noted."]
        told("note it", f"first of {owner}", owner)
    claude = MemoryTool(memory, resource_id=maya)
    edit = {"path": "/memories/trip.md", "old_str": "Aurora", "new_str": "Miramar"}
    claude.call({"command": "str_replace", **edit})

    model.script += ["Miramar.", "Borealis."]
    hers, his = told(QUESTION, "second", maya), told(QUESTION, "his second", jonas)
    assert all(part in hers for part in ("Be brief.", "<files>", "hotel Miramar has the door code 1234"))
    assert not any(part in hers for part in ("Borealis", "Be long.", "hotel Aurora"))
    assert all(part in his for part in ("Be long.", "<files>", "hotel Borealis in Oslo"))
    assert not any(part in his for part in ("1234", "Be brief."))

    claude.call({"command": "rename", "old_path": "/memories/trip.md", "new_path": "/memories/old/trip.md"})
    assert memory.files.search(QUESTION, resource_id=maya)[0].path == "/memories/old/trip.md"
    assert memory.users.delete(maya).verified
    assert list(raw.scan_iter(f"{prefix}:*{{{maya}}}*")) == []
    assert memory.files.search(QUESTION, resource_id=jonas)[0].path == "/memories/trip.md"
