"""Check the types of what the pages show: `python -m tests.typed_pages`, a part of `make type`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.applications.conftest import BLOCK
from tests.applications.test_docs import HIDDEN, PAGES, ROOT, name_of

FOLDER = ROOT / "build/pages"  # always the same, for the cache of mypy; pyright skips a folder with a dot
BESIDE = Path(sys.executable).parent
CHECKS = (["mypy"], ["basedpyright", "--level", "error", "--pythonpath", sys.executable])


def pasted(text: str) -> str:
    """Keep the blocks that a reader pastes, each line where the page has it, so that errors name lines of the page."""
    text = HIDDEN.sub(lambda found: "\n" * found[0].count("\n"), text)
    kept = {at for found in BLOCK.finditer(text) for at in range(found.start(1), found.end(1))}
    return "".join(one if at in kept or one == "\n" else "" for at, one in enumerate(text))


def main() -> int:
    """Make each page a module and check all at once, as pyproject.toml says and as basedpyright does by default."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for page in PAGES:
        (FOLDER / re.sub(r"\W", "_", name_of(page)[:-3])).with_suffix(".py").write_text(pasted(page.read_text()))
    commands = [[str(BESIDE / name), *options, str(FOLDER)] for name, *options in CHECKS if (BESIDE / name).exists()]
    return max(subprocess.run(command, cwd=ROOT, check=False).returncode for command in commands)


if __name__ == "__main__":
    sys.exit(main())
