"""`import`, `export`, `forget`, `merge`, `delete-messages`."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, messages_to_dict

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import EVIL, Run, ended, read_until, started

CHATGPT = [
    {
        "conversation_id": "6641e2",
        "title": "Oslo",
        "create_time": 1715594000.5,
        "update_time": 1715594003.0,
        "current_node": "q",
        "mapping": {
            "q": {
                "message": {
                    "id": "q",
                    "author": {"role": "user"},
                    "create_time": 1715594000.5,
                    "content": {"content_type": "text", "parts": ["Where is Oslo?"]},
                },
                "parent": None,
                "children": [],
            }
        },
    }
]
HEADER = b'{"kind": "header", "format": "langchain-workingmem", "version": 1, "resource_id": "maya"}\n'
LANGCHAIN = messages_to_dict([HumanMessage("Where is Oslo?")])


def test_an_export_comes_back(run: Run, talked: Memory, tmp_path: Path) -> None:
    path = tmp_path / "maya.jsonl"
    path.write_text("an older export")
    assert run("export", "maya", "-o", str(path), "--vectors").stdout == ""
    assert sorted(tmp_path.iterdir()) == [path]
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()].count("message") == 4
    assert run("export", "maya").stdout.splitlines()[0] == path.read_text().splitlines()[0]
    deleted = run("forget", "maya", "--yes")
    assert (deleted.exit_code, deleted.stdout) == (0, "deleted: 2 threads, 4 messages, 4 vectors\n")
    assert "verified: no key of Redis names 'maya' any more" in deleted.stderr
    assert "Checkpoints of LangGraph stay" in deleted.stderr
    assert "memory.users.delete(..., checkpointer=...)" in deleted.stderr
    assert json.loads(run("forget", "maya", "--yes", "--format=json").stdout)["checkpoints"] == "not asked"
    assert "maya" not in run("threads").stdout
    packed = tmp_path / "maya.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert run("import", str(packed)).stdout == "imported: 2 threads, 4 messages\n"
    again = json.loads(run("import", "-", "--format=json", input=path.read_text()).stdout)
    assert (again["messages"], again["skipped"]) == (0, 4)
    assert "Nougat" in run("recall", "dog", "--resource", "maya").stdout


def test_an_export_is_safe_to_look_at(run: Run, outside: Memory) -> None:
    outside.save_turn([HumanMessage(f"ö {EVIL}\u2028\x7f\ud800\U000e0041")], thread_id="t", resource_id="maya")
    found = run("export", "maya")
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u2028", "\x7f", "\U000e0041"} & set(found.stdout)
    said = json.loads(found.stdout.splitlines()[-2])["message"]["data"]["content"]
    assert said == outside.history.messages("t")[0].text
    assert "ö" in found.stdout


def test_an_export_that_fails_leaves_the_older_one(run: Run, talked: Memory, tmp_path: Path) -> None:
    path = tmp_path / "maya.jsonl"
    path.write_text("an older export")
    unknown = run("export", "nobody", "-o", str(path))
    assert unknown.exit_code == 1
    assert "nothing is stored for resource 'nobody'" in unknown.stderr
    assert path.read_text() == "an older export"
    assert "No such file" in run("export", "maya", "-o", str(tmp_path / "no" / "folder")).stderr
    assert "directory" in run("export", "maya", "-o", str(tmp_path)).stderr
    assert sorted(tmp_path.iterdir()) == [path]


def test_histories_of_other_programs(run: Run, outside: Memory, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    for format, content, thread_id, more in (
        ("chatgpt", CHATGPT, "6641e2", []),
        ("langchain", {"keyed": LANGCHAIN}, "keyed", []),
        ("langchain", LANGCHAIN, "bare", ["--thread", "bare"]),
    ):
        path.write_text(json.dumps(content))
        words = ["import", str(path), "--from", format, *more]
        assert run(*words).exit_code == 2  # whose is it?
        assert run(*words, "--resource", "maya").stdout == "imported: 1 thread, 1 message\n"
        assert [message.text for message in outside.history.messages(thread_id)] == ["Where is Oslo?"]


def test_logs_of_openai(run: Run, outside: Memory, tmp_path: Path) -> None:
    path = tmp_path / "logs"
    said = [{"role": "user", "content": "Where is Oslo?"}]
    for content, more, report in (
        (f'{json.dumps(said)}\n\n{{"messages": {json.dumps(said)}}}\n', [], "2 threads, 2 messages"),
        (json.dumps({"messages": said}), [], "1 skipped"),
        (json.dumps({"input": "Where is Oslo?", "output": []}, indent=2), [], "1 skipped"),
        (json.dumps([said, {"id": "named", "messages": said}]), [], "1 thread, 1 message, 1 skipped"),
        (json.dumps({"keyed": said}), [], "1 thread, 1 message"),
        (json.dumps(said), ["--thread", "bare"], "1 thread, 1 message"),
    ):
        path.write_text(content)
        words = ["import", str(path), "--from", "openai", "--embeddings", "none", *more]
        assert run(*words).exit_code == 2  # whose is it?
        assert run(*words, "--resource", "maya").stdout == f"imported: {report}\n"
    for id in ("named", "keyed", "bare"):
        assert [message.text for message in outside.history.messages(id)] == ["Where is Oslo?"]


@pytest.mark.parametrize("cut", [-2, -40])  # characters: the end of the last line, or half of it
def test_an_export_that_was_cut_is_refused(run: Run, talked: Memory, cut: int) -> None:
    words, exported = ("import", "-", "--embeddings", "none"), run("export", "maya").stdout
    run("forget", "maya", "--yes")
    lines = exported.splitlines(keepends=True)
    found = run(*words, input="".join(lines[:-1]) + lines[-1][:cut] * (cut == -40))
    assert found.exit_code == 1
    assert "export again" in found.stderr
    assert talked.threads.list(resource_id="maya").total == 0


def test_messages_may_wait_for_their_vectors(run: Run, talked: Memory) -> None:
    exported = run("export", "maya").stdout
    run("forget", "maya", "--yes")
    found = run("import", "-", "--embeddings", "none", input=exported)
    assert "reindex" in found.stderr
    assert "4 messages" in run("reindex").stdout


@pytest.mark.parametrize(
    ("content", "words", "reason"),
    [
        (b"", [], "no record"),
        (b'{"kind": "header"\n', [], "line 1 is not JSON"),
        (b'{"kind": "message"}\n', [], "record 1"),
        (json.dumps(CHATGPT).encode(), [], "record 1"),
        (b"[" * 100_000, [], "is not JSON"),
        (b"\xff\xfe{", [], "is not UTF-8"),
        (
            HEADER + b'{"kind": "working_memory", "document": "x", "revision": ' + b"9" * 5000 + b"}",
            [],
            "line 2 is not JSON",
        ),
        (HEADER + b'{"kind": "item", "namespace": 5}', [], "record 2: namespace: "),
        (HEADER + b'{"kind": "message", "thread_id": null}', [], "record 2: thread_id: "),
        (HEADER + b"5", [], "record 2: the record is of type int"),
        (HEADER + b"\xff", [], "is not UTF-8"),
        (b"{}", ["--from", "chatgpt", "--resource", "maya"], "is of type dict"),
        (b"[[]]", ["--from", "chatgpt", "--resource", "maya"], "conversation 0 is not a valid"),
        (
            b'[{"id": "c", "create_time": 1e300}]',
            ["--from", "chatgpt", "--resource", "maya"],
            "conversation 0 is not a valid",
        ),
        (
            b'{"t": [{"type": "ai", "data": 5}]}',
            ["--from", "langchain", "--resource", "maya"],
            "thread 't', message 0",
        ),
        (b"[]", ["--from", "langchain", "--resource", "maya"], "pass --thread"),
        (b'[{"role": "user"}]', ["--from", "openai", "--resource", "maya"], "pass --thread"),
        (b"[5]", ["--from", "openai", "--resource", "maya"], "conversation 0 is not of OpenAI's form"),
        (b"[]\n{", ["--from", "openai", "--resource", "maya"], "line 2 is not JSON"),
        (b'{"t": 5}', ["--from", "langchain", "--resource", "maya"], "thread 't' is of type int"),
        (b'{"t": {"type": "human"}}', ["--from", "langchain", "--resource", "maya"], "thread 't' is of type dict"),
        (b'{"t": [{"type": "human"}]}', ["--from", "langchain", "--resource", "maya"], "thread 't', message 0"),
    ],
)
def test_a_file_that_cannot_be_read(run: Run, tmp_path: Path, content: bytes, words: list[str], reason: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    found = run("import", str(path), *words)
    assert (found.exit_code, found.stdout) == (1, "")
    assert reason in found.stderr
    assert found.stderr.count("\n") == 1


def test_no_file(run: Run, tmp_path: Path) -> None:
    assert "No such file" in run("import", str(tmp_path / "missing")).stderr
    assert "directory" in run("import", str(tmp_path)).stderr


def test_nothing_is_forgotten_without_a_yes(run: Run, talked: Memory, server: EmbeddedRedis, prefix: str) -> None:
    with Memory(server.url, key_prefix=prefix, working_memory=WorkingMemoryOptions()) as memory:
        memory.working_memory.update("Has a dog.", resource_id="maya")
    refused = run("forget", "maya")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "2 threads with 4 messages, and working memory at revision 1" in refused.stderr
    assert "pass --yes" in refused.stderr
    assert talked.threads.list(resource_id="maya").total == 2


@pytest.mark.parametrize(("answer", "code", "left"), [("", 3, 2), ("y", 0, 0)])
def test_a_person_is_asked(
    talked: Memory, server: EmbeddedRedis, prefix: str, answer: str, code: int, left: int
) -> None:
    program = started("forget", "maya", "--key-prefix", prefix, terminal=True, REDIS_URL=server.url)
    assert "no working memory" in read_until(program, "[y/N]")
    assert program.stdin
    program.stdin.write(f"{answer}\n")
    read_until(program, "deleted: 2 threads" if answer == "y" else "Nothing was changed.")
    assert ended(program) == code
    assert talked.threads.list(resource_id="maya").total == left


def test_what_a_store_holds_goes_along(run: Run, outside: Memory, server: EmbeddedRedis, prefix: str) -> None:
    from langchain_workingmem.store import RedisMemoryStore

    with RedisMemoryStore(server.url, key_prefix=prefix) as store:
        store.put(("memories", "maya"), "pet", {"name": "Nougat"})
        words = ["maya", "--namespace", "memories.{user_id}"]
        exported = run("export", *words).stdout
        assert json.loads(exported.splitlines()[-2])["value"] == {"name": "Nougat"}
        assert run("forget", *words, "--yes").stdout == "deleted: 1 item\n"
        assert store.get(("memories", "maya"), "pet") is None
        assert "--namespace 'memories.{user_id}'" in run("import", "-", input=exported).stderr
        assert run("import", "-", *words[1:], input=exported).stdout == "imported: 1 item\n"
        assert store.get(("memories", "maya"), "pet") is not None


def test_a_working_memory_that_is_too_large_needs_leave(run: Run, outside: Memory) -> None:
    at = "2020-01-01T00:00:00+00:00"
    record = {"kind": "working_memory", "document": "x" * 70_000, "revision": 1, "updated_at": at, "origin": "update"}
    lines = HEADER.decode() + json.dumps(record)
    refused = run("import", "-", input=lines)
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert "document has 70,000 bytes" in refused.stderr
    assert "pass --max-bytes" in refused.stderr
    assert run("import", "-", "--max-bytes", "70000", input=lines).stdout == "imported: 1 working memory\n"


def test_nobody_is_there(talked: Memory, server: EmbeddedRedis, prefix: str) -> None:
    words = [sys.executable, "-m", "langchain_workingmem.cli", "forget", "maya", "--key-prefix", prefix]
    shell = ["sh", "-c", 'exec "$@" <&- >&-', "sh", *words, "--url", server.url]
    assert subprocess.run(shell, stderr=subprocess.DEVNULL, check=False).returncode == 2
    assert talked.threads.list(resource_id="maya").total == 2


def test_a_reader_that_has_enough_is_no_error(server: EmbeddedRedis, prefix: str, outside: Memory) -> None:
    messages: list[Any] = [HumanMessage("many words " * 500, id=f"{at}") for at in range(60)]
    outside.save_turn(messages, thread_id="t", resource_id="maya")
    program = started("export", "maya", "--key-prefix", prefix, REDIS_URL=server.url)
    assert program.stdout
    assert program.stderr
    program.stdout.readline()
    program.stdout.close()
    assert program.stderr.read() == ""
    assert ended(program) == 1


def test_ctrl_c_ends_quietly(server: EmbeddedRedis, prefix: str) -> None:
    program = started("import", "-", "--key-prefix", prefix, REDIS_URL=server.url)
    assert program.stdin
    program.stdin.write('{"kind": "header", "format": "langchain-workingmem", "version": 1, "resource_id": "maya"}\n')
    program.stdin.write("\n" * 100_000)  # it reads, and waits for more
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=20)
    assert "Traceback" not in errors
    assert program.returncode == 130


def test_a_password_is_never_shown(run: Run) -> None:
    for words in (["export", "maya"], ["import", "-"]):
        found = run(*words, REDIS_URL="redis://ann:hunter2@127.0.0.1:1", input="{}")
        assert found.exit_code == 1
        assert "cannot be reached" in found.stderr
        assert "hunter2" not in found.output


# ---------------------------------------------------------------------- merge


def test_a_guest_becomes_a_user(run: Run, talked: Memory, server: EmbeddedRedis, prefix: str) -> None:
    with Memory(server.url, key_prefix=prefix, working_memory=WorkingMemoryOptions()) as memory:
        memory.working_memory.update("# User information\n- **First name**: M.", resource_id="maya")
        memory.working_memory.update("# User information\n- **First name**:", resource_id="anna")
        memory.threads.create(resource_id="anna", thread_id="hers")
        refused = run("merge", "maya", "--into", "anna")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "2 threads with 4 messages, and working memory at revision 1" in refused.stderr
        assert talked.threads.list(resource_id="maya").total == 2
        merged = run("merge", "maya", "--into", "anna", "--yes")
        assert (merged.exit_code, merged.stdout) == (0, "merged: 2 threads, 4 messages, 1 working memory\n")
        assert memory.working_memory.get(resource_id="anna").text == "# User information\n- **First name**: M."
    assert talked.threads.list(resource_id="anna").total == 3
    again = json.loads(run("merge", "maya", "--into", "anna", "--yes", "--format=json").stdout)
    assert (again["threads"], again["into"]) == (0, "anna")
    assert run("merge", "maya", "--into", "maya", "--yes").exit_code == 1
    assert run("merge", "maya").exit_code == 2


def test_old_messages_are_deleted(run: Run, talked: Memory) -> None:
    """Of one user, then of all; counted first; again, where nothing is left."""
    arguments = ("delete-messages", "--older-than", "0h")
    dry = run(*arguments, "--user", "maya", "--dry-run")
    assert (dry.exit_code, dry.stdout.split(" were ")[0]) == (0, "4 messages of 2 threads")
    assert json.loads(run(*arguments, "--all", "--dry-run", "--format=json").stdout)["messages"] == 6
    there = run(
        "delete-messages",
        "--until",
        "2199-07-01",
        "--timezone",
        "Asia/Kathmandu",
        "--all",
        "--dry-run",
        "--format=json",
    )
    assert json.loads(there.stdout)["until"] == "2199-06-30T18:15:00+00:00"
    assert run(*arguments, "--user", "maya").exit_code == 2  # nobody is there to answer
    assert talked.threads.list(resource_id="maya").items[0].message_count
    assert run(*arguments, "--user", "maya", "--yes").stdout == "deleted: 4 messages of 2 threads\n"
    assert [one.message_count for one in talked.threads.list(resource_id="maya")] == [0, 0]
    assert (
        run("delete-messages", "--until", "2026-01-01", "--all", "--yes").stdout == "deleted: 0 messages of 0 threads\n"
    )
    report = json.loads(
        run("delete-messages", "--until", "2199-01-01T10:00+01:00", "--all", "-y", "--format=json").stdout
    )
    assert report == {"until": "2199-01-01T09:00:00+00:00", "threads": 1, "messages": 2, "deleted": True}


@pytest.mark.parametrize(
    "given",
    [
        ("--all",),
        ("--until", "2026-01-01"),
        ("--until", "2026-01-01", "--older-than", "90d", "--all"),
        ("--older-than", "90d", "--all", "--user", "maya"),
        ("--older-than", "90", "--all"),
        ("--until", "yesterday", "--all"),
    ],
)
def test_which_messages_are_old_has_to_be_said(run: Run, talked: Memory, given: tuple[str, ...]) -> None:
    refused = run("delete-messages", *given, "--yes")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "pass" in refused.stderr


def test_files_go_and_come_back_with_their_user(run: Run, outside: Memory) -> None:
    outside.files.write("/a.md", "of maya", resource_id="maya")
    exported = run("export", "maya").stdout
    outside.files.write("/a.md", "of anna", resource_id="anna")
    asked = run("merge", "maya", "--into", "anna")
    assert "no working memory, and 1 file. Give" in asked.stderr
    merged = run("merge", "maya", "--into", "anna", "--yes")
    assert merged.stdout == "merged: 1 file\n"
    assert "The user has another file /a.md, which stays; the other one is /a (merged).md" in merged.stderr
    again = run("import", "-", "--resource", "anna", input=exported)
    assert again.stdout == "imported: nothing\n"
    assert "stays so: /a.md" in again.stderr
    assert run("forget", "anna", "--yes").stdout == "deleted: 2 files\n"
