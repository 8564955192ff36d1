"""A run that waits for a person goes on for its own user alone."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langchain_workingmem import Memory, ThreadOwnershipError
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import Scripted


def test_nobody_else_resumes_a_tool_that_waits_for_a_person(plain: Memory) -> None:
    done: list[str] = []

    @tool
    def refund(amount: int) -> str:
        """Pay back."""
        done.append(f"{amount}")
        return "paid"

    call = AIMessage("", tool_calls=[{"name": "refund", "args": {"amount": 5}, "id": "c"}])
    model, saver = Scripted.says(call, AIMessage("Done.")), InMemorySaver()

    def agent() -> Any:  # each in a process of its own
        asking = HumanInTheLoopMiddleware(interrupt_on={"refund": True})
        return create_agent(model, [refund], middleware=[MemoryMiddleware(plain), asking], checkpointer=saver)

    def config(user: str) -> Any:
        return {"configurable": {"thread_id": "t", "user_id": user}}

    approved: Any = Command(resume={"decisions": [{"type": "approve"}]})
    agent().invoke({"messages": [HumanMessage("my money back")]}, config("maya"))
    with pytest.raises(ThreadOwnershipError):
        agent().invoke(approved, config("omar"))
    assert done == []
    agent().invoke(approved, config("maya"))
    assert done == ["5"]
    assert [one.text for one in plain.history.messages("t", roles=["human", "ai"])][-1] == "Done."
