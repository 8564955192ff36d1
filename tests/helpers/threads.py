"""What threads hold, in short."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import redis
from langchain_core.messages import BaseMessage, HumanMessage

from langchain_workingmem import (
    Memory,
    Page,
    StoredMessage,
    Thread,
)
from langchain_workingmem._text.values import to_micros

AT = datetime(2026, 5, 17, 9, 30, tzinfo=UTC)


def said(*words: str) -> list[BaseMessage]:
    """Messages whose id is their text, or its beginning."""
    return [HumanMessage(text, id=text[:100]) for text in words]


def append(memory: Memory, *words: str, thread_id: str = "t", user_id: str = "u") -> None:
    memory.history.append(said(*words), thread_id=thread_id, user_id=user_id)


def texts(messages: list[BaseMessage]) -> list[str]:
    return [str(message.content) for message in messages]


def words_digest(rows: list[StoredMessage]) -> list[str]:
    return texts([row.message for row in rows])


def row_of(message: BaseMessage, thread_id: str = "t", seq: int = 1, at: datetime | None = None) -> StoredMessage:
    record = {"type": message.type, "kind": "q", "at": to_micros(at or AT), "number": seq, "data": dict(message)}
    return StoredMessage(thread_id=thread_id, seq=seq, record=record, place=seq)


def rows_of(memory: Memory, thread_id: str = "t") -> list[StoredMessage]:
    return memory.history.page(thread_id, limit=10_000).items


def thread_of(memory: Memory, thread_id: str = "t") -> Thread:
    thread = memory.threads.get(thread_id)
    assert thread is not None
    return thread


def vectors(raw: redis.Redis, prefix: str) -> dict[str, str]:
    """The text behind each stored vector, by key."""
    keys = sorted(raw.scan_iter(f"{prefix}:vector:*", count=1000))
    return {key.decode(): raw.hget(key, "text").decode() for key in keys}  # type: ignore[union-attr]


def all_pages(read: Callable[[str | None], Page[StoredMessage]]) -> list[StoredMessage]:
    page = read(None)
    found = list(page.items)
    while page.next_cursor is not None:
        page = read(page.next_cursor)
        assert page.items
        found += page.items
    return found
