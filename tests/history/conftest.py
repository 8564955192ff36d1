"""Fixtures that several files here need."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory


@pytest.fixture
def ten(plain: Memory) -> Memory:
    """A thread t of the messages 0 to 9, every third of them of an ai."""
    messages = [(AIMessage if number % 3 == 2 else HumanMessage)(str(number), id=str(number)) for number in range(10)]
    plain.history.append(messages, thread_id="t", user_id="u")
    return plain
