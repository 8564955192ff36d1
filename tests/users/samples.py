"""Records as an export has them."""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]

HEADER: Record = {"kind": "header", "format": "langchain-workingmem", "version": 1, "user_id": "u"}
THREAD: Record = {"kind": "thread", "id": "t"}


def message(id: str | None = "m", **more: Any) -> Record:
    body = {"type": "human", "data": {"content": "x", "id": id}}
    return {"kind": "message", "thread_id": "t", "message": body, **more}


MEMORY = {
    "kind": "working_memory",
    "document": "x",
    "revision": 1,
    "updated_at": "2020-01-01T00:00:00+00:00",
    "origin": "a",
}
