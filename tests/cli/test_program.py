"""The program as a whole."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unicodedata import category

import pytest
import typer.main
from typer.testing import CliRunner

from langchain_workingmem.cli import app
from langchain_workingmem.cli.streams import dumps
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import Run

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def commands(command: Any, name: str = "workingmem") -> Iterator[tuple[str, Any]]:
    command = getattr(command, "made", command)
    if subcommands := getattr(command, "commands", None):
        for word, subcommand in subcommands.items():
            yield from commands(subcommand, f"{name} {word}")
    else:
        yield name, command


def test_every_command_and_option_is_documented() -> None:
    for name, command in commands(typer.main.get_command(app)):
        assert name in PAGE
        options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
        assert [option for option in options if option not in PAGE] == []


def test_version_and_help() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == version("langchain-workingmem") + "\n"
    assert CliRunner().invoke(app, ["frobnicate"]).exit_code == 2


@pytest.mark.parametrize("words", [["threads"], ["doctor"], ["export", "maya"], ["recall", "x", "--resource", "maya"]])
def test_reading_makes_no_memory(run: Run, tmp_path: Path, words: list[str]) -> None:
    found = run(*words, REDIS_URL=None)
    assert found.exit_code == 1
    assert "begin with `workingmem chat`" in found.stderr
    assert not list(tmp_path.iterdir())
    assert "no memory in" in run(*words, "--dir", str(tmp_path / "typo")).stderr
    assert not list(tmp_path.iterdir())


# Joiners, hyphens, marks of direction, and the signs of single scripts.
_OF_SCRIPTS = {
    chr(one)
    for one in (
        *(0xAD, *range(0x600, 0x606), 0x61C, 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x180E, *range(0x200C, 0x2010)),
        *(0x110BD, 0x110CD, *range(0x13430, 0x13440)),
    )
}


def test_json_hides_no_more_than_a_picture_does() -> None:
    kinds = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    signs = [one for one in map(chr, range(sys.maxunicode + 1)) if category(one) in kinds]
    written = dumps({"signs": signs, "harmless": "Grüße, 漢字, 👩‍👩‍👧"}, indent=2)
    assert {one for one in written if category(one) in kinds} == {"\n", *signs} & {"\n", *_OF_SCRIPTS}
    assert json.loads(written)["signs"] == signs
    assert "Grüße, 漢字, 👩‍👩‍👧" in written


def test_a_memory_is_in_one_place(run: Run, tmp_path: Path) -> None:
    found = run("threads", "--url", "redis://localhost", "--dir", str(tmp_path))
    assert found.exit_code == 2
    assert "pass one of them" in found.stderr


def test_a_directory_goes_before_the_environment(run: Run, tmp_path: Path) -> None:
    made = run(
        "import",
        "-",
        "--dir",
        str(tmp_path / "new"),
        input='{"kind": "header", "format": "langchain-workingmem", "version": 1, "resource_id": "maya"}',
    )
    assert made.exit_code == 0
    assert (tmp_path / "new").is_dir()
    assert "0 in all" in run("threads", "--dir", str(tmp_path / "new")).stdout


def test_a_server_without_indexes_says_so(run: Run) -> None:
    for words, code in ((["threads"], 0), (["recall", "x", "--resource", "maya"], 1)):
        found = run(*words)
        assert found.exit_code == code
        assert found.stderr.count("\n") == 1
        assert "create_index" not in found.stderr
        assert "`workingmem reindex`" in found.stderr
    nobody = run("forget", "maya", "--yes")
    assert (nobody.exit_code, nobody.stdout) == (1, "deleted: nothing\n")
    assert "nothing is stored for resource 'maya'" in nobody.stderr
    unlisted = run("forget", "maya").stderr
    assert "cannot be listed" in unlisted
    assert "create_index" not in unlisted
    assert "0 messages" in run("reindex").stdout
    assert "0 in all" in run("threads").stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_behind_standard_output_is_one_line(server: EmbeddedRedis) -> None:
    words = [sys.executable, "-m", "langchain_workingmem.cli", "doctor", "--url", server.url]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert (
        done.stderr.strip().splitlines()[-1] == "workingmem: standard output cannot be written: No space left on device"
    )
    assert "Traceback" not in done.stderr
