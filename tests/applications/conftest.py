"""Fixtures that several files here need."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from langchain_workingmem.embedded import chosen_engine

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
STORES_JSON = "langgraph.checkpoint.redis"


def has_json() -> bool:
    """Tell whether the engine of this run has RedisJSON, which langgraph-checkpoint-redis and langchain-redis need."""
    return any(module.name == "rejson.so" for module in chosen_engine().modules)


@pytest.fixture
def with_json() -> None:
    """Skip a test of packages that store JSON, where the engine has none."""
    if not has_json():
        pytest.skip("this engine has no RedisJSON")


def run_page(path: Path) -> dict[str, Any]:
    """Run the blocks of a page, and return its names; without RedisJSON, leave out what stores JSON."""
    names: dict[str, Any] = {}
    if ".json().set(" in path.read_text() and not has_json():
        pytest.skip("the blocks of this page need RedisJSON, which this engine lacks")
    blocks = BLOCK.findall(path.read_text())
    if not has_json():
        blocks = [block for block in blocks if STORES_JSON not in block]
    exec(compile("\n".join(blocks), str(path), "exec", dont_inherit=True), names)
    return names


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """Run the pages of recipes, and return their names."""
    pages = Path(__file__).parents[2] / "docs/how-to"
    return run_page(pages / "middleware.md") | run_page(pages / "recipes.md")
