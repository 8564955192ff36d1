"""A run that is read-only reads files, and changes none, whatever its agent is made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from anthropic.lib.tools import ToolError
from langchain.agents import create_agent
from langchain_core.runnables import RunnableLambda

from langchain_workingmem.adapters.anthropic import MemoryTool
from langchain_workingmem.adapters.claude_middleware import ClaudeMemoryMiddleware
from langchain_workingmem.adapters.deepagents import FilesBackend
from tests.helpers.models import Bench, Scripted, ask, calling

CONFIG: Any = {"configurable": {"thread_id": "1", "user_id": "ann", "memory": {"read_only": True}}}
AT = "/memories/a.md"
NATIVE: list[dict[str, Any]] = [
    {"command": "create", "path": "/memories/b.md", "file_text": "x"},
    {"command": "str_replace", "path": AT, "old_str": "one", "new_str": "two"},
    {"command": "insert", "path": AT, "insert_line": 0, "insert_text": "x"},
    {"command": "delete", "path": AT},
    {"command": "rename", "path": AT, "old_path": AT, "new_path": "/memories/b.md"},
]
BACKEND: list[Callable[[FilesBackend], Any]] = [
    lambda backend: backend.write(AT, "x").error,
    lambda backend: backend.edit(AT, "one", "two").error,
    lambda backend: backend.delete(AT).error,
    lambda backend: backend.upload_files([(AT, b"x")])[0].error,
]


def within_a_run(do: Callable[[], Any]) -> str:
    return str(RunnableLambda(lambda _: do()).invoke(None, CONFIG))


@pytest.mark.in_turn("face")
def test_a_run_that_is_read_only_changes_no_file(bench: Bench) -> None:
    memory = bench.memory()
    files = memory.files
    ann: dict[str, Any] = {"user_id": "ann"}
    files.write(AT, "one\n", **ann)

    def asked(calls: list[tuple[str, dict[str, Any]]], **parts: Any) -> list[str]:
        script = [calling(call, id=str(number)) for number, call in enumerate(calls)]
        agent = create_agent(Scripted.says(*script, "Done."), **parts)
        state = bench.run(agent, ask("Work"), CONFIG)
        return [str(one.text) for one in state["messages"] if one.type == "tool"]

    calls = [("memory", command) for command in [{"command": "view", "path": AT}, *NATIVE]]
    viewed, *told = asked(calls, middleware=[ClaudeMemoryMiddleware(memory)])
    assert "one" in viewed
    backend = FilesBackend(memory)
    told += [*(within_a_run(partial(do, backend)) for do in BACKEND)]
    assert "one" in within_a_run(lambda: backend.read(AT))
    tool = MemoryTool(memory, user_id="ann")
    for command in NATIVE:
        with pytest.raises(ToolError, match="read-only"):
            within_a_run(partial(tool.execute, command))
    assert len(told) == len(NATIVE) + len(BACKEND)
    assert all("this run is read-only" in one for one in told)
    assert [one.revision for one in files.history(AT, **ann)] == [1]
    assert [one.path for one in files.glob("**", **ann)] == [AT]
