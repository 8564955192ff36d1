"""Whether LangSmith traces: asked without importing it, if nobody has."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ASKED = [f"{owner}_TRACING{version}" for owner in ("LANGSMITH", "LANGCHAIN") for version in ("", "_V2")]


def answers(code: str, asked: dict[str, str] | None = None) -> str:
    """Run code in a process of its own; the environment is that of the test without what asks for traces."""
    words = [sys.executable, "-c", f"from langchain_workingmem._engine.calls import is_heard\nimport sys\n{code}"]
    environment = {name: value for name, value in os.environ.items() if name not in ASKED} | (asked or {})
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_nothing_is_imported_to_learn_that_nobody_listens() -> None:
    code = "print(is_heard(), *({'langchain_core', 'langsmith'} & {*sys.modules}))"
    assert answers(code) == "False"


@pytest.mark.parametrize(("value", "expected"), [("true", "True"), ("false", "False")])
def test_the_environment_may_ask_for_traces(value: str, expected: str) -> None:
    assert answers("print(is_heard())", {"LANGSMITH_TRACING": value}) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import langsmith; langsmith.configure(enabled=True)\nprint(is_heard())", "True"),
        (
            "from langchain_core.runnables import RunnableLambda\n"
            "RunnableLambda(lambda _: print(is_heard())).invoke(1); print(is_heard())",
            "True\nFalse",
        ),
    ],
)
def test_a_program_may_ask_for_traces(code: str, expected: str) -> None:
    assert answers(code) == expected
