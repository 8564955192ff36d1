"""Reading and changing one file: what is written, what is refused, and what errors say."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from langchain_workingmem import FileOptions, OptionError, UserDeletedError
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem.errors import FileEditError, FilePathError, FileQuotaError
from langchain_workingmem.files import Files
from tests.files.checks import check_stored
from tests.helpers.types import Make

pytestmark = pytest.mark.in_turn("face")

ANN: dict[str, Any] = {"user_id": "ann"}


@pytest.mark.parametrize(
    "content",
    ["", "one", "one\n", "a\r\nb\rc\n\n", "\0", "ünï 👩‍👩‍👧", "x" * 2**20, b"", b"\xff\0", bytearray(b"ab")],
    ids=lambda one: repr(one)[:12],
)
def test_what_was_written_is_read(files: Files, content: str | bytes) -> None:
    written = files.write("/a", content, by="agent x", **ANN)
    found = files.read("/a", **ANN)
    assert found.content == content
    assert (found.info, found.revision) == (written.info, 1)
    size = len(content.encode() if isinstance(content, str) else content)
    assert (found.info.is_text, found.info.size) == (isinstance(content, str), size)
    assert (found.info.by, found.info.is_dir, written.changed) == ("agent x", False, True)
    assert timedelta() <= datetime.now(UTC) - found.info.updated_at < timedelta(minutes=1)
    assert found.info.created_at == found.info.updated_at


def test_what_changes_nothing_makes_no_revision(files: Files) -> None:
    files.write("/a", "one", **ANN)
    assert not files.write("/a", "one", **ANN).changed
    assert files.write("/a", b"one", **ANN).changed  # bytes are no text
    assert not files.revert("/a", 2, **ANN).changed
    assert files.read("/a", **ANN).revision == 2


def test_arguments_are_checked_before_anything_is_sent(files: Files) -> None:
    files.write("/a", "x", **ANN)
    wrong: list[Any] = [None, 1, ["a"], "\ud800", "a\udfffb"]
    calls: list[Callable[[], Any]] = [
        *(partial(files.write, "/a", content, **ANN) for content in wrong),
        lambda: files.edit("/a", "", "x", **ANN),
        lambda: files.edit("/a", "x", "x", **ANN),
        lambda: files.insert("/a", -2, "x", **ANN),
        lambda: files.write("/a", "x", if_exists="ask", **ANN),  # type: ignore[arg-type]
        lambda: files.write("/a", "x", base_revision=-1, **ANN),
        lambda: files.write("/a", "x", by="a\nb", **ANN),
        lambda: files.read("/a", revision=0, **ANN),
        lambda: files.history("/a", limit=0, **ANN),
        lambda: files.grep("", **ANN),
    ]
    for call in calls:
        with pytest.raises(OptionError):
            call()
    assert files.read("/a", **ANN).revision == 1


def test_an_edit_needs_its_passage_exactly_once(files: Files) -> None:
    files.write("/a", "one\ntwo\none two\nthree\n", **ANN)
    edited = files.edit("/a", "three", "3\n4", **ANN)
    assert (edited.occurrences, edited.line, edited.info.revision) == (1, 4, 2)
    with pytest.raises(FileEditError, match="appears 2 times, in lines 1, 3") as caught:
        files.edit("/a", "one", "1", **ANN)
    assert caught.value.lines == (1, 3)
    with pytest.raises(FileEditError, match="is not in it"):
        files.edit("/a", "five", "5", **ANN)
    edited = files.edit("/a", "one", "1", replace_all=True, **ANN)
    assert (edited.occurrences, edited.line) == (2, 1)
    assert files.read("/a", **ANN).content == "1\ntwo\n1 two\n3\n4\n"
    assert [one.what for one in files.history("/a", **ANN)] == ["edit", "edit", "write"]


def test_a_passage_that_is_everywhere_is_named_in_few_lines_and_makes_no_large_text(files: Files) -> None:
    files.write("/a", "ab" * 2**19, **ANN)
    with pytest.raises(FileEditError, match="524288 times") as caught:
        files.edit("/a", "a", "c", **ANN)
    assert caught.value.lines == (1,) * 1000
    with pytest.raises(FileQuotaError, match="549,756,338,176 bytes"):  # 0.5 TB, which are never made
        files.edit("/a", "a", "x" * 2**20, replace_all=True, **ANN)


@pytest.mark.parametrize(
    ("text", "line", "wanted"), [("", 0, "x\n"), ("a\nb", -1, "a\nb\nx\n"), ("a\r\nb", 1, "a\r\nx\nb\n")]
)
def test_lines_are_inserted_after_a_line(files: Files, text: str, line: int, wanted: str) -> None:
    files.write("/a", text, **ANN)
    assert files.insert("/a", line, "x", **ANN).line == (line + 1 if line >= 0 else 3)
    assert files.read("/a", **ANN).content == wanted


def test_an_existing_file_is_replaced_only_if_that_was_asked(files: Files) -> None:
    files.write("/a", "one", if_exists="error", **ANN)
    with pytest.raises(FilePathError, match="exists"):
        files.write("/a", "two", if_exists="error", **ANN)
    files.delete("/a", **ANN)
    assert files.write("/a", "two", if_exists="error", **ANN).info.revision == 3


def test_quotas_count_revisions_and_refuse_without_a_trace(make_memory: Make, raw: Any, prefix: str) -> None:
    options = FileOptions(max_file_bytes=10, max_bytes=25, max_files=2, revisions=2)
    files = make_memory(files=options).files
    files.write("/a", "x" * 10, **ANN)
    call: Any
    for call, *words in ((files.write, "y" * 11), (files.edit, "x" * 10, "ü" * 6), (files.insert, 0, "y")):
        with pytest.raises(FileQuotaError, match=r"10 at most.*leave something out"):
            call("/a", *words, **ANN)
    files.write("/a", "y" * 10, **ANN)
    for call, word in ((files.write, "z" * 10), (files.rename, "/b")):
        with pytest.raises(FileQuotaError, match="with their revisions would have 30 bytes, 25 at most"):
            call("/a", word, **ANN)
    files.write("/b", "", **ANN)
    with pytest.raises(FileQuotaError, match="2 files, 2 at most"):
        files.write("/c", "", **ANN)
    files.write("/a", "z", **ANN)
    files.write("/a", "zz", **ANN)  # the oldest revision goes
    assert files.usage(**ANN).bytes == 13
    check_stored(raw, prefix, "ann", 2)
    files.delete("/a", **ANN)
    assert files.usage(**ANN).bytes == 3
    files.delete("/a", purge=True, **ANN)
    assert (files.usage(**ANN).files, files.usage(**ANN).bytes) == (1, 0)
    check_stored(raw, prefix, "ann", 2)


def test_an_owner_that_is_being_deleted_gets_no_files(files: Files, raw: Any, prefix: str) -> None:
    files.write("/a", "x", **ANN)
    raw.set(Keys(prefix).of_user("ann").files[0], "1")
    call: Any
    for call, *words in ((files.write, "y"), (files.rename, "/b"), (files.delete,)):
        with pytest.raises(UserDeletedError):
            call("/a", *words, **ANN)
    assert files.read("/a", **ANN).content == "x"
