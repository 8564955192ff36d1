"""The tool by which a model opens a line of the log: a short id, the messages behind it, nothing of anybody else."""

from __future__ import annotations

import re
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_workingmem import Memory, ObservationOptions
from langchain_workingmem.middleware import MemoryMiddleware
from langchain_workingmem.options import Scope
from tests.helpers.models import Bench, Scripted, ask, calling, configured
from tests.helpers.observers import Echo
from tests.helpers.types import Invoke, Make

pytestmark = [pytest.mark.in_turn("face"), pytest.mark.programs]

OPEN = "open_observation"
SCOPES = ("thread", "resource")
IDS: Any = {"thread_id": "t one", "resource_id": "maya b"}


def observed(make: Any, scope: Scope = "thread", *, tools: tuple[str, ...] = ("open",), **ids: str) -> Memory:
    """Make a memory whose observer writes two words of each message, and observe a thread."""
    options = ObservationOptions(
        model=Echo(characters=8), scope=scope, message_tokens=20, keep_tokens=0, background=False, tools=tools
    )
    memory: Memory = make(observations=options)
    talk(memory, **(ids or IDS))
    return memory


def talk(memory: Memory, code: str = "4711", **ids: Any) -> None:
    said = [HumanMessage(f"the code of the hut is {code}"), AIMessage("noted, I keep it"), HumanMessage("and now?")]
    memory.history.append([*said, AIMessage("we go")], **ids)
    memory.observations.observe(ids["thread_id"])


def shown(memory: Memory, **ids: Any) -> str:
    context = memory.context("what next?", **(ids or IDS))
    return str(context.messages[0].text)


def codes(block: str) -> list[str]:
    return re.findall(r"^[-!~] \d\d:\d\d \[(\w+)\] ", block, re.MULTILINE)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_line_shows_a_short_id_that_opens_its_messages(make_memory: Make, invoke: Invoke, scope: Scope) -> None:
    memory = observed(make_memory, scope)
    block = shown(memory)
    first, second = codes(block)
    assert OPEN in block
    assert "4711" not in block.split("</observations>")[0]
    assert not re.search("maya|t one|t%20one", block)
    (tool,) = memory.tools(**IDS)
    assert tool.name == OPEN
    opened = invoke(tool, {"id": first})
    assert "the code of the hut is 4711</message>" in opened
    assert "noted, I keep it" in invoke(tool, {"id": f"[{second}]"})


def test_a_line_that_is_gone_is_said_to_be_gone(make_memory: Make, invoke: Invoke) -> None:
    memory = observed(make_memory)
    first = codes(shown(memory))[0]
    (tool,) = memory.tools(**IDS)
    memory.history.delete([str(memory.history.messages("t one")[0].id)], **IDS)
    assert invoke(tool, {"id": first}).startswith("There is no such note")
    assert invoke(tool, {"id": "nothing"}).startswith("There is no such note")


@pytest.mark.parametrize("scope", SCOPES)
def test_nobody_opens_the_line_of_another(make_memory: Make, invoke: Invoke, scope: Scope) -> None:
    memory = observed(make_memory, scope)
    first = codes(shown(memory))[0]
    talk(memory, "0815", thread_id="their", resource_id="bob")
    theirs: list[Any] = [{"thread_id": "t one", "resource_id": "bob"}, {"thread_id": "their", "resource_id": "bob"}]
    for ids in theirs:
        (tool,) = memory.tools(**ids)
        assert "4711" not in invoke(tool, {"id": first})
    (alone,) = memory.tools(thread_id="t one")  # whose owner the run does not name
    assert "4711" not in invoke(alone, {"id": first})


def test_a_line_of_another_conversation_of_the_same_user_opens(make_memory: Make, invoke: Invoke) -> None:
    memory = observed(make_memory, "resource")
    talk(memory, "0815", thread_id="other", resource_id="maya b")
    new: Any = {"thread_id": "new", "resource_id": "maya b"}
    found = [invoke(memory.tools(**new)[0], {"id": code}) for code in codes(shown(memory, **new))]
    assert len(found) == 4
    assert {code for code in ("4711", "0815") for text in found if code in text} == {"4711", "0815"}


@pytest.mark.parametrize("given", ["options", "middleware"])
def test_an_agent_opens_a_line_and_the_next_turn_does_not_show_that(bench: Bench, given: str) -> None:
    """Also where only the middleware gives the tool."""
    memory = observed(bench.memory, tools=("open",) if given == "options" else ())
    middleware = MemoryMiddleware(memory, tools=None if given == "options" else [OPEN])
    code = memory.observations.get(**IDS).observations[0].id
    model = Scripted.says(calling((OPEN, {"id": code}), id="c"), "It is 4711.", "Yes.")
    agent = create_agent(model, middleware=[middleware])
    config = configured("t one", "maya b")
    bench.run(agent, ask("the code, please?"), config)
    assert codes(str(model.seen[0][0].text))[0] == code
    (result,) = [one for one in model.seen[1] if isinstance(one, ToolMessage)]
    assert "the code of the hut is 4711" in result.text
    bench.run(agent, ask("sure?"), config)
    assert not [one for one in model.seen[2] if isinstance(one, ToolMessage)]
