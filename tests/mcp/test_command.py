"""The command: how it begins and ends, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import SLOW, Run, ended, started
from tests.cli.conftest import run as run  # noqa: PLC0414 - a fixture
from tests.helpers.embedded import is_stopped, wait_until
from tests.mcp.conftest import over_stdio

CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": CLIENT}


def greet(program: subprocess.Popen[str]) -> Any:
    """Send the first message of the protocol, and return the answer."""
    return ask(program, json.dumps(HELLO))


def ask(program: subprocess.Popen[str], line: str) -> Any:
    assert program.stdin
    assert program.stdout
    program.stdin.write(f"{line}\n")
    program.stdin.flush()
    return json.loads(program.stdout.readline())


@pytest.mark.in_turn("number")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_nothing_is_left(tmp_path: Path, number: signal.Signals) -> None:
    program = started("mcp", "--user", "maya", "--embeddings", "none", "--dir", str(tmp_path / "data"))
    assert greet(program)["result"]["serverInfo"]["name"] == "workingmem"
    assert program.stdout
    assert program.stderr
    program.send_signal(number)
    assert program.stdout.read() + program.stderr.read() == ""
    assert ended(program) == 0
    wait_until(lambda: is_stopped(tmp_path / "data"))


@pytest.mark.in_turn("how")
@pytest.mark.parametrize("how", ["signal", "two signals", "end of input"])
def test_a_model_that_does_not_answer_keeps_nothing_alive(
    server: EmbeddedRedis, prefix: str, tmp_path: Path, how: str
) -> None:
    hurried = "\nfrom langchain_workingmem import serving\nserving._GRACE_SECONDS = 0.2\n"
    (tmp_path / f"slow_{prefix}.py").write_text(SLOW.format(url=server.url, prefix=prefix) + hurried)
    words = ("--user", "maya", "--memory", f"slow_{prefix}:memory")
    program = started("mcp", *words, PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    greet(program)
    assert program.stdin
    assert program.stderr
    call = {"name": "search_memory", "arguments": {"query": "x"}}
    for message in ({"method": "notifications/initialized"}, {"id": 2, "method": "tools/call", "params": call}):
        program.stdin.write(f"{json.dumps({'jsonrpc': '2.0', **message})}\n")
        program.stdin.flush()
    wait_until((tmp_path / f"slow_{prefix}.py.waits").exists)
    if how == "end of input":
        program.stdin.close()
    for _ in range({"signal": 1, "two signals": 2}.get(how, 0)):
        program.send_signal(signal.SIGINT)
    assert program.stderr.read() == ""
    assert ended(program) == 0


def test_it_ends_quietly_when_its_client_has_died(server: EmbeddedRedis, prefix: str) -> None:
    program = started("mcp", "--user", "maya", "--embeddings", "none", "--url", server.url, "--key-prefix", prefix)
    greet(program)
    assert program.stdin
    assert program.stdout
    assert program.stderr
    program.stdout.close()
    program.stdin.write('{"jsonrpc": "2.0", "id": 8, "method": "ping"}\n' * 3)
    program.stdin.close()
    assert program.stderr.read() == ""
    assert ended(program) == 0


def test_what_is_no_message_is_answered(server: EmbeddedRedis, prefix: str) -> None:
    """A client that waits for an answer gets one, and the server goes on."""
    program = started("mcp", "--user", "maya", "--embeddings", "none", "--url", server.url, "--key-prefix", prefix)
    greet(program)
    call = '{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": %s}}'
    for line, id in ((call % '"list_threads\\ud800"', 7), ("{", None), ('{"id": "x"}', "x")):
        answer = ask(program, line)
        assert (answer["id"], answer["error"]["code"]) == (id, -32700)
        assert "nothing was done" in answer["error"]["message"]
    assert ask(program, call % '["hush"]')["error"]["code"] == -32602
    assert ask(program, '{"jsonrpc": "2.0", "id": 8, "method": "ping"}') == {"jsonrpc": "2.0", "id": 8, "result": {}}
    assert "hush" not in program.communicate(timeout=20)[1]
    assert program.returncode == 0


PROGRAM = """\
from langchain_workingmem import Memory, WorkingMemoryOptions

print("starting")
memory = Memory({url!r}, key_prefix={prefix!r}, working_memory=WorkingMemoryOptions(
    schema={{"properties": {{"city": {{"type": "string"}}, "dog": {{"type": "string"}}}}}}, scope="thread"))
"""


async def test_the_memory_of_a_program_has_its_options(server: EmbeddedRedis, prefix: str, tmp_path: Path) -> None:
    """And what the program prints does not disturb the protocol."""
    (tmp_path / "app.py").write_text(PROGRAM.format(url=server.url, prefix=prefix).replace('print("starting")\n', ""))
    words = ("--user", "maya", "--memory", "app:memory")
    async with over_stdio(*words, errors=tmp_path / "errors", PYTHONPATH=f"{Path.cwd()}:{tmp_path}") as client:
        tools = {tool.name: tool.inputSchema for tool in (await client.session.list_tools()).tools}
        assert "search_memory" not in tools
        facts = tools["update_working_memory"]["properties"]["memory"]["anyOf"][0]["properties"]
        assert {*facts} == {"city", "dog"}
        assert tools["get_working_memory"]["required"] == ["thread_id"]
        await client.save("Hello.", thread_id="t")
        await client.text("update_working_memory", thread_id="t", memory={"city": "Porto"})
        await client.text("update_working_memory", thread_id="t", memory={"dog": "Nougat"}, clear=["city"])
        assert json.loads((await client.data("get_working_memory", thread_id="t"))["text"]) == {"dog": "Nougat"}


def test_what_a_program_prints_goes_to_standard_error(server: EmbeddedRedis, prefix: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM.format(url=server.url, prefix=prefix))
    program = started("mcp", "--user", "maya", "--memory", "app:memory", PYTHONPATH=f"{Path.cwd()}:{tmp_path}")
    assert greet(program)["id"] == 1
    assert program.communicate(timeout=60) == ("", "starting\n")  # it ends with its input
    assert program.returncode == 0


ELSEWHERE = """
import pathlib, signal, threading, time
def interrupt():
    while not pathlib.Path({path!r}).exists(): time.sleep(0.05)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
"""


def test_a_signal_that_another_thread_gets_ends_it(server: EmbeddedRedis, prefix: str, tmp_path: Path) -> None:
    text = PROGRAM + ELSEWHERE.format(path=str(tmp_path / "now"))
    (tmp_path / "app.py").write_text(text.format(url=server.url, prefix=prefix))
    program = started("mcp", "--user", "maya", "--memory", "app:memory", PYTHONPATH=f"{Path.cwd()}:{tmp_path}")
    greet(program)
    (tmp_path / "now").touch()
    assert ended(program) == 0


def test_a_wrong_call_is_code_2(run: Run) -> None:
    for words, expected in (
        ("", "pass --user ID"),
        ("--tokens f", "pass --http as well"),
        ("--port 7000 --user maya", "pass --http as well"),
        ("--http", "pass --user ID"),
        ("--http --tokens f --user maya", "only one of them"),
    ):
        found = run("mcp", *words.split())
        assert (found.exit_code, found.stdout) == (2, "")
        assert expected in found.stderr


def test_tokens_that_cannot_protect_are_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    for content, mode, expected in (
        ('{"0123456789abcdef": "maya"}', 0o644, "chmod 600"),
        ('{"0123456789abcde": "maya"}', 0o600, "shorter than 16 characters"),
        ('{"0123456789 abcdef": "maya"}', 0o600, "visible ASCII"),
        ('{"0123456789abcdef": "maya", "0123456789abcdef": "jonas"}', 0o600, "twice"),
        ('{"0123456789abcdef": ""}', 0o600, "the user of token 1"),
        ("5", 0o600, "no object of tokens"),
    ):
        path.write_text(content)
        path.chmod(mode)
        found = run("mcp", "--http", "--tokens", str(path), "--embeddings", "none")
        assert (found.exit_code, found.stdout) == (1, "")
        assert expected in found.stderr
        assert "0123456789" not in found.stderr
        assert found.stderr.count("\n") == 1
