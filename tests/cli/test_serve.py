"""`serve`: a private Redis for as long as it is wanted."""

from __future__ import annotations

import re
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from langchain_workingmem.cli import app
from tests.cli.conftest import ended, started
from tests.helpers.embedded import free_port, is_open, kill_server, wait_until


def test_the_first_line_is_the_url_and_a_signal_ends_it() -> None:
    program = started("serve", fresh=True)
    assert program.stdout
    assert program.stderr
    url = program.stdout.readline().strip()
    place = re.search(r"Redis runs in (\S+), a temporary directory", program.stderr.readline())
    assert place
    with redis.Redis.from_url(url) as client:
        client.set("key", "value")
    program.send_signal(signal.SIGINT)
    assert program.stdout.read() + program.stderr.read() == ""
    assert ended(program) == 0
    wait_until(lambda: not Path(place[1]).exists())


def test_a_port_is_open_until_sigterm_and_the_data_stay(tmp_path: Path) -> None:
    port = free_port()
    program = started("serve", str(tmp_path), "--port", str(port))
    assert program.stdout
    assert program.stdout.readline() == f"redis://127.0.0.1:{port}\n"
    with redis.Redis(port=port) as client:
        client.set("key", "value")
    kill_server(tmp_path)
    wait_until(lambda: is_open(port))  # it starts again
    with redis.Redis(port=port) as client:
        assert client.get("key") == b"value"
    program.terminate()
    assert ended(program) == 0
    assert not is_open(port)


@pytest.mark.usefixtures("kept_signals")
def test_a_port_or_a_directory_that_cannot_be_had(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = CliRunner().invoke(app, ["serve", "--port", str(taken.getsockname()[1])])
    assert (found.exit_code, found.stdout) == (1, "")
    assert "choose another one" in found.stderr
    path = tmp_path / "file"
    path.touch()
    assert "cannot be a data directory" in CliRunner().invoke(app, ["serve", str(path)]).stderr
    assert CliRunner().invoke(app, ["serve", "--port", "0"]).exit_code == 2


def calls_of(client: redis.Redis, command: str) -> int:
    found: Any = client.info("commandstats")
    return int(found.get(f"cmdstat_{command}", {"calls": 0})["calls"])


@pytest.mark.usefixtures("kept_signals")
def test_one_server_has_one_port(tmp_path: Path) -> None:
    port = free_port()
    program = started("serve", str(tmp_path), "--port", str(port))
    assert program.stdout
    program.stdout.readline()
    found = CliRunner().invoke(app, ["serve", str(tmp_path), "--port", str(free_port())])
    assert f"listens on port {port} already" in found.stderr
    with redis.Redis(port=port) as client:
        before = calls_of(client, "config|get")
        wait_until(lambda: calls_of(client, "config|get") > before + 1)
        assert calls_of(client, "config|set") == 2  # the address and the port, once
    program.terminate()
    assert ended(program) == 0
