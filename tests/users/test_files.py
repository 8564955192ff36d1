"""Files are the user's data: they are exported, imported and merged, with their revisions."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
import redis

from langchain_workingmem import FileOptions, Memory, OptionError
from langchain_workingmem.errors import FileMissingError, FileQuotaError
from tests.helpers.archives import unsealed
from tests.helpers.canaries import keys_with
from tests.helpers.types import Make
from tests.users.guests import GUEST, USER
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
    found: dict[str, Any] = {}
    for path in [*(one.path for one in memory.files.glob("**", **own)), "/gone.md", "/was"]:
        with suppress(FileMissingError):
            for row in memory.files.history(path, **own):
                content = row.what != "delete" and memory.files.read(path, revision=row.revision, **own).content
                found.setdefault(path, []).append((row, content))
    return found


holding = keys_with  # whatever stands where a word may stand


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


MORE = "'v' would have 4 files with those of the records, 3 at most; nothing was imported"
LIMITS = {MORE: FileOptions(max_files=3), r"'v' would have \d\d bytes with those of the": FileOptions(max_bytes=80)}


@pytest.mark.parametrize("problem", LIMITS)
def test_quotas_are_those_of_the_importing_memory_and_count_before_the_first_write(
    make_memory: Make, problem: str
) -> None:
    memory, small = make_memory(), make_memory(files=LIMITS[problem])
    stock(memory)
    records = exported(memory)
    with pytest.raises(FileQuotaError, match=problem):
        small.users.load([*records, THREAD], user_id="v")
    assert tree(memory, "v") == {}
    assert memory.threads.get("t") is None
    memory.users.load(records, user_id="v")
    assert small.users.load(records, user_id="v").files == 0  # what is there already counts once


NO_FILES: dict[str, Record] = {
    "holds '..'": {"path": "/../a"},
    "revision 3 follows 1": {"revision": 3},
    "what: ": {"what": "hack"},
    "there is content, and base64, too": {"base64": "AA=="},
    "base64": {"content": None, "base64": "?"},
    "Invalid isoformat string: 'None'": {"created_at": None},
    "'/a.md' has 21 bytes, 20 at most": {"content": "x" * 21},
}


@pytest.mark.parametrize("problem", NO_FILES)
def test_a_record_that_is_no_file_is_refused_before_the_first_write(make_memory: Make, problem: str) -> None:
    memory = make_memory(files=FileOptions(max_file_bytes=20))
    with pytest.raises(OptionError) as caught:
        memory.users.load([HEADER, THREAD, FILE | NO_FILES[problem]])
    for words in (problem, "record 3", "nothing was imported"):
        assert words in str(caught.value)
    assert memory.threads.get("t") is None


def stock_both(memory: Memory) -> None:
    """Let the guest have files that the user has alike, otherwise, and not at all."""
    stock(memory, GUEST, "guest")
    memory.files.write("/dir/x.md", "x", user_id=GUEST)
    memory.files.write("/alike.md", "both", user_id=GUEST)
    memory.files.write("/alike.md", "both", user_id=USER)
    memory.files.write("/notes/a.md", "the user's", user_id=USER)
    memory.files.write("/dir", "a file", user_id=USER)
    memory.files.write("/gone.md", "the user's", user_id=USER)
    memory.files.write("/b (merged).bin", "in the way", user_id=USER)
    memory.files.write("/b.bin", b"the user's", user_id=USER)


def test_the_user_has_all_files_of_the_guest_and_none_is_lost(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    memory = make_memory()
    stock_both(memory)
    stock(memory, "third")
    guest, user, third = (tree(memory, name) for name in (GUEST, USER, "third"))
    report = memory.users.merge(GUEST, into=USER)
    assert report.files == 5
    assert report.files_renamed == {
        "/notes/a.md": "/notes/a (merged).md",
        "/dir/x.md": "/dir (merged)/x.md",
        "/b.bin": "/b (merged) (merged).bin",
    }
    now = tree(memory, USER)
    for path, rows in guest.items():  # with all revisions
        if path not in {"/gone.md", "/was", "/alike.md"}:
            found = now[report.files_renamed.get(path, path)]
            assert [(row.revision, row.at, row.by, row.what, text) for row, text in found] == [
                (row.revision, row.at, row.by, row.what, text) for row, text in rows
            ]
    for path, rows in user.items():
        assert now[path] == rows
    assert memory.files.revert("/gone (merged).md", 1, user_id=USER).info.revision == 3  # the guest had deleted it
    assert keys_with(raw, prefix, GUEST) == []
    assert tree(memory, "third") == third
    assert memory.doctor().level == "ok"


def test_of_more_revisions_than_are_kept_the_newest_come_back(make_memory: Make) -> None:
    memory, few = make_memory(), make_memory(files=FileOptions(revisions=2))
    stock(memory)
    few.users.load(exported(memory), user_id="v")
    assert [one.revision for one in few.files.history("/notes/a.md", **V)] == [4, 3, 2]
