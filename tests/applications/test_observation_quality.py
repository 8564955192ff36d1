"""The program that measures observations on conversations with questions, on conversations of our own."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from langchain_workingmem import chat_models
from langchain_workingmem.observations import reflecting
from tests.helpers.observers import Echo

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "observation_quality.py"
Run = Callable[..., dict[str, list[str]]]
RECALLED, ALONE, CITED, CALLS = 4, 2, 5, 6


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.syspath_prepend(SCRIPT.parent)

    def call(*arguments: object) -> dict[str, list[str]]:
        """Return the cells of each observer."""
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
        runpy.run_path(str(SCRIPT), run_name="__main__")
        rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line[:1] == "|"]
        return {name: [data, *cells] for data, name, *cells in rows[2:]}

    return call


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Talk of a user who names a fruit in the second sentence of an early message, and one in the first of the next."""
    said = []
    for at in range(30):
        filler = " ".join(f"Stone {at * 20 + number} is grey." for number in range(20))
        said.append({"id": f"q{at}", "speaker": "user", "role": "user", "text": f"Morning. {filler}"})
        said.append({"id": f"a{at}", "speaker": "assistant", "role": "assistant", "text": filler})
    said[0]["text"] = "Morning. We planted apricots behind the house."
    said[2]["text"] = "We planted strawberries behind the house."
    questions = [
        {"id": "1", "question": "Where did we plant the apricots?", "evidence_message_ids": ["q0"]},
        {"id": "2", "question": "Where are the strawberries?", "evidence_message_ids": ["q1"]},
    ]
    conversation = {"id": "c", "user": "maya", "threads": [{"id": "t", "messages": said}]}
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps({"items": [{"conversation": conversation, "questions": questions}]}))
    return path


@pytest.mark.nightly
def test_notes_count_where_they_have_the_words_of_the_evidence(run: Run, data: Path) -> None:
    table = run(data, "--budgets", 1400)
    assert list(table) == ["none", "blunt", "first sentence", "oracle"]
    assert table["none"][0] == "tiny, 2 questions, 1,400"
    shown = {name: float(cells[ALONE]) for name, cells in table.items()}
    assert shown == {"none": 0, "blunt": 0, "first sentence": 0.5, "oracle": 1}
    assert {float(table[name][CITED]) for name in ("blunt", "first sentence", "oracle")} == {1}
    assert float(table["none"][RECALLED]) == 1  # recall finds what is asked about
    assert int(table["oracle"][CALLS]) > 3
    tokens = [int(cells[at].replace(",", "")) for cells in table.values() for at in (1, 3)]
    assert max(tokens) <= 1410


def test_a_live_model_has_a_row_of_its_own(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"provider:echo": Echo()}
    monkeypatch.setattr(chat_models, "chat_model_by_name", made.__getitem__)
    echo = run(data, "--budgets", 1400, "--model", "provider:echo")["provider:echo"]
    assert float(echo[ALONE]) == 1
    assert int(echo[CALLS]) == made["provider:echo"].calls


@pytest.mark.nightly
def test_a_model_that_fails_ends_the_run(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing: Any = Echo(failure=ConnectionError("no route"))
    monkeypatch.setattr(reflecting, "FIRST_WAIT", 0)
    monkeypatch.setattr(chat_models, "chat_model_by_name", lambda _: failing)
    with pytest.raises(SystemExit, match=r"did not observe: .*ConnectionError"):
        run(data, "--budgets", 1400, "--model", "provider:down")


def test_without_a_key_or_data_it_says_so(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(SystemExit, match=r"Nothing is measured: model='openai:gpt-5-mini' cannot be made .* API key"):
        run(data, "--model", "openai:gpt-5-mini")
    with pytest.raises(SystemExit, match=r"There is no nowhere\.json\.gz: .*README"):
        run(data, "nowhere.json.gz")
