"""Files are the user's data: they are deleted, exported, imported, and expire, with their revisions."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from langchain_workingmem import FileOptions, Memory, OptionError
from langchain_workingmem.errors import FileMissingError, FileQuotaError
from tests.helpers.archives import unsealed
from tests.helpers.types import Make
from tests.users.samples import FILE, HEADER, THREAD, Record

U: Any = {"user_id": "u"}
V: Any = {"user_id": "v"}


def stock(memory: Memory, owner: str = "u", word: str = "canary") -> None:
    """Write text, bytes, revisions, a file that is deleted, and one whose path is a directory now."""
    own: Any = {"user_id": owner}
    for number in range(3):
        memory.files.write("/notes/a.md", f"{word} {number}\nünï\n", **own, by="ann")
    memory.files.edit("/notes/a.md", "ünï", "uni", **own)
    memory.files.write("/b.bin", b"\0\xff" + word.encode(), **own)
    memory.files.write("/empty", "", **own)
    memory.files.write("/gone.md", f"{word} gone", **own)
    memory.files.delete("/gone.md", **own, by="bob")
    memory.files.write("/was", f"{word} was", **own)
    memory.files.delete("/was", **own)
    memory.files.write("/was/now/in.md", "a directory", **own)


def exported(memory: Memory, owner: str = "u") -> list[Record]:
    """Export, through the JSON lines that a file would hold."""
    return [json.loads(json.dumps(record)) for record in unsealed(memory.users.export(owner))]


def tree(memory: Memory, owner: str = "u") -> dict[str, Any]:
    """Return all that the owner can see, with all revisions, also of what was deleted."""
    own: Any = {"user_id": owner}
    files = memory.files
    paths = [*(one.path for one in files.glob("**", **own)), "/gone.md", "/was"]
    found: dict[str, Any] = {}
    for path in paths:
        try:
            rows = files.history(path, **own)
        except FileMissingError:
            continue
        contents = [
            None if row.what == "delete" else files.read(path, revision=row.revision, **own).content for row in rows
        ]
        found[path] = list(zip(rows, contents, strict=True))
    return found


def holding(raw: redis.Redis, prefix: str, word: str) -> list[bytes]:
    """Return the keys in whose dump a word stands, or their names."""
    return [key for key in raw.scan_iter(f"{prefix}:*") if word.encode() in key + (raw.dump(key) or b"")]


# ---------------------------------------------------------------------- export and import


def test_files_come_back_as_they_were_once(make_memory: Make) -> None:
    memory = make_memory()
    stock(memory)
    records = exported(memory)
    revisions = {one["path"]: len(one["revisions"]) for one in records[1:]}
    assert revisions == {"/b.bin": 0, "/empty": 0, "/notes/a.md": 3, "/was/now/in.md": 0, "/gone.md": 1, "/was": 1}
    assert [*revisions][:4] == ["/b.bin", "/empty", "/notes/a.md", "/was/now/in.md"]  # in order, then what was deleted
    report = memory.users.load(records, user_id="v")
    assert (report.files, report.files_left) == (4, [])
    assert tree(memory, "v") == tree(memory)
    assert memory.files.usage(**V) == memory.files.usage(**U)
    again = memory.users.load(records, user_id="v")
    assert (again.files, again.files_left) == (0, [])
    assert exported(memory, "v")[1:] == records[1:]
    assert memory.files.revert("/gone.md", 1, **V).info.revision == 3
    assert memory.files.read("/gone.md", **V).text == "canary gone"
    assert memory.doctor().level == "ok"


def test_an_import_changes_no_file_that_is_there(make_memory: Make) -> None:
    memory = make_memory()
    stock(memory)
    records = exported(memory)
    files = memory.files
    files.write("/notes/a.md", "mine", **V)  # another one
    files.write("/empty", "", **V)  # the same content
    files.write("/b.bin/c", "mine", **V)  # a directory
    files.write("/was", "mine", **V)
    files.delete("/was", **V)
    before = {path: found for path, found in tree(memory, "v").items() if path != "/gone.md"}
    report = memory.users.load(records, user_id="v")
    assert report.files == 1
    assert sorted(report.files_left) == ["/b.bin", "/notes/a.md", "/was"]
    after = tree(memory, "v")
    assert {path: after[path] for path in before} == before
    assert after.keys() - before.keys() == {"/gone.md", "/was/now/in.md"}


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        (FileOptions(max_files=3), "'v' would have 4 files with those of the records, 3 at most; nothing was imported"),
        (FileOptions(max_bytes=80), r"'v' would have \d\d bytes with those of the records, 80 at most"),
    ],
)
def test_quotas_are_those_of_the_importing_memory_and_count_before_the_first_write(
    make_memory: Make, limit: FileOptions, problem: str
) -> None:
    memory, small = make_memory(), make_memory(files=limit)
    stock(memory)
    records = exported(memory)
    with pytest.raises(FileQuotaError, match=problem):
        small.users.load([*records, THREAD], user_id="v")
    assert tree(memory, "v") == {}
    assert memory.threads.get("t") is None
    memory.users.load(records, user_id="v")
    assert small.users.load(records, user_id="v").files == 0  # what is there already counts once


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"path": "/../a"}, "holds '..'"),
        ({"revision": 3}, "revision 3 follows 1"),
        ({"what": "hack"}, "what: "),
        ({"base64": "AA=="}, "there is content, and base64, too"),
        ({"content": None, "base64": "?"}, "base64"),
        ({"created_at": None}, "Invalid isoformat string: 'None'"),
        ({"content": "x" * 21}, "'/a.md' has 21 bytes, 20 at most"),
    ],
)
def test_a_record_that_is_no_file_is_refused_before_the_first_write(
    make_memory: Make, change: Record, problem: str
) -> None:
    memory = make_memory(files=FileOptions(max_file_bytes=20))
    with pytest.raises(OptionError) as caught:
        memory.users.load([HEADER, THREAD, FILE | change])
    assert problem in str(caught.value)
    assert "record 3" in str(caught.value)
    assert "nothing was imported" in str(caught.value)
    assert memory.threads.get("t") is None
