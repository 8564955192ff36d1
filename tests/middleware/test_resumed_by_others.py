"""A run that waits for a person goes on for its own user alone."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langchain_workingmem import ThreadOwnershipError
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import Scripted, ask, calling, configured
from tests.helpers.types import Make


def test_nobody_else_resumes_a_tool_that_waits_for_a_person(make_memory: Make) -> None:
    plain = make_memory(on_error="log")  # which is no reason to go on
    done: list[str] = []

    @tool
    def refund(amount: int) -> str:
        """Pay back."""
        done.append(f"{amount}")
        return "paid"

    model, saver = Scripted.says(calling(("refund", {"amount": 5}), id="c"), "Done."), InMemorySaver()

    def agent() -> Any:  # each in a process of its own
        asking = HumanInTheLoopMiddleware(interrupt_on={"refund": True})
        return create_agent(model, [refund], middleware=[MemoryMiddleware(plain), asking], checkpointer=saver)

    approved: Any = Command(resume={"decisions": [{"type": "approve"}]})
    agent().invoke(ask("my money back"), configured("t", "maya"))
    for user in ("omar", None):
        with pytest.raises(ThreadOwnershipError):
            agent().invoke(approved, configured("t", user))
    assert done == []
    agent().invoke(approved, configured("t", "maya"))
    assert done == ["5"]
    assert [one.text for one in plain.history.messages("t", roles=["human", "ai"])][-1] == "Done."
