"""The command: an agent of a program, served to clients; how it ends, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx
import openai
import pytest
from typer.testing import CliRunner

from langchain_workingmem import Memory
from langchain_workingmem.cli import app as cli
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import ended, started
from tests.helpers.models import said
from tests.openai_server.conftest import HELLO, KEYS, MAYA, client_of

pytestmark = pytest.mark.programs

PROGRAM = """\
from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_workingmem import Memory
from langchain_workingmem.middleware import MemoryMiddleware

print("starting")
memory = Memory({url!r}, key_prefix={prefix!r})
agent = create_agent(FakeListChatModel(responses=["Hello!"]), middleware=[MemoryMiddleware(memory)])


def make():
    return agent


def broken():
    raise RuntimeError("no key")


number = 5
"""
Run = Callable[..., Any]
Start = Callable[..., tuple[str, "Popen[str]"]]


@pytest.fixture
def run() -> Run:
    return lambda *words: CliRunner().invoke(cli, [*words])


@pytest.fixture
def module(server: EmbeddedRedis, prefix: str, tmp_path: Path) -> str:
    """The name of a module that holds an agent and its memory."""
    (tmp_path / f"app_{prefix}.py").write_text(PROGRAM.format(url=server.url, prefix=prefix))
    return f"app_{prefix}"


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = tmp_path / "keys.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(KEYS))
    return str(path)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the command; it ends with Ctrl-C, and nothing is left."""
    running = []

    def begin(*words: str) -> tuple[str, Popen[str]]:
        where = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        process = started("serve-openai", *words, PYTHONPATH=where)
        running.append(process)
        assert process.stdout
        return process.stdout.readline().strip(), process

    yield begin
    for process in running:
        process.send_signal(signal.SIGINT)
        assert ended(process) == 0


def test_two_users_talk_to_the_agent_of_a_program(start: Start, module: str, key_file: str, plain: Memory) -> None:
    url, _ = start(f"{module}:agent", "--tokens", key_file, "--name", "ours")
    for key, chat in zip(KEYS, ("m", "o"), strict=True):
        client = client_of(url, key, chat)
        assert [model.id for model in client.models.list()] == ["ours", "ours-tasks"]
        for _ in range(2):  # the first question is asked again
            chunks = client.chat.completions.create(model="ours", messages=HELLO, stream=True)
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello!"
        assert said(plain.history.messages(chat, resource_id=KEYS[key])) == ["human: hello", "ai: Hello!"]
    with pytest.raises(openai.AuthenticationError):
        client_of(url, "unknown").chat.completions.create(model="ours", messages=HELLO)
    with pytest.raises(openai.NotFoundError):
        client_of(url, MAYA, "o").chat.completions.create(model="ours", messages=HELLO)


def test_a_service_names_its_users_in_a_header(start: Start, module: str, key_file: str, plain: Memory) -> None:
    words = ("--tokens", key_file, "--user-header", "X-OpenWebUI-User-Id", "--host", "0.0.0.0", "--stream", "answers")
    url, _ = start(f"{module}:make", *words, "--memory", f"{module}:memory")
    url = url.replace("0.0.0.0", "127.0.0.1")
    client = client_of(url)
    with pytest.raises(openai.AuthenticationError):
        client.chat.completions.create(model="agent", messages=HELLO)
    headers = {"X-OpenWebUI-User-Id": "eva", "Host": "host.docker.internal"}
    client.chat.completions.create(model="agent", messages=HELLO, extra_headers=headers)
    assert [thread.id for thread in plain.threads.list(resource_id="eva")] == ["t"]
    with pytest.raises(openai.AuthenticationError):
        client_of(url, "unknown").chat.completions.create(model="agent", messages=HELLO, extra_headers=headers)


def test_one_user_needs_no_key_on_this_machine_and_other_pages_are_refused(
    start: Start, module: str, plain: Memory
) -> None:
    url, process = start(f"{module}:agent", "--resource", "maya")
    assert process.stderr
    assert [process.stderr.readline(), process.stderr.readline()] == [
        "starting\n",
        "Every program of this machine can reach this agent: --tokens FILE asks each one for a key\n",
    ]
    assert client_of(url, "any").chat.completions.create(model="agent", messages=HELLO).choices
    assert plain.threads.get("t", resource_id="maya")
    assert httpx.get(f"{url}/models", headers={"Host": "evil.example"}).status_code == 403
    assert httpx.get(f"{url}/models", headers={"Origin": "http://evil.example"}).status_code == 403


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a:b"], "pass --resource ID"),
        (["a:b", "--resource", "maya", "--tokens", "f"], "only one of them"),
        (["a:b", "--resource", "maya", "--host", "0.0.0.0"], "need --tokens FILE"),
        (["a:b", "--resource", "maya", "--user-header", "x"], "need --tokens FILE"),
    ],
)
def test_a_wrong_call_is_one_line_and_code_2(run: Run, words: list[str], expected: str) -> None:
    found = run("serve-openai", *words)
    assert (found.exit_code, found.stdout) == (2, "")
    assert expected in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("agent", "more", "expected"),
    [
        ("nowhere_at_all:agent", [], "nowhere_at_all"),
        ("{module}:broken", [], "RuntimeError: no key"),
        ("{module}:number", [], "is of type int"),
        ("{module}:nothing", [], "AttributeError"),
        ("tests.openai_server.test_command:Unasked", [], "names 0 memories"),
        ("{module}:agent", ["--memory", "{module}:number"], "is of type int"),
        ("{module}:agent", ["--host", "nowhere.invalid", "--tokens"], "cannot be opened"),
    ],
)
def test_a_program_that_cannot_be_served_is_one_line(
    run: Run,
    module: str,
    key_file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    agent: str,
    more: list[str],
    expected: str,
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    who = [key_file] if "--tokens" in more else ["--resource", "maya"]
    words = [word.format(module=module) for word in (agent, *more, *who)]
    found = run("serve-openai", *words)
    assert "starting" not in found.stdout
    assert (found.exit_code, len(found.stderr.removeprefix("starting\n").splitlines())) == (1, 1)
    assert expected in found.stderr


class Unasked:
    """No agent of a program, in a module without a memory."""

    ainvoke = None
