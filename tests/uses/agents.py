"""The extra `agents`: python agents.py URL PREFIX."""

from __future__ import annotations

import sys
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory
from langchain_workingmem.middleware import MemoryMiddleware

URL, PREFIX = sys.argv[1:]

with Memory(URL, key_prefix=PREFIX) as memory:
    agent: Any = create_agent(FakeListChatModel(responses=["Hello!"]), middleware=[MemoryMiddleware(memory)])
    agent.invoke({"messages": [HumanMessage("Hi.")]}, {"configurable": {"thread_id": "t", "user_id": "u"}})
    assert [message.text for message in memory.history.messages("t")] == ["Hi.", "Hello!"]
