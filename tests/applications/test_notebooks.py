"""Every notebook runs from top to bottom, offline, and shows the stored outputs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from langchain_workingmem import embedded as server
from tests.applications.test_docs import LINK
from tests.helpers.examples import sample

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# paths, hosts, generated ids, addresses of objects: what differs elsewhere, or tomorrow
ELSEWHERE = re.compile(
    r"(?<![\w.<])/(?:tmp|home|root|usr|var|opt|Users|private)/|\w+://(?!www\.w3\.org)|localhost|127\.0\.0\.1"
    r"|[0-9a-f]{8}-[0-9a-f]{4}-|\b[0-9a-f]{16,}\b|0x[0-9a-f]{6,}"
)


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return found


def check(*notebooks: Path) -> subprocess.CompletedProcess[str]:
    """Run notebooks, by default all, with a key that must not be used."""
    command = [sys.executable, "-W", "error", "notebooks/refresh.py", "--check", *map(str, notebooks)]
    environment = os.environ | {"OPENAI_API_KEY": "must not be used", "REDIS_URL": "redis://nowhere.invalid"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_notebooks_show_what_they_keep() -> None:
    # engines rank some words differently; what is kept was shown by the embedded one
    is_another = server.BINARY_VARIABLE in os.environ
    done = check(*sample([path for path in NOTEBOOKS if not is_another or path.stem != "04_recall"], 1))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_outputs_name_nothing_of_the_machine_that_made_them() -> None:
    for path in NOTEBOOKS:
        outputs = [cell["outputs"] for cell in cells(path) if cell["cell_type"] == "code"]
        assert ELSEWHERE.search(json.dumps(outputs, ensure_ascii=False)) is None, path


def test_every_notebook_is_listed() -> None:
    listed = LINK.findall((ROOT / "notebooks/README.md").read_text(encoding="utf-8"))
    assert listed == [path.name for path in NOTEBOOKS]
