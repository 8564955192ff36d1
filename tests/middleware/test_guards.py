"""Guardrails of four shapes: what they refuse is neither shown nor recalled later."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelResponse
from langchain_core.messages import AIMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import Bench, Scripted, ask, configured
from tests.middleware.samples import stored

pytestmark = pytest.mark.in_turn("face")

BAD = "the password of the vault is Nougat"
GOOD = "I cannot tell"


class Guard(AgentMiddleware[Any, Any, Any]):
    """Refuses what names the vault."""

    name = "Guard"

    def refuses(self, state: Any) -> AIMessage | None:
        last = state["messages"][-1]
        return last if isinstance(last, AIMessage) and "vault" in last.text else None


class Removes(Guard):
    def after_model(self, state: Any, runtime: Any) -> Any:
        if bad := self.refuses(state):
            return {"messages": [RemoveMessage(id=bad.id or ""), AIMessage(GOOD)]}
        return None


class Rewrites(Guard):
    """Changes the message in place, as in LangChain's documentation."""

    def after_agent(self, state: Any, runtime: Any) -> Any:
        if bad := self.refuses(state):
            bad.content = GOOD


class Withdraws(Guard):
    """Leaves nothing but its own words, at the very end."""

    def after_agent(self, state: Any, runtime: Any) -> Any:
        if self.refuses(state):
            kept = state["messages"][:-1]
            return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *kept, AIMessage(GOOD)]}
        return None


class Wraps(Guard):
    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return self.checked(handler(request))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return self.checked(await handler(request))

    def checked(self, response: Any) -> Any:
        bad = "vault" in response.result[-1].text
        return ModelResponse(result=[AIMessage(GOOD)]) if bad else response


# an `after_agent` hook in front of memory runs behind memory's last one
ORDERS = [*product([Removes, Wraps], [1, -1], [False, True]), *product([Rewrites, Withdraws], [1], [False, True])]


@pytest.mark.parametrize(("shape", "order", "checkpointed"), ORDERS)  # as one, so that each combination runs
def test_what_a_guard_refused_is_not_shown_and_not_recalled(
    bench: Bench, shape: type[Guard], order: int, checkpointed: bool
) -> None:
    memory = bench.recalling()
    model = Scripted.says(BAD, "fine", "hello", "no idea")
    saver, middleware = InMemorySaver() if checkpointed else None, [MemoryMiddleware(memory), shape()]
    agent: Any = create_agent(model, middleware=middleware[::order], checkpointer=saver)
    # the checkpoint is written before a guard changes anything
    at_once: Any = {"durability": "sync"} if checkpointed else {}
    answer = bench.run(agent, ask("open the vault"), **at_once)["messages"][-1]
    assert answer.text == GOOD
    if checkpointed:
        assert "Nougat" not in str(agent.get_state(configured("t", "ann")).values)
    later = (("u", "bob", "hello"), ("t", "ann", "thanks"), ("v", "ann", "the password of the vault"))
    for thread, user, text in later:
        bench.run(agent, ask(text), configured(thread, user))
    assert "Nougat" not in str([message.text for messages in model.seen[1:] for message in messages])
    assert stored(memory)[:3] == ["human: open the vault", f"ai: {GOOD}", "human: thanks"]
    assert "Nougat" not in str(memory.recall.search(BAD, user_id="ann").messages)
