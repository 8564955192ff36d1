"""`working-memory`: get, set, clear, history, revert."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import Run

MAYA = ["--user", "maya"]


class Profile(BaseModel):
    name: str | None = None
    city: str | None = None


def program(server: EmbeddedRedis, prefix: str, **options: Any) -> Memory:
    """The program whose working memory it is."""
    return Memory(server.url, key_prefix=prefix, working_memory=WorkingMemoryOptions(**options))


def state(found: Any) -> Any:
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_text_from_an_argument_and_standard_input(run: Run) -> None:
    assert "Plays the cello." in run("working-memory", "set", "Plays the cello.", *MAYA).stdout
    assert state(run("working-memory", "set", "Has a dog.", *MAYA, "--format=json"))["revision"] == 2
    run("working-memory", "set", "-", "--mode", "append", *MAYA, input="Lives in Oslo.")
    assert state(run("working-memory", "get", *MAYA, "--format=json"))["text"] == "Has a dog.\n\nLives in Oslo."


def test_a_document_along_a_schema_stays_one(run: Run, server: EmbeddedRedis, prefix: str) -> None:
    with program(server, prefix, schema=Profile) as memory:
        memory.working_memory.update({"name": "Maya", "city": "Berlin"}, user_id="maya")
        found = state(run("working-memory", "get", *MAYA, "--format=json"))
        assert found["value"] == {"name": "Maya", "city": "Berlin"}
        refused = run("working-memory", "set", "Maya lives in Oslo.", *MAYA)
        assert refused.exit_code == 1
        assert "holds a JSON object, and the content is text" in refused.stderr
        run("working-memory", "set", '{"city": "Oslo"}', "--mode", "merge", *MAYA)
        assert memory.working_memory.get(user_id="maya").value == Profile(name="Maya", city="Oslo")
        run("working-memory", "set", '{"name": "M"}', *MAYA)
        assert memory.working_memory.get(user_id="maya").value == Profile(name="M")


def test_text_does_not_become_json_by_accident(run: Run) -> None:
    run("working-memory", "set", "Has a dog.", *MAYA)
    refused = run("working-memory", "set", '{"pet": "dog"}', *MAYA)
    assert refused.exit_code == 1
    assert "clear" in refused.stderr
    run("working-memory", "clear", *MAYA)
    assert run("working-memory", "set", '{"pet": "dog"}', *MAYA).exit_code == 0


def test_a_thread_has_a_memory_of_its_own(run: Run, talked: Memory, server: EmbeddedRedis, prefix: str) -> None:
    run("working-memory", "set", "of the thread", "--thread", "dog")
    run("working-memory", "set", "of the user", *MAYA)
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


def test_revisions_are_listed_and_brought_back(run: Run) -> None:
    for text in ("one", "one\ntwo", "three"):
        run("working-memory", "set", text, *MAYA)
    rows = state(run("working-memory", "history", *MAYA, "--format=json"))
    assert [row["revision"] for row in rows] == [3, 2, 1]
    assert "three" in run("working-memory", "history", *MAYA, "--limit", "1").stdout
    assert "one" in run("working-memory", "revert", "1", *MAYA).stdout
    assert state(run("working-memory", "get", *MAYA, "--format=json"))["revision"] == 4


def test_the_command_line_drops_no_revision(run: Run, server: EmbeddedRedis, prefix: str) -> None:
    with program(server, prefix, template="", mode="replace", revisions=40) as memory:
        for number in range(30):
            memory.working_memory.update(f"{number}", user_id="maya")
        run("working-memory", "set", "thirty", *MAYA)
        assert len(memory.working_memory.revisions(user_id="maya", limit=100)) == 31


def test_a_mistake_says_what_to_do(run: Run) -> None:
    for words, code, reason in (
        (["get"], 2, "--user"),
        (["set", " ", *MAYA], 2, "clear"),
        (["set", "a", "--mode", "merge", *MAYA], 1, "merge"),
        (["revert", "7", *MAYA], 1, "revisions"),
    ):
        found = run("working-memory", *words)
        assert (found.exit_code, found.stdout) == (code, "")
        assert reason in found.stderr
