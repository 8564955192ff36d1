"""The stand-in for a model, by hand: what it writes down, and what it quotes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool

from langchain_workingmem._documents.formats import DEFAULT_TEMPLATE
from langchain_workingmem._text.rendering import recalled_block
from langchain_workingmem.cli.chat.offline import Offline, noted
from langchain_workingmem.models import RecallResult, StoredMessage
from langchain_workingmem.options import WorkingMemoryOptions
from langchain_workingmem.working_memory.prompt import render_working_memory

FORM = WorkingMemoryOptions().format


@tool
def update_working_memory(memory: str) -> str:
    """Remember."""
    return memory


def prompt(document: str = "", recalled: str = "") -> SystemMessage:
    """Make the system message as the middleware makes it."""
    blocks = ["You are helpful.", render_working_memory(FORM, document, "resource", update="update_working_memory")]
    if recalled:
        at = datetime(2026, 5, 1, tzinfo=UTC)
        row = StoredMessage(message=HumanMessage(recalled, id="1"), thread_id="another", seq=1, stored_at=at)
        blocks.insert(1, recalled_block(RecallResult(rows=[row]), "here") or "")
    return SystemMessage(content=[{"type": "text", "text": block} for block in blocks])


def ask(*messages: Any, writable: bool = True) -> AIMessage:
    model = Offline().bind_tools([update_working_memory] if writable else [])
    return model.invoke(list(messages))


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        ("my dog is called Nougat", ["my dog is called Nougat"]),
        ("Hello! I live in Oslo.", ["I live in Oslo"]),
        ("Please remember that the train leaves at nine.", ["the train leaves at nine"]),
        ("I'm a baker. Our shop has two ovens!", ["I'm a baker", "Our shop has two ovens"]),
        ("Is my dog called Nougat?", []),
        ("What is my name?", []),
        ("remember my name?", []),
        ("Hello there.", []),
    ],
)
def test_facts_that_a_user_states_are_written_down(said: str, facts: list[str]) -> None:
    answer = ask(prompt(), HumanMessage(said))
    written = "".join(call["args"]["memory"] for call in answer.tool_calls)
    assert [line.split('"')[1] for line in written.splitlines() if "The user said" in line] == facts
    assert bool(answer.text) is not bool(facts)
    if facts:
        assert written.startswith("# User information")


def test_without_the_tool_nothing_is_written_down() -> None:
    answer = ask(prompt(), HumanMessage("my dog is called Nougat"), writable=False)
    assert not answer.tool_calls
    assert "no language model" in answer.text


def test_a_document_grows_and_keeps_what_it_holds() -> None:
    document = noted(DEFAULT_TEMPLATE.replace("**:\n- **Last", "**: Maya\n- **Last"), ["my dog is called Nougat"])
    document = noted(document, ["I like tea", "my dog is three years old", "my dog is called Rex"])
    lines = document.splitlines()
    assert "- **First name**: Maya" in lines
    at = lines.index("- **Facts**:")
    assert lines[at + 1 : at + 5] == [
        '  - The user said: "my dog is called Rex"',
        '  - The user said: "I like tea"',
        '  - The user said: "my dog is three years old"',
        "- **Projects**:",
    ]
    assert noted("# Another form", ["1 < 2"]) == '# Another form\n  - The user said: "1 &lt; 2"'


def test_an_answer_quotes_memory_and_nothing_else() -> None:
    known = 'The user said: "my dog is called Nougat & Co"'
    answer = ask(prompt(f"# User\n- **Facts**:\n  - {known}", "we walked the dog"), HumanMessage("Where is my dog?"))
    assert answer.text.splitlines() == [
        f"Working memory says: {known}",
        "On 2026-05-01 00:00 UTC you said: we walked the dog",
    ]
    here = ask(prompt(), HumanMessage("the dog barks"), AIMessage("I see."), HumanMessage("and the dog?"))
    assert here.text == "Earlier here you said: the dog barks"
    assert ask(HumanMessage("and the cat?")).text.startswith("I find nothing about that")


def test_what_the_tool_says_is_the_answer() -> None:
    call: Any = {"name": "update_working_memory", "args": {"memory": "x"}, "id": "c"}
    said = [prompt(), HumanMessage("remember x"), AIMessage("", tool_calls=[call])]
    assert (
        ask(*said, ToolMessage("Working memory is updated:\n+ x", tool_call_id="c")).text
        == "Working memory is updated."
    )
    assert ask(*said, ToolMessage("too large", tool_call_id="c")).text == "too large."
