"""Redis may evict a key of an owner's files: nothing of what is left is taken for the whole, or overwritten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from langchain_workingmem import Memory
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem.adapters.deepagents import FilesBackend
from langchain_workingmem.errors import FileMissingError, FilePathError
from langchain_workingmem.files import Files
from tests.files.checks import check_stored

ANN: dict[str, Any] = {"user_id": "ann"}
KEYS = {"paths": 1, "texts": 2, "notes": 3}

CHANGES: dict[str, Callable[[Files], Any]] = {
    "write": lambda files: files.write("/new", "x", **ANN),
    "write again": lambda files: files.write("/a", "x", **ANN),
    "edit": lambda files: files.edit("/a", "one", "1", **ANN),
    "insert": lambda files: files.insert("/a", 0, "x", **ANN),
    "revert": lambda files: files.revert("/a", 1, **ANN),
    "rename": lambda files: files.rename("/a", "/b", **ANN),
    "delete": lambda files: files.delete("/a", **ANN),
    "purge of a file": lambda files: files.delete("/a", purge=True, **ANN),
}


def stored(raw: Any, prefix: str) -> list[Any]:
    return [raw.dump(key) for key in Keys(prefix).of_user("ann").files[:4]]


@pytest.fixture
def files(plain: Memory, raw: Any, prefix: str, request: pytest.FixtureRequest) -> Files:
    """A file of two revisions, and one that is deleted, without one of the keys."""
    plain.files.write("/a", "zero", **ANN)
    plain.files.write("/a", "one\ntwo\n", **ANN)
    plain.files.write("/gone", "x", **ANN)
    plain.files.delete("/gone", **ANN)
    raw.delete(Keys(prefix).of_user("ann").files[KEYS[request.param]])
    return plain.files


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("files", KEYS, indirect=True)
def test_a_change_is_refused_with_the_remedy_and_changes_nothing(
    files: Files, raw: Any, prefix: str, name: str
) -> None:
    before = stored(raw, prefix)
    with pytest.raises(FilePathError, match=r"evicted a part.*purge=True.*import an export.*noeviction"):
        CHANGES[name](files)
    assert stored(raw, prefix) == before


@pytest.mark.parametrize(("files", "path"), [("paths", "/b"), ("texts", "/a"), ("notes", "/b")], indirect=["files"])
def test_what_is_gone_is_not_taken_for_empty_or_missing(files: Files, plain: Memory, path: str) -> None:
    for call in (lambda: files.list("/", **ANN), lambda: files.read(path, **ANN), lambda: [*plain.users.export("ann")]):
        with pytest.raises(FilePathError, match="evicted a part"):
            call()
    assert "evicted a part" in str(FilesBackend(plain, user_id="ann").read(path).error)


@pytest.mark.parametrize("files", KEYS, indirect=True)
def test_what_is_left_is_purged_and_an_export_comes_back(files: Files, plain: Memory, raw: Any, prefix: str) -> None:
    plain.files.write("/a", "kept", user_id="ben")
    records = [{**one, "user_id": None} if one["kind"] == "header" else one for one in plain.users.export("ben")]
    assert files.delete("/", purge=True, **ANN) in (0, 1)  # as many as are listed still
    assert plain.users.load(records, user_id="ann").files == 1
    assert files.read("/a", **ANN).text == "kept"
    check_stored(raw, prefix, "ann")


@pytest.mark.parametrize("files", ["texts"], indirect=True)
def test_a_user_whose_files_were_evicted_in_part_can_be_deleted(
    files: Files, plain: Memory, raw: Any, prefix: str
) -> None:
    plain.users.delete("ann")
    assert stored(raw, prefix)[1:] == [None] * 3
    with pytest.raises(FileMissingError):
        files.read("/a", **ANN)
