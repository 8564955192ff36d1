"""The program as a whole: help, wrong calls, forms of output, which memory, time zones."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory
from langchain_workingmem.cli import app
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.importers import header
from tests.cli.conftest import EVIL, Run
from tests.helpers.embeddings import WordEmbeddings

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def commands(command: Any, name: str = "workingmem") -> Iterator[tuple[str, Any]]:
    for word, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{name} {word}")
    if not hasattr(command, "commands"):
        yield name, command


def test_every_command_and_option_is_documented() -> None:
    for name, command in commands(typer.main.get_command(app)):
        assert name in PAGE
        options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
        assert [option for option in options if option not in PAGE] == []


@pytest.mark.parametrize(
    "words", ["threads --limit 0", "threads --format yaml", "threds", "show", "recall dog", "recall dog --since noon"]
)
def test_a_wrong_call_is_exit_code_2(run: Run, words: str) -> None:
    done = run(*words.split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words", ["threads", "doctor", "export --user maya", "recall x --user maya", "mcp --user maya --read-only"]
)
def test_reading_makes_no_memory(run: Run, tmp_path: Path, words: str) -> None:
    found = run(*words.split(), REDIS_URL=None)
    assert found.exit_code == 1
    assert "begin with `workingmem chat`" in found.stderr
    assert not list(tmp_path.iterdir())
    assert "no memory in" in run(*words.split(), "--dir", str(tmp_path / "typo")).stderr
    assert not list(tmp_path.iterdir())


def test_a_directory_goes_before_the_environment(run: Run, tmp_path: Path) -> None:
    place = ("--dir", str(tmp_path / "new"))
    assert run("import", "-", *place, input=json.dumps(header("maya"))).exit_code == 0
    assert "0 in all" in run("threads", *place).stdout


def test_on_an_empty_database_every_command_says_what_helps(run: Run, tmp_path: Path) -> None:
    for words in ("users", "threads", "recall dog --user maya"):
        found = run(*words.split(), "--format", "json")
        assert found.exit_code == 0
        assert not any(json.loads(found.stdout).values())
        assert "Nothing is stored here yet" in found.stderr
        assert "workingmem chat" in found.stderr
    found = run("export", "--user", "maya", "-o", str(tmp_path / "maya.jsonl"))
    assert (found.exit_code, found.stdout) == (1, "")
    assert "Nothing is stored here yet" in found.stderr
    assert not (tmp_path / "maya.jsonl").exists()
    assert run("forget", "--user", "maya", "--yes").stdout == "deleted: nothing\n"


def test_a_password_is_never_shown(run: Run) -> None:
    for words in (["export", "--user", "maya"], ["import", "-"]):
        found = run(*words, REDIS_URL="redis://ann:hunter2@127.0.0.1:1", input="{}")
        assert found.exit_code == 1
        assert "cannot be reached" in found.stderr
        assert "hunter2" not in found.output


ITS_USER = ["--user", EVIL]


@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize(
    "words",
    [["threads"], ["show", "--thread", "evil"], ["recall", "owned", *ITS_USER], ["working-memory", "get", *ITS_USER]],
    ids=lambda words: words[0],
)
def test_what_people_wrote_is_text(run: Run, outside: Memory, words: list[str], form: str) -> None:
    outside.threads.create(user_id=EVIL, thread_id="evil", title=EVIL, metadata={"key": EVIL})
    outside.save_turn([HumanMessage(f"owned {EVIL}")], thread_id="evil", user_id=EVIL)
    assert run("working-memory", "set", f"one {EVIL}", "--user", EVIL).exit_code == 0
    found = run(*words, "--format", form)
    assert found.exit_code == 0
    assert "[red]" in found.stdout
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(found.output)


def test_times_are_utc_or_those_of_the_option(run: Run, talked: Memory) -> None:
    times = {}
    for zone in ("UTC", "Asia/Tokyo"):
        shown = run("show", "--thread", "dog", "--timezone", zone).stdout
        assert f"time ({zone})" in shown
        times[zone] = int(re.findall(r"(\d\d):\d\d +user", shown)[0])
    assert (times["Asia/Tokyo"] - times["UTC"]) % 24 == 9
    assert "time (UTC)" in run("show", "--thread", "dog").stdout
    found = run("threads", "--timezone", "Mars")
    assert (found.exit_code, found.stdout) == (1, "")
    assert "--timezone is 'Mars': use an IANA name" in found.stderr


@pytest.mark.parametrize("given", [None, "Asia/Kathmandu"])
def test_a_program_has_its_zone_unless_the_option_names_one(
    run: Run, server: EmbeddedRedis, prefix: str, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    program = ModuleType("program_of_walks")
    memory = Memory(server.url, key_prefix=prefix, timezone="Asia/Tokyo", embeddings=WordEmbeddings())
    vars(program)["memory"] = memory
    monkeypatch.setitem(sys.modules, program.__name__, program)
    words = () if given is None else ("--timezone", given)
    memory.save_turn([("user", "Hello"), ("assistant", "Hi")], thread_id="t", user_id="maya")
    assert run("recall", "hello", "--user", "maya", "--memory", "program_of_walks:memory", *words).exit_code == 0
    assert memory._core.state.timezone == (given or "Asia/Tokyo")
