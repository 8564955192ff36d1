"""`workingmem docs`: the documentation of the package, in a terminal, in a pipe, and for coding agents."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from langchain_workingmem.cli import app
from tests.cli.conftest import ended, read_all, started

DOCS = Path(__file__).parents[2] / "docs"
NOWHERE = "redis://127.0.0.1:1"  # nothing listens there


def run(*words: str, **environment: str) -> Any:
    return CliRunner().invoke(app, ["docs", *words], env={"REDIS_URL": NOWHERE, **environment})


def test_without_a_page_the_list_is_printed_as_it_is() -> None:
    done = run()
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == (DOCS / "llms.txt").read_text()


def test_a_page_is_printed_as_markdown() -> None:
    done = run("quickstart")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == (DOCS / "quickstart.md").read_text()


def test_the_reference_is_printed_with_signatures_and_docstrings() -> None:
    shown = run("reference/recall").stdout
    assert ":::" not in shown
    assert "    def search(\n" in shown
    assert "...  # async twin: asearch" in shown


@pytest.mark.parametrize(
    ("wanted", "title"),
    [
        ("how-to/agent", "Give an agent memory"),
        ("agent", "Give an agent memory"),
        ("agents", "Agents, graphs and chains"),
        ("how-to/agent.md", "Give an agent memory"),
        ("docs/how-to/Agent.md", "Give an agent memory"),
        ("how-to\\agent", "Give an agent memory"),
        ("../guide.md#history", "Threads, history and recall"),
        ("reference", "Reference"),
        ("reference/", "Reference"),
        ("several agents", "Several agents, one memory"),
        ("llms.txt", "langchain-workingmem"),
        ("", "langchain-workingmem"),
    ],
)
def test_a_page_is_found_by_what_people_and_links_call_it(wanted: str, title: str) -> None:
    assert run(wanted).stdout.splitlines()[0] == f"# {title}"


@pytest.mark.parametrize(
    ("wanted", "near"),
    [
        ("recal", "try recall"),
        ("rekall", "try recall"),
        ("how-to/agnet", "try how-to/agent"),
        ("migrat", "try how-to/migrating"),
        ("zzz", "zzz"),
    ],
)
def test_an_unknown_page_is_one_line_with_the_nearest_names(wanted: str, near: str) -> None:
    done = run(wanted)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert near in done.stderr
    assert "`workingmem docs` lists all pages" in done.stderr


@pytest.mark.parametrize("wanted", ["../../README", "/etc/passwd", "extensions/pages.py", "\x1b[31m", "x" * 5000])
def test_only_pages_are_shown(wanted: str) -> None:
    done = run(wanted)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "\x1b" not in done.stderr


def test_a_path_is_all_that_is_printed() -> None:
    assert run("--path").stdout == f"{DOCS}\n"
    assert run("redis", "--path").stdout == f"{DOCS / 'how-to/redis.md'}\n"


def test_lines_with_all_words_are_found_with_page_and_line() -> None:
    done = run("--search", "least SIMILARITY")
    assert done.exit_code == 0
    found = [line.split(":", 2) for line in done.stdout.splitlines()]
    assert found
    for page, number, line in found:
        assert run(page).stdout.splitlines()[int(number) - 1] == line.removeprefix(" ")
        assert "least" in line.lower()
        assert "similarity" in line.lower()


def test_a_search_can_stay_in_one_page() -> None:
    pages = {line.partition(":")[0] for line in run("--search", "Memory.embedded").stdout.splitlines()}
    assert len(pages) > 1
    inside = run("quickstart", "--search", "Memory.embedded").stdout.splitlines()
    assert {line.partition(":")[0] for line in inside} == {"quickstart"}


def test_nothing_found_is_one_line() -> None:
    done = run("--search", "xylophone")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "fewer words" in done.stderr
    assert json.loads(run("--search", "xylophone", "--format=json").stdout) == []


def test_programs_get_json() -> None:
    pages = json.loads(run("--format=json").stdout)
    assert [page["name"] for page in pages][:3] == ["index", "quickstart", "concepts"]
    assert {page["section"] for page in pages} >= {"Start", "How-to", "Reference"}
    assert all(Path(page["path"]).is_file() and page["about"] for page in pages)
    page = json.loads(run("concepts", "--format=json").stdout)
    assert page["text"] == run("concepts").stdout
    (first, *_) = json.loads(run("--search", "resource", "--format=json").stdout)
    assert set(first) == {"page", "line", "text"}


@pytest.mark.parametrize(
    "words",
    [("--path", "--open"), ("--path", "--search", "x"), ("--search", " ")],
    ids=" ".join,
)
def test_a_wrong_call_is_one_line(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.skipif(os.name != "posix" or not Path("/bin/sh").exists(), reason="a script stands for the viewer")
@pytest.mark.parametrize("code", [0, 3])
def test_the_viewer_of_the_system_opens_the_file(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("xdg-open", "open"):
        viewer = tmp_path / name
        viewer.write_text(f'#!/bin/sh\nprintf %s "$1" > "{tmp_path}/opened"\nexit {code}\n')
        viewer.chmod(viewer.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    done = run("tools", "--open")
    assert (tmp_path / "opened").read_text() == str(DOCS / "how-to/tools.md")
    assert done.exit_code == (1 if code else 0)
    assert ("no program opens" in done.stderr) is bool(code)


def test_a_terminal_shows_a_page_rendered_through_the_pager() -> None:
    process = started("docs", "concepts", terminal=True, PAGER="sed s/^/paged:/", TERM="xterm")
    shown = read_all(process)
    assert ended(process) == 0
    assert "paged:" in shown
    assert "\x1b[1m" in shown
    assert "# Concepts" not in shown
    assert "Threads and users" in shown


def test_a_terminal_shows_the_list_with_the_names_to_type() -> None:
    process = started("docs", terminal=True)
    shown = read_all(process)
    assert ended(process) == 0
    assert "how-to/agent " in shown
    assert "](" not in shown


def test_a_pager_that_ends_early_is_no_error() -> None:
    process = started("docs", "recall", terminal=True, PAGER="head -n 1")
    shown = read_all(process)
    assert ended(process) == 0
    assert "Traceback" not in shown


def test_a_reader_that_closes_the_pipe_ends_it_quietly() -> None:
    process = started("docs", "--search", "e")  # more than a pipe holds
    assert process.stdout
    assert process.stderr
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert ended(process) == 1


def test_letters_that_the_output_cannot_hold_are_escaped() -> None:
    process = started("docs", "reference/errors", fresh=True, PYTHONIOENCODING="latin-1")
    shown = read_all(process)
    assert ended(process) == 0
    assert "\\u251c" in shown
