"""The wheel and the sdist, built once for the tests of what they hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from langchain_workingmem import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build as pip does, and return the directory with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="session")
def wheel(built: Path) -> ZipFile:
    return ZipFile(built / f"langchain_workingmem-{__version__}-py3-none-any.whl")
