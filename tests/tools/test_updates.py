"""What the tools change of working memory, what they leave as it was, and what they reply."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import Scripted
from tests.helpers.types import Invoke, Make
from tests.tools.samples import CLEAR, TEMPLATE, Person, calls, known, results, update_tool
from tests.working_memory.samples import with_memory


def test_calls_of_one_answer_take_effect_in_the_order_of_the_answer(make_memory: Make, invoke: Invoke) -> None:
    """The first one is slow, as on its way through another middleware."""

    class Slow(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            if "first" in str(request.tool_call["args"]):
                time.sleep(0.2)
            return handler(request)

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            if "first" in str(request.tool_call["args"]):
                await asyncio.sleep(0.2)
            return await handler(request)

    memory = with_memory(make_memory, schema={"type": "object"})
    words = [{"memory": {"city": city}} for city in ("first", "second", "third")]
    model = Scripted.says(calls(*words), "noted")
    agent = create_agent(model, [], middleware=[MemoryMiddleware(memory, user_id="ann"), Slow()])
    config = {"configurable": {"thread_id": "t"}}
    found = invoke(agent, {"messages": [HumanMessage("I move a lot")]}, config)
    assert [message.status for message in results(found["messages"])] == ["success"] * 3
    assert known(memory) == {"city": "third"}
    assert memory.working_memory.get(user_id="ann").revision == 3


FULL = {"name": "Ann", "age": 3, "home": {"city": "Ulm", "street": "x"}, "pets": ["cat"], "places": [{"city": "Rome"}]}
NULLS = {"name": None, "age": None, "home": None, "work": None, "pets": None, "places": None}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"memory": {}, "clear": []},
        {"memory": {**NULLS, "home": {"city": None, "street": None}}, "clear": []},
        {"memory": {"home": {"city": "", "street": ""}}},
        {"memory": {**NULLS, "pets": [], "places": []}, "clear": []},
    ],
    ids=["nothing", "empty arguments", "nested nulls", "nested empty text", "empty lists"],
)
def test_padding_wipes_nothing(person: Memory, invoke: Invoke, arguments: dict[str, Any]) -> None:
    before = person.working_memory.update(FULL, user_id="ann")
    reply = invoke(update_tool(person), arguments)
    assert known(person) == FULL
    assert person.working_memory.get(user_id="ann") == before
    assert "nothing was changed" in reply


@pytest.mark.parametrize(
    ("find", "words"),
    [
        ("- **Cty**: Ulm", ["does not stand", "quote the text exactly"]),
        ("- **", ["more than once", "- **Name**: Ann", "- **City**: Ulm"]),
        ("", ["does not stand", "quote"]),
    ],
    ids=["missing", "ambiguous", "empty"],
)
def test_an_edit_that_fits_nowhere_changes_nothing_at_all(
    markdown: Memory, invoke: Invoke, find: str, words: list[str]
) -> None:
    before = markdown.working_memory.update("# User\n- **Name**: Ann\n- **City**: Ulm\n", user_id="ann")
    edits = [{"find": "Ann", "replace": "Bob"}, {"find": find, "replace": "x"}]
    reply = invoke(update_tool(markdown), {"edits": edits})
    assert all(word in reply.replace("Bob", "Ann") for word in words)
    assert "nothing was changed" in reply
    assert markdown.working_memory.get(user_id="ann") == before


def test_text_and_edits_together_are_refused(markdown: Memory, invoke: Invoke) -> None:
    reply = invoke(update_tool(markdown), {"memory": "x", "edits": [{"find": "User", "replace": "y"}]})
    assert "send one of them" in reply
    assert markdown.working_memory.get(user_id="ann").revision == 0


FACTS = [f"- **Fact {at}**: it is {at}" for at in range(6)]


def test_a_text_that_takes_away_most_lines_is_refused_once_with_what_would_go(
    make_memory: Make, invoke: Invoke
) -> None:
    memory = with_memory(make_memory, template="# Facts")
    before = memory.working_memory.update("\n".join(["# Facts", *FACTS]), user_id="ann")
    update = update_tool(memory)
    for text in ("# Facts\n- **Fact 0**: new", "# Facts\n- **Fact 1**: it is 1"):
        reply = invoke(update, {"memory": text})
        assert "nothing was changed, because this text would take away more than half" in reply
        assert FACTS[5] in reply
        assert memory.working_memory.get(user_id="ann") == before
    assert "Working memory is updated" in invoke(update, {"memory": text})
    assert memory.working_memory.get(user_id="ann").text == text


@pytest.mark.parametrize("text", ["# Facts\n" + "\n".join(FACTS[:3]), "\n".join(f"{one} or more" for one in FACTS)])
def test_half_of_the_lines_and_new_values_may_go_at_once(make_memory: Make, invoke: Invoke, text: str) -> None:
    memory = with_memory(make_memory, template="# Facts")
    memory.working_memory.update("\n".join(["# Facts", *FACTS]), user_id="ann")
    assert "Working memory is updated" in invoke(update_tool(memory), {"memory": text})


@pytest.mark.parametrize("options", [{"schema": Person}, {"template": TEMPLATE}])
def test_clearing_says_whether_there_was_anything(make_memory: Make, invoke: Invoke, options: dict[str, Any]) -> None:
    memory = with_memory(make_memory, **options)
    (clear,) = memory.tools(user_id="ann", include=[CLEAR])
    assert invoke(clear, {}) == "Working memory was already empty. Nothing was changed."
    assert memory.working_memory.get(user_id="ann").revision == 0
    content = {"name": "Ann"} if "schema" in options else "# User\n- **Name**: Ann\n"
    memory.working_memory.update(content, user_id="ann")
    assert invoke(clear, {}) == "Working memory is empty now."
    state = memory.working_memory.get(user_id="ann")
    assert (state.text, state.revision, state.origin) == ("", 2, "clear")
    assert "already" in invoke(clear, {})
