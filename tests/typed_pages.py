"""The Python blocks of each page, as a reader pastes them, are accepted by mypy --strict and basedpyright."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.applications.test_docs import BLOCK, HIDDEN, PAGES, ROOT, name_of

FOLDER = ROOT / "build/pages"  # mypy keeps what it knows of a path, and pyright skips folders with a dot
BESIDE = Path(sys.executable).parent


def blank(text: str) -> str:
    return "\n" * text.count("\n")


def main() -> int:
    """Write each page's blocks into a module of its own, each line where the page has it, and check them all."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        text, code, end = HIDDEN.sub(lambda found: blank(found[0]), page.read_text()), "", 0
        for block in BLOCK.finditer(text):
            code += blank(text[end : block.start(1)]) + block[1]
            end = block.end()
        (FOLDER / (re.sub(r"\W", "_", name_of(page)[:-3]) + ".py")).write_text(code)
    checks = [["mypy"], ["basedpyright", "--level", "error", "--pythonpath", sys.executable]]
    there = [check for check in checks if (BESIDE / check[0]).exists()]
    return max(subprocess.run([BESIDE / name, *options, FOLDER], cwd=ROOT).returncode for name, *options in there)


if __name__ == "__main__":
    sys.exit(main())
