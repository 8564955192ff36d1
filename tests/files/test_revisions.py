"""Revisions of files: how they are kept, brought back, merged, and how they end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from langchain_workingmem import (
    FileConflictError,
    FileEditError,
    FileMissingError,
    FileOptions,
    Memory,
    OptionError,
)
from langchain_workingmem._engine.effects import Plan, Send
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.files import Files
from langchain_workingmem.files import operations as plans
from tests.files.checks import check_stored
from tests.helpers.plans import plan_of
from tests.helpers.types import Make

pytestmark = pytest.mark.in_turn("face")

ANN: dict[str, Any] = {"resource_id": "ann"}
BASE = "a\nb\nc\nd\ne\nf\n"


@pytest.fixture
def files(plain: Memory) -> Files:
    return plain.files


def test_a_deleted_file_comes_back_with_its_revisions(files: Files) -> None:
    files.write("/a", "one", by="ann", **ANN)
    files.write("/a", "two", by="bob", **ANN)
    assert files.delete("/a", by="cleaner", **ANN) == 1
    reading: tuple[Callable[..., Any], ...] = (files.read, files.delete)
    for call in reading:
        with pytest.raises(FileMissingError):
            call("/a", **ANN)
    assert files.stat("/a", **ANN) is None
    assert [(one.revision, one.what, one.by) for one in files.history("/a", **ANN)] == [
        (3, "delete", "cleaner"),
        (2, "write", "bob"),
        (1, "write", "ann"),
    ]
    with pytest.raises(FileMissingError, match="revision 3"):
        files.read("/a", revision=3, **ANN)
    with pytest.raises(FileMissingError, match="revision 3"):
        files.revert("/a", 3, **ANN)
    assert files.revert("/a", 1, **ANN).info.revision == 4
    assert files.read("/a", **ANN).content == "one"
    assert files.history("/a", limit=2, **ANN)[1].what == "delete"


def test_a_purged_file_is_forgotten(files: Files, raw: Any, prefix: str) -> None:
    files.write("/a", "one", **ANN)
    files.write("/a", "two", **ANN)
    assert files.delete("/a", purge=True, **ANN) == 1
    for call in (partial(files.revert, "/a", 1), partial(files.history, "/a"), partial(files.delete, "/a", purge=True)):
        with pytest.raises(FileMissingError):
            call(**ANN)
    _, *keys, done = Keys(prefix).files_of_resource("ann")
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


def test_times_of_revisions_grow_when_the_clock_jumps_back(files: Files, raw: Any, prefix: str) -> None:
    files.write("/a", "one", **ANN)
    _, paths, _, _, _ = Keys(prefix).files_of_resource("ann")
    (member,) = raw.zrange(paths, 0, -1)
    revision, first, changed, rest = member.partition(b"\0")[2].split(b" ", 3)
    later = int(changed) + 3_600_000_000  # this clock was an hour ahead
    raw.zrem(paths, member)
    raw.zadd(paths, {b"/a\0%s %s %d %s" % (revision, first, later, rest): 0})
    for step in (
        lambda: files.write("/a", "two", **ANN),
        lambda: files.rename("/a", "/b", **ANN),
        lambda: files.delete("/b", **ANN),
        lambda: files.revert("/b", 2, **ANN),
    ):
        step()
    times = [one.at for one in files.history("/b", **ANN)]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == len(times)


def test_all_files_of_an_owner_expire_together_or_stay(make_memory: Make, raw: Any, prefix: str) -> None:
    brief, lasting = (
        make_memory(files=FileOptions(ttl=timedelta(minutes=1))).files,
        make_memory(files=FileOptions()).files,
    )
    _, *keys, _ = Keys(prefix).files_of_resource("ann")

    def expiries() -> set[int]:
        return {raw.pexpiretime(key) for key in keys}

    brief.write("/a", "one", **ANN)
    brief.write("/b", "two", **ANN)
    (first,) = expiries()
    assert 50_000 < first - time.time() * 1000 <= 60_000
    for step in (
        lambda: brief.edit("/a", "one", "1", **ANN),
        lambda: brief.write("/a", "1", **ANN),  # changes nothing, but is a use
        lambda: brief.rename("/a", "/c", **ANN),
        lambda: brief.delete("/c", **ANN),
    ):
        time.sleep(0.002)
        step()
        (later,) = expiries()
        assert later > first
        first = later
    brief.delete("/b", **ANN)
    (first,) = expiries() - {-2}  # `paths` is gone
    make_memory().files.write("/b", "new", **ANN)  # without options of its own it leaves what others have set
    assert expiries() == {first}
    lasting.write("/b", "newer", **ANN)
    assert expiries() == {-1}
    brief.write("/b", "newest", **ANN)
    lasting.delete("/b", **ANN)
    assert {raw.pexpiretime(key) for key in keys[1:]} == {-1}


# ---------------------------------------------------------------------- merging


def between(plan: Plan[Any], events: dict[int, Callable[[], object]]) -> Plan[Any]:
    """Perform a plan, with something else in front of some of its round trips."""
    try:
        effect, trip = next(plan), 0
        while True:
            if isinstance(effect, Send):
                trip += 1
                events.get(trip, lambda: None)()
            effect = plan.send((yield effect))
    except StopIteration as done:
        return done.value


def test_changes_of_others_since_the_base_are_kept(files: Files) -> None:
    files.write("/a", BASE, **ANN)
    files.edit("/a", "a", "A", **ANN)
    merged = files.write("/a", BASE.replace("f", "F"), base_revision=1, **ANN)
    assert (merged.merged, merged.info.revision) == (True, 3)
    assert files.read("/a", **ANN).content == "A\nb\nc\nd\ne\nF\n"
    files.write("/a", BASE.replace("d", "D"), base_revision=1, **ANN)
    assert files.read("/a", **ANN).content == "A\nb\nc\nD\ne\nF\n"


def test_an_edit_whose_passage_has_moved_on_is_merged_or_applied(files: Files) -> None:
    files.write("/a", f"x\n{BASE}x\n", **ANN)
    files.edit("/a", "x\na", "y\na", **ANN)
    assert not files.edit("/a", "c", "C", base_revision=1, **ANN).merged  # it is there exactly once
    files.edit("/a", "d", "d\nx", **ANN)
    assert files.edit("/a", "f\nx", "f\nX", base_revision=1, **ANN).info.revision == 5
    files.insert("/a", 0, "top", **ANN)
    assert files.insert("/a", 6, "after e", base_revision=1, **ANN).merged
    assert files.read("/a", **ANN).content == "top\ny\na\nb\nC\nd\nx\ne\nafter e\nf\nX\n"


def test_changes_that_touch_are_a_conflict_that_shows_both(files: Files) -> None:
    files.write("/a", BASE, **ANN)
    files.edit("/a", "c", "theirs", **ANN)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: files.write("/a", BASE.replace("c", "mine"), base_revision=1, **ANN),
        lambda: files.edit("/a", "c\n", "mine\n", base_revision=1, **ANN),
        lambda: files.insert("/a", 3, "mine", base_revision=1, **ANN),
    )
    for call in calls:
        with pytest.raises(FileConflictError) as caught:
            call()
        error = caught.value
        assert (error.revision, error.stored) == (2, BASE.replace("c", "theirs"))
        assert "mine" in error.sent
        assert "theirs" in str(error)
    assert files.read("/a", **ANN).revision == 2


def test_what_cannot_be_merged_is_a_conflict(make_memory: Make) -> None:
    files = make_memory(files=FileOptions(revisions=1)).files
    for path in ("/old", "/gone", "/bytes", "/was bytes", "/replaced"):
        files.write(path, b"\xff" if path == "/was bytes" else BASE, **ANN)
    for text in ("1", "2"):
        files.write("/old", text, **ANN)
    files.delete("/gone", **ANN)
    files.write("/bytes", b"\xfe", **ANN)
    files.write("/was bytes", BASE, **ANN)
    files.delete("/replaced", **ANN)
    files.write("/replaced", "x", **ANN)
    for path, words in {
        "/old": "not kept",
        "/gone": "deleted",
        "/bytes": "holds bytes",
        "/was bytes": "not kept",
        "/replaced": "not kept",
    }.items():
        before = files.history(path, **ANN)
        with pytest.raises(FileConflictError, match=words):
            files.write(path, f"{BASE}new", base_revision=1, **ANN)
        assert files.history(path, **ANN) == before
    for base in (2, 99):  # 2: it was deleted then
        with pytest.raises(FileConflictError):
            files.write("/replaced", "new", base_revision=base, **ANN)
    with pytest.raises(FileConflictError, match="bytes cannot be merged"):
        files.write("/old", b"x", base_revision=1, **ANN)
    with pytest.raises(FileConflictError):
        files.edit("/missing", "a", "b", base_revision=1, **ANN)
    with pytest.raises(FileEditError, match="not in it"):
        files.edit("/replaced", "nowhere", "b", base_revision=3, **ANN)


def test_a_base_of_zero_stands_for_no_file(files: Files) -> None:
    assert files.write("/a", "one", base_revision=0, **ANN).info.revision == 1
    assert not files.write("/a", "one", base_revision=0, **ANN).changed
    with pytest.raises(FileConflictError):
        files.write("/a", "two", base_revision=0, **ANN)
    with pytest.raises(OptionError):
        files.edit("/a", "one", "two", base_revision=0, **ANN)


@pytest.fixture
def rival(server: EmbeddedRedis, prefix: str) -> Iterator[Files]:
    """Another process."""
    with Memory(server.url, key_prefix=prefix) as memory:
        yield memory.files


@pytest.mark.parametrize("what", ["write", "insert", "edit"])
def test_a_merge_that_loses_against_others_keeps_what_all_of_them_wrote(plain: Memory, rival: Files, what: str) -> None:
    """The second rival comes after the first merge: what was merged then must not be taken back."""
    rival.write("/a", BASE, **ANN)
    rival.edit("/a", "a\n", "A\n", **ANN)
    if what == "edit":
        rival.insert("/a", 2, "far\nf", **ANN)  # its passage is there twice
    changes = [
        lambda: rival.edit("/a", "d\n", "D\n", **ANN),
        lambda: rival.edit("/a", "D\n", "d1\nd2\n", **ANN),
        lambda: rival.insert("/a", 0, "top", **ANN),
    ]
    plan = {
        "write": partial(plan_of, Files.write, plain.files, "/a", BASE.replace("f", "mine"), base_revision=1, **ANN),
        "insert": partial(plan_of, Files.insert, plain.files, "/a", 5, "mine", base_revision=1, **ANN),
        "edit": partial(plan_of, Files.edit, plain.files, "/a", "f\n", "mine\n", base_revision=1, **ANN),
    }[what]()
    assert plain._core.run(between(plan, dict(enumerate(changes, 2)))).merged
    lines = rival.read("/a", **ANN).lines
    assert {"A", "d1", "d2", "top", "mine"} <= set(lines)
    assert not {"a", "d", "D"} & set(lines)


def test_a_merge_that_always_loses_gives_up(plain: Memory, rival: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "ATTEMPTS", 3)
    rival.write("/a", BASE, **ANN)
    rival.edit("/a", "a", "A", **ANN)
    numbers = iter(range(1, 100))

    def change() -> None:
        text = rival.read("/a", **ANN).lines
        rival.edit("/a", f"{text[1]}\n", f"b{next(numbers)}\n", **ANN)

    plan = plan_of(Files.write, plain.files, "/a", BASE.replace("f", "F"), base_revision=1, **ANN)
    with pytest.raises(FileConflictError, match="3 times in a row") as caught:
        plain._core.run(between(plan, dict.fromkeys(range(2, 100), change)))
    assert caught.value.stored == rival.read("/a", **ANN).content
    assert "F" not in caught.value.stored
