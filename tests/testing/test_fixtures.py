"""The fixtures that applications use in their own tests."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import redis

from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.programs import run as forked

PAGE = Path(__file__).parents[2] / "docs/how-to/testing.md"
FILES = re.compile(r"^`([\w.]+\.py)`:\n\n<!-- not run here: [^\n]+ -->\n```py\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run_tests(folder: Path, *words: str) -> str:
    """Run pytest as a program of its own, and return what it says."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", ".", *words]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    done = forked(command, of="programs", cwd=folder, env=environment)
    return done.stdout + done.stderr


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    files = dict(FILES.findall(PAGE.read_text()))
    assert set(files) == {"shop.py", "conftest.py", "test_shop.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    said = run_tests(tmp_path, "-q")
    assert "3 passed" in said, said


CONFTEST = """
import pytest

pytest_plugins = ["langchain_workingmem.testing.fixtures"]


@pytest.fixture(scope="session")
def redis_url():
    return {url!r}
"""
TESTS = """
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import HumanMessage


def write(memory, key_prefix):
    assert memory.history.messages("t") == []
    memory.history.append([HumanMessage("hello")], thread_id="t", resource_id="u")
    assert len(memory.recall.search("hello", thread_id="t").hits) == 1
    with open("prefixes", "a") as file:
        print(key_prefix, file=file)


def test_one(make_memory, key_prefix):
    write(make_memory(embeddings=DeterministicFakeEmbedding(size=8)), key_prefix)
    assert len(make_memory().history.messages("t")) == 1  # another process of the application


def test_two(make_memory, key_prefix):
    write(make_memory(embeddings=DeterministicFakeEmbedding(size=8)), key_prefix)
"""


def test_each_test_begins_empty_and_leaves_nothing_on_a_redis_of_yours(tmp_path: Path, server: EmbeddedRedis) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.format(url=server.url))
    (tmp_path / "test_it.py").write_text(TESTS)
    said = run_tests(tmp_path, "-q")
    assert "2 passed" in said, said
    first, second = (tmp_path / "prefixes").read_text().split()
    assert first != second
    with redis.Redis.from_url(server.url) as raw:
        for prefix in (first, second):
            assert list(raw.scan_iter(f"{prefix}*", count=10_000)) == []
            assert not [name for name in raw.execute_command("FT._LIST") if name.startswith(prefix.encode())]


def test_without_pytest_the_remedy_is_named() -> None:
    code = "import sys; sys.modules['pytest'] = None; import langchain_workingmem.testing"
    done = forked([sys.executable, "-c", code], of="library")
    assert "pip install 'langchain-workingmem[testing]'" in done.stderr
