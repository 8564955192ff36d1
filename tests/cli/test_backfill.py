"""`backfill`: the conversations of a checkpointer that a program names."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from langchain_workingmem import Memory
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import Run

PROGRAM = """
from contextlib import contextmanager
from langchain_core.messages import HumanMessage
from langchain_workingmem import Memory
from langgraph.checkpoint.memory import InMemorySaver
from tests.helpers.checkpoints import put_states

saver = InMemorySaver()
put_states(saver, "cat", [[HumanMessage("my cat is Molly", id="m")]], user_id=7)
put_states(saver, "boat", [[HumanMessage("my boat is Kestrel", id="m")]], user_id="bob")
put_states(saver, "nobody's", [[HumanMessage("hello", id="m")]])

def make():
    print("a program may print")
    return saver

@contextmanager
def opened():
    yield saver

def owner(metadata):
    return "user " + metadata["user_id"] if metadata.get("user_id") == "bob" else None

def broken():
    raise KeyError("no database")

def memory():
    return Memory({url!r}, key_prefix={prefix!r})
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: EmbeddedRedis, prefix: str) -> Iterator[str]:
    """The name of a module in the current folder."""
    name = f"program_{prefix}"
    (tmp_path / f"{name}.py").write_text(PROGRAM.format(url=server.url, prefix=prefix))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield name
    sys.modules.pop(name, None)


def test_threads_of_a_checkpointer_are_stored(run: Run, outside: Memory, program: str) -> None:
    first = run("backfill", f"{program}:saver", "--owner", "user_id")
    said = "stored: 2 threads, 2 messages; known before: 0, without owner or messages: 1, left: 0\n"
    assert (first.exit_code, first.stdout, first.stderr) == (0, said, "")
    assert outside.recall.search("cat", resource_id="7").hits[0].message.text == "my cat is Molly"
    outside.threads.transfer("boat", resource_id="bob", to="somebody")
    again = run("backfill", f"{program}:make", "--owner", "user_id", "--format=json")
    report = json.loads(again.stdout)
    assert (report["known"], report["messages"], [*report["left"]]) == (1, 0, ["boat"])
    assert "left boat: thread 'boat' does not belong to resource 'bob'" in again.stderr


def test_owners_by_a_function_and_vectors_later(run: Run, outside: Memory, program: str) -> None:
    words = ("backfill", f"{program}:opened", "--owner", f"{program}:owner", "--thread", "boat")
    done = run(*words, "--embeddings", "none")
    assert "stored: 1 thread, 1 message" in done.stdout
    assert "run `workingmem reindex`" in done.stderr
    assert outside.threads.list(resource_id="user bob").total == 1
    assert not outside.recall.search("boat", resource_id="user bob").hits
    assert run("reindex").exit_code == 0
    assert outside.recall.search("boat", resource_id="user bob").hits


def test_the_memory_of_the_program(run: Run, outside: Memory, program: str, prefix: str) -> None:
    done = run("backfill", f"{program}:saver", "--resource", "all", "--memory", f"{program}:memory", REDIS_URL=None)
    assert "stored: 3 threads, 3 messages" in done.stdout, done.stderr
    assert outside.threads.list(resource_id="all").total == 3


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["{}:saver"], 2, "pass --owner, or --resource"),
        (["{}:saver", "--owner", "user_id", "--resource", "ann"], 2, "one of them"),
        (["{}:nothing", "--owner", "user_id"], 1, "failed: AttributeError"),
        (["no_such_module:saver", "--owner", "user_id"], 1, "set PYTHONPATH"),
        (["{}:broken", "--owner", "user_id"], 1, "backfill"),
        (["{}:PROGRAM", "--owner", "user_id"], 1, "pass MODULE:NAME of a checkpointer"),
        (["{}:owner", "--owner", "user_id"], 1, "pass MODULE:NAME of a checkpointer"),
        (["{}:saver", "--owner", "{}:saver"], 1, "is of type InMemorySaver"),
        (["{}:__name__", "--owner", "user_id"], 1, "checkpointer is of type str: pass the checkpointer"),
    ],
)
def test_mistakes_end_in_one_line(run: Run, program: str, words: list[str], code: int, said: str) -> None:
    failed = run("backfill", *(word.format(program) for word in words))
    assert failed.exit_code == code
    assert said in failed.stderr
    assert failed.stderr.count("\n") == 1
