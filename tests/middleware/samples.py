"""What the tests of `MemoryMiddleware` share: a thread, what it holds, what is stored in it."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory
from tests.helpers.models import said

TURN: dict[str, Any] = {"thread_id": "t", "user_id": "ann"}
PROMPT = "You are kind."
UPDATE = "update_working_memory"


def stored(memory: Memory, thread: str = "t") -> list[str]:
    return said(memory.history.messages(thread))


def seed(memory: Memory, *words: str, thread: str = "t", user: str = "ann") -> None:
    kinds = (HumanMessage, AIMessage)
    messages = [kinds[at % 2](text, id=f"{thread}{at}") for at, text in enumerate(words)]
    memory.history.append(messages, thread_id=thread, user_id=user)
