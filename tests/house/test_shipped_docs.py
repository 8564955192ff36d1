"""The documentation in the wheel: all pages, in a list, as text that needs no site and no network."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import pytest

from langchain_workingmem import __version__
from tests.applications.test_docs import FENCE, PARTS, PUBLIC, navigation

ROOT = Path(__file__).parents[2]
FOLDER = "langchain_workingmem/docs/"
ENTRY = re.compile(r"- \[[^\]]+\]\(([\w/-]+\.md)\): \S.+")
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")


@pytest.fixture(scope="module")
def installed(wheel: ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the wheel, where Python finds them before those of the checkout."""
    folder = tmp_path_factory.mktemp("installed")
    wheel.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def pages(wheel: ZipFile) -> dict[str, str]:
    """The text of each file of the folder."""
    names = [name for name in wheel.namelist() if name.startswith(FOLDER)]
    return {name.removeprefix(FOLDER): wheel.read(name).decode() for name in names}


@pytest.fixture(scope="module")
def prose(pages: dict[str, str]) -> dict[str, str]:
    """The same without code."""
    return {name: re.sub(r"^    .*\n", "", FENCE.sub("", text), flags=re.MULTILINE) for name, text in pages.items()}


def program(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the program with the package of this folder."""
    command = [sys.executable, "-P", "-m", "langchain_workingmem.cli", "docs", *words]
    return subprocess.run(
        command, cwd=path, env={"PYTHONPATH": str(path)}, capture_output=True, text=True, check=False, encoding="utf-8"
    )


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


def test_the_list_holds_every_page_of_the_site(pages: dict[str, str]) -> None:
    listed = [found[1] for line in pages["llms.txt"].splitlines() if (found := ENTRY.fullmatch(line))]
    assert sorted(listed) == sorted(navigation())
    assert {*listed, "llms.txt"} == set(pages)


def test_the_list_follows_the_convention(pages: dict[str, str]) -> None:
    """A title, a summary as a quotation, text without headings, then sections that hold nothing but links."""
    head, *sections = re.split(r"^## .+\n", pages["llms.txt"], flags=re.MULTILINE)
    assert re.match(r"# langchain-workingmem\n\n> \S.+\n\n", head)
    assert len(re.findall(r"^#", head, re.MULTILINE)) == 1
    assert sections
    for section in sections:
        assert [line for line in section.splitlines() if line and not ENTRY.fullmatch(line)] == []


def test_every_link_stays_in_the_folder(pages: dict[str, str], prose: dict[str, str]) -> None:
    links = 0
    for name, text in prose.items():
        for link in LINK.findall(text):
            target, _, anchor = link.partition("#")
            path = (Path("/") / PurePosixPath(name).parent / target).resolve() if target else Path("/") / name
            found = pages.get(str(path.relative_to("/")))
            assert found is not None, f"{name} links to {link}"
            assert not anchor or anchor in anchors(found), f"{name} links to {link}"
            links += 1
    assert links > 200


def test_nothing_is_left_of_the_site_and_of_the_tests(prose: dict[str, str]) -> None:
    for name, text in prose.items():
        assert not re.search(r"<!--|-->|!\[|^::: |\]\[langchain_workingmem", text, re.MULTILINE), name


def test_hidden_blocks_are_left_out_and_no_other(pages: dict[str, str]) -> None:
    hidden = 0
    for name, text in pages.items():
        page = (ROOT / "docs" / name).read_text()
        shown = re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)
        hidden += shown != page
        if not name.startswith("reference/"):
            assert FENCE.findall(text) == FENCE.findall(shown), name
    assert hidden


def test_the_reference_is_source_with_all_public_names(pages: dict[str, str]) -> None:
    text = "".join(page for name, page in pages.items() if name.startswith("reference/"))
    stubs = [found["body"] for found in FENCE.finditer(text) if found["body"].startswith("# langchain_workingmem")]
    entries = {stub.partition("\n")[0].removeprefix("# "): ast.parse(stub) for stub in stubs}
    assert set(PUBLIC) <= set(entries)
    for name, tree in entries.items():
        defined = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
        assert not defined or ast.get_docstring(defined[0]), name


@pytest.mark.parametrize("part", PARTS)
def test_the_reference_has_every_method_and_names_its_twin(part: str, pages: dict[str, str]) -> None:
    (stub,) = [
        found["body"]
        for name, page in pages.items()
        for found in FENCE.finditer(page)
        if name.startswith("reference/") and found["body"].startswith(f"# {part}\n")
    ]
    home, _, name = part.rpartition(".")
    kind = getattr(__import__(home, fromlist=[name]), name)
    public = {one for one in dir(kind) if not one.startswith("_")} - {
        "gathering",
        "assembled",
        "observations",
        "files",
    }  # not for callers
    twins = {one for one in public if one[0] == "a" and one[1:] in public}
    for method in public - twins:
        assert re.search(rf"^    def {method}\(", stub, re.MULTILINE), method
    for twin in twins - {"aclose"}:  # its docstring is its own
        assert f"...  # async twin: {twin}\n" in stub


@pytest.mark.nightly
def test_an_installed_wheel_and_a_checkout_show_the_same_pages(installed: Path) -> None:
    assert Path(program(installed, "--path").stdout.strip()) == installed / FOLDER
    assert Path(program(ROOT, "--path").stdout.strip()) == ROOT / "docs"
    for words in ([], ["reference/memory"], ["recipes"], ["--search", "thread_id"]):
        one, other = program(installed, *words), program(ROOT, *words)
        assert one.returncode == other.returncode == 0, one.stderr
        assert one.stdout == other.stdout


def test_the_pages_of_the_wheel_are_those_that_the_program_prints(installed: Path, pages: dict[str, str]) -> None:
    for page in json.loads(program(installed, "--format=json").stdout):
        assert Path(page["path"]).read_text() == pages[f"{page['name']}.md"]
    assert program(installed, "guide").stdout == pages["guide.md"]


def test_a_package_without_its_documentation_is_one_line(installed: Path, tmp_path: Path) -> None:
    shutil.copytree(installed, tmp_path / "damaged")
    (tmp_path / "damaged" / FOLDER / "guide.md").unlink()
    lost = program(tmp_path / "damaged", "guide")
    assert lost.returncode == 1
    assert "guide.md cannot be used" in lost.stderr
    shutil.rmtree(tmp_path / "damaged" / FOLDER)
    lost = program(tmp_path / "damaged")
    assert (lost.returncode, lost.stdout, lost.stderr.count("\n")) == (1, "", 1)
    assert "install langchain-workingmem again" in lost.stderr


@pytest.mark.nightly  # CI does it in `make dist`
def test_the_sdist_builds_the_same_wheel(built: Path, wheel: ZipFile, tmp_path: Path) -> None:
    with tarfile.open(built / f"langchain_workingmem-{__version__}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    source = tmp_path / f"langchain_workingmem-{__version__}"
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=source, check=True)
    (again,) = (source / "dist").glob("*.whl")
    with ZipFile(again) as other:
        assert {name: other.read(name) for name in other.namelist()} == {
            name: wheel.read(name) for name in wheel.namelist()
        }


def test_help_names_the_folder_and_the_command() -> None:
    import langchain_workingmem

    assert "`docs/llms.txt`" in (langchain_workingmem.__doc__ or "")
    assert "`workingmem docs`" in (langchain_workingmem.__doc__ or "")
