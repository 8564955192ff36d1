"""Every benchmark runs on a tiny input and prints what it should; the figures themselves are not judged here."""

from __future__ import annotations

import gzip
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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


# two threads of one user, and questions whose evidence is one message each
SAID = {"a": ("My dog Nougat likes carrots.", "Lovely!"), "b": ("We sail to Korcula in June.", "Enjoy.")}
QUESTIONS = [
    {"id": "q1", "question": "Where do we sail in June?", "evidence_message_ids": ["b0"], "after_thread": 2},
    {"id": "q0", "question": "What does the dog Nougat like?", "evidence_message_ids": ["a0"], "after_thread": 1},
    {"id": "q2", "question": "Does Jon sail?", "evidence_message_ids": ["b0"], "category": "adversarial"},
]


def data_set() -> dict[str, Any]:
    threads = [
        {
            "id": id,
            "messages": [
                {"id": f"{id}0", "speaker": "Maya", "role": "user", "text": said},
                {"id": f"{id}1", "speaker": "Jon", "role": "assistant", "text": answer},
            ],
        }
        for id, (said, answer) in SAID.items()
    ]
    conversation = {"id": "c", "user": "maya", "threads": threads}
    return {"causal": True, "items": [{"conversation": conversation, "questions": QUESTIONS}]}


def test_recall_quality_finds_the_evidence(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "tiny.json.gz"
    source.write_bytes(gzip.compress(json.dumps(data_set()).encode()))
    lines = run("recall_quality.py", source).splitlines()
    kinds = ("semantic", "hybrid", "gain")
    expected = [[data, kind] for data in ("| tiny, 2", "| tiny, adversarial, 1") for kind in kinds]
    assert [line.split(" | ")[:2] for line in lines[2:]] == expected


SMALL = ("--batches", 2, "--calls", 2)
# what each script prints, run with so little
CASES: dict[str, tuple[tuple[object, ...], str]] = {
    "turn.py": (("--users", 3, "--threads", 2, "--each", 50, *SMALL, "--add", f"same={BENCHMARKS.parent}"), "actx_hyb"),
    "store.py": (("--items", 300, "--rounds", 10), "search by vector and filter"),
    "concurrency.py": (
        ("--users", 2, "--messages", 20, "--turns", 8, "--dims", 8, "--tasks", 1, 4, "--threads", 2),
        "2 threads",
    ),
    "engines.py": (("--users", 2, "--threads", 1, "--dims", 8, "--rounds", 3), "float16"),
    "scaling.py": (("--most", 1000, *SMALL, "--axis", "thread"), "100 to 1,000, ours / floor"),
    "imports.py": (("--rounds", 1), "whole process"),
    "peers.py": (("--messages", 60, "--users", 2, "--rounds", 3), "Memory, hybrid"),
}


@pytest.mark.filterwarnings("ignore")  # what other packages warn of is theirs
@pytest.mark.usefixtures("with_json")
@pytest.mark.nightly
@pytest.mark.parametrize("script", CASES)
def test_a_script_prints_its_table(run: Run, script: str) -> None:
    arguments, words = CASES[script]
    assert words in run(script, *arguments)


@pytest.mark.nightly
def test_what_grows_faster_than_its_bar_fails(run: Run) -> None:
    with pytest.raises(SystemExit, match=r"grew .* as much as the floor"):
        run("scaling.py", "--most", 1000, *SMALL, "--axis", "thread", "--bar", "0.01")
