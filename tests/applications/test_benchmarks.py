"""Every benchmark runs on a tiny input and prints what it should; the figures themselves are not judged here."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from langchain_workingmem.embedded import chosen_engine

Run = Callable[..., str]
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a script as Python does, in this process, which has imported what most of its time would go into."""
    monkeypatch.syspath_prepend(BENCHMARKS)

    def call(script: str, *arguments: object) -> str:
        path = str(BENCHMARKS / script)
        monkeypatch.setattr(sys, "argv", [path, *map(str, arguments)])
        runpy.run_path(path, run_name="__main__")
        return capsys.readouterr().out

    return call


def rows(output: str) -> dict[str, list[str]]:
    """Read the Markdown tables: the first cell of each row, and the others."""
    cells = [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in output.splitlines() if line[:1] == "|"
    ]
    return {first: others for first, *others in cells}


def message(id: str, speaker: str, role: str, text: str) -> dict[str, str]:
    return {"id": id, "speaker": speaker, "role": role, "text": text}


def data_set(*, causal: bool) -> dict[str, Any]:
    """Two threads of one user, and questions whose evidence is one message each."""
    first = [
        message("a0", "Maya", "user", "My dog Nougat likes carrots."),
        message("a1", "Jon", "assistant", "Lovely!"),
    ]
    second = [message("b0", "Maya", "user", "We sail to Korcula in June."), message("b1", "Jon", "assistant", "Enjoy.")]
    threads = [{"id": "a", "messages": first}, {"id": "b", "messages": second}]
    questions = [
        {"id": "q1", "question": "Where do we sail in June?", "evidence_message_ids": ["b0"], "after_thread": 2},
        {"id": "q0", "question": "What does the dog Nougat like?", "evidence_message_ids": ["a0"], "after_thread": 1},
        {"id": "q2", "question": "Does Jon sail?", "evidence_message_ids": ["b0"], "category": "adversarial"},
    ]
    return {
        "causal": causal,
        "items": [{"conversation": {"id": "c", "user": "maya", "threads": threads}, "questions": questions}],
    }


@pytest.mark.parametrize(
    "causal", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["all at once", "causal"]
)
def test_recall_quality_finds_the_evidence(run: Run, tmp_path: Path, causal: bool) -> None:
    source = tmp_path / "tiny.json.gz"
    source.write_bytes(gzip.compress(json.dumps(data_set(causal=causal)).encode()))
    lines = run("recall_quality.py", source).splitlines()
    assert [line.split(" | ")[:2] for line in lines[2:]] == [
        ["| tiny, 2", "semantic"],
        ["| tiny, 2", "hybrid"],
        ["| tiny, 2", "gain"],
        ["| tiny, adversarial, 1", "semantic"],
        ["| tiny, adversarial, 1", "hybrid"],
        ["| tiny, adversarial, 1", "gain"],
    ]


SMALL = ("--batches", 2, "--calls", 2)


@pytest.mark.nightly
def test_a_turn_stands_beside_the_floor_and_another_checkout(run: Run, tmp_path: Path) -> None:
    shape = ("--users", 3, "--threads", 2, "--each", 50)
    output = run("turn.py", *shape, *SMALL, "--add", f"same={BENCHMARKS.parent}", "--profile", tmp_path)
    table = rows(output)
    assert all(float(cell) > 0 for cell in table["actx_hyb"][:4])
    assert re.fullmatch(r"\d+\.\d\d \[\d+\.\d\d, \d+\.\d\d\]", table["bulk"][4])
    assert table["milliseconds of processor time"][5] == "same / ours"
    assert {file.name for file in tmp_path.iterdir()} == {"ours.prof", "same.prof"}
    with pytest.raises(SystemExit, match=r"save: .* is above 0.1"):
        run("turn.py", *shape, *SMALL, "--rows", "save,search_hyb", "--bar", "save=0.1,search_hyb=99")


@pytest.mark.nightly
def test_the_store_stands_beside_its_bare_commands(run: Run) -> None:
    assert "search by vector and filter" in run("store.py", "--items", 300, "--rounds", 10)


@pytest.mark.nightly
def test_many_tasks_and_threads_are_served(run: Run) -> None:
    output = run(
        "concurrency.py", "--users", 2, "--messages", 20, "--turns", 8, "--dims", 8, "--tasks", 1, 4, "--threads", 2
    )
    assert list(rows(output)) == ["callers", "---", "1 tasks", "4 tasks", "2 threads"]


@pytest.mark.parametrize("number", [0, 2], ids=["the embedded one", "two that are named"])
@pytest.mark.nightly
def test_engines_have_a_row_for_each_number_type_that_they_know(run: Run, number: int) -> None:
    arguments = ("--users", 2, "--threads", 1, "--dims", 8, "--rounds", 3)
    output = run("engines.py", *[chosen_engine().binary] * number, *arguments)
    found = [line.strip("| ").split(" | ") for line in output.splitlines() if line.startswith("| ")]
    types = [cells[0].rpartition(", ")[2] for cells in found[2:]]
    assert types[:2] == ["float32", "float16"]
    assert len(types) + output.count("no vectors of int8, skipped") == 3 * (number or 1)
    assert {len(cells) for cells in found} == {10}
    assert all(float(cell.replace(",", "")) > 0 for cells in found[2:] for cell in cells[1:])
    assert "no vectors of float" not in output


@pytest.mark.filterwarnings("ignore")  # what other packages warn of is theirs
@pytest.mark.usefixtures("with_json")
@pytest.mark.nightly
def test_peers_stand_in_one_table_or_are_said_to_be_skipped(run: Run) -> None:
    output = run("peers.py", "--messages", 60, "--users", 2, "--rounds", 3)
    table = rows(output)
    assert table["Memory, hybrid"][2] == "2"  # round trips of a context
    assert table["Memory, hybrid"][7] == "1"  # of a save
    for module, name in (
        ("langchain_redis", "langchain-redis RedisChatMessageHistory"),
        ("langmem", "langmem tools over InMemoryStore"),
        ("redisvl", "redisvl SemanticMessageHistory"),
    ):
        there = importlib.util.find_spec(module) is not None
        assert (name in table) == there
        assert (f"{name}: not installed, skipped" in output) != there


@pytest.mark.nightly
def test_scaling_writes_figures_that_plots_can_draw(run: Run, tmp_path: Path) -> None:
    figures = tmp_path / "scaling.json"
    output = run("scaling.py", "--most", 1000, *SMALL, "--axis", "thread", "--out", figures)
    assert rows(output)["100 to 1,000, ours / floor"]
    images = run("plots.py", "--figures", tmp_path, "--images", tmp_path / "images").split()
    assert [Path(image).name for image in images] == ["scaling-thread.svg"]
    for image in images:
        assert Path(image).read_text().count("<polyline") == 6


@pytest.mark.nightly
def test_scaling_fails_where_ours_grows_faster_than_the_floor(run: Run) -> None:
    with pytest.raises(SystemExit, match=r"thread length of a user .*: context.* grew .* as much as the floor"):
        run("scaling.py", "--most", 1000, *SMALL, "--axis", "thread", "--bar", "0.01")


@pytest.mark.nightly
def test_imports_are_counted_beside_what_they_need(run: Run) -> None:
    needed = "`from langchain_core.messages import AIMessage; import redis, pydantic`"
    table = rows(run("imports.py", "--rounds", 1, "--before", BENCHMARKS.parent))
    ours = table["`from langchain_workingmem import Memory; Memory()`"]
    assert ours[2] == needed
    assert int(table["`import numpy`"][1]) > 0
    assert float(table["first context"][0]) > float(table["second context"][0])
    assert len(table["whole process"]) == len(table["`from langchain_workingmem import Memory`, and before"]) == 3


def test_every_script_is_in_the_index_and_says_what_it_does() -> None:
    index = (BENCHMARKS / "README.md").read_text()
    for script in sorted(BENCHMARKS.glob("*.py")):
        assert f"`{script.name}`" in index
        assert script.read_text().startswith('"""')


@pytest.mark.nightly
def test_prefix_measures_what_stays_from_turn_to_turn(run: Run, tmp_path: Path) -> None:
    said = [message(f"m{at}", "Maya", "user" if at % 2 == 0 else "assistant", f"words {at} " * 40) for at in range(24)]
    data = {"items": [{"conversation": {"id": "c", "user": "maya", "threads": [{"id": "a", "messages": said}]}}]}
    source = tmp_path / "tiny.json"
    source.write_text(json.dumps(data))
    lines = run("prefix.py", source).splitlines()
    of_all = {line.split(" | ")[1]: float(line.split(" | ")[2]) for line in lines[1:]}
    assert of_all["the whole history"] > of_all["exactly the last 10"]
