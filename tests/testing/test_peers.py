"""The runner of the suites of peers: what it finds, installs and says, and what its plug-in puts into their tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers.__main__ import HERE, main, pins, place_of
from tests.peers.suites import SUITES, Suite

pytestmark = pytest.mark.programs
CHECKPOINT, DEEPAGENTS = (
    next(suite for suite in SUITES if suite.name == name) for name in ("langgraph-checkpoint", "deepagents")
)
SUITE = """
import socket
import pytest
from langgraph.store.memory import InMemoryStore

@pytest.fixture
def kept():
    return made()

def made():
    store = InMemoryStore()
    store.put(("a",), "k", {"n": 1})
    return store

class Keeper:
    def get(self):
        return made().get(("a",), "k")

def test_itself():
    assert type(InMemoryStore()).__bases__[0].__name__ == "RedisMemoryStore"

def test_by_a_fixture(kept):
    assert kept.get(("a",), "k").value == {"n": 1}

def test_by_a_class():
    assert Keeper().get() is not None

def test_a_store_of_its_own():
    assert InMemoryStore().search(()) == []
    with pytest.raises(OSError, match="without a network"):
        socket.getaddrinfo("models.example", 443)

def test_none():
    assert False
"""


def checkout(folder: Path, suite: Suite, version: str) -> Path:
    place = folder / suite.folder
    (place / "tests").mkdir(parents=True)
    (place / "pyproject.toml").write_text(f'[project]\nname = "{suite.name}"\nversion = "{version}"\n')
    return place


def test_a_checkout_is_found_by_itself_and_in_a_folder(tmp_path: Path) -> None:
    langgraph = checkout(tmp_path / "langgraph", CHECKPOINT, "4.3.2")
    assert place_of(CHECKPOINT, tmp_path) == place_of(CHECKPOINT, tmp_path / "langgraph") == langgraph
    assert place_of(DEEPAGENTS, tmp_path) is None


def test_versions_are_those_of_the_checkout_unless_ours_needs_newer_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = {CHECKPOINT: checkout(tmp_path / "old", CHECKPOINT, "4.2.0")}
    new = {CHECKPOINT: checkout(tmp_path / "new", CHECKPOINT, "4.3.2")}
    assert pins(new | {DEEPAGENTS: checkout(tmp_path, DEEPAGENTS, "0.7.8")}) == [
        "langgraph-checkpoint==4.3.2",
        "deepagents==0.7.8",
    ]
    assert pins(old) == []
    assert "langgraph-checkpoint 4.2.0 is older" in capsys.readouterr().out


@pytest.mark.parametrize("words", [(), ("",), ("missing",), (".", "no such suite")])
def test_without_a_checkout_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(*words) == 2
    said = capsys.readouterr().err
    assert "make peer-tests CHECKOUT=" in said
    assert "git clone" in said


def plugged_in(folder: Path, peer: str) -> subprocess.CompletedProcess[str]:
    (folder / "tests").mkdir()
    (folder / "tests/__init__.py").touch()
    (folder / "tests/test_store.py").write_text(SUITE)
    unused = [
        word
        for name in ("benchmark", "codspeed", "langsmith_plugin", "recording", "syrupy", "xdist")
        for word in ("-p", f"no:{name}")
    ]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        *unused,
        "-p",
        "peer_plugin",
        "-p",
        "store_plugin",
        "--peer",
        peer,
        "tests",
    ]
    variables = {**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parents[1]}"}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.nightly
def test_tests_that_make_a_store_run_on_ours_and_no_others_without_a_network(tmp_path: Path) -> None:
    done = plugged_in(tmp_path, "langgraph-prebuilt")
    assert "4 passed, 1 deselected" in done.stdout, done.stdout
    assert "| langgraph-prebuilt | 4 | 0 | 0 | 0 |" in done.stdout


@pytest.mark.nightly
def test_an_expected_failure_that_is_no_test_is_an_error(tmp_path: Path) -> None:
    done = plugged_in(tmp_path, "langgraph-checkpoint-sqlite")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "expected.toml names what is no test of langgraph-checkpoint-sqlite" in done.stderr + done.stdout
