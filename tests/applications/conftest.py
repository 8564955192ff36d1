"""Fixtures that several files here need."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langchain import chat_models
from langchain.agents import factory

from langchain_workingmem.embedded import chosen_engine
from tests.helpers.models import Line, Scripted, calling

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
# what a page runs: its blocks, and what the models that it names answer from there on, which its readers do not see
STEP = re.compile(
    r"^(?:```python\n(?P<code>.*?)^```|<!-- the models answer: (?P<answers>.*?) -->$)", re.MULTILINE | re.DOTALL
)
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
    """Run the blocks of a page, and return its names; without RedisJSON, leave out what stores JSON.

    A model that a page names is one script: what its comments say; `shown` is what it was sent.
    """
    text = path.read_text()
    if ".json().set(" in text and not has_json():
        pytest.skip("the blocks of this page need RedisJSON, which this engine lacks")
    model = Scripted.says()
    steps = [found["code"] or f"_let_models_answer({found['answers']})" for found in STEP.finditer(text)]
    code = "\n".join(step for step in steps if has_json() or STORES_JSON not in step)
    names: dict[str, Any] = {"_let_models_answer": partial(_answer, model), "shown": model.seen}
    with pytest.MonkeyPatch.context() as patch:
        for home in (factory, chat_models):
            patch.setattr(home, "init_chat_model", lambda *_, **__: model)
        exec(compile(code, str(path), "exec", dont_inherit=True), names)
    assert model.script == [], "the page says what models answer, and asks them less often"
    return names


def _answer(model: Scripted, *lines: Line | tuple[str, dict[str, Any]]) -> None:
    """Let the models of a page answer these lines, in order; a pair is a call of a tool."""
    for line in lines:
        made = calling(line, id=f"call-{len(model.seen)}-{len(model.script)}") if isinstance(line, tuple) else line
        model.script.append(made)


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """Run the pages of recipes, and return their names."""
    pages = Path(__file__).parents[2] / "docs/how-to"
    return run_page(pages / "middleware.md") | run_page(pages / "multi-agent.md") | run_page(pages / "graph.md")
