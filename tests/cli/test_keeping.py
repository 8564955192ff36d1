"""`keep`: the keeper of a program reads what it has not read yet."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.observations import reflecting
from tests.cli.conftest import Run
from tests.keeping.keeping import Profile
from tests.keeping.scripted import Keeper, knows, put

FACTS = {"Rome": [put("/city", "Rome")], "Oslo": [put("/city", "Oslo")]}


@pytest.fixture
def program(
    server: EmbeddedRedis, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Keeper], Memory]:
    """Let a program keep with a model of the test, in the folder where the command runs."""

    def make(keeper: Keeper) -> Memory:
        options = WorkingMemoryOptions(schema=Profile, keeper=keeper, background=False)
        memory = Memory(server.url, key_prefix=prefix, working_memory=options)
        module = tmp_path / f"app_{prefix}.py"
        module.write_text("memory = None\n")
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path))
        vars(import_module(module.stem))["memory"] = memory
        return memory

    return make


def say(memory: Memory, thread: str, text: str, resource: str) -> None:
    memory.save_turn([("user", text), ("assistant", "fine")], thread_id=thread, resource_id=resource)


def test_threads_are_read(run: Run, program: Any, prefix: str) -> None:
    memory = program(knows(FACTS))
    say(memory, "a", "I live in Rome", "maya")
    say(memory, "b", "I live in Oslo", "maya")
    say(memory, "c", "so", "jonas")
    words = ("--memory", f"app_{prefix}:memory")
    result = run("keep", "a", *words)
    assert "read: 1 thread, 1 of them changed" in result.stdout, result.output
    assert memory.working_memory.get(resource_id="maya").value == Profile(city="Rome")
    found = json.loads(run("keep", "--all", *words, "--format=json").stdout)
    assert found == {"threads": 3, "changed": 1, "failed": 0}
    assert memory.working_memory.get(resource_id="maya").value == Profile(city="Oslo")
    again = json.loads(run("keep", "--resource", "maya", *words, "--format=json").stdout)
    assert again == {"threads": 2, "changed": 0, "failed": 0}


def test_a_model_that_fails_ends_it(run: Run, program: Any, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflecting, "FIRST_WAIT", 0.001)
    keeper = Keeper(answer=lambda _: ValueError("the key is wrong"))
    memory = program(keeper)
    for number in range(5):
        say(memory, f"t{number}", "I live in Rome", f"u{number}")
    result = run("keep", "--all", "--memory", f"app_{prefix}:memory")
    assert result.exit_code == 1
    assert "no usable answer for thread 't0' and 2 more" in result.stderr
    assert len(keeper.asked) == 9  # three times each


@pytest.mark.parametrize("words", [[], ["a", "--all"], ["--resource", "u", "--all"]])
def test_it_is_told_what_to_read(run: Run, words: list[str]) -> None:
    result = run("keep", *words, "--memory", "app:memory")
    assert (result.exit_code, "one of them" in result.stderr) == (2, True)
