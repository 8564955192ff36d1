"""Whether LangSmith traces: asked without importing it, if nobody has."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.helpers import programs
from tests.helpers.examples import sample

ASKED = [f"{owner}_TRACING{version}" for owner in ("LANGSMITH", "LANGCHAIN") for version in ("", "_V2")]


def answers(code: str, asked: dict[str, str] | None = None, *, forked: bool = False) -> str:
    """Run code in a process of its own; the environment is that of the test without what asks for traces."""
    start = "import sys\nfrom langchain_workingmem._engine.calls import is_heard\n"
    environment = {name: value for name, value in os.environ.items() if name not in ASKED} | (asked or {})
    words = [sys.executable, "-c", start + code]
    if forked:
        done = programs.run(words, env=environment)
    else:
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_nothing_is_imported_to_learn_that_nobody_listens() -> None:
    code = "print(is_heard(), *({'langchain_core', 'langsmith'} & {*sys.modules}))"
    assert answers(code) == "False"


@pytest.mark.parametrize("name", sample(ASKED, 2))
@pytest.mark.parametrize(("value", "expected"), [("true", "True"), ("false", "False"), ("", "False")])
def test_the_environment_may_ask_for_traces(name: str, value: str, expected: str) -> None:
    assert answers("print(is_heard())", {name: value}) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import langsmith\nprint(is_heard())", "False"),
        ("import langsmith; langsmith.configure(enabled=True)\nprint(is_heard())", "True"),
        ("import langsmith\nwith langsmith.tracing_context(enabled=True): print(is_heard())", "True"),
        ("import langsmith\nwith langsmith.tracing_context(enabled=False): print(is_heard())", "False"),
        (
            "from langchain_core.runnables import RunnableLambda\n"
            "RunnableLambda(lambda _: print(is_heard())).invoke(1); print(is_heard())",
            "True\nFalse",
        ),
    ],
)
def test_a_program_may_ask_for_traces(code: str, expected: str) -> None:
    assert answers(code, forked=True) == expected  # where langsmith is imported already
