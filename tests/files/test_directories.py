"""What is done to many files at once: listing, searching, renaming and deleting."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from langchain_workingmem import Memory
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem.errors import FileMissingError, FilePathError
from langchain_workingmem.files import Files
from langchain_workingmem.files import operations as plans
from tests.files.checks import check_stored
from tests.helpers.crashes import ends_within
from tests.helpers.plans import plan_of

ANN: dict[str, Any] = {"user_id": "ann"}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, plain: Memory) -> None:
    """Round trips of three files, on a server that knows the scripts."""
    plain.files.write("/a", "a", user_id="first")
    plain.files.rename("/a", "/b", user_id="first")
    plain.files.delete("/b", user_id="first", purge=True)
    monkeypatch.setattr(plans, "GROUP", 3)


def fill(files: Files, paths: list[str]) -> None:
    for path in paths:
        files.write(path, f"in {path}\n", **ANN)


def paths_of(files: Files) -> list[str]:
    return [info.path for info in files.glob("**", **ANN)]


def test_listings_agree_with_each_other(files: Files, raw: Any, prefix: str) -> None:
    """Over pages of 2,000 files."""
    _, paths, texts, notes, _ = Keys(prefix).of_user("ann").files
    note = "1 1 1 0 t write a/b"
    names = [f"/d/{number:04}" for number in range(1500)] + [f"/d/big/{number:04}/x" for number in range(1200)]
    names += ["/d/big-", "/d/bi", "/d/z/deep/er/x", "/e", "/d0", "/d-"]
    raw.zadd(paths, {f"{name}\0{note}": 0 for name in names})
    raw.hset(texts, names[0], "")
    raw.hset(notes, mapping={"count": len(names), "bytes": 0})
    listed = files.list("/d", **ANN)
    assert {info.path for info in listed} == {*names[:1500], "/d/big", "/d/big-", "/d/bi", "/d/z"}
    assert len(listed) == 1504
    assert {info.path for info in listed if info.is_dir} == {"/d/big", "/d/z"}
    assert [info.path for info in files.list("/", **ANN)] == ["/d-", "/d", "/d0", "/e"]
    assert len(files.list("/d/big", **ANN)) == 1200
    assert {info.path for info in files.glob("*", **ANN)} == set(names)
    assert [info.path for info in files.glob("**", path="/d/z", **ANN)] == ["/d/z/deep/er/x"]
    assert files.list("/d/0000", **ANN) == files.list("/nothing", **ANN) == []
    assert (listed[0].revision, listed[-1].path) == (1, "/d/z")


def lines_of(texts: dict[str, str], wanted: str) -> list[tuple[str, int, str]]:
    return [
        (path, number, line)
        for path in sorted(texts)
        for number, line in enumerate(texts[path].split("\n"), 1)
        if wanted in line
    ]


@pytest.mark.usefixtures("small")
@pytest.mark.in_turn("face")
def test_grep_finds_each_line_once(plain: Memory) -> None:
    files = plain.files
    texts = {
        "/a": "\n".join(f"{number} x x" if number % 3 else "" for number in range(40)),
        "/b/c": "x\n" * 30,
        "/b/d": "no\r\nx\r\nend",
        "/b/e": "",
        "/z": "\n\n x",
    }
    for path, text in texts.items():
        files.write(path, text, **ANN)
    files.write("/b/bytes", b"x\n", **ANN)
    assert files.grep("x", **ANN) == lines_of(texts, "x")
    assert files.grep("x", path="/b", **ANN) == lines_of({path: texts[path] for path in ("/b/c", "/b/d")}, "x")
    assert files.grep("x", path="/a", **ANN) == lines_of({"/a": texts["/a"]}, "x")
    assert files.grep("x", limit=7, **ANN) == lines_of(texts, "x")[:7]
    assert files.grep("x", glob="b/[de]", **ANN) == lines_of({"/b/d": texts["/b/d"]}, "x")
    assert files.grep("x", path="/a", glob="*", **ANN) == lines_of({"/a": texts["/a"]}, "x")  # for its own name
    assert files.grep("x", path="/a", glob="*.md", **ANN) == []
    assert files.grep("no such", **ANN) == []


def test_what_cannot_be_renamed(files: Files) -> None:
    fill(files, ["/a", "/b/c", "/d/e"])
    for move in ("/a /a", "/b /b/c/d", "/ /x", "/a /", "/b /a", "/a /b", "/a /b/c/x"):
        with pytest.raises(FilePathError):
            files.rename(*move.split(), **ANN)
    with pytest.raises(FileMissingError):
        files.rename("/missing", "/x", **ANN)
    assert paths_of(files) == ["/a", "/b/c", "/d/e"]


@pytest.mark.usefixtures("small")
def test_a_killed_rename_is_continued_by_the_same_call(plain: Memory, raw: Any, prefix: str) -> None:
    files = plain.files
    fill(files, [*(f"/a/{number}" for number in range(8)), "/b/other"])
    assert not ends_within(plain, plan_of(Files.rename, files, "/a", "/b", **ANN), 5)
    check_stored(raw, prefix, "ann")
    moved = len(files.glob("**", path="/b", **ANN)) - 1
    assert 0 < moved < 8
    assert files.rename("/a", "/b", **ANN) == 8 - moved
    assert paths_of(files) == [*(f"/b/{number}" for number in range(8)), "/b/other"]


def test_what_stands_at_a_new_path_is_never_overwritten(files: Files) -> None:
    fill(files, ["/a/1", "/a/2", "/b/2"])
    with pytest.raises(FilePathError, match="'/b/2' exists"):
        files.rename("/a", "/b", **ANN)
    assert paths_of(files) == ["/a/1", "/a/2", "/b/2"]


@pytest.mark.usefixtures("small")
@pytest.mark.in_turn("face")
@pytest.mark.parametrize("purge", [False, True])
def test_a_directory_is_deleted_file_by_file(plain: Memory, raw: Any, prefix: str, *, purge: bool) -> None:
    files = plain.files
    fill(files, [*(f"/a/{number}/x" for number in range(10)), "/a0", "/a-"])
    files.delete("/a/2", **ANN)
    assert files.delete("/a", purge=purge, **ANN) == 9
    assert paths_of(files) == ["/a-", "/a0"]
    check_stored(raw, prefix, "ann")
    with pytest.raises(FileMissingError) if purge else nullcontext():
        assert files.revert("/a/2/x", 1, **ANN).changed


def test_a_purge_takes_a_name_as_it_is(files: Files) -> None:
    """Signs of patterns in it stand for themselves."""
    fill(files, paths := ["/a*/x", "/ab/x"])
    for path in paths:
        files.delete(path, **ANN)
    with pytest.raises(FileMissingError):
        files.delete("/a?", purge=True, **ANN)
    files.delete("/a*", purge=True, **ANN)
    assert files.revert("/ab/x", 1, **ANN).revision == 3
