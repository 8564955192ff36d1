"""How far it is from `Memory.context` to Redis: docs/design.md shows the way function by function."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, GeneratorType
from typing import Any

import pytest

from langchain_workingmem import Memory
from langchain_workingmem._engine.wires import pack, threads

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "langchain_workingmem"
MOST = 15
# A walk goes down this list and never up.
# These only run the plan that they are given.
WRAPPERS = {"_redis/core.py: operation.<locals>.run", "_redis/core.py: Core.run", "_engine/tracing.py: traced"}
FLOORS = ["memory", "turn", "recall", "_redis", "_engine"]


def name_of(frame: FrameType) -> str | None:
    """Return "file: function" for a frame of the package, None for another."""
    path = Path(frame.f_code.co_filename)
    if not path.is_relative_to(PACKAGE):
        return None
    return f"{path.relative_to(PACKAGE)}: {frame.f_code.co_qualname}"


def generators(plan: Any) -> Iterator[FrameType]:
    """Give the frames of a plan and of the plans that it waits for, from the outside to the inside."""
    while isinstance(plan, GeneratorType):
        if plan.gi_frame is not None:
            yield plan.gi_frame
        plan = plan.gi_yieldfrom


def walk() -> list[str]:
    """Return the functions of the package that lead to this moment: the callers, then the plan, then the runner."""
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frames.insert(0, frame)
        frame = frame.f_back
    found: list[str | None] = []
    runner: list[str | None] = []
    for one in frames:
        if (
            (plan := one.f_locals.get("plan")) is not None
            and one.f_code.co_name == "run"
            and "_engine" in one.f_code.co_filename
        ):
            found += map(name_of, generators(plan))
            runner.append(name_of(one))
        else:
            (runner or found).append(name_of(one))
    return list(dict.fromkeys(filter(None, [*found, *runner])))


@pytest.fixture
def walks(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The ways to the round trips of one context, after everything is set up."""
    for _ in range(2):
        memory.save_turn([("human", "I have a dog"), ("ai", "Nice")], thread_id="t", resource_id="u")
        memory.context("Which dog?", thread_id="t2", resource_id="u")
    found: list[list[str]] = []

    def seen(*args: Any) -> Any:
        found.append(walk())
        return pack(*args)

    monkeypatch.setattr(threads, "pack", seen)
    memory.context("Which dog is it?", thread_id="t2", resource_id="u")
    return found


def test_a_context_reaches_redis_in_few_functions(walks: list[list[str]]) -> None:
    assert len(walks) == 2
    for found in walks:
        assert len(found) <= MOST, "\n".join(found)


def test_the_way_goes_down(walks: list[list[str]]) -> None:
    for found in walks:
        floors = [FLOORS.index(re.split(r"[/.]", one)[0]) for one in found if one not in WRAPPERS]
        assert floors == sorted(floors), "\n".join(found)


def test_the_design_page_shows_the_way(walks: list[list[str]]) -> None:
    text = (ROOT / "docs/design.md").read_text()
    rows = re.findall(r"^\| (\d+) \| `([\w/.]+)` \| `([\w.<>]+)` \|", text, re.MULTILINE)
    table = [
        (file, function) for at, (number, file, function) in enumerate(rows, 1) if int(number) == at
    ]  # the first table
    assert [f"{file}: {function}" for file, function in table] == walks[0]
