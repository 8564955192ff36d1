"""Whether LangSmith traces: asked without importing it, if nobody has."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ASKED = [f"{owner}_TRACING{version}" for owner in ("LANGSMITH", "LANGCHAIN") for version in ("", "_V2")]


RUNNABLE = """
from langchain_core.runnables import RunnableLambda
RunnableLambda(lambda _: print(is_heard())).invoke(1)
"""
CASES: dict[str, tuple[str, dict[str, str], str]] = {
    "nobody, and nothing is imported": ("print({'langchain_core', 'langsmith'} & {*sys.modules})", {}, "set() False"),
    "the environment": ("", {"LANGSMITH_TRACING": "true"}, "True"),
    "the environment does not": ("", {"LANGSMITH_TRACING": "false"}, "False"),
    "a program": ("import langsmith; langsmith.configure(enabled=True)", {}, "True"),
    "callbacks of a run, while it runs": (RUNNABLE, {}, "True False"),
}


@pytest.mark.parametrize("who", CASES)
def test_who_asks_for_traces_is_heard(who: str) -> None:
    """In a process of its own, whose environment is that of the test without what asks for traces."""
    code, asked, expected = CASES[who]
    script = f"import sys\nfrom langchain_workingmem._engine.calls import is_heard\n{code}\nprint(is_heard())"
    environment = {name: value for name, value in os.environ.items() if name not in ASKED} | asked
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == expected.split()
