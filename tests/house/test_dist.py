"""A release names the project's address."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = ("Makefile", "pyproject.toml", "README.md", "SECURITY.md")


def test_a_release_without_the_address_of_the_project_is_refused(tmp_path: Path) -> None:
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path)
    done = subprocess.run(["make", "dist"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "put the address of the project in place of *.invalid" in done.stderr
    assert not (tmp_path / "dist").exists()
