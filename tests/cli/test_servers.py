"""`studio`: how it starts and ends, and wrong calls; `doctor`. The tests of `mcp` are in tests/mcp."""

from __future__ import annotations

import json
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from langchain_workingmem import Memory
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import SLOW, Run, ended, started
from tests.helpers.embedded import free_port, is_open, wait_until


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_line_is_the_address_and_a_signal_ends_it(
    talked: Memory, server: EmbeddedRedis, prefix: str, number: signal.Signals
) -> None:
    program = started("studio", "--user", "maya", "--key-prefix", prefix, REDIS_URL=server.url)
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


def test_the_token_is_in_no_output_but_the_first_line(talked: Memory, server: EmbeddedRedis, prefix: str) -> None:
    program = started("studio", "--write", "--key-prefix", prefix, REDIS_URL=server.url)
    assert program.stdout
    assert program.stderr
    url = httpx.URL(program.stdout.readline().strip())
    token = url.params["token"]
    heads = [
        f"GET /?token={token} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        f"GET /?token={token} HTTP/9.9\r\n\r\n",
        f"GET /{token}\0 HTTP/1.1\r\nHost: x\r\n\r\n",
        f"GET /?token={token} HTTP/1.1\r\nX: {'x' * 40_000}",
        f"POST /data?user=maya&token={token} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\n",
    ]
    for head in heads:
        with socket.create_connection(("127.0.0.1", url.port or 0)) as line:
            line.sendall(head.encode())
            line.settimeout(2)
            with suppress(OSError):
                line.recv(100)
    with httpx.Client(follow_redirects=True) as browser:
        for path in ("", "thread", "nothing", "recall?user=maya&q=dog", "static/nothing"):
            said = browser.get(url.join(f"/{path}").copy_merge_params({"token": token})).text
            assert token not in said
    program.terminate()
    assert token not in program.stdout.read() + program.stderr.read()
    assert ended(program) == 0


def test_a_studio_of_a_program_makes_no_index_and_ends_while_a_model_does_not_answer(
    server: EmbeddedRedis, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw: Any
) -> None:
    name, program = f"slow_{prefix}", SLOW.format(url=server.url, prefix=prefix)
    (tmp_path / f"{name}.py").write_text(f"print('a program may print')\n{program}")
    monkeypatch.chdir(tmp_path)
    with Memory(server.url, key_prefix=prefix) as memory:
        memory.save_turn([("user", "hello")], thread_id="t", user_id="maya")
    before = {*raw.scan_iter(f"{prefix}*")}
    studio = started("studio", "--memory", f"{name}:memory")
    assert studio.stdout
    url = httpx.URL(studio.stdout.readline().strip())
    with httpx.Client(follow_redirects=True) as browser, socket.create_connection(("127.0.0.1", url.port or 0)) as line:
        for path in (url, url.join("/data?user=maya")):
            browser.get(path).raise_for_status()
        assert {*raw.scan_iter(f"{prefix}*")} == before
        assert f"{prefix}:vectors".encode() not in raw.execute_command("FT._LIST")
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        head = f"GET /recall?user=maya&q=x HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n"
        line.sendall(head.encode())
        wait_until((tmp_path / f"{name}.py.waits").exists)
        studio.send_signal(signal.SIGINT)
        assert ended(studio) == 0


PROGRAM = """
number = 5

def broken():
    raise RuntimeError("no key")
"""


def test_a_memory_that_is_none_is_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    own = f"program_{prefix}"
    (tmp_path / f"{own}.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, reason in (
        ("nothing_of_this_name:memory", "No module named"),
        (f"{own}:nothing", "AttributeError"),
        (f"{own}:number", "is of type int"),
        (f"{own}:broken", "RuntimeError: no key"),
        (own, "is of type module"),
    ):
        found = run("studio", "--memory", name, REDIS_URL=None)
        assert found.exit_code == 1
        assert reason in found.stderr
        assert "MODULE:NAME" in found.stderr
        assert found.stderr.count("\n") == 1


def test_a_port_that_is_taken_and_a_server_that_is_away_are_one_line_each(run: Run, talked: Memory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = run("studio", "--port", str(taken.getsockname()[1]))
    assert (found.exit_code, found.stdout) == (1, "")
    assert "pass another --port" in found.stderr
    away = run("studio", REDIS_URL=f"redis://127.0.0.1:{free_port()}")
    assert (away.exit_code, away.stderr.count("\n")) == (1, 1)


def test_the_exit_code_of_the_doctor_is_its_diagnosis(run: Run, talked: Memory) -> None:
    found = run("doctor")
    assert found.exit_code == 0
    assert "Diagnosis: ok" in found.stdout
    rows = json.loads(run("doctor", "--format", "json").stdout)["findings"]
    assert {"check", "level", "message", "remedy"} == set(rows[0])
    assert run("doctor", REDIS_URL=f"redis://127.0.0.1:{free_port()}").exit_code == 1
