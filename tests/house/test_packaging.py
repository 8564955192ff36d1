"""What is published: one version, a wheel of the package alone, an sdist of the whole project."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

import langchain_workingmem

ROOT = Path(__file__).parents[2]
VERSION = langchain_workingmem.__version__
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OTHER_FRAMEWORKS = {"anthropic", "deepagents"}  # extras that bring many packages


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build as pip does, and return the directory with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only git knows which files are ours")
def test_the_wheel_is_the_package_and_its_licence_and_the_sdist_the_whole_project(built: Path) -> None:
    about = f"langchain_workingmem-{VERSION}.dist-info"
    extra = {f"{about}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]  # all that is not ignored
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    ours = {name for name in names if (ROOT / name).exists()}
    package = {name for name in ours if name.startswith("langchain_workingmem/")}
    with ZipFile(built / f"langchain_workingmem-{VERSION}-py3-none-any.whl") as wheel:
        assert {*wheel.namelist()} == extra | package
    assert {Path(name).suffix for name in package} == {".py", ".lua", ".typed", ".html", ".css", ".svg"}
    with tarfile.open(built / f"langchain_workingmem-{VERSION}.tar.gz") as archive:
        assert {name.partition("/")[2] for name in archive.getnames()} == ours | {"PKG-INFO"}


def test_the_extra_all_is_all_of_them_and_each_has_a_program_that_uses_it() -> None:
    extras = {name: one for name, one in PROJECT["optional-dependencies"].items() if name not in OTHER_FRAMEWORKS}
    assert extras.pop("all") == [f"langchain-workingmem[{','.join(extras)}]"]
    assert {path.stem for path in (ROOT / "tests/uses").glob("*.py")} == {*extras, "core"}
