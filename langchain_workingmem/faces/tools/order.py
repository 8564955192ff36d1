"""The order in which calls of one answer change working memory: LangGraph runs them side by side."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage

from langchain_workingmem._redis.state import Recent

MOST_SECONDS = 5.0  # that a call waits for the ones that the model wrote before it
PAUSE_SECONDS = 0.002
_DONE: Recent[str, bool] = Recent()  # by thread, answer and call


class InOrder:
    """A call of an answer: it waits for the earlier calls that write, as a context."""

    def __init__(self, request: Any, thread_id: str | None, writing: tuple[str, ...]) -> None:
        messages = request.state["messages"]
        answer = next((one for one in reversed(messages) if isinstance(one, AIMessage)), AIMessage(""))
        ids = [call["id"] for call in answer.tool_calls if call["name"].startswith(writing)]
        own, answered = request.tool_call["id"], {one.tool_call_id for one in messages if isinstance(one, ToolMessage)}
        earlier = ids[: ids.index(own)] if own in ids else []
        self._own, *self._earlier = (
            f"{thread_id}\0{answer.id}\0{id}" for id in (own, *(one for one in earlier if one not in answered))
        )
        self._until = time.monotonic() + MOST_SECONDS

    def _has_to_wait(self) -> bool:
        return not all(_DONE.get(one) for one in self._earlier) and time.monotonic() < self._until

    def __enter__(self) -> None:
        while self._has_to_wait():
            time.sleep(PAUSE_SECONDS)

    def __exit__(self, *_: object) -> None:
        _DONE.put(self._own, True)

    async def __aenter__(self) -> None:
        while self._has_to_wait():
            await asyncio.sleep(PAUSE_SECONDS)

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()
