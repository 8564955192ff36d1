"""Help, wrong calls, the forms of output, and what is imported for them."""

from __future__ import annotations

import csv
import io
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from typer.testing import CliRunner

from langchain_workingmem import Memory
from langchain_workingmem.cli import app
from langchain_workingmem.cli.main import COMMANDS
from langchain_workingmem.cli.streams import _cells
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import MADE, Run
from tests.cli.test_program import commands

NOT_FOR_HELP = {"langchain_core", "redis", "rich.console", "langchain_workingmem.memory", "langchain_workingmem.models"}
NOT_FOR_THREADS = {"langchain", "langgraph.graph", "jsonschema", "numpy", "tqdm", "langchain_workingmem.embedded"}
LOADED = """
import sys
from langchain_workingmem.cli import app
def call(*words):
    app(list(words), standalone_mode=False)
    print("loaded:", *sys.modules, flush=True)
call("--help")
call("threads", "--help")
call("threads", "--url", *sys.argv[1:])
"""


def names_of(told: str) -> list[set[str]]:
    return [set(line.split()) for line in told.splitlines() if line.startswith("loaded:")]


def test_help_and_listing_import_little(talked: Memory, server: EmbeddedRedis, prefix: str) -> None:
    """Processor time is measured by benchmarks/imports.py; here are the modules that it comes from."""
    command = [sys.executable, "-c", LOADED, server.url, "--key-prefix", prefix]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    help, of_command, listing = names_of(done.stdout)
    assert help & NOT_FOR_HELP == of_command & NOT_FOR_HELP == set()
    assert listing & NOT_FOR_THREADS == set()
    assert {f"langchain_workingmem.cli.{name}" for name in ("chat", "servers", "user_data")} & listing == set()
    assert "A dog" in done.stdout


def every_command() -> Iterator[tuple[str, Any]]:
    yield from commands(MADE(app))


def test_help_fits_eighty_columns_and_a_line_stands_for_each_command() -> None:
    shown = CliRunner().invoke(app, [], env={"COLUMNS": "80"}).stdout
    assert shown == CliRunner().invoke(app, ["--help"], env={"COLUMNS": "300"}).stdout
    for section, those in COMMANDS.items():
        assert f"\n{section}:\n" in shown
        assert all(f"  {name} " in shown and f"  {about}\n" in shown for name, (_, about) in those.items())
    for name, _ in every_command():
        told = CliRunner().invoke(app, [*name.split()[1:], "--help"], env={"COLUMNS": "80"}).stdout
        assert max(map(len, told.splitlines())) <= 80, name
        assert "<" not in told.partition("Options:")[0], name  # a type where a word should be
        words = [word.strip("[]") for word in told.splitlines()[0].split() if word.strip("[]").isupper()]
        assert len(set(words)) == len(words), name  # two arguments of one name


def examples() -> Iterator[list[str]]:
    made: Any = MADE(app)
    groups = [getattr(one, "made", one) for one in made.commands.values()]
    for command in [made, *groups, *(one for _, one in every_command())]:
        for line in (command.help or "").replace("\\\n", "").splitlines():
            if line.startswith("    ") and "workingmem" in line:
                words = shlex.split(line, comments=True)
                start = words.index("workingmem")
                ends = [at for at, word in enumerate(words) if word in {"|", ">", "<"} and at > start]
                yield words[start + 1 : min(ends, default=len(words))]


def test_every_example_of_the_help_is_a_call_that_parses() -> None:
    seen = set()
    for words in examples():
        command, rest, path = MADE(app), words, "workingmem"
        while hasattr(command, "commands"):
            path, command, rest = f"{path} {rest[0]}", command.commands[rest[0]], rest[1:]
            command = getattr(command, "made", command)
        command.make_context(path, [*rest])
        seen.add(path.split()[1])
    assert {name for those in COMMANDS.values() for name in those} - seen == set()


@pytest.mark.parametrize(
    "words",
    [
        "threads --limit 0",
        "threads --limit many",
        "threads --format yaml",
        "threads --order-by size",
        "threds",
        "--nope",
        "show",
        "recall dog --resource maya --threshold 2",
        "recall dog --resource maya --since noon",
        "recall dog",
        "tail",
        "threads --timezone Mars/Base",
        "recall dog --resource maya --metadata {",
        "threads --url http://localhost",
        "studio --namespace .",
    ],
)
def test_a_wrong_value_is_one_line_and_exit_code_2(run: Run, talked: Memory, words: str) -> None:
    done = run(*words.split(), **({"REDIS_URL": None} if "--url" in words else {}))
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith("workingmem: ")


# ---------------------------------------------------------------------- forms of output


def test_entries_are_lines_of_json_or_csv(run: Run, talked: Memory) -> None:
    whole = json.loads(run("threads", "--format", "json").stdout)["items"]
    assert [json.loads(line) for line in run("threads", "--format", "jsonl").stdout.splitlines()] == whole
    rows = list(csv.DictReader(io.StringIO(run("threads", "--format", "csv").stdout)))
    assert [row["id"] for row in rows] == [one["id"] for one in whole]
    assert [rows[at]["title"] for at, one in enumerate(whole) if one["id"] == "dog"] == ["A dog"]
    said = list(csv.DictReader(io.StringIO(run("show", "dog", "--format", "csv").stdout)))
    assert [(row["role"], row["text"]) for row in said] == [
        ("user", "My dog is called Nougat."),
        ("assistant", "Hello Nougat!"),
    ]
    found = [json.loads(line) for line in run("doctor", "--format", "jsonl").stdout.splitlines()]
    assert {"check", "level", "message", "remedy"} == set(found[0])
    (one,) = run("working-memory", "get", "--resource", "maya", "--format", "jsonl").stdout.splitlines()
    assert json.loads(one)["text"] == ""


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_a_cell_of_csv_is_no_formula(run: Run, outside: Memory, begin: str) -> None:
    outside.threads.create(thread_id="trip", resource_id=f"{begin}maya", title=f"{begin}title")
    outside.history.append(
        [HumanMessage(f"{begin}1+1", name=f"{begin}n")], thread_id="trip", resource_id=f"{begin}maya"
    )
    for words, number in ((["users"], 1), (["threads"], 2), (["show", "trip"], 2)):
        found = run(*words, "--format", "csv").stdout
        (row,) = csv.DictReader(io.StringIO(found))
        assert sum(cell.startswith("'") for cell in row.values()) == number
        assert not [cell for cell in row.values() if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]


def test_numbers_of_csv_stay_numbers() -> None:
    assert _cells({"score": -0.5, "id": "-0.5", "none": None}) == {"score": "-0.5", "id": "'-0.5", "none": ""}


def test_json_has_no_inner_fields(run: Run, talked: Memory) -> None:
    page = json.loads(run("show", "dog", "--format", "json").stdout)["messages"]
    assert set(page["items"][0]) == {"message", "thread_id", "seq", "stored_at", "superseded"}
    found = json.loads(run("recall", "dog", "--resource", "maya", "--format", "json").stdout)
    assert set(found) == {"hits", "rows", "silent"}
    state = json.loads(run("working-memory", "get", "--resource", "maya", "--format", "json").stdout)
    assert set(state) == {"value", "text", "revision", "updated_at", "is_empty", "origin", "template"}


def test_a_row_is_one_line_in_a_pipe(run: Run, talked: Memory) -> None:
    talked.threads.update("boat", title="A boat " * 11)
    talked.history.append([("user", "word " * 100)], thread_id="boat", resource_id="jonas")
    for words in (["threads"], ["recall", "word", "--resource", "jonas"]):
        shown = run(*words, COLUMNS=None).stdout.splitlines()
        assert any(len(line) > 85 for line in shown)
        assert all(line == line.rstrip() for line in shown)
    assert any("A boat " * 10 in line for line in run("threads", COLUMNS=None).stdout.splitlines())
    wrapped = run("threads", COLUMNS="80").stdout.splitlines()
    assert max(map(len, wrapped)) <= 80


def test_users_are_listed(run: Run, talked: Memory) -> None:
    rows = [json.loads(line) for line in run("users", "--format", "jsonl").stdout.splitlines()]
    assert {row["resource_id"]: (row["threads"], row["messages"]) for row in rows} == {"maya": (2, 4), "jonas": (1, 2)}
    first = run("users", "--limit", "1")
    assert "jonas" in first.stdout
    assert "--cursor" in first.stderr
    assert "maya" in run("users", *first.stderr.split()[-2:]).stdout


# ---------------------------------------------------------------------- completion


def completed(run: Run, line: str, **environment: str) -> list[str]:
    words = {"_WORKINGMEM_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    done = run(prog_name="workingmem", **words, **environment)
    assert done.stderr == ""
    return str(done.stdout).split()


def test_a_shell_completes_commands_and_ids(run: Run, talked: Memory, prefix: str) -> None:
    where = f"--key-prefix {prefix}"
    assert completed(run, "workingmem th") == ["threads"]
    assert {*completed(run, f"workingmem show {where} ")} == {"dog", "trip", "boat"}
    assert completed(run, f"workingmem recall x {where} --resource maya --thread d") == ["dog"]
    assert completed(run, f"workingmem forget {where} j") == ["jonas"]
    assert completed(run, f"workingmem show {where} ", REDIS_URL="redis://127.0.0.1:1") == []


@pytest.mark.parametrize("id", ["two words", "$(reboot)", "a;b", "o'hara", '"', "a\\b", "--yes", "=ls", "~", "a*"])
def test_an_id_that_a_shell_would_read_is_not_completed(run: Run, talked: Memory, prefix: str, id: str) -> None:
    talked.save_turn([("user", "hello")], thread_id=id, resource_id=id)
    where = f"--key-prefix {prefix}"
    assert {*completed(run, f"workingmem show {where} ")} == {"dog", "trip", "boat"}
    assert {*completed(run, f"workingmem forget {where} ")} == {"maya", "jonas"}


def test_ids_of_any_language_are_completed(run: Run, talked: Memory, prefix: str) -> None:
    talked.save_turn([("user", "hello")], thread_id="Müller:1/a@b.ch", resource_id="maya")
    assert completed(run, f"workingmem show --key-prefix {prefix} M") == ["Müller:1/a@b.ch"]
