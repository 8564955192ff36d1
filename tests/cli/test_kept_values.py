"""`working-memory`: the sources and the history of values, and the way back of one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from langchain_workingmem import Memory
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import EVIL, Run
from tests.keeping.shown_samples import ANN, keep, options, say

WHO = ["--resource", "ann"]
TEMPLATE = "# User\n- **City**:\n- **Job**:\n"


@pytest.fixture
def kept(server: EmbeddedRedis, prefix: str) -> Callable[..., Memory]:
    """The program of Ann, who has moved."""

    def make(*paths: str, **given: Any) -> Memory:
        memory = Memory(server.url, key_prefix=prefix, working_memory=options(**given))
        say(memory, (1, "I live in Bern"), (2, f"{EVIL} moved to Lisbon"))
        for path in paths or ("/city",):
            keep(memory, path, "Bern", 1)
            keep(memory, path, "Lisbon", 2)
        return memory

    return make


def rows(found: Any) -> list[list[str]]:
    assert found.exit_code == 0, found.output
    return [line.split() for line in found.stdout.splitlines()[1:]]


def test_values_are_listed_with_their_time(run: Run, kept: Any) -> None:
    with kept() as memory:
        memory.working_memory.update({"job": "nurse"}, **ANN)
    (city, job) = rows(run("working-memory", "sources", *WHO))
    assert city == ["/city", "Lisbon", "2026-03-02", "12:00", "keeper", "1"]
    assert (job[:2], job[-2:]) == (["/job", "nurse"], ["program", "0"])
    found = json.loads(run("working-memory", "sources", *WHO, "--format=json").stdout)
    assert [(one["path"], one["value"], one["sources"]) for one in found] == [
        ("/city", "Lisbon", [["t", "m2"]]),
        ("/job", "nurse", []),
    ]


def test_the_messages_behind_a_value_are_shown(run: Run, kept: Any) -> None:
    with kept() as memory:
        memory.working_memory.update({"job": "nurse"}, **ANN)
    found = run("working-memory", "sources", "/city", *WHO)
    assert "moved to Lisbon" in found.stdout
    assert "\x1b" not in found.stdout
    assert "Bern" not in found.stdout
    nobody = run("working-memory", "sources", "/job", *WHO)
    assert "No message is behind /job: program wrote it." in nobody.stderr


def test_what_a_value_was_is_listed(run: Run, kept: Any) -> None:
    kept().close()
    now, before = rows(run("working-memory", "history", "/city", *WHO))
    assert now == ["Lisbon", "2026-03-02", "12:00", "keeper", "1"]
    assert before == ["Bern", "2026-03-01", "12:00", "2026-03-02", "12:00", "keeper", "1"]
    assert len(rows(run("working-memory", "history", "/city", "--limit", "1", *WHO))) == 1
    assert len(rows(run("working-memory", "history", *WHO))) == 2  # revisions


def test_one_value_is_undone(run: Run, kept: Any) -> None:
    with kept() as memory:
        memory.working_memory.update({"job": "nurse"}, **ANN)
        found = run("working-memory", "undo", "/city", *WHO, "--format=json")
        assert json.loads(found.stdout)["value"] == {"city": "Bern", "job": "nurse"}
        state = memory.working_memory.get(**ANN)
        assert (state.value.city, state.history("/city")[0].origin) == ("Bern", "person")


def test_a_template_keeps_its_lines(run: Run, kept: Any) -> None:
    with kept("/City", schema=None, template=TEMPLATE) as memory:
        before = memory.working_memory.get(**ANN).text
        assert "- **Job**:" in before
        assert run("working-memory", "undo", "/City", *WHO).exit_code == 0
        assert memory.working_memory.get(**ANN).text == before.replace("Lisbon", "Bern")


def forgets(memory: Memory, number: int) -> Any:
    """Return the document after the program has deleted a message."""
    memory.history.delete([f"m{number}"], thread_id="t", **ANN)
    return memory.working_memory.get(**ANN).value.model_dump(exclude_defaults=True)


def test_items_of_lists_keep_their_sources_without_the_schema(run: Run, kept: Any) -> None:
    with kept() as memory:
        keep(memory, "/pets/Rex/age", 5, 2)
        keep(memory, "/allergies/nuts", "nuts", 2)
        assert run("working-memory", "undo", "/city", *WHO).exit_code == 0
        assert run("working-memory", "set", '{"job": "nurse"}', "--mode", "merge", *WHO).exit_code == 0
        state = memory.working_memory.get(**ANN)
        assert (state.value.city, state.value.job, state.value.allergies) == ("Bern", "nurse", ["nuts"])
        assert state.sources("/pets/Rex/age") == state.sources("/allergies/nuts") == [("t", "m2")]
        assert forgets(memory, 2) == {"city": "Bern", "job": "nurse"}


def test_an_import_without_the_schema_restores_lists(run: Run, kept: Any, tmp_path: Path) -> None:
    file = str(tmp_path / "ann.jsonl")
    with kept() as memory:
        keep(memory, "/pets/Rex/age", 5, 2)
        keep(memory, "/allergies/nuts", "nuts", 1)
        before = memory.working_memory.get(**ANN)
        assert run("export", "ann", "-o", file).exit_code == 0
        memory.users.delete("ann")
        assert run("import", file, "--embeddings", "none").exit_code == 0
        assert json.loads(run("working-memory", "get", *WHO, "--raw").stdout) == json.loads(before.text)
        after = memory.working_memory.get(**ANN)
        assert (after.value, after.timeline) == (before.value, before.timeline)
        memory.history.delete(["m2"], thread_id="t", **ANN)
        shown = json.loads(run("working-memory", "get", *WHO, "--raw").stdout)  # the first that reads what is left
        assert shown == {"city": "Bern", "allergies": ["nuts"]}
        assert memory.working_memory.get(**ANN).value.allergies == ["nuts"]


@pytest.mark.parametrize(
    "words", [["sources"], ["sources", "/city"], ["history", "/city"], ["undo", "/city"]], ids=" ".join
)
def test_without_a_keeper_it_says_so(run: Run, words: list[str]) -> None:
    run("working-memory", "set", "city: Bern", *WHO)
    found = run("working-memory", *words, *WHO)
    assert found.exit_code == 1
    assert "keeper=" in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["sources"], ["history"], ["undo"]], ids=" ".join)
def test_an_unknown_path_names_the_others(run: Run, kept: Any, words: list[str]) -> None:
    kept().close()
    found = run("working-memory", *words, "/town", *WHO)
    assert found.exit_code == 1
    assert "use one of '/city'" in found.stderr
