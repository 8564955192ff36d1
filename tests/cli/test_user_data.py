"""`import`, `export`, `forget`, `backfill`."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, messages_to_dict

from langchain_workingmem import Memory, users
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.importers import header
from tests.cli.conftest import EVIL, Run, ended, read_until, started

QUESTION = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["Where is Oslo?"]}}
NODE: Any = {"message": {"id": "q", "create_time": 1715594000.5, **QUESTION}, "parent": None, "children": []}
TIMES = {"create_time": 1715594000.5, "update_time": 1715594003.0}
CHATGPT = [{"conversation_id": "6641e2", "title": "Oslo", **TIMES, "current_node": "q", "mapping": {"q": NODE}}]
LANGCHAIN = messages_to_dict([HumanMessage("Where is Oslo?")])


def test_an_export_comes_back(run: Run, talked: Memory, tmp_path: Path) -> None:
    path = tmp_path / "maya.jsonl"
    path.write_text("an older export")
    assert run("export", "--user", "maya", "-o", str(path), "--vectors").stdout == ""
    assert sorted(tmp_path.iterdir()) == [path]
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()].count("message") == 4
    assert run("export", "--user", "maya").stdout.splitlines()[0] == path.read_text().splitlines()[0]
    deleted = run("forget", "--user", "maya", "--yes")
    assert (deleted.exit_code, deleted.stdout) == (0, "deleted: threads 2, messages 4, vectors 4\n")
    assert "verified: no key of Redis names 'maya' any more" in deleted.stderr
    assert "memory.users.delete(..., checkpointer=...)" in deleted.stderr
    assert json.loads(run("forget", "--user", "maya", "--yes", "--format=json").stdout)["checkpoints"] == "not asked"
    assert "maya" not in run("threads").stdout
    assert run("import", str(path)).stdout == "imported: threads 2, messages 4\n"
    again = json.loads(run("import", "-", "--format=json", input=path.read_text()).stdout)
    assert (again["messages"], again["skipped"]) == (0, 4)
    assert "Nougat" in run("recall", "dog", "--user", "maya").stdout


def test_an_export_is_safe_to_look_at(run: Run, outside: Memory) -> None:
    outside.save_turn([HumanMessage(f"ö {EVIL}\u2028\ud800\U000e0041")], thread_id="t", user_id="maya")
    found = run("export", "--user", "maya").stdout
    assert found.isascii()
    assert not {"\x1b", "\x07"} & set(found)
    said = [json.loads(line) for line in found.splitlines() if '"message"' in line]
    assert outside.history.messages("t")[0].text in [
        one.get("message", {}).get("data", {}).get("content") for one in said
    ]


def test_an_export_that_fails_leaves_the_older_one(run: Run, talked: Memory, tmp_path: Path) -> None:
    path = tmp_path / "maya.jsonl"
    path.write_text("an older export")
    assert run("export", "--user", "maya", "-o", str(path), REDIS_URL="redis://127.0.0.1:1").exit_code == 1
    assert "No such file" in run("export", "--user", "maya", "-o", str(tmp_path / "no" / "folder")).stderr
    assert path.read_text() == "an older export"
    assert sorted(tmp_path.iterdir()) == [path]


def test_histories_of_other_programs(run: Run, outside: Memory, tmp_path: Path) -> None:
    said = [{"role": "user", "content": "Where is Oslo?"}]
    for format, content, name, thread_id, more in (
        ("chatgpt", json.dumps(CHATGPT), "c.json", "6641e2", []),
        ("langchain", json.dumps({"keyed": LANGCHAIN}), "k.json", "keyed", []),
        ("langchain", json.dumps(LANGCHAIN), "l.json", "bare", ["--thread", "bare"]),
        ("openai", json.dumps({"id": "lines", "messages": said}) + "\n", "o.jsonl", "lines", []),
        ("openai", json.dumps({"mine": said}), "o.json", "mine", []),
    ):
        path = tmp_path / name
        path.write_text(content)
        words = ["import", str(path), "--from", format, *more]
        assert run(*words).exit_code == 2  # whose is it?
        assert run(*words, "--user", "maya").stdout == "imported: threads 1, messages 1\n"
        assert [message.text for message in outside.history.messages(thread_id)] == ["Where is Oslo?"]


def test_a_file_that_cannot_be_read_says_why(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content, format, reason in (
        ('{"kind": "header"\n', None, "line 1 is not JSON"),
        ('{"kind": "message"}\n', None, "record 1"),
        ("{}", "chatgpt", "is of type dict"),
        ("5", "langchain", "threads is of type int"),
        ('[{"type": "human", "content": "hi"}]', "langchain", "thread 0 has no thread_id"),
        ("[5]", "openai", "conversation 0 is not of OpenAI's form"),
    ):
        path.write_text(content)
        found = run("import", str(path), *(["--from", format, "--user", "maya"] if format else []))
        assert (found.exit_code, found.stdout) == (1, "")
        assert reason in found.stderr
    for path, seen in ((tmp_path / "missing", "No such file"), (tmp_path, "Is a directory")):
        assert f"{path} cannot be used: {seen}" in run("import", str(path)).stderr


@pytest.mark.parametrize(("answer", "code", "left"), [("", 3, 2), ("y", 0, 0)])
def test_nothing_is_forgotten_without_a_yes(
    run: Run, talked: Memory, server: EmbeddedRedis, prefix: str, answer: str, code: int, left: int
) -> None:
    refused = run("forget", "--user", "maya")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "pass --yes" in refused.stderr
    assert talked.threads.list(user_id="maya").total == 2
    program = started("forget", "--user", "maya", "--key-prefix", prefix, terminal=True, REDIS_URL=server.url)
    read_until(program, "[y/N]")
    assert program.stdin
    program.stdin.write(f"{answer}\n")
    read_until(program, "deleted: threads 2" if answer == "y" else "Nothing was changed.")
    assert ended(program) == code
    assert talked.threads.list(user_id="maya").total == left


def test_a_deletion_that_is_not_verified_fails(run: Run, talked: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "LOOKS", 1)  # which finds something
    found = run("forget", "--user", "maya", "--yes")
    assert (found.exit_code, found.stdout) == (1, "deleted: threads 2, messages 4, vectors 4\n")
    assert "call this again" in found.stderr
    assert run("forget", "--user", "maya", "--yes").exit_code == 0


def test_ctrl_c_ends_quietly(server: EmbeddedRedis, prefix: str) -> None:
    program = started("import", "-", "--key-prefix", prefix, REDIS_URL=server.url)
    assert program.stdin
    program.stdin.write(json.dumps(header("maya")) + "\n")
    program.stdin.write("\n" * 100_000)  # it reads, and waits for more
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=20)
    assert "Traceback" not in errors
    assert program.returncode == 130


# ---------------------------------------------------------------------- backfill

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

@contextmanager
def opened():
    yield saver

def owner(metadata):
    return "user " + metadata["user_id"] if metadata.get("user_id") == "bob" else None

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
    assert (first.exit_code, first.stderr[:11]) == (0, "skipped 1: ")
    assert first.stdout.startswith("stored: threads 2, messages 2")
    assert outside.recall.search("cat", user_id="7").hits[0].message.text == "my cat is Molly"
    outside.threads.transfer("boat", user_id="bob", to="somebody")
    again = run("backfill", f"{program}:saver", "--owner", "user_id", "--format=json")
    assert [*json.loads(again.stdout)["left"]] == ["boat"]
    assert "left boat: thread 'boat' does not belong to user 'bob'" in again.stderr


def test_owners_by_a_function_and_vectors_later(run: Run, outside: Memory, program: str) -> None:
    words = ("backfill", f"{program}:opened", "--owner", f"{program}:owner", "--thread", "boat")
    assert "threads 1, messages 1" in run(*words, "--embeddings", "none").stdout
    assert not outside.recall.search("boat", user_id="user bob").hits
    assert run("reindex").exit_code == 0
    assert outside.recall.search("boat", user_id="user bob").hits
    one_owner = ("--user", "all", "--memory", f"{program}:memory")
    assert run("backfill", f"{program}:saver", *one_owner, REDIS_URL=None).exit_code == 0
    assert outside.threads.list(user_id="all").total == 2


def test_mistakes_of_a_backfill(run: Run, program: str) -> None:
    for words, code, said in (
        ([f"{program}:saver"], 2, "pass --owner, or"),
        ([f"{program}:nothing", "--owner", "user_id"], 1, "failed: AttributeError"),
        (["no_such_module:saver", "--owner", "user_id"], 1, "No module named"),
        ([f"{program}:__name__", "--owner", "user_id"], 1, "checkpointer is of type str: pass the checkpointer"),
    ):
        failed = run("backfill", *words)
        assert failed.exit_code == code
        assert said in failed.stderr
