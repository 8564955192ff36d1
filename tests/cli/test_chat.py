"""`chat`: an agent that remembers, in the terminal."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from typer.testing import CliRunner

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem.cli import app
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import EVIL, Run, ended, read_all, read_until, started
from tests.helpers.models import ModelDownError, Scripted, calling

NOTHING_SET: dict[str, str | None] = {"REDIS_URL": None, "OPENAI_API_KEY": None, "COLUMNS": "200"}


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Scripted]:
    """Stand for any provider: its model plays a script."""

    def use(*script: Any) -> Scripted:
        model = Scripted.says(*script)
        monkeypatch.setattr("langchain_workingmem.chat_models.chat_model_by_name", lambda _: model)
        return model

    return use


def test_it_remembers_in_another_conversation(run: Run, outside: Memory) -> None:
    told = run("chat", input="My dog is called Nougat.\n/memory\n")
    assert told.exit_code == 0
    assert "no language model" in told.stdout
    assert '· update working memory: +   - The user said: "My dog is called Nougat"' in told.stdout
    assert "Working memory is updated." in told.stdout
    assert "revision 1" in told.stdout
    asked = run("chat", input="What is my dog called?\n")
    assert "· recalled" in asked.stdout
    assert "from 'My dog is called Nougat.'" in asked.stdout
    assert 'Working memory says: The user said: "My dog is called Nougat"' in asked.stdout
    assert {thread.message_count for thread in outside.threads.list(resource_id="me")} == {4, 2}


def test_users_do_not_see_each_other(run: Run) -> None:
    run("chat", "--resource", "maya", input="My dog is called Biscuit.\n")
    found = run("chat", "--resource", "jonas", input="What is my dog called?\n/threads\n/memory\n")
    assert "Biscuit" not in found.stdout


def test_a_conversation_goes_on(run: Run, talked: Memory) -> None:
    found = run("chat", "--resource", "maya", "--thread", "dog", input="what is my dog called?\n")
    assert "Earlier here you said: My dog is called Nougat." in found.stdout
    assert talked.threads.get("dog").message_count == 4  # type: ignore[union-attr]
    assert talked.threads.get("dog").title == "A dog"  # type: ignore[union-attr]
    theirs = run("chat", "--resource", "jonas", "--thread", "dog", input="what is my dog called?\n")
    assert (theirs.exit_code, theirs.stdout) == (1, "")
    assert "does not belong" in theirs.stderr


def test_commands(run: Run, talked: Memory) -> None:
    words = ["/help", "/threads", "/recall dog", "/recall", "/new", "/nonsense", "", "/quit", "never said"]
    found = run("chat", "--resource", "maya", input="\n".join(words))
    assert found.exit_code == 0
    for expected in (
        "/recall QUERY",
        "2 of 2 threads",
        "▸",
        "/recall QUERY: pass the words to search for",
        "/nonsense is not a command",
        "a new thread: chat-",
    ):
        assert expected in found.stdout
    assert "never said" not in found.stdout
    assert talked.threads.list(resource_id="maya").total == 2


def test_any_model_talks_and_uses_tools(run: Run, scripted: Callable[..., Scripted]) -> None:
    model = scripted(
        calling(("search_memory", {"query": "dog"}), id="a1", text="Let me look."),
        "Your dog is called\nNougat.",
    )
    found = run("chat", "--model", "any:model", input="hi\n")
    assert "· model: any:model" in found.stdout
    assert "Let me look. \n· search memory: " in found.stdout
    assert found.stdout.endswith("Your dog is called Nougat. \n")  # the script streams word by word
    assert "update_working_memory" in model.tools[0]


def test_a_model_that_fails_is_one_line_and_the_next_turn_works(run: Run, scripted: Callable[..., Scripted]) -> None:
    scripted(ModelDownError("overloaded"), "I am back.")
    found = run("chat", "--model", "any:model", input="hi\nstill there?\n")
    assert found.exit_code == 1
    assert found.stderr == "workingmem: ModelDownError: overloaded\n"
    assert "I am back." in found.stdout


def test_ctrl_c_stops_an_answer_and_not_the_conversation(run: Run, scripted: Callable[..., Scripted]) -> None:
    def interrupted(_: object) -> str:
        raise KeyboardInterrupt

    scripted(interrupted, "I am back.")
    found = run("chat", "--model", "any:model", input="hi\nstill there?\n")
    assert "· stopped\n> still there?\nI am back." in found.stdout
    assert found.exit_code == 0


def test_a_missing_extra_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "langchain_workingmem.faces.middleware", raising=False)
    monkeypatch.setitem(sys.modules, "langchain.agents.middleware", None)
    found = run("chat", input="hi\n")
    assert (found.exit_code, found.stdout) == (1, "")
    assert "pip install 'langchain-workingmem[agents]'" in found.stderr


def test_openai_is_the_default_with_a_key(run: Run, scripted: Callable[..., Scripted]) -> None:
    scripted("hello")
    assert "· model: openai:gpt-4o-mini" in run("chat", input="hi\n", OPENAI_API_KEY="key").stdout


def test_what_a_program_keeps_along_its_schema_is_not_changed(run: Run, server: EmbeddedRedis, prefix: str) -> None:
    options = WorkingMemoryOptions(schema={"type": "object"})
    with Memory(server.url, key_prefix=prefix, working_memory=options) as memory:
        memory.working_memory.update({"pet": "Nougat"}, resource_id="me")
        found = run("chat", input="my cat is called Mimi\nwhat is the pet?\n")
        assert "shown, not changed" in found.stdout
        assert 'Working memory says: {"pet":' in found.stdout
        assert memory.working_memory.get(resource_id="me").revision == 1


def test_text_in_a_form_of_its_own_keeps_it(run: Run, server: EmbeddedRedis, prefix: str) -> None:
    with Memory(server.url, key_prefix=prefix, working_memory=WorkingMemoryOptions(template="")) as memory:
        memory.working_memory.update("# Trip\n- To: Rome", resource_id="me")
        run("chat", input="I like tea\n")
        text = memory.working_memory.get(resource_id="me").text
        assert text == '# Trip\n- To: Rome\n  - The user said: "I like tea"'


def test_without_embeddings_there_is_no_recall(run: Run) -> None:
    found = run("chat", "--embeddings", "none", input="hi\n/recall dog\nmy dog is called Nougat\n")
    assert "recall is off" in found.stderr
    assert "Working memory is updated." in found.stdout


def test_what_is_said_and_recalled_is_text(run: Run, outside: Memory) -> None:
    outside.save_turn([HumanMessage(f"my dog is {EVIL}")], thread_id="t", resource_id="me")
    found = run("chat", input=f"my cat is {EVIL}\nmy dog?\n/memory\n/threads\n")
    assert "[red]" in found.stdout
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(found.output)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--model", "nonsense"], "Unable to infer model provider"),
        (["--model", "openai:gpt-4o-mini"], "OPENAI_API_KEY"),
        (["--embeddings", "nonsense"], "use 'local'"),
        (["--resource", ""], "resource_id"),
    ],
)
def test_a_mistake_is_found_before_anything_is_said(run: Run, words: list[str], reason: str) -> None:
    found = run("chat", *words, input="hi\n")
    assert (found.exit_code, found.stdout) == (2 if "--embeddings" in words else 1, "")
    assert reason in found.stderr
    assert "Traceback" not in found.stderr


def test_it_remembers_over_restarts_without_any_setting(run: Run, tmp_path: Path) -> None:
    program = started("chat", fresh=True, XDG_DATA_HOME=str(tmp_path))
    output, errors = program.communicate("my dog is called Nougat\n", timeout=30)
    assert (program.returncode, errors) == (0, "")
    assert f"a private Redis in {tmp_path / 'langchain-workingmem'}" in output
    asked = CliRunner().invoke(
        app, ["chat"], input="what is my dog called?\n", env=NOTHING_SET | {"XDG_DATA_HOME": str(tmp_path)}
    )
    assert 'Working memory says: The user said: "my dog is called Nougat"' in asked.stdout


def test_ctrl_c_in_a_terminal_ends_it_quietly(server: EmbeddedRedis, prefix: str) -> None:
    program = started("chat", "--key-prefix", prefix, terminal=True, REDIS_URL=server.url)
    read_until(program, "> ")
    assert program.stdin
    program.stdin.write("remember that tea is hot\n")
    read_until(program, "is updated.")
    read_until(program, "> ")
    for _ in range(5):
        program.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):  # readline misses what comes just before it waits
            program.wait(timeout=8)  # ending may take a while, and another signal then would kill it
            break
    assert "Traceback" not in read_all(program)
    assert ended(program) == 0
