"""`observe`, and `observations`: list, sources, delete, clear."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from html import unescape
from types import ModuleType
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import Memory, ObservationOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import Run
from tests.helpers.models import ModelDownError, Scripted

TRIP = ["--thread", "trip"]


def notes(messages: Sequence[BaseMessage]) -> str:
    """Write what an observer may answer: a note about each message of the user."""
    said = re.findall(r'<message n="(\d+)" role="user"[^>]*>(.*?)</message>', str(messages[-1].text), re.DOTALL)
    return "\n".join(f"! [{number}] The user says: {unescape(words)}" for number, words in said)


@pytest.fixture
def program(server: EmbeddedRedis, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Make a program whose model plays a script; without one it takes notes. Return the option that names its memory."""

    def make(*script: Any) -> list[str]:
        options = ObservationOptions(model=Scripted.says(*(script or [notes] * 99)), keep_tokens=0, background=False)
        module = ModuleType("program_of_huts")
        vars(module)["make"] = lambda: Memory(server.url, key_prefix=prefix, observations=options)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return ["--memory", "program_of_huts:make"]

    return make


@pytest.fixture
def huts(outside: Memory) -> Memory:
    """Two threads of Maya's and one of Jonas's; the last question of each has no answer yet."""
    for thread, user in (("trip", "maya"), ("hut", "maya"), ("boat", "jonas")):
        for number in range(6):
            said = [
                HumanMessage(f"{thread} {number}: a hut near Cortina", id=f"{thread}-{number}"),
                AIMessage("Noted."),
            ]
            outside.save_turn(said[: 1 if number == 5 else 2], thread_id=thread, user_id=user)
    return outside


def texts(run: Run, thread: str) -> list[str]:
    found = run("observations", "list", "--thread", thread, "--format=json")
    return [one["text"] for one in json.loads(found.stdout)["observations"]]


def observed(thread: str) -> list[str]:
    """Return the notes of a thread of which all but the present turn is observed."""
    return [f"The user says: {thread} {number}: a hut near Cortina" for number in range(5)]


def test_a_thread_is_observed_once(run: Run, huts: Memory, program: Callable[..., list[str]]) -> None:
    shown = run("observe", "trip", *program())
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert texts(run, "trip") == observed("trip")
    assert texts(run, "hut") == []
    assert run("observe", "trip", *program("nothing that could be used")).exit_code == 0
    assert texts(run, "trip") == observed("trip")


def test_all_threads_are_observed(run: Run, huts: Memory, program: Callable[..., list[str]]) -> None:
    count = json.loads(run("observe", "--user", "maya", *program(), "--format=json").stdout)
    assert count == {"threads": 2, "failed": {}}
    assert (texts(run, "trip"), texts(run, "boat")) == (observed("trip"), [])
    assert run("observe", "--all", *program()).exit_code == 0
    assert texts(run, "boat") == observed("boat")


def test_a_model_by_name(run: Run, huts: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Scripted.says(notes)
    monkeypatch.setattr("langchain_workingmem.memory.chat_model_by_name", lambda _: model)
    assert run("observe", "trip", "--model", "any:model").exit_code == 0


def test_a_model_that_fails_changes_nothing_and_the_others_are_observed(
    run: Run, huts: Memory, program: Callable[..., list[str]]
) -> None:
    failed = run("observe", "--all", *program(*[ModelDownError("overloaded")] * 3, notes, notes), "--format=json")
    assert failed.exit_code == 1
    assert [*json.loads(failed.stdout)["failed"]] == ["trip"]
    assert "the messages stay as they are" in failed.stderr
    assert (texts(run, "trip"), texts(run, "boat")) == ([], observed("boat"))


def test_a_wrong_call_says_so(run: Run, huts: Memory) -> None:
    for words in ([], ["trip", "--all"], ["--all", "--user", "maya"]):
        assert run("observe", *words, "--model", "any:model").exit_code == 2
    assert run("observe", "trip").exit_code == 2
    assert run("observe", "trip", "--model", "any:model", "--memory", "a:b").exit_code == 2
    missing = run("observe", "nope", "--model", "openai:any", OPENAI_API_KEY="a key")
    assert missing.exit_code == 1
    assert "no thread 'nope'" in missing.stderr


def test_a_log_is_listed_and_has_its_sources(run: Run, huts: Memory, program: Callable[..., list[str]]) -> None:
    run("observe", "trip", *program())
    assert "The user says: trip 0: a hut near Cortina" in run("observations", "list", *TRIP).stdout
    assert "trip 0: a hut" in run("observations", "sources", "1", *TRIP).stdout


def test_deleting_asks_first(run: Run, huts: Memory, program: Callable[..., list[str]]) -> None:
    run("observe", "trip", *program())
    for words in (["delete", "2"], ["clear"]):
        refused = run("observations", *words, *TRIP)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "pass --yes" in refused.stderr
    assert texts(run, "trip") == observed("trip")
    assert run("observations", "delete", "2", *TRIP, "--yes").exit_code == 0
    assert len(texts(run, "trip")) == 4
    assert run("observations", "clear", *TRIP, "--yes").exit_code == 0
    assert texts(run, "trip") == []


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["list"], 2, "pass --user"),
        (["list", "--thread", "nope"], 1, "no thread 'nope'"),
        (["list", "--user", "jonas", *TRIP], 1, "does not belong"),
        (["sources", "99", *TRIP], 1, "no observation '99'"),
        (["delete", "99", *TRIP], 1, "no observation '99'"),
    ],
)
def test_a_mistake_says_what_to_do(run: Run, huts: Memory, words: list[str], code: int, reason: str) -> None:
    failed = run("observations", *words)
    assert (failed.exit_code, failed.stdout) == (code, "")
    assert reason in failed.stderr
