"""The backend of deepagents, called as its middleware calls it. Its own tests run on ours by `make peer-tests`."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from deepagents.backends.protocol import BackendProtocol

from langchain_workingmem import Memory
from langchain_workingmem.adapters.deepagents import FilesBackend
from langchain_workingmem.errors import IdError, OptionError
from langchain_workingmem.options import FileOptions
from tests.helpers.faces import AsyncFace
from tests.helpers.types import Make

pytestmark = pytest.mark.in_turn("face")


@pytest.fixture
def backend(plain: Memory, face: str, loop_runner: asyncio.Runner) -> FilesBackend:
    return of(plain, face, loop_runner, user_id="ann")


def of(memory: Memory, face: str, runner: asyncio.Runner, **options: Any) -> FilesBackend:
    real = getattr(memory, "_target", memory)
    made = FilesBackend(real, **options)
    return made if face == "sync" else cast("FilesBackend", AsyncFace(made, runner))


def test_every_method_of_the_protocol_is_ours() -> None:
    theirs = {name for name in vars(BackendProtocol) if not name.startswith("_")}
    assert theirs <= set(vars(FilesBackend)), theirs - set(vars(FilesBackend))


def test_lines_are_read_as_deepagents_asks(backend: FilesBackend) -> None:
    backend.write("/a.md", "one\ntwo\nthree\n")
    found = backend.read("/a.md", 1, 1)
    assert found.file_data is not None
    assert found.file_data["content"] == "two\n"
    assert (found.start_line, found.next_offset) == (2, 2)
    assert backend.read("/a.md", 9).error == "Line offset 9 exceeds file length (3 lines)"
    assert backend.read("/no.md").error == "File '/no.md' not found"
    backend.write("/clip.MKV", "a text")
    assert backend.read("/clip.MKV", 9).file_data["content"] == "a text"  # type: ignore[index]


def test_bytes_go_in_and_out_as_they_are(backend: FilesBackend) -> None:
    given = [("/a.bin", b"\xff\x00"), ("/a.txt", "ä".encode()), ("/../x", b"")]
    assert [one.error for one in backend.upload_files(given)] == [None, None, "invalid_path"]
    assert backend.read("/a.bin").file_data["encoding"] == "base64"  # type: ignore[index]
    assert "holds bytes" in str(backend.edit("/a.bin", "a", "b").error)
    found = backend.download_files(["/a.bin", "/a.txt", "/", "/no"])
    assert [one.content for one in found] == [b"\xff\x00", "ä".encode(), None, None]
    assert [one.error for one in found] == [None, None, "is_directory", "file_not_found"]


def test_an_edit_tells_how_often_or_why_not(backend: FilesBackend) -> None:
    backend.write("/a.md", "old, old end")
    for given, says in (
        (("old", "new"), "Error: '/a.md': 'old' appears 2 times"),
        (("no", "new"), "Error: '/a.md': 'no' is not in it"),
        (("", "new"), "Error: old is empty: pass the text to replace, or write a new file"),
        (("old", "old"), "Error: old and new are the same"),
    ):
        result = backend.edit("/a.md", *given)
        assert (result.error or "").startswith(says)
        assert result.path is None
    assert backend.read("/a.md").file_data["content"] == "old, old end"  # type: ignore[index]
    assert backend.edit("/a.md", "old", "new", replace_all=True).occurrences == 2
    assert backend.edit("/no.md", "a", "b").error == "Error: File '/no.md' not found"


def test_paths_without_a_slash_are_of_the_root(backend: FilesBackend) -> None:
    assert backend.write("*", "a star").path == "*"
    backend.write("/a.md", "a")
    assert [one["path"] for one in backend.ls("").entries or []] == ["/*", "/a.md"]
    assert backend.edit("*", "star", "moon").error is None
    assert backend.delete("*").path == "*"
    assert [one["path"] for one in backend.glob("*", "").matches or []] == ["/a.md"]


def test_searches_name_what_they_find_the_newest_first(backend: FilesBackend) -> None:
    for path in ("/a.md", "/src/b.py", "/src/deep/c.py"):
        backend.write(path, f"TODO in {path}\nTODO")
    backend.edit("/a.md", "TODO in", "To do in")
    assert [one["path"] for one in backend.glob("*").matches or []] == ["/a.md", "/src/deep/c.py", "/src/b.py"]
    assert backend.glob("**/../x").error
    assert [one["path"] for one in backend.ls("/src").entries or []] == ["/src/b.py", "/src/deep/"]
    found = backend.grep("TODO", "/src", "*.py", max_count=3)
    assert found.truncated
    lines = [(one["path"], one["line"]) for one in found.matches or []]
    assert lines == [("/src/b.py", 1), ("/src/b.py", 2), ("/src/deep/c.py", 1)]
    assert not backend.grep("TODO", max_count=5).truncated
    assert [one["line"] for one in backend.grep("TODO", "/src/b.py", "*.py").matches or []] == [1, 2]
    assert backend.grep("TODO", "/src/b.py", "*.md").matches == []
    assert "holds '..'" in str(backend.grep("TODO", "/../x").error)
    assert backend.grep("").matches == []


def test_what_does_not_fit_is_told_and_nothing_is_written(
    make_memory: Make, face: str, loop_runner: asyncio.Runner
) -> None:
    memory = make_memory(files=FileOptions(max_file_bytes=4))
    backend = of(memory, face, loop_runner, user_id="ann")
    assert "4 at most" in (backend.write("/a", "12345").error or "")
    assert "4 at most" in (backend.upload_files([("/a", b"12345")])[0].error or "")
    assert backend.write("/a", "1234").error is None
    assert "is below '/a', which is a file" in (backend.write("/a/b", "1").error or "")
    assert "4 at most" in (backend.edit("/a", "4", "45").error or "")
    assert backend.read("/a").file_data["content"] == "1234"  # type: ignore[index]


def test_without_a_run_or_an_owner_there_are_no_files(plain: Memory, face: str, loop_runner: asyncio.Runner) -> None:
    with pytest.raises(IdError):
        of(plain, face, loop_runner).ls("/")
    with pytest.raises(OptionError, match="by="):
        of(plain, face, loop_runner, user_id="ann", by="a\nb")
