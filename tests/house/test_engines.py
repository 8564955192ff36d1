"""Where the redis-server is of an engine that `make test-engines` is given."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from tests.engines import UnusableError, main, server_of
from tests.helpers.embedded import executable


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    executable(tmp_path / "redis-9/bin/redis-server", "echo 9")
    return tmp_path / "redis-9"


@pytest.fixture
def archive(directory: Path, tmp_path: Path) -> Path:
    path = tmp_path / "redis-9-linux.tar.xz"
    with tarfile.open(path, "w:xz") as files:
        files.add(directory, directory.name)
    return path


def test_a_server_and_its_directory_are_used_where_they_are(directory: Path) -> None:
    assert server_of(directory) == server_of(directory / "bin/redis-server") == directory / "bin/redis-server"


def test_an_archive_is_unpacked_once(archive: Path, tmp_path: Path) -> None:
    server = server_of(archive, tmp_path / "engines")
    assert server.is_relative_to(tmp_path / "engines")
    assert os.access(server, os.X_OK)
    server.write_text("still there")
    assert server_of(archive, tmp_path / "engines").read_text() == "still there"


def test_an_archive_that_has_changed_is_unpacked_again(archive: Path, tmp_path: Path) -> None:
    server = server_of(archive, tmp_path / "engines")
    server.write_text("old")
    later = server.parents[2].stat().st_mtime + 1
    os.utime(archive, (later, later))
    assert server_of(archive, tmp_path / "engines").read_text() != "old"
    assert [path.name for path in (tmp_path / "engines").iterdir()] == ["redis-9-linux"]


def test_what_holds_no_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableError, match="is no engine"):
        server_of(tmp_path)


def test_a_damaged_archive_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    damaged = tmp_path / "redis-9.tar.xz"
    damaged.write_bytes(b"no archive")
    with pytest.raises(UnusableError, match="cannot be unpacked"):
        server_of(damaged, tmp_path / "engines")
    assert list((tmp_path / "engines").iterdir()) == []


def test_an_engine_that_cannot_be_used_is_one_line_and_exit_code_2(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("no program")
    other = executable(tmp_path / "other", "echo 9")
    for engines, seen in (
        ([], "no engine was given"),
        ([tmp_path / "none"], "none does not exist"),
        ([tmp_path], "is no engine"),
        ([tmp_path / "text"], "text does not run"),
        ([other], "other does not run"),
    ):
        assert main(*map(str, engines), "--", "--version") == 2
        out, told = capfd.readouterr()
        assert (out, told.count("\n")) == ("", 1)
        assert seen in told
