"""What is done to many files at once: listing, searching, renaming and deleting, in slices that others and kills come between."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from langchain_workingmem import FileConflictError, FileMissingError, FileOptions, FilePathError, FileQuotaError, Memory
from langchain_workingmem._engine.effects import Plan
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.files import Files
from langchain_workingmem.files import operations as plans
from tests.files.checks import check_stored
from tests.helpers.crashes import ends_within
from tests.helpers.plans import plan_of
from tests.helpers.types import Make

ANN: dict[str, Any] = {"resource_id": "ann"}


@pytest.fixture
def files(plain: Memory) -> Files:
    return plain.files


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, plain: Memory) -> None:
    """Slices of three files and five lines, on a server that knows the scripts: so the first effect of a plan is a slice."""
    plain.files.write("/a", "a", resource_id="first")
    plain.files.rename("/a", "/b", resource_id="first")
    plain.files.grep("a", resource_id="first")
    plain.files.delete("/b", resource_id="first", purge=True)
    monkeypatch.setattr(plans, "SLICE", 3)
    monkeypatch.setattr(plans, "MATCHES", 5)


def fill(files: Files, paths: list[str]) -> None:
    for path in paths:
        files.write(path, f"in {path}\n", **ANN)


def paths_of(files: Files) -> list[str]:
    return [info.path for info in files.glob("**", **ANN)]


# ---------------------------------------------------------------------- list, glob, stat


def test_listings_agree_with_each_other(files: Files, raw: Any, prefix: str) -> None:
    """Over pages of the script: 1,000 members."""
    _, paths, _, _, _ = Keys(prefix).files_of_resource("ann")
    note = "1 1 1 0 t write a/b"
    names = [f"/d/{number:04}" for number in range(1500)] + [f"/d/big/{number:04}/x" for number in range(1200)]
    names += ["/d/big-", "/d/bi", "/d/z/deep/er/x", "/e", "/d0", "/d-"]
    raw.zadd(paths, {f"{name}\0{note}": 0 for name in names})
    listed = files.list("/d", **ANN)
    assert {info.path for info in listed} == {*names[:1500], "/d/big", "/d/big-", "/d/bi", "/d/z"}
    assert len(listed) == 1504
    assert {info.path for info in listed if info.is_dir} == {"/d/big", "/d/z"}
    assert [info.path for info in files.list("/", **ANN)] == ["/d-", "/d", "/d0", "/e"]
    assert len(files.list("/d/big", **ANN)) == 1200
    assert all(files.stat(info.path, **ANN) == info for info in listed[::100])
    assert {info.path for info in files.glob("*", **ANN)} == set(names)
    assert [info.path for info in files.glob("**", path="/d/z", **ANN)] == ["/d/z/deep/er/x"]
    assert files.list("/d/0000", **ANN) == files.list("/nothing", **ANN) == []
    assert files.stat("/", **ANN).is_dir  # type: ignore[union-attr]
    assert (listed[0].revision, listed[-1].path) == (1, "/d/z")


# ---------------------------------------------------------------------- grep


def lines_of(texts: dict[str, str], wanted: str) -> list[tuple[str, int, str]]:
    return [
        (path, number, line)
        for path in sorted(texts)
        for number, line in enumerate(texts[path].split("\n"), 1)
        if wanted in line
    ]


@pytest.mark.usefixtures("small")
@pytest.mark.in_turn("face")
def test_grep_finds_each_line_once_over_slices(plain: Memory) -> None:
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


def slices(plan: Plan[Any], between: Callable[[], object]) -> Plan[Any]:
    """Perform a plan, with something else between its round trips."""
    try:
        effect = next(plan)
        while True:
            reply = yield effect
            effect = plan.send(reply)
            between()
    except StopIteration as done:
        return done.value


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("change", ["edit", "delete", "purge"])
def test_a_file_that_changes_between_slices_is_searched_as_it_was(plain: Memory, change: str) -> None:
    files = plain.files
    text = "".join(f"x {number}\n" for number in range(20))
    files.write("/a", text, **ANN)
    numbers = iter(range(100))

    def between() -> None:
        if change == "edit":
            files.insert("/a", 0, f"x more {next(numbers)}", **ANN)
        elif files.stat("/a", **ANN):
            files.delete("/a", purge=change == "purge", **ANN)

    found = plain._core.run(slices(plan_of(Files.grep, files, "x", **ANN), between))
    wanted = lines_of({"/a": text}, "x")
    assert found == (wanted if change != "purge" else wanted[:5])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("x\n" * 2**19, "x"), ("\n" * (2**20 - 1) + "x", "x"), ("y" * (2**20 - 1) + "x", "x"), ("ab\n" * 340_000, "ba")],
    ids=["a hit in each line", "short lines", "one long line", "nothing"],
)
def test_a_slice_of_a_large_file_is_short(server: EmbeddedRedis, prefix: str, raw: Any, text: str, wanted: str) -> None:
    with Memory(server.url, key_prefix=prefix) as memory:
        memory.files.write("/large", text, **ANN)
        steps: list[float] = []

        def measured(plan: Plan[Any]) -> Plan[Any]:
            try:
                effect = next(plan)
                while True:
                    before = raw.info("commandstats").get("cmdstat_evalsha", {}).get("usec", 0)
                    reply = yield effect
                    steps.append(raw.info("commandstats")["cmdstat_evalsha"]["usec"] - before)
                    effect = plan.send(reply)
            except StopIteration as done:
                return done.value

        found = memory._core.run(measured(plan_of(Files.grep, memory.files, wanted, limit=10_000, **ANN)))
    assert len(found) == min(sum(wanted in line for line in text.split("\n")), 10_000)
    assert (
        sorted(steps)[len(steps) // 2] < 40_000
    )  # us, with other tests beside it; it ends after 8 ms of processor time


# ---------------------------------------------------------------------- rename


def test_a_renamed_file_takes_its_revisions_along(files: Files, raw: Any, prefix: str) -> None:
    for text in ("one", "two", "three"):
        files.write("/a", text, by="ann", **ANN)
    assert files.rename("/a", "/b/c", by="bob", **ANN) == 1
    found = files.history("/b/c", **ANN)
    assert [(one.revision, one.what, one.by) for one in found] == [
        (4, "rename", "bob"),
        *((n, "write", "ann") for n in (3, 2, 1)),
    ]
    assert files.read("/b/c", revision=1, **ANN).content == "one"
    with pytest.raises(FileMissingError):
        files.read("/a", **ANN)
    check_stored(raw, prefix, "ann")


def test_who_knows_the_old_file_does_not_overwrite_a_new_one_of_its_path(files: Files) -> None:
    """Without the note that a rename leaves, the new file would get the revision that somebody has read."""
    base = files.write("/a", "one\n", **ANN).info.revision
    files.rename("/a", "/b", **ANN)
    files.write("/a", "another file\n", **ANN)
    with pytest.raises(FileConflictError):
        files.write("/a", "one\ntwo\n", base_revision=base, **ANN)


def test_revisions_of_a_deleted_file_stay_in_front_of_those_of_the_file_that_takes_its_path(
    files: Files, raw: Any, prefix: str
) -> None:
    for number in range(15):
        files.write("/a", f"a{number}", **ANN)
    files.write("/b", "b0", **ANN)
    files.delete("/b", **ANN)
    few = files.history("/a", **ANN)
    files.rename("/a", "/b", **ANN)
    assert len(files.history("/b", **ANN)) == len(few) == 11
    check_stored(raw, prefix, "ann")
    files.write("/c", "c0", **ANN)
    files.delete("/c", **ANN)
    files.write("/d", "d0", **ANN)
    files.rename("/d", "/c", **ANN)
    assert [(one.revision, one.what) for one in files.history("/c", **ANN)] == [
        (4, "rename"),
        (3, "write"),
        (2, "delete"),
        (1, "write"),
    ]
    assert [files.read("/c", revision=number, **ANN).content for number in (1, 3, 4)] == ["c0", "d0", "d0"]
    check_stored(raw, prefix, "ann")
    files.delete("/c", purge=True, **ANN)
    check_stored(raw, prefix, "ann")


def test_what_cannot_be_renamed(files: Files) -> None:
    fill(files, ["/a", "/b/c", "/d/e"])
    for path, new in [
        ("/a", "/a"),
        ("/b", "/b/c/d"),
        ("/", "/x"),
        ("/a", "/"),
        ("/b", "/a"),
        ("/a", "/b"),
        ("/b", "/d"),
        ("/a", "/b/c/x"),
    ]:
        with pytest.raises(FilePathError):
            files.rename(path, new, **ANN)
    with pytest.raises(FileMissingError):
        files.rename("/missing", "/x", **ANN)
    assert paths_of(files) == ["/a", "/b/c", "/d/e"]


@pytest.mark.usefixtures("small")
@pytest.mark.in_turn("face")
def test_a_directory_is_renamed_in_slices(plain: Memory, raw: Any, prefix: str) -> None:
    fill(plain.files, [f"/a/{number}/x" for number in range(10)])
    assert plain.files.rename("/a", "/b/c", **ANN) == 10
    assert paths_of(plain.files) == [f"/b/c/{number}/x" for number in range(10)]
    check_stored(raw, prefix, "ann")


@pytest.mark.usefixtures("small")
def test_a_killed_rename_is_continued_by_the_same_call(plain: Memory, raw: Any, prefix: str) -> None:
    files = plain.files
    for after in (1, 2):
        fill(files, [f"/a/{number}" for number in range(8)])
        assert not ends_within(plain, plan_of(Files.rename, files, "/a", "/b", **ANN), after)
        check_stored(raw, prefix, "ann")
        assert len(files.glob("**", path="/b", **ANN)) == 3 * after
        with pytest.raises(FilePathError, match="'/b' exists"):  # a file is not moved into it
            files.rename("/a/7", "/b", **ANN)
        assert files.rename("/a", "/b", **ANN) == 8 - 3 * after
        assert paths_of(files) == [f"/b/{number}" for number in range(8)]
        with pytest.raises(FileMissingError):
            files.rename("/a", "/b", **ANN)
        fill(files, ["/a/new"])
        with pytest.raises(FilePathError, match="'/b' exists"):  # it has come to its end
            files.rename("/a", "/b", **ANN)
        files.delete("/", purge=True, **ANN)


@pytest.mark.usefixtures("small")
def test_a_rename_that_was_given_up_does_not_open_the_new_path_to_others(plain: Memory) -> None:
    files = plain.files
    fill(files, [f"/a/{number}" for number in range(8)])
    assert not ends_within(plain, plan_of(Files.rename, files, "/a", "/b", **ANN), 1)
    files.delete("/a", **ANN)
    fill(files, ["/a"])  # a file, where the directory was
    with pytest.raises(FilePathError, match="'/b' exists"):
        files.rename("/a", "/b", **ANN)
    files.delete("/a", **ANN)
    fill(files, ["/a/x"])
    with pytest.raises(FilePathError, match="'/b' exists"):
        files.rename("/a", "/b", **ANN)


def renaming(memory: Memory, event: Callable[[], object]) -> Any:
    """Rename /a to /b, with something else behind the first slice."""
    events = iter([event])
    plan = plan_of(Files.rename, memory.files, "/a", "/b", **ANN)
    return memory._core.run(slices(plan, lambda: [one() for one in events]))


@pytest.mark.usefixtures("small")
def test_files_that_others_write_meanwhile_are_kept(plain: Memory, raw: Any, prefix: str) -> None:
    fill(plain.files, [f"/a/{number}" for number in range(8)])
    assert renaming(plain, lambda: fill(plain.files, ["/a/new", "/b/other"])) == 9
    assert paths_of(plain.files) == sorted([*(f"/b/{number}" for number in range(8)), "/b/new", "/b/other"])
    check_stored(raw, prefix, "ann")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("/b/5", "'/b/5' exists"),
        ("/b/5/deep", "'/b/5' is a directory"),
        ("/b/7x/deep", None),
        ("/a/0", "'/b/0' exists"),
    ],
)
def test_what_others_have_written_is_never_overwritten(
    plain: Memory, raw: Any, prefix: str, written: str, words: str | None
) -> None:
    files = plain.files
    fill(files, [f"/a/{number}" for number in range(8)])
    if words is None:
        assert renaming(plain, lambda: fill(files, [written])) == 8
    else:
        with pytest.raises(FilePathError, match=words):
            renaming(plain, lambda: fill(files, [written]))
        assert files.read(written, **ANN).content == f"in {written}\n"
        assert len(paths_of(files)) == 9
        files.delete(words.split("'")[1], **ANN)
        files.rename("/a", "/b", **ANN)  # the same call continues
        assert files.list("/a", **ANN) == []
    check_stored(raw, prefix, "ann")


@pytest.mark.usefixtures("small")
def test_a_file_that_takes_the_new_path_of_a_rename_stops_it(plain: Memory, raw: Any, prefix: str) -> None:
    files = plain.files
    fill(files, [f"/a/{number}" for number in range(5)])

    def take() -> None:
        files.delete("/b", **ANN)
        fill(files, ["/b"])

    with pytest.raises(FilePathError, match="'/b', which is a file"):
        renaming(plain, take)
    check_stored(raw, prefix, "ann")


@pytest.mark.usefixtures("small")
def test_a_rename_that_does_not_fit_any_more_leaves_the_rest(make_memory: Make, raw: Any, prefix: str) -> None:
    memory = make_memory(files=FileOptions(max_bytes=100))
    for number in range(6):
        memory.files.write(f"/a/{number}", "x" * 12, **ANN)
    with pytest.raises(FileQuotaError, match="would have 108 bytes"):
        memory.files.rename("/a", "/b", **ANN)
    assert len(paths_of(memory.files)) == 6
    check_stored(raw, prefix, "ann")
    memory.files.delete("/b", purge=True, **ANN)
    assert memory.files.rename("/a", "/b", **ANN) > 0


# ---------------------------------------------------------------------- delete


@pytest.mark.usefixtures("small")
@pytest.mark.in_turn("face")
@pytest.mark.parametrize("purge", [False, True])
def test_a_directory_is_deleted_in_slices(plain: Memory, raw: Any, prefix: str, *, purge: bool) -> None:
    files = plain.files
    fill(files, [*(f"/a/{number}/x" for number in range(10)), "/a0", "/a-", "/b"])
    for number in range(5):
        files.delete(f"/a/{number}", **ANN)
    assert files.delete("/a", purge=purge, **ANN) == 5
    assert paths_of(files) == ["/a-", "/a0", "/b"]
    check_stored(raw, prefix, "ann")
    for number in (2, 7):
        call = partial(files.revert, f"/a/{number}/x", 1, **ANN)
        if purge:
            with pytest.raises(FileMissingError):
                call()
        else:
            assert call().changed
    if not purge:
        assert files.delete("/a", purge=True, **ANN) == 2
    with pytest.raises(FileMissingError):
        files.delete("/a", purge=True, **ANN)
    assert paths_of(files) == ["/a-", "/a0", "/b"]


def test_a_purge_looks_through_many_notes_in_slices(plain: Memory, raw: Any, prefix: str) -> None:
    files = plain.files
    fill(files, ["/a/x", "/b/*/x", "/b/?", "/b/[x]"])
    files.delete("/", **ANN)
    _, _, _, notes, _ = Keys(prefix).files_of_resource("ann")
    raw.hset(notes, mapping={f"/a/{number}": "2 1 2 0 d delete " for number in range(3000)})
    fill(files, ["/b/*/live"])
    assert files.delete("/b/*", purge=True, **ANN) == 1
    left = [name for name in raw.hkeys(notes) if b"/b/" in name and b"\0" not in name]
    assert sorted(left) == [b"/b/?", b"/b/[x]"]
    assert files.delete("/a", purge=True, **ANN) == 0
    assert not [name for name in raw.hkeys(notes) if b"/a/" in name]
    check_stored(raw, prefix, "ann")
    assert files.delete("/", purge=True, **ANN) == 0
    assert raw.exists(notes) == 0
