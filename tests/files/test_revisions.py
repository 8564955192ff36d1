"""Revisions of files: how they are kept, brought back, guarded, and how they end."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from langchain_workingmem import FileConflictError, FileOptions
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem.errors import FileMissingError
from langchain_workingmem.files import Files
from tests.files.checks import check_stored
from tests.helpers.types import Make

pytestmark = pytest.mark.in_turn("face")

ANN: dict[str, Any] = {"user_id": "ann"}
BASE = "a\nb\nc\nd\ne\nf\n"


def test_a_deleted_file_comes_back_with_its_revisions(files: Files) -> None:
    files.write("/a", "one", by="ann", **ANN)
    files.delete("/a", by="cleaner", **ANN)
    history = [(one.revision, one.what, one.by) for one in files.history("/a", **ANN)]
    assert history == [(2, "delete", "cleaner"), (1, "write", "ann")]
    for call in (files.read, files.revert):
        with pytest.raises(FileMissingError, match="revision 2"):
            call("/a", revision=2, **ANN)
    assert files.revert("/a", 1, **ANN).info.revision == 3
    assert [one.what for one in files.history("/a", limit=2, **ANN)] == ["revert", "delete"]


def test_a_purged_file_is_forgotten(files: Files, raw: Any, prefix: str) -> None:
    files.write("/a", "one", **ANN)
    files.write("/a", "two", **ANN)
    assert files.delete("/a", purge=True, **ANN) == 1
    for call in (partial(files.revert, "/a", 1), partial(files.history, "/a"), partial(files.delete, "/a", purge=True)):
        with pytest.raises(FileMissingError):
            call(**ANN)
    _, *keys, done = Keys(prefix).of_user("ann").files
    assert raw.exists(*keys) == 0  # nothing is left
    assert 0 < min(raw.httl(done, *raw.hkeys(done))) <= 120  # but replies to calls that may be sent again
    assert files.write("/a", "new", **ANN).info.revision == 1


def test_fewer_revisions_than_are_stored_forget_the_others(make_memory: Make, raw: Any, prefix: str) -> None:
    many, few = make_memory().files, make_memory(files=FileOptions(revisions=2)).files
    for path in ("/a", "/b", "/c"):
        for number in range(8):
            many.write(path, f"{number}" * 10, **ANN)
    few.write("/a", "x", **ANN)
    few.delete("/b", **ANN)
    few.rename("/c", "/d", **ANN)
    assert [[one.revision for one in few.history(path, **ANN)] for path in ("/a", "/b", "/d")] == [[9, 8, 7]] * 3
    check_stored(raw, prefix, "ann", 2)
    assert few.usage(**ANN).bytes == 21 + 20 + 30


def test_all_files_of_an_owner_expire_together_or_stay(make_memory: Make, raw: Any, prefix: str) -> None:
    brief = make_memory(files=FileOptions(ttl=timedelta(minutes=1))).files
    _, *keys, _ = Keys(prefix).of_user("ann").files

    def expiries() -> set[int]:
        return {raw.pexpiretime(key) for key in keys}

    brief.write("/a", "one", **ANN)
    (first,) = expiries()
    assert 50_000 < first - time.time() * 1000 < 61_000  # the server rounds its clock
    for step in (
        lambda: brief.edit("/a", "one", "1", **ANN),
        lambda: brief.write("/a", "1", **ANN),  # changes nothing, but is a use
        lambda: brief.rename("/a", "/c", **ANN),
        lambda: brief.write("/b", "two", **ANN),
        lambda: brief.delete("/c", **ANN),
    ):
        time.sleep(0.002)
        step()
        (later,) = expiries()
        assert later > first
        first = later
    make_memory().files.write("/b", "new", **ANN)  # without options of its own it leaves what others have set
    assert expiries() == {first}
    make_memory(files=FileOptions()).files.write("/b", "newer", **ANN)
    assert expiries() == {-1}


def test_what_others_have_changed_since_the_base_is_not_overwritten(files: Files) -> None:
    base = files.write("/a", BASE, **ANN).revision
    files.edit("/a", "c", "theirs", **ANN)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: files.write("/a", BASE.replace("f", "mine"), base_revision=base, **ANN),
        lambda: files.write("/a", "new", base_revision=0, **ANN),
        lambda: files.insert("/a", 3, "mine", base_revision=base, **ANN),
    )
    for call in calls:
        with pytest.raises(
            FileConflictError, match="is at revision 2 now, so nothing was written: read it again"
        ) as caught:
            call()
        assert (caught.value.revision, caught.value.stored) == (2, BASE.replace("c", "theirs"))
    with pytest.raises(FileConflictError, match="does not exist"):
        files.write("/b", "new", base_revision=1, **ANN)
    assert files.write("/a", "mine", base_revision=2, **ANN).revision == 3
    assert files.insert("/a", 0, "top", base_revision=3, **ANN).revision == 4
