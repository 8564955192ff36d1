"""The question that the observer is shown as reference."""

from __future__ import annotations

import re
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import Memory, ObservationOptions
from langchain_workingmem.options import Scope
from tests.helpers.models import Scripted
from tests.helpers.types import Make

pytestmark = pytest.mark.programs

SCOPES: tuple[Scope, ...] = ("thread", "user")
each_scope = pytest.mark.parametrize("scope", SCOPES)
IDS: Any = {"thread_id": "t", "user_id": "u"}


def options(scope: Scope, *answers: Any, **more: Any) -> ObservationOptions:
    settings: dict[str, Any] = {"message_tokens": 20, "keep_tokens": 0, "background": False, **more}
    return ObservationOptions(model=Scripted.says(*answers), scope=scope, **settings)


def prompts(memory: Memory) -> list[str]:
    model: Any = memory._core.state.observations.model  # type: ignore[union-attr]
    return [str(call[1].text) for call in model.seen]


# ---------------------------------------------------------------------- the question


def working(steps: int, first: int = 0) -> list[BaseMessage]:
    found: list[BaseMessage] = []
    for at in range(first, first + steps):
        call = {"name": "look", "args": {"at": at}, "id": f"c{at}"}
        found += [
            AIMessage("", tool_calls=[call], id=f"call{at}"),
            ToolMessage("x" * 80, tool_call_id=f"c{at}", id=f"r{at}"),
        ]
    return found


def questions(prompt: str) -> list[str]:
    return re.findall(r"<question>(.*?)</question>", prompt)


@each_scope
def test_a_batch_that_begins_inside_a_turn_is_shown_the_question(make_memory: Make, scope: Scope) -> None:
    memory = make_memory(observations=options(scope, *["- [1] looks"] * 9, batch_tokens=60, message_tokens=40))
    asked = [HumanMessage("please find <it>", id="q"), HumanMessage("it is blue", id="p")]
    memory.history.append([HumanMessage("hi", id="h"), AIMessage("hi", id="i"), *asked, *working(6)], **IDS)
    memory.observations.observe("t")
    seen = prompts(memory)
    assert len(seen) >= 3
    assert [questions(one) for one in seen] == [["please find &lt;it&gt;", "it is blue"]] * len(seen)
    assert not any(re.search("<message[^>]*>please find", one) for one in seen)
    assert seen[0].index(">hi</message>") < seen[0].index("please find") < seen[0].index("look(")
    assert seen[1].index("please find") < seen[1].index("<message ")


def test_a_question_that_was_deleted_is_not_shown(make_memory: Make) -> None:
    memory = make_memory(observations=options("thread", *["- [1] looks"] * 9, batch_tokens=60, message_tokens=40))
    asked = [HumanMessage("it is blue", id="p"), HumanMessage("go", id="o")]
    memory.history.append([*asked, *working(6)], **IDS)
    memory.history.delete(["p"], **IDS)
    memory.observations.observe("t")
    found = [questions(one) for one in prompts(memory)]
    assert found[-1] == ["go"]
    assert "blue" not in str(prompts(memory))


def test_a_question_that_a_provider_refuses_does_not_keep_its_turn_from_being_read(make_memory: Make) -> None:
    class RefusedError(Exception):
        status_code = 400

    def answer(messages: list[BaseMessage]) -> Any:
        return RefusedError("filtered") if "poison" in str(messages[1].text) else "- [1] looks"

    memory = make_memory(observations=options("thread", *[answer] * 20, batch_tokens=60, message_tokens=40))
    memory.history.append([HumanMessage("a poison", id="q"), *working(6)], **IDS)
    log = memory.observations.observe("t")
    assert [one.text for one in log] == ["looks"] * len(log)
    assert [questions(one) for one in prompts(memory)][:3] == [["a poison"], [], ["a poison"]]
