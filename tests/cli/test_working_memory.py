"""`working-memory`: get, set, clear, history, diff, revert."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem._documents.formats import TextFormat
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import EVIL, Run

MAYA = ["--resource", "maya"]


class Profile(BaseModel):
    name: str | None = None
    city: str | None = None


def program(server: EmbeddedRedis, prefix: str, **options: Any) -> Memory:
    """The program whose working memory it is."""
    return Memory(server.url, key_prefix=prefix, working_memory=WorkingMemoryOptions(**options))


def state(found: Any) -> Any:
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_text_from_an_argument_a_file_and_standard_input(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text("Has a dog.", encoding="utf-8")
    assert "Plays the cello." in run("working-memory", "set", "Plays the cello.", *MAYA).stdout
    assert state(run("working-memory", "set", "--file", str(path), *MAYA, "--format=json"))["revision"] == 2
    run("working-memory", "set", "-", "--mode", "append", *MAYA, input="Lives in Oslo.")
    assert run("working-memory", "get", "--raw", *MAYA).stdout == "Has a dog.\n\nLives in Oslo."
    assert state(run("working-memory", "get", *MAYA, "--format=json"))["value"] == "Has a dog.\n\nLives in Oslo."


def test_a_document_along_a_schema_stays_one(run: Run, server: EmbeddedRedis, prefix: str) -> None:
    with program(server, prefix, schema=Profile) as memory:
        memory.working_memory.update({"name": "Maya", "city": "Berlin"}, resource_id="maya")
        assert state(run("working-memory", "get", *MAYA, "--format=json"))["value"] == {
            "name": "Maya",
            "city": "Berlin",
        }
        refused = run("working-memory", "set", "Maya lives in Oslo.", *MAYA)
        assert refused.exit_code == 1
        assert refused.stderr.count("\n") == 1
        assert "holds a JSON object, and the content is text" in refused.stderr
        merged = state(run("working-memory", "set", '{"city": "Oslo"}', "--mode", "merge", *MAYA, "--format=json"))
        assert merged["value"] == {"name": "Maya", "city": "Oslo"}
        assert memory.working_memory.get(resource_id="maya").value == Profile(name="Maya", city="Oslo")
        run("working-memory", "set", '{"name": "M"}', *MAYA)
        assert memory.working_memory.get(resource_id="maya").value == Profile(name="M")


def test_a_schema_is_kept(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(Profile.model_json_schema()))
    wrong = run("working-memory", "set", '{"city": 7}', "--schema", str(path), *MAYA)
    assert wrong.exit_code == 1
    assert "city" in wrong.stderr
    assert run("working-memory", "set", '{"city": "Oslo"}', "--schema", str(path), *MAYA).exit_code == 0
    path.write_text("{")
    assert "is not JSON" in run("working-memory", "set", "{}", "--schema", str(path), *MAYA).stderr


def test_text_does_not_become_json_by_accident(run: Run) -> None:
    run("working-memory", "set", "Has a dog.", *MAYA)
    refused = run("working-memory", "set", '{"pet": "dog"}', *MAYA)
    assert refused.exit_code == 1
    assert "clear" in refused.stderr
    run("working-memory", "clear", *MAYA)
    assert run("working-memory", "set", '{"pet": "dog"}', *MAYA).exit_code == 0


@pytest.mark.parametrize("mode", ["replace", "append"])
def test_text_that_becomes_json_meanwhile_stays(
    run: Run, server: EmbeddedRedis, prefix: str, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """The program writes its first document between the look of the command and its write."""
    real = TextFormat.apply
    with program(server, prefix, schema=Profile) as memory:

        def meanwhile(*args: Any) -> str:
            if memory.working_memory.get(resource_id="maya").is_empty:
                memory.working_memory.update({"name": "Maya"}, resource_id="maya")
            return real(*args)

        monkeypatch.setattr(TextFormat, "apply", meanwhile)
        found = run("working-memory", "set", "Has a dog.", "--mode", mode, *MAYA)
        assert found.exit_code == 1
        assert "holds a JSON object" in found.stderr
        assert memory.working_memory.get(resource_id="maya").value == Profile(name="Maya")


def test_a_thread_has_a_memory_of_its_own(run: Run, talked: Memory, server: EmbeddedRedis, prefix: str) -> None:
    run("working-memory", "set", "of the thread", "--thread", "dog")
    run("working-memory", "set", "of the resource", *MAYA)
    with program(server, prefix, scope="thread") as memory:
        assert memory.working_memory.get(thread_id="dog").text == "of the thread"
    for words, reason in (
        (["--thread", "nope"], "no thread 'nope'"),
        (["--thread", "boat", *MAYA], "does not belong"),
    ):
        found = run("working-memory", "set", "x", *words)
        assert found.exit_code == 1
        assert reason in found.stderr
    assert talked.threads.get("nope") is None


def test_revisions_are_listed_compared_and_brought_back(run: Run) -> None:
    for text in ("one", "one\ntwo", "three"):
        run("working-memory", "set", text, *MAYA)
    listed = run("working-memory", "history", *MAYA)
    assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == ["3", "2", "1"]
    assert [one["text"] for one in state(run("working-memory", "history", *MAYA, "--limit", "1", "--format=json"))] == [
        "three"
    ]
    assert state(run("working-memory", "diff", *MAYA, "--format=json"))["lines"][1:] == ["-one", "-two", "+three"]
    assert state(run("working-memory", "diff", "1", "2", *MAYA, "--format=json"))["lines"][1:] == [" one", "+two"]
    assert state(run("working-memory", "diff", "0", *MAYA, "--format=json"))["earlier"] == 0
    assert "+three" in run("working-memory", "diff", *MAYA).stdout
    assert "one" in run("working-memory", "revert", "1", *MAYA).stdout
    assert state(run("working-memory", "get", *MAYA, "--format=json"))["revision"] == 4


def test_the_command_line_drops_no_revision(run: Run, server: EmbeddedRedis, prefix: str) -> None:
    with program(server, prefix, template="", mode="replace", revisions=40) as memory:
        for number in range(30):
            memory.working_memory.update(f"{number}", resource_id="maya")
        run("working-memory", "set", "thirty", *MAYA)
        assert len(memory.working_memory.revisions(resource_id="maya", limit=100)) == 31


def test_nothing_was_written_yet(run: Run) -> None:
    assert "empty" in run("working-memory", "get", *MAYA).stdout
    assert "nothing was written" in run("working-memory", "history", *MAYA).stdout
    assert "nothing was written" in run("working-memory", "diff", *MAYA).stderr


def test_a_write_on_what_somebody_else_has_changed_fails(run: Run) -> None:
    run("working-memory", "set", "one", *MAYA)
    found = run("working-memory", "set", "two", "--expected-revision", "0", *MAYA)
    assert found.exit_code == 1
    assert "is at revision 1" in found.stderr


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["get"], 2, "--resource"),
        (["set", *MAYA], 2, "pass the content"),
        (["set", "a", "--file", "b", *MAYA], 2, "only one"),
        (["set", " ", *MAYA], 2, "clear"),
        (["set", "-", *MAYA], 2, "clear"),
        (["set", "a", "--mode", "merge", *MAYA], 1, "merge"),
        (["set", "a" * 70_000, *MAYA], 1, "70000 bytes"),
        (["set", "--file", "/nonexistent", *MAYA], 1, "No such file"),
        (["revert", "7", *MAYA], 1, "history"),
        (["set", "a", "--mode", "change", *MAYA], 2, "change"),
    ],
)
def test_a_mistake_says_what_to_do(run: Run, words: list[str], code: int, reason: str) -> None:
    found = run("working-memory", *words)
    assert (found.exit_code, found.stdout) == (code, "")
    assert reason in found.stderr


def test_a_revision_that_is_not_kept(run: Run) -> None:
    run("working-memory", "set", "one", *MAYA)
    for words in (["diff", "7"], ["diff", "0", "7"], ["diff", "0", "0"]):
        found = run("working-memory", *words, *MAYA)
        assert found.exit_code == 1
        assert "is not kept" in found.stderr


def test_what_people_wrote_is_text(run: Run) -> None:
    run("working-memory", "set", f"one {EVIL}", *MAYA)
    run("working-memory", "set", f"two {EVIL}", *MAYA)
    for words in (["get"], ["get", "--format=json"], ["history"], ["diff"], ["revert", "1"], ["set", f"three {EVIL}"]):
        found = run("working-memory", *words, *MAYA)
        assert "[red]" in found.stdout
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(found.output)
