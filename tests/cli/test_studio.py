"""`studio`: how it starts and ends, and wrong calls."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from langchain_workingmem import Memory
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import SLOW, Run, ended, started
from tests.helpers.embedded import free_port, is_open, wait_until

pytestmark = pytest.mark.programs


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_line_is_the_address_and_a_signal_ends_it(
    talked: Memory, server: EmbeddedRedis, prefix: str, number: signal.Signals
) -> None:
    program = started("studio", "--resource", "maya", "--key-prefix", prefix, REDIS_URL=server.url)
    assert program.stdout
    assert program.stderr
    address = program.stdout.readline().strip()
    assert "only reads" in program.stderr.readline()
    port = httpx.URL(address).port
    with httpx.Client(follow_redirects=True) as browser:
        assert "A dog" in browser.get(address).text
        assert "boat" not in browser.get(f"http://127.0.0.1:{port}/").text
        assert browser.get(f"http://127.0.0.1:{port}/recall", params={"q": "dog"}).status_code == 200
        program.send_signal(number)
        assert program.stdout.read() + program.stderr.read() == ""
    assert ended(program) == 0
    assert port is not None
    assert not is_open(port)


def test_open_shows_the_token_to_no_other_user(
    talked: Memory, server: EmbeddedRedis, prefix: str, tmp_path: Path
) -> None:
    opener, seen = tmp_path / "xdg-open", tmp_path / "arguments"
    opener.write_text(f"#!/bin/sh\necho $* > {seen}.new; mv {seen}.new {seen}\n")
    opener.chmod(0o700)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    program = started("studio", "--open", "--key-prefix", prefix, REDIS_URL=server.url, PATH=path)
    assert program.stdout
    address = program.stdout.readline().strip()
    wait_until(seen.exists)
    page = Path(seen.read_text().strip())
    assert [one.stat().st_mode & 0o777 for one in (page, page.parent)] == [0o600, 0o700]
    assert f"url={address}" in page.read_text()
    with httpx.Client() as browser:  # a browser that comes from that file
        entry = browser.get(address, headers={"sec-fetch-site": "cross-site"})
        assert (entry.status_code, entry.headers["refresh"]) == (200, "0;url=/")
        assert "A dog" in browser.get(f"{address.partition('/?')[0]}/").text
    program.terminate()
    assert ended(program) == 0
    assert not page.parent.exists()


def test_a_private_redis_ends_with_the_studio(scratch: Path) -> None:
    place = scratch / "memory"
    with Memory.embedded(place) as memory:
        memory.save_turn([("user", "hello")], thread_id="t", resource_id="maya")
    port = free_port()
    program = started("studio", "--dir", str(place), "--port", str(port), "--embeddings", "none")
    assert program.stdout
    assert program.stdout.readline().startswith(f"http://127.0.0.1:{port}/?token=")
    program.terminate()
    assert ended(program) == 0
    wait_until(lambda: not (place / "redis.sock").exists())


PROGRAM = """
from langchain_workingmem import *

memory = Memory({url!r}, key_prefix={prefix!r}, history=HistoryOptions(last_messages=2, step=1),
    working_memory=WorkingMemoryOptions(schema={{"type": "object"}}))

def make():
    return memory

number = 5

def broken():
    raise RuntimeError("no key")

def leaving():
    raise SystemExit(3)

async def later():
    return memory
"""


@pytest.fixture
def program(server: EmbeddedRedis, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of a user's, in the present directory."""
    name = f"program_{prefix}"
    (tmp_path / f"{name}.py").write_text(PROGRAM.format(url=server.url, prefix=prefix))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return name


@pytest.mark.parametrize("name", ["memory", "make"])
def test_a_program_lends_its_memory_with_its_options(talked: Memory, program: str, name: str) -> None:
    studio = started("studio", "--memory", f"{program}:{name}")
    assert studio.stdout
    address = studio.stdout.readline().strip()
    with httpx.Client(follow_redirects=True) as browser:
        browser.get(address)
        page = browser.get(
            address.partition("?")[0] + "context", params={"user": "maya", "thread": "dog", "q": "What is she called?"}
        )
    assert "The options are the defaults" not in page.text
    assert "&lt;working_memory&gt;" in page.text
    studio.terminate()
    assert ended(studio) == 0


@pytest.fixture
def slow(server: EmbeddedRedis, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A program whose model takes a minute, in the present directory, with a thread."""
    (tmp_path / f"slow_{prefix}.py").write_text(
        "print('a program may print')\n" + SLOW.format(url=server.url, prefix=prefix)
    )
    monkeypatch.chdir(tmp_path)
    with Memory(server.url, key_prefix=prefix) as memory:
        memory.save_turn([("user", "hello")], thread_id="t", resource_id="maya")
        yield f"slow_{prefix}:memory"


@pytest.mark.parametrize("times", [1, 2])
def test_a_model_that_does_not_answer_keeps_no_studio_alive(slow: str, times: int) -> None:
    studio = started("studio", "--memory", slow)
    assert studio.stdout
    assert studio.stderr
    address = studio.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:")
    url = httpx.URL(address)
    with httpx.Client(follow_redirects=True) as browser, socket.create_connection(("127.0.0.1", url.port or 0)) as line:
        browser.get(address).raise_for_status()
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        head = f"GET /recall?user=maya&q=x HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n"
        line.sendall(head.encode())
        time.sleep(0.5)  # until the request waits for its model
        for _ in range(times):
            studio.send_signal(signal.SIGINT)
            time.sleep(0.1)
        assert ended_with(studio) == ""


def ended_with(program: Any) -> str:
    """Wait for the end, and return what the program said after its first line of errors."""
    program.wait(timeout=20)
    said = program.stdout.read() + "".join(program.stderr.read().splitlines(keepends=True)[2:])
    assert ended(program) == 0
    return str(said)


def test_who_looks_makes_no_index(slow: str, raw: Any, prefix: str) -> None:
    before = {*raw.scan_iter(f"{prefix}*")}
    studio = started("studio", "--memory", slow)
    assert studio.stdout
    address = studio.stdout.readline().strip()
    with httpx.Client(follow_redirects=True) as browser:
        browser.get(address).raise_for_status()
        browser.get(address.partition("?")[0] + "observations", params={"user": "maya"}).raise_for_status()
        browser.get(address.partition("?")[0] + "data", params={"user": "maya"}).raise_for_status()
    studio.terminate()
    studio.wait(timeout=20)
    ended(studio)
    assert {*raw.scan_iter(f"{prefix}*")} == before
    indexes = raw.execute_command("FT._LIST")
    assert f"{prefix}:vectors".encode() not in indexes


@pytest.mark.usefixtures("kept_signals")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nothing_of_this_name:memory", "set PYTHONPATH"),
        ("{}:nothing", "AttributeError"),
        ("{}:number", "is of type int"),
        ("{}:broken", "RuntimeError: no key"),
        ("{}:leaving", "SystemExit: 3"),
        ("{}:later", "is of type function"),
        ("{}", "is of type module"),
        (":memory", "invalid format"),
    ],
)
def test_a_memory_that_is_none_is_one_line(run: Run, program: str, name: str, reason: str) -> None:
    found = run("studio", "--memory", name.format(program), REDIS_URL=None)
    assert found.exit_code == 1
    assert reason in found.stderr
    assert "MODULE:NAME" in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.usefixtures("kept_signals")
def test_wrong_calls_are_one_line_each(run: Run, talked: Memory, program: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = run("studio", "--port", str(taken.getsockname()[1]))
    assert (found.exit_code, found.stdout) == (1, "")
    assert "pass another --port" in found.stderr
    assert run("studio", "--port", "0").exit_code == 2
    assert run("studio", "--dir", str(tmp_path), "--memory", f"{program}:memory").exit_code == 2
    assert "there is no memory in" in run("studio", "--dir", str(tmp_path / "none"), REDIS_URL=None).stderr
    assert "is empty" in run("studio", "--resource", "").stderr
    assert "does not name the resource" in run("studio", "--namespace", "memories").stderr
    away = run("studio", REDIS_URL=f"redis://127.0.0.1:{free_port()}")
    assert away.exit_code == 1
    assert away.stderr.count("\n") == 1


@pytest.mark.usefixtures("kept_signals")
def test_the_model_of_the_index_must_fit(run: Run, make_memory: Any, embeddings: Any) -> None:
    make_memory(embeddings=embeddings).save_turn([("user", "hi")], thread_id="t", resource_id="maya")
    found = run("studio")
    assert found.exit_code == 1
    assert "--embeddings" in found.stderr
