"""`chat`: an agent that remembers, in the terminal, and its model that needs no key."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import EVIL, Run, ended, interrupt, read_all, read_until, started
from tests.helpers.models import ModelDownError, Scripted, calling


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Scripted]:
    """Stand for any provider: its model plays a script."""

    def use(*script: Any) -> Scripted:
        model = Scripted.says(*script)
        monkeypatch.setattr("langchain_workingmem._engine.calls.chat_model_by_name", lambda _: model)
        return model

    return use


def test_it_remembers_in_another_conversation(run: Run) -> None:
    told = run("chat", input="My dog is called Nougat.\n/memory\n")
    assert told.exit_code == 0
    assert "no language model" in told.stderr
    assert "+ - My dog is called Nougat" in told.stderr
    assert "Noted." in told.stdout
    assert "revision 1" in told.stdout
    asked = run("chat", input="What is my dog called?\nIs the cat Molly?\n")
    assert "Working memory says: My dog is called Nougat" in asked.stdout
    assert "I find nothing about that in memory" in asked.stdout
    assert "I love tea" in run("chat", input="Please remember that the sea is blue. I love tea!\n/memory\n").stdout
    state = json.loads(run("working-memory", "get", "--user", "me", "--format", "json").stdout)
    assert state["text"].splitlines() == ["- My dog is called Nougat", "- the sea is blue", "- I love tea"]


def test_a_conversation_goes_on(run: Run, talked: Memory) -> None:
    found = run("chat", "--user", "maya", "--thread", "dog", input="what is my dog called?\n")
    assert "Earlier here you said: My dog is called Nougat." in found.stdout
    thread = talked.threads.get("dog")
    assert thread
    assert (thread.message_count, thread.title) == (4, "A dog")
    own = run("chat", "--user", "jonas", input="What is my dog called?\n/threads\n/memory\n")
    assert "Nougat" not in own.stdout
    theirs = run("chat", "--user", "jonas", "--thread", "dog", input="what is my dog called?\n")
    assert (theirs.exit_code, theirs.stdout) == (1, "")
    assert "does not belong" in theirs.stderr


def test_commands(run: Run, talked: Memory) -> None:
    words = ["/help", "/threads", "/recall dog", "/new", "", "/quit", "never said"]
    found = run("chat", "--user", "maya", input="\n".join(words))
    assert found.exit_code == 0
    assert all(expected in found.stdout for expected in ("/recall QUERY", "2 of 2 threads", "Nougat"))
    assert "never said" not in found.stdout
    assert talked.threads.list(user_id="maya").total == 2


def test_any_model_talks_and_uses_tools(run: Run, scripted: Callable[..., Scripted]) -> None:
    model = scripted(
        calling(("search_memory", {"query": "dog"}), id="a1", text="Let me look."),
        "Your dog is called\nNougat.",
    )
    found = run("chat", "--model", "any:model", input="hi\n")
    assert "model: any:model" in found.stderr
    assert "· search_memory: " in found.stderr
    assert found.stdout.endswith("Your dog is called Nougat. \n")  # the script streams word by word
    assert "update_working_memory" in model.tools[0]


def test_a_model_that_fails_is_one_line_and_the_next_turn_works(run: Run, scripted: Callable[..., Scripted]) -> None:
    scripted(ModelDownError("overloaded"), "I am back.")
    found = run("chat", "--model", "any:model", input="hi\nstill there?\n")
    assert found.exit_code == 1
    assert "workingmem: ModelDownError: overloaded\n" in found.stderr
    assert "I am back." in found.stdout


def test_a_missing_extra_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "langchain_workingmem.middleware", raising=False)
    monkeypatch.setitem(sys.modules, "langchain.agents.middleware", None)
    found = run("chat", input="hi\n")
    assert (found.exit_code, found.stdout) == (1, "")
    assert "pip install 'langchain-workingmem[agents]'" in found.stderr


def test_openai_is_the_default_with_a_key(run: Run, scripted: Callable[..., Scripted]) -> None:
    scripted("hello")
    assert "model: openai:gpt-4o-mini" in run("chat", input="hi\n", OPENAI_API_KEY="key").stderr


def test_what_a_program_keeps_along_its_schema_is_not_changed(run: Run, server: EmbeddedRedis, prefix: str) -> None:
    options = WorkingMemoryOptions(schema={"type": "object"})
    with Memory(server.url, key_prefix=prefix, working_memory=options) as memory:
        memory.working_memory.update({"pet": "Nougat"}, user_id="me")
        found = run("chat", input="my cat is called Mimi\nwhat is the pet?\n")
        assert 'Working memory says: {"pet":' in found.stdout
        assert memory.working_memory.get(user_id="me").revision == 1


def test_what_is_said_and_recalled_is_text(run: Run, outside: Memory) -> None:
    outside.save_turn([HumanMessage(f"my dog is {EVIL}")], thread_id="t", user_id="me")
    found = run("chat", input=f"my cat is {EVIL}\nmy dog?\n/memory\n/threads\n")
    assert "[red]" in found.stdout
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(found.output)


def test_a_mistake_is_found_before_anything_is_said(run: Run) -> None:
    for option, value, reason in (
        ("--model", "nonsense", "Unable to infer model provider"),
        ("--model", "openai:gpt-4o-mini", "OPENAI_API_KEY"),
        ("--embeddings", "nonsense", "use 'local'"),
    ):
        found = run("chat", option, value, input="hi\n")
        assert (found.exit_code, found.stdout) == (1, "")
        assert reason in found.stderr


def test_it_remembers_over_restarts_without_any_setting(tmp_path: Path) -> None:
    for said, answer in (("my dog is called Nougat", "Noted."), ("what is my dog called?", "Working memory says")):
        program = started("chat", fresh=answer == "Noted.", XDG_DATA_HOME=str(tmp_path))
        output, _ = program.communicate(f"{said}\n", timeout=60)
        assert program.returncode == 0
        assert answer in output


def test_ctrl_c_in_a_terminal_ends_it_quietly(server: EmbeddedRedis, prefix: str) -> None:
    program = started("chat", "--key-prefix", prefix, terminal=True, REDIS_URL=server.url)
    read_until(program, "> ")
    assert program.stdin
    program.stdin.write("remember that tea is hot\n")
    read_until(program, "Noted.")
    read_until(program, "> ")
    interrupt(program)
    assert "Traceback" not in read_all(program)
    assert ended(program) == 0
