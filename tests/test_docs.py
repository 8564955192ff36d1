"""Every Python block of the README and the docs runs, file by file, top to bottom."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem.text.formats import Mode

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


@pytest.mark.filterwarnings("ignore:RunnableWithMessageHistory is deprecated")
@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(page.read_text())], ids=lambda page: page.name)
def test_every_block_runs(page: Path) -> None:
    exec(compile("\n".join(BLOCK.findall(page.read_text())), str(page), "exec"), {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_quickstart_runs_and_says_what_it_shows() -> None:
    command = [sys.executable, "-W", "error", "examples/quickstart.py"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=without_key()).stdout
    for expected in (
        "Nougat",
        "Kestrel",
        "shellfish",
        "Still there: 9 threads, 269 messages",
        "Skipped: set OPENAI_API_KEY",
    ):
        assert expected in output
    maya = output.partition("maya asks: What is the name of my dog?")[2].partition("asks:")[0]
    assert "Kestrel" not in maya


def without_key() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}


ROW = re.compile(r"^\| (merge|append|replace) \| `(.+)` \| `(.+)` \| `(.+)` \|$", re.MULTILINE)


@pytest.mark.parametrize("row", ROW.findall((ROOT / "docs/working-memory.md").read_text()), ids=" ".join)
def test_every_merge_in_the_table_is_true(row: tuple[Mode, str, str, str]) -> None:
    mode, *cells = row
    before, update, after = map(json.loads, cells)
    with Memory.embedded(working_memory=options_for(before)) as memory:
        memory.working_memory.update(before, resource_id="u", mode="replace")
        state = memory.working_memory.update(update, resource_id="u", mode=mode)
        assert state.value == after


def options_for(document: object) -> WorkingMemoryOptions:
    return WorkingMemoryOptions(template="") if isinstance(document, str) else WorkingMemoryOptions(schema={})
