"""A program that has changed the format of working memory: agents bring the documents of its users into the new one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from pydantic import BaseModel

from langchain_workingmem import Memory, WorkingMemoryOptions, WorkingMemoryValidationError
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.programs import Forked
from tests.helpers.types import Invoke
from tests.tools.samples import TEMPLATE, Scripted, calls, known, results, update_tool

NOTES = "# User\n- **Name**: Ann\n- **City**: Ulm\n"
FIELDS = {"name": "Ann", "city": "Ulm"}


class Person(BaseModel):
    name: str | None = None
    city: str | None = None
    pets: list[str] = []


class Place(BaseModel):
    town: str


class Moved(BaseModel, extra="forbid"):
    """Another schema: `city` is an object now, and `pets` is gone."""

    name: str | None = None
    city: Place | None = None
    jobs: list[str] = []


MOVED_JSON: dict[str, Any] = Moved.model_json_schema()
Open = Callable[..., Memory]


@pytest.fixture
def opened(server: EmbeddedRedis, prefix: str) -> Iterator[Open]:
    """Memories of programs of one application, each with its own options."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            Memory(server.url, key_prefix=prefix, working_memory=WorkingMemoryOptions(**options))
        )


def asked(memory: Memory, invoke: Invoke, user: str, *answers: AIMessage, question: str = "Hi") -> tuple[str, str]:
    """Run an agent of a user; return what the model was shown first, and what the tool answered last."""
    shown: list[str] = []

    class Noting(Scripted):
        def _generate(self, messages: Any, *arguments: Any, **options: Any) -> Any:
            shown.append("\n".join(one.text for one in messages))
            return super()._generate(messages, *arguments, **options)

    agent = create_agent(Noting(responses=[*answers, AIMessage("done")]), middleware=[MemoryMiddleware(memory)])
    config = {"configurable": {"thread_id": f"of-{user}", "resource_id": user}}
    found = invoke(agent, {"messages": [HumanMessage(question)]}, config)
    return shown[0], next((one.text for one in reversed(results(found["messages"]))), "")


CHANGES: dict[str, Any] = {
    "from a template to a schema": ({"template": TEMPLATE}, NOTES, {"schema": Person}, FIELDS, FIELDS),
    "from free text to a schema": ({"template": ""}, NOTES, {"schema": Person, "mode": "replace"}, FIELDS, FIELDS),
    "from a schema to a template": ({"schema": Person}, FIELDS, {"template": TEMPLATE}, NOTES, NOTES),
    "to a template that grows": ({"schema": Person}, FIELDS, {"template": TEMPLATE, "mode": "append"}, NOTES, NOTES),
    "to another schema": (
        {"schema": Person},
        {**FIELDS, "pets": ["cat"]},
        {"schema": Moved},
        {"city": {"town": "Ulm"}},
        {"name": "Ann", "city": {"town": "Ulm"}},  # what fits stays
    ),
    "to another JSON schema": (
        {"schema": Person},
        {**FIELDS, "pets": ["cat"]},
        {"schema": MOVED_JSON},
        {"city": {"town": "Ulm"}},
        {"name": "Ann", "city": {"town": "Ulm"}},
    ),
}


@pytest.mark.parametrize(("before", "stored", "after", "sent", "wanted"), CHANGES.values(), ids=CHANGES)
def test_an_agent_brings_a_document_into_the_new_form(
    opened: Open, invoke: Invoke, before: Any, stored: Any, after: Any, sent: Any, wanted: Any
) -> None:
    old, new = opened(**before), opened(**after)
    for user in ("ann", "bob"):
        old.working_memory.update(stored, resource_id=user)
    text = old.working_memory.get(resource_id="ann").text
    shown, answer = asked(new, invoke, "ann", calls({"memory": sent}))
    assert text.strip() in shown  # as data
    assert ("another form" in shown) or ("do not fit the schema" in shown)
    assert "stays as revision 1" in answer
    assert "Memory" not in answer.replace("Working memory", "")  # it speaks to a model, not to a programmer
    state = new.working_memory.get(resource_id="ann")
    assert (state.text if isinstance(wanted, str) else json.loads(state.text)) == wanted
    shown, _ = asked(new, invoke, "ann")
    assert "another form" not in shown
    assert "do not fit" not in shown
    assert new.working_memory.get(resource_id="bob").text == text

    assert new.working_memory.revert(1, resource_id="ann").text == text  # byte for byte, and it can be replaced again
    asked(new, invoke, "ann", calls({"memory": sent}))
    assert new.working_memory.get(resource_id="ann").text == state.text


REFUSED: dict[str, Any] = {
    "nothing that the schema has": ({"schema": Person}, NOTES, {"memory": {"zip": 1}}),
    "only fields to clear": ({"schema": Person}, NOTES, {"clear": ["name"]}),
    "a value that does not fit": ({"schema": Person}, NOTES, {"memory": {"name": 1}}),
    "edits": ({"template": TEMPLATE}, FIELDS, {"edits": [{"find": "Ulm", "replace": "Bonn"}]}),
    "the empty template": ({"template": TEMPLATE}, FIELDS, {"memory": TEMPLATE}),
    "nothing": ({"template": TEMPLATE}, FIELDS, {"memory": ""}),
}


@pytest.mark.parametrize(("after", "stored", "arguments"), REFUSED.values(), ids=REFUSED)
def test_what_would_lose_the_old_document_changes_nothing(
    opened: Open, after: Any, stored: Any, arguments: Any
) -> None:
    old = opened(**({"template": ""} if isinstance(stored, str) else {"schema": Person}))
    before = old.working_memory.update(stored, resource_id="ann")
    answer = update_tool(opened(**after)).invoke(arguments)
    assert "not" in answer or "nothing" in answer
    assert not any(word in answer for word in ("update(", ".get(", "mode=", "Python"))
    assert old.working_memory.get(resource_id="ann") == before


def test_a_text_that_the_model_has_not_seen_is_not_replaced(opened: Open, invoke: Invoke) -> None:
    """Old and new processes run side by side: what the old one adds after the prompt is shown before it may be replaced."""
    old, new = opened(template=TEMPLATE), opened(schema=Person)
    old.working_memory.update(NOTES, resource_id="ann")
    new.context("Hi", thread_id="t", resource_id="ann")
    old.working_memory.update(NOTES.replace("Ulm", "Bonn"), resource_id="ann")
    update = update_tool(new, thread_id="t", resource_id="ann")
    answer = update.invoke({"memory": FIELDS})
    assert "Bonn" in answer
    assert old.working_memory.get(resource_id="ann").text == NOTES.replace("Ulm", "Bonn")
    update.invoke({"memory": {**FIELDS, "city": "Bonn"}})
    assert known(new) == {**FIELDS, "city": "Bonn"}


def test_a_program_gets_a_typed_error_and_may_replace(opened: Open) -> None:
    old, new = opened(template=TEMPLATE), opened(schema=Person)
    old.working_memory.update(NOTES, resource_id="ann")
    with pytest.raises(WorkingMemoryValidationError, match="mode='replace'"):
        new.working_memory.update({"city": "Bonn"}, resource_id="ann")
    assert new.working_memory.update(FIELDS, resource_id="ann", mode="replace").value == Person.model_validate(FIELDS)


# ---------------------------------------------------------------------- a deployment that rolls

WRITER = """
import sys
from langchain_workingmem import Memory, WorkingMemoryOptions
url, prefix, kind = sys.argv[1:]
schema = {"type": "object", "properties": {"facts": {"type": "array", "items": {"type": "string"}}}}
options = {"schema": schema} if kind == "new" else {"template": "# Facts"}
memory = Memory(url, key_prefix=prefix, working_memory=WorkingMemoryOptions(revisions=1000, **options))
(update,) = memory.tools(thread_id=kind, resource_id="ann", include=["update_working_memory"])
print("ready", flush=True)
sys.stdin.readline()
for number in range(15):
    fact = f"{kind}{number}"
    for attempt in range(50):  # a model that reads, copies all facts into its own form, and adds one
        text = memory.context("Hi", thread_id=kind, resource_id="ann").working_memory.text
        words = "".join(sign if sign.isalnum() else " " for sign in text).split()
        facts = sorted({word for word in words if word[-1].isdigit()} | {fact})
        args = {"memory": {"facts": facts} if kind == "new" else "# Facts\\n" + "\\n".join(f"- {one}" for one in facts)}
        if "is updated" in update.invoke(args):
            break
    else:
        raise SystemExit("a fact was never stored")
memory.close()
"""


def test_an_old_and_a_new_process_at_once_lose_no_fact(server: EmbeddedRedis, prefix: str, opened: Open) -> None:
    command = [sys.executable, "-W", "error", "-c", WRITER, server.url, prefix]
    writers = [
        Forked([*command, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for kind in ("old", "new")
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        _, errors = writer.communicate(timeout=50)
        assert writer.returncode == 0, errors
    memory = opened(template="", revisions=1000)
    texts = [one.text for one in memory.working_memory.revisions(resource_id="ann", limit=1000)]
    for fact in (f"{kind}{number}" for kind in ("old", "new") for number in range(15)):
        assert any(fact in text for text in texts)
    assert {text.startswith("{") for text in texts} == {True, False}  # both have written


# ---------------------------------------------------------------------- with a keeper


def answers(*operations: dict[str, Any]) -> FakeListChatModel:
    return FakeListChatModel(responses=[json.dumps(operations)])


def kept_options(keeper: FakeListChatModel, **options: Any) -> dict[str, Any]:
    return {"keeper": keeper, "background": False, "tools": ["update"], **options}


CITY = {"op": "set", "path": "/city", "value": "Ulm", "messages": [1]}
LINE = {"find": "- **City**:", "replace": "- **City**: Ulm", "messages": [1]}


@pytest.mark.parametrize("to_schema", [True, False], ids=["to a schema", "to a template"])
def test_copied_values_go_with_the_message_that_they_stand_on(opened: Open, invoke: Invoke, to_schema: bool) -> None:
    fields, lines = {"schema": Person}, {"template": TEMPLATE}
    old_options, new_options = (lines, fields) if to_schema else (fields, lines)
    old = opened(**kept_options(answers(LINE if to_schema else CITY), **old_options))
    new = opened(**kept_options(answers(), **new_options))
    old.save_turn([HumanMessage("I live in Ulm", id="m1"), AIMessage("ok")], thread_id="of-ann", resource_id="ann")
    old.working_memory.keep("of-ann", resource_id="ann")
    assert "Ulm" in old.working_memory.get(resource_id="ann").text
    sent: Any = {"city": "Ulm", "name": "Ann"} if to_schema else "# User\n- **Name**: Ann\n- **City**: Ulm\n"
    asked(new, invoke, "ann", calls({"memory": sent}), question="I am Ann")
    state = new.working_memory.get(resource_id="ann")
    assert state.sources("/city" if to_schema else "/City") == [("of-ann", "m1")]
    assert state.sources("/name" if to_schema else "/Name") != [("of-ann", "m1")]
    new.history.delete(["m1"], thread_id="of-ann")
    text = new.working_memory.get(resource_id="ann").text
    assert "Ulm" not in text
    assert "Ann" in text
    assert not any("Ulm" in one.text for one in new.working_memory.revisions(resource_id="ann"))


def test_a_reverted_document_of_the_old_form_goes_with_its_messages_too(opened: Open, invoke: Invoke) -> None:
    old = opened(**kept_options(answers(LINE), template=TEMPLATE))
    new = opened(**kept_options(answers(), schema=Person))
    old.save_turn([HumanMessage("I live in Ulm", id="m1"), AIMessage("ok")], thread_id="of-ann", resource_id="ann")
    text = old.working_memory.keep("of-ann", resource_id="ann").memory.text
    asked(new, invoke, "ann", calls({"memory": {"city": "Ulm"}}))
    assert new.working_memory.revert(1, resource_id="ann").text == text
    new.history.delete(["m1"], thread_id="of-ann")
    assert "Ulm" not in new.working_memory.get(resource_id="ann").text


def test_a_keeper_of_the_new_form_loses_nothing_of_the_old_one(opened: Open) -> None:
    """It goes on in the form that it finds, until a tool or the program writes the new one."""
    opened(template=TEMPLATE).working_memory.update("# User\n- **Name**: Ann\n- **City**:\n", resource_id="ann")
    new = opened(**kept_options(answers(LINE), schema=Person))
    new.save_turn([HumanMessage("I live in Ulm", id="m1"), AIMessage("ok")], thread_id="t", resource_id="ann")
    assert new.working_memory.keep("t", resource_id="ann").memory.text == NOTES
    assert new.working_memory.update(FIELDS, resource_id="ann", mode="replace").value == Person.model_validate(FIELDS)
    assert new.working_memory.get(resource_id="ann").sources("/city") == [("t", "m1")]
