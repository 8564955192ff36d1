"""CONTRIBUTING.md names files, commands and fixtures: they exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
QUOTED = set(re.findall(r"`([^`\n]+)`", TEXT))
PATHS = sorted(
    name
    for name in QUOTED
    if re.fullmatch(r"[\w./-]+", name) and ("/" in name or name.endswith((".py", ".md", ".lua")))
)
LINKS = re.findall(r"\]\((?!https?:)([^)#]+)\)", TEXT)


def test_every_path_exists() -> None:
    homes = [ROOT, ROOT / "langchain_workingmem"]
    assert [name for name in [*PATHS, *LINKS] if not any((home / name).exists() for home in homes)] == []


def test_every_command_is_a_target_and_every_target_is_explained() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = set(re.findall(r"`make (?:\w+=\S+ )?(\w+)", TEXT))
    assert named <= set(targets)
    assert set(targets) - named == {"lint", "type", "clean"}  # `check` is both; `clean` is plain


def test_every_fixture_is_there() -> None:
    fixtures = (ROOT / "tests/conftest.py").read_text()
    for name in ("memory", "plain", "store", "make_memory", "prefix", "trips"):
        assert f"`{name}" in TEXT
        assert f"def {name}(" in fixtures


def test_the_example_of_an_operation_is_where_it_is_said_to_be() -> None:
    room = ROOT / "langchain_workingmem/threads"
    text = (room / "api.py").read_text()
    assert 'TRANSFER = Script("threads/transfer")' in (room / "operations.py").read_text()
    assert "    @operation\n    def transfer(" in text
    assert "atransfer = twin(transfer)" in text
    for test in ("threads/test_threads", "threads/test_ids_and_cost", "helpers/operations"):
        assert "threads.transfer" in (ROOT / f"tests/{test}.py").read_text()
