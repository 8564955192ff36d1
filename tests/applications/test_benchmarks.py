"""What recall is measured with runs on a tiny input, and finds the evidence; figures are not judged here."""

from __future__ import annotations

import gzip
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

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


# what one user said, and a question whose evidence it is
SAID = {"id": "a0", "speaker": "Maya", "role": "user", "text": "My dog Nougat likes carrots."}
TOLD = {"id": "c", "user": "maya", "threads": [{"id": "a", "messages": [SAID]}]}
QUESTIONS = [{"id": "q", "question": "What does Nougat like?", "evidence_message_ids": ["a0"], "after_thread": 1}]
DATA = {"causal": True, "items": [{"conversation": TOLD, "questions": QUESTIONS}]}


def test_recall_quality_finds_the_evidence(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "tiny.json.gz"
    source.write_bytes(gzip.compress(json.dumps(DATA).encode()))
    lines = run("recall_quality.py", source).splitlines()
    assert [line.split(" | ")[:2] for line in lines[2:]] == [
        ["| tiny, 1", kind] for kind in ("semantic", "hybrid", "gain")
    ]
