"""The recipe by which an application tests itself on a real Redis."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from tests.helpers.programs import run as forked

PAGE = Path(__file__).parents[2] / "docs/how-to/testing.md"
FILES = re.compile(r"^`([\w.]+\.py)`:\n\n<!-- not run here: [^\n]+ -->\n```py\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    files = dict(FILES.findall(PAGE.read_text()))
    assert set(files) == {"shop.py", "conftest.py", "test_shop.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    done = forked(command, of="programs", cwd=tmp_path, env=environment)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
