"""`files`: list, read, write, edit, compare and delete."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from langchain_workingmem import FileOptions, Memory
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import EVIL, Run, ended, read_all, started

MAYA = ["--resource", "maya"]
BYTES = b"\x89PNG\r\n\x00\xff"


@pytest.fixture
def files(run: Run) -> Run:
    """Call a command of files for Maya; it must work."""

    def call(*words: str, input: Any = None, **environment: str | None) -> Any:
        found = run("files", *words, *MAYA, input=input, **environment)
        assert found.exit_code == 0, found.output
        return found

    return call


def refused(found: Any, code: int = 1) -> str:
    assert found.exit_code == code, found.output
    assert code == 2 or found.stderr.count("\n") == 1 or "\n    now: " in found.stderr
    return str(found.stderr)


def test_bytes_go_through_pipes_as_they_are(files: Run, run: Run, tmp_path: Path) -> None:
    text = "one\r\n\ttwo \x1b[31m ö\n".encode()
    for content in (text, BYTES, b""):
        files("write", "/notes/a.bin", input=content)
        assert files("cat", "/notes/a.bin").stdout_bytes == content
        (tmp_path / "local").write_bytes(content)
        assert "unchanged" in files("write", "/notes/a.bin", str(tmp_path / "local")).stdout
    assert files("cat", "/notes/a.bin", "--revision", "1").stdout_bytes == text
    assert [one["is_text"] for one in json.loads(files("ls", "/notes", "--format=json").stdout)] == [True]
    assert "no file '/none'" in refused(run("files", "cat", "/none", *MAYA))
    assert "`workingmem files ls`" in refused(run("files", "cat", "/none", "--user", "maya"))
    assert "cannot be used" in refused(run("files", "write", "/a", str(tmp_path / "none"), *MAYA))


def test_a_terminal_sees_signs_instead_of_control_characters(files: Run, server: EmbeddedRedis, prefix: str) -> None:
    files("write", "/evil", input=EVIL)
    files("write", "/bytes", input=BYTES)
    for path, code, said in (("/evil", 0, "owned"), ("/bytes", 1, "send them to a file")):
        words = ("files", "cat", path, *MAYA, "--key-prefix", prefix)
        process = started(*words, terminal=True, REDIS_URL=server.url)
        shown = read_all(process)
        assert ended(process) == code
        assert said in shown
        assert not {"\x1b", "\x9b", "\u202e"} & set(shown)


def test_a_directory_is_listed_in_rows_with_times_of_the_zone(files: Run, run: Run) -> None:
    for path in ("/notes/a.md", "/notes/deep/b.md", f"/{'long' * 100}.md"):
        files("write", path, input="x")
    top = files("ls", TZ="Asia/Tokyo", COLUMNS=None).stdout.splitlines()
    assert "Asia/Tokyo" in top[0]
    assert [line.split()[0] for line in top[1:]] == [f"/{'long' * 100}.md", "/notes/"]
    inside = json.loads(files("ls", "/notes/", "--format=json").stdout)
    assert [(one["path"], one["is_dir"]) for one in inside] == [("/notes/a.md", False), ("/notes/deep", True)]
    assert [one["path"] for one in json.loads(files("ls", "/notes/a.md", "--format=json").stdout)] == ["/notes/a.md"]
    assert refused(run("files", "ls", "/none", *MAYA))
    assert run("files", "ls", "--resource", "jonas").stdout == "no files\n"
    assert "Missing option" in refused(run("files", "ls"), 2)
    assert "is not absolute" in refused(run("files", "ls", "notes", *MAYA))


def test_lines_and_paths_are_found_one_a_line(files: Run, run: Run) -> None:
    files("write", "/a.md", input="one\ntwo words\n")
    files("write", "/src/b.py", input=f"two words {EVIL}\n")
    assert files("find", "*.py").stdout == "/src/b.py\n"
    assert [one["path"] for one in json.loads(files("find", "*", "--format=json").stdout)] == ["/a.md", "/src/b.py"]
    plain, evil = files("grep", "two words").stdout.splitlines()
    assert plain == "/a.md:2:two words"
    assert "\x1b" not in evil
    hits = json.loads(files("grep", "two words", "--glob", "*.md", "--format=json").stdout)
    assert hits == [{"path": "/a.md", "line": 2, "text": "two words"}]
    assert "--limit" in files("grep", "two words", "--limit", "1").stderr
    for words in (["find", "*.none"], ["grep", "nothing"]):
        assert files(*words).stdout == ""
        assert json.loads(files(*words, "--format=json").stdout) == []
        assert run("files", *words, "--resource", "jonas").stdout == ""


@pytest.fixture
def types(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Path]]:
    """Let an editor of this process change a copy: `edit` is what it does to the text."""

    def make(edit: Callable[[str], str | bytes], code: int = 0) -> list[Path]:
        seen: list[Path] = []

        def run(words: list[str], **_: Any) -> Any:
            seen.append(Path(words[-1]))
            new = edit(seen[0].read_bytes().decode())
            seen[0].write_bytes(new if isinstance(new, bytes) else new.encode())
            return SimpleNamespace(returncode=code)

        monkeypatch.setattr(subprocess, "run", run)
        return seen

    return make


def test_an_editor_changes_a_text(files: Run, run: Run, tmp_path: Path) -> None:
    program = tmp_path / "editor.py"
    program.write_text(
        "import sys, pathlib\npath = pathlib.Path(sys.argv[2])\npath.write_bytes(path.read_bytes() + b'by ' + sys.argv[1].encode())"
    )
    editor = f"'{sys.executable}' -ISE '{program}' maya"
    assert files("edit", "/new.md", EDITOR=editor).stdout == "/new.md: written, revision 1\n"
    files("edit", "/new.md", VISUAL=editor, EDITOR="false")
    assert files("cat", "/new.md").stdout == "by mayaby maya"
    files("rm", "/new.md")
    files("edit", "/new.md", EDITOR=editor)
    assert files("cat", "/new.md").stdout == "by maya"
    for words, chosen, said in (
        (["/new.md"], "/no/such/editor", "No such file"),
        (["/new.md"], "", "set EDITOR to yours, or pass --old and --new"),
        (["/new.md", "--old", "by"], editor, "belong together"),
        (["/new.md", "--all"], editor, "belong together"),
    ):
        found = run("files", "edit", *words, *MAYA, EDITOR=chosen, VISUAL="")
        assert said in refused(found, found.exit_code)
        assert found.exit_code in {1, 2}
    files("write", "/bytes", input=BYTES)
    assert "holds bytes" in refused(run("files", "edit", "/bytes", *MAYA, EDITOR=editor))


def test_what_others_write_while_an_editor_is_open_is_kept(files: Run, outside: Memory, types: Any) -> None:
    files("write", "/a.md", input="one\r\ntwo\nthree\n")

    def edit(text: str) -> str:
        outside.files.edit("/a.md", "one", "ONE", resource_id="maya", by="agent")
        return text.replace("three", "3")

    seen = types(edit)
    made = files("edit", "/a.md", EDITOR="x")
    assert made.stdout == "/a.md: written, revision 3, merged with what others have changed\n"
    assert files("cat", "/a.md").stdout_bytes == b"ONE\r\ntwo\n3\n"
    assert not seen[0].parent.exists()


def test_a_text_that_cannot_be_written_stays_in_a_file(files: Run, run: Run, outside: Memory, types: Any) -> None:
    files("write", "/notes/a.md", input="one\n")

    def conflict(_: str) -> str:
        outside.files.write("/notes/a.md", f"other {len(said)}\n", resource_id="maya")
        return "mine\n"

    said: list[str] = []
    for edit, code, words, reason in (
        (conflict, 0, [], "has changed in the same places"),
        (lambda _: "mine\n", 0, ["--max-bytes", "2"], "split it, or pass --max-bytes"),
        (lambda _: "mine\n", 3, [], "exit code 3"),
    ):
        seen = types(edit, code)
        said.append(refused(run("files", "edit", "/notes/a.md", *words, *MAYA, EDITOR="x")))
        assert reason in said[-1]
        assert f"Your text is in {seen[0]}" in said[-1]
        assert (seen[0].name, seen[0].read_text()) == ("a.md", "mine\n")
        assert seen[0].parent.stat().st_mode & 0o077 == 0
        shutil.rmtree(seen[0].parent)
    assert files("cat", "/notes/a.md").stdout == "other 0\n"
    seen = types(lambda text: text)
    assert files("edit", "/notes/a.md", EDITOR="x").stdout == "Nothing was changed.\n"
    assert not seen[0].parent.exists()


def test_a_passage_is_replaced_without_an_editor(files: Run, run: Run) -> None:
    files("write", "/a.md", input="one two two\n")
    assert "2 times" in refused(run("files", "edit", "/a.md", "--old", "two", "--new", "2", *MAYA))
    assert (
        json.loads(files("edit", "/a.md", "--old", "two", "--new", "2", "--all", "--format=json").stdout)["occurrences"]
        == 2
    )
    assert files("cat", "/a.md").stdout == "one 2 2\n"


def test_a_write_names_what_was_read(files: Run, run: Run) -> None:
    files("write", "/a.md", "--new", input="one\n")
    assert "leave out --new" in refused(run("files", "write", "/a.md", "--new", *MAYA, input="x"))
    files("write", "/a.md", input="one\ntwo\n")
    merged = json.loads(files("write", "/a.md", "--base-revision", "1", "--format=json", input="zero\none\n").stdout)
    assert (merged["revision"], merged["merged"], merged["by"]) == (3, True, "person")
    assert files("cat", "/a.md").stdout == "zero\none\ntwo\n"
    assert "same places" in refused(run("files", "write", "/a.md", "--base-revision", "1", *MAYA, input="other\n"))
    assert "pass --max-bytes" in refused(run("files", "write", "/a.md", "--max-bytes", "2", *MAYA, input="xxx"))


def test_revisions_are_listed_compared_and_brought_back(files: Run, run: Run) -> None:
    for text in ("one\n", "one\n\ttwo\n", "three\n"):
        files("write", "/a.md", input=text)
    files("rm", "/a.md")
    rows = files("history", "/a.md").stdout.splitlines()[1:]
    assert [(row.split()[0], row.split()[-2]) for row in rows] == [
        ("4", "delete"),
        ("3", "write"),
        ("2", "write"),
        ("1", "write"),
    ]
    assert [
        one["revision"] for one in json.loads(files("history", "/a.md", "--limit", "2", "--format=json").stdout)
    ] == [4, 3]
    head = "--- /a.md revision 1\n+++ /a.md revision 2\n"
    assert files("diff", "/a.md", "1", "2").stdout == f"{head}@@ -1 +1,2 @@\n one\n+\ttwo\n"
    assert json.loads(files("diff", "/a.md", "--format=json").stdout)["lines"] == ["@@ -1 +0,0 @@", "-three"]
    assert json.loads(files("diff", "/a.md", "0", "1", "--format=json").stdout)["lines"] == ["@@ -0,0 +1 @@", "+one"]
    assert files("diff", "/a.md", "1", "1").stdout == "no change\n"
    assert "`workingmem files history`" in refused(run("files", "diff", "/a.md", "1", "9", *MAYA))
    assert files("revert", "/a.md", "1").stdout == "/a.md: written, revision 5\n"
    assert files("cat", "/a.md").stdout == "one\n"
    files("write", "/a.md", input=BYTES)
    assert "holds bytes" in refused(run("files", "diff", "/a.md", *MAYA))


def test_no_command_drops_an_old_revision(files: Run, server: EmbeddedRedis, prefix: str) -> None:
    with Memory(server.url, key_prefix=prefix, files=FileOptions(revisions=20)) as memory:
        for number in range(14):
            memory.files.write("/a.md", str(number), resource_id="maya")
        files("write", "/a.md", input="mine")
        files("rm", "/a.md")
        assert len(memory.files.history("/a.md", resource_id="maya")) == 16


def test_a_directory_and_revisions_are_deleted_after_a_question(files: Run, run: Run) -> None:
    for path in ("/a.md", "/notes/b.md", "/notes/c.md"):
        files("write", path, input="x")
    for words in (["rm", "/notes"], ["rm", "/a.md", "--purge"]):
        assert "pass --yes" in refused(run("files", *words, *MAYA), 2)
    assert files("rm", "/notes", "--yes").stdout == "deleted: 2 files\n"
    assert files("rm", "/a.md").stdout == "deleted: 1 file\n"
    assert files("rm", "/a.md", "--purge", "--yes").stdout == "deleted: 0 files\n"
    assert refused(run("files", "history", "/a.md", *MAYA))
    assert refused(run("files", "rm", "/a.md", *MAYA))
    assert files("revert", "/notes/b.md", "1").exit_code == 0


def test_a_question_at_a_terminal_is_answered(files: Run, server: EmbeddedRedis, prefix: str) -> None:
    files("write", "/a.md", input="x")
    words = ("files", "rm", "/a.md", "--purge", *MAYA, "--key-prefix", prefix)
    process = started(*words, terminal=True, REDIS_URL=server.url)
    assert process.stdin
    process.stdin.write("n\n")
    assert "permanently?" in read_all(process)
    assert ended(process) == 3
    assert files("cat", "/a.md").stdout == "x"


def test_files_are_renamed(files: Run, run: Run) -> None:
    files("write", "/notes/a.md", input="x")
    assert files("mv", "/notes", "/old").stdout == "renamed: 1 file\n"
    files("write", "/b.md", input="y")
    assert "exists" in refused(run("files", "mv", "/b.md", "/old/a.md", *MAYA))
    assert files("find", "*").stdout == "/b.md\n/old/a.md\n"


def test_a_directory_comes_and_goes(files: Run, run: Run, tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    (source / "deep").mkdir(parents=True)
    (source / "a.md").write_text("ö")
    (source / "deep" / ".hidden").write_bytes(BYTES)
    (source / "link").symlink_to("/etc/passwd")
    assert files("put", str(source), "/in").stdout == "written: 2 files, 0 unchanged\n"
    assert files("put", str(source), "/in").stdout == "written: 0 files, 2 unchanged\n"
    assert files("get", "/in", str(there)).stdout == f"copied to {there}: 2 files\n"
    assert {one.relative_to(there).as_posix(): one.read_bytes() for one in there.rglob("*") if one.is_file()} == {
        "a.md": "ö".encode(),
        "deep/.hidden": BYTES,
    }
    assert "pass --yes" in refused(run("files", "get", "/in/a.md", str(there), *MAYA), 2)
    files("get", "/in/a.md", str(there), "--yes")
    assert "cannot be used" in refused(run("files", "put", str(tmp_path / "none"), *MAYA))
    (tmp_path / "a.md").mkdir()
    assert "cannot be used" in refused(run("files", "get", "/in/a.md", str(tmp_path), "--yes", *MAYA))
    odd = source / b"\xff.md".decode(errors="surrogateescape")
    odd.write_text("x")
    assert "hidden characters" in refused(run("files", "put", str(odd), *MAYA))
