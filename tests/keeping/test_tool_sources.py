"""What an agent's tool writes comes from the message that the agent answers, and what a program writes is kept from the first write."""

from __future__ import annotations

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolCall

from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import Scripted
from tests.helpers.types import Make
from tests.keeping.keeping import IDS, document, kept_by, say
from tests.keeping.scripted import says

CALL = ToolCall(name="update_working_memory", args={"memory": {"city": "Rome"}}, id="c", type="tool_call")


def test_an_update_of_a_tool_goes_with_the_question(make_memory: Make) -> None:
    memory = kept_by(make_memory, says(), tools=("update",), background=False)
    question = HumanMessage("I live in Rome", id="q")
    memory.context([question], **IDS)
    (update,) = memory.tools(**IDS)
    update.invoke(CALL)
    state = memory.working_memory.get(user_id="u")
    assert (state.history("/city")[0].origin, state.sources("/city")) == ("tool", [("t", "q")])
    memory.save_turn([question, AIMessage("fine")], **IDS)
    memory.history.delete(["q"], **IDS)
    assert document(memory) == {}


def test_so_does_that_of_an_agent(make_memory: Make) -> None:
    memory = kept_by(make_memory, says(), tools=("update",), background=False)
    model = Scripted.says(AIMessage("", tool_calls=[CALL]), "fine")
    agent = create_agent(model, tools=[], middleware=[MemoryMiddleware(memory)])
    agent.invoke(
        {"messages": [HumanMessage("I live in Rome", id="q")]}, {"configurable": {"thread_id": "t", "user_id": "u"}}
    )
    assert memory.working_memory.get(user_id="u").sources("/city") == [("t", "q")]
    memory.history.delete(["q"], **IDS)
    assert document(memory) == {}


def test_a_question_of_another_user_is_no_source(make_memory: Make) -> None:
    memory = kept_by(make_memory, says(), tools=("update",), background=False)
    memory.context([HumanMessage("I live in Rome", id="q")], thread_id="t", user_id="another")
    (update,) = memory.tools(**IDS)
    update.invoke(CALL)
    assert memory.working_memory.get(user_id="u").sources("/city") == []


def test_with_a_keeper_the_first_write_is_recorded(make_memory: Make) -> None:
    memory = kept_by(make_memory, says(), background=False)
    for city in ("Rome", "Oslo"):
        memory.working_memory.update({"city": city}, user_id="u")
    say(memory, "hello")
    history = memory.working_memory.get(user_id="u").history("/city")
    assert [(one.value, one.origin) for one in history] == [("Oslo", "program"), ("Rome", "program")]
