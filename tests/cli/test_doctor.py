"""The command line, as people type it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from typer.testing import CliRunner

from langchain_workingmem import Memory
from langchain_workingmem.cli import app
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embedded import free_port


def run(*words: str, **environment: str | None) -> Any:
    return CliRunner().invoke(app, words, env={"COLUMNS": "200", "REDIS_URL": None, **environment})


@pytest.fixture
def ready(server: EmbeddedRedis, prefix: str) -> str:
    with Memory(server.url, key_prefix=prefix):
        return server.url


def test_a_healthy_server_is_exit_code_0(ready: str, prefix: str) -> None:
    found = run("doctor", "--url", ready, "--key-prefix", prefix)
    assert found.exit_code == 0
    assert "threads index" in found.stdout
    assert "append-only file on" in found.stdout


def test_json_is_for_programs(ready: str, prefix: str) -> None:
    found = run("doctor", "--format=json", "--key-prefix", prefix, REDIS_URL=ready)
    assert found.exit_code == 0
    findings = json.loads(found.stdout)["findings"]
    assert findings[0].keys() == {"check", "level", "message", "remedy"}


def test_what_has_not_been_used_yet_is_no_error(server: EmbeddedRedis, prefix: str) -> None:
    found = run("doctor", "--url", server.url, "--key-prefix", prefix)
    assert found.exit_code == 0
    assert "not made yet: made at first use" in found.stdout


def test_an_error_is_exit_code_1(server: EmbeddedRedis, prefix: str) -> None:
    with Memory(server.url, key_prefix=prefix, create_index=False) as memory:
        memory.history.append([HumanMessage("hello")], thread_id="t", resource_id="u")
    found = run("doctor", "--url", server.url, "--key-prefix", prefix)
    assert found.exit_code == 1
    assert "run memory.setup()" in found.stdout


@pytest.mark.parametrize("words", [["--format=json"], []])
def test_no_server_shows_no_password_and_no_traceback(words: list[str]) -> None:
    found = run("doctor", "--url", f"redis://ann:hunter2@127.0.0.1:{free_port()}", *words)
    assert found.exit_code == 1
    assert "cannot be reached" in found.stdout
    assert "hunter2" not in found.output
    assert "Traceback" not in found.output


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["--url", "redis://:hun/ter2@host"], "percent-encode"),
        (["--url", "http://:hunter2@host"], "use one of redis://"),
        (["--key-prefix", "a b"], "use letters"),
        (["--acl", "--key-prefix", "a b"], "use letters"),
    ],
)
def test_a_mistake_is_one_line_on_standard_error(words: list[str], remedy: str) -> None:
    found = run("doctor", *words)
    assert found.exit_code == 2
    assert found.stdout == ""
    assert found.stderr.startswith("workingmem: ")
    assert found.stderr.count("\n") == 1
    assert remedy in found.stderr
    assert "ter2" not in found.stderr


def test_the_rights_of_both_users_are_printed_without_a_server() -> None:
    found = run("doctor", "--acl", "--key-prefix", "app", REDIS_URL="redis://127.0.0.1:1")
    assert found.exit_code == 0
    admin, user = [line for line in found.stdout.splitlines() if line.startswith("ACL SETUSER")]
    assert admin.split().count("~app:thread:{*") == admin.split().count("~app:tombstone:{*") == 1
    assert "+ft.create" in admin
    assert "+ft.create" not in user
    assert "ACL SAVE" in found.stdout


def test_help_shows_no_password() -> None:
    found = run("doctor", "--help", REDIS_URL="redis://:hunter2@host")
    assert "REDIS_URL" in found.stdout
    assert "hunter2" not in found.stdout


def test_it_runs_as_a_program(ready: str, prefix: str) -> None:
    words = [sys.executable, "-W", "error", "-m", "langchain_workingmem.cli", "doctor", "--key-prefix", prefix]
    program = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, "REDIS_URL": ready})
    assert re.search(r"search +Search \d+\.\d+\.\d+ ", program.stdout)
