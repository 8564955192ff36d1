"""Records as an export has them."""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]

HEADER: Record = {"kind": "header", "format": "langchain-workingmem", "version": 1, "user_id": "u"}
THREAD: Record = {"kind": "thread", "id": "t"}


def message(id: str | None = "m", **more: Any) -> Record:
    body = {"type": "human", "data": {"content": "x", "id": id}}
    return {"kind": "message", "thread_id": "t", "message": body, **more}


FILE: Record = {
    "kind": "file",
    "path": "/a.md",
    "created_at": "2020-01-01T00:00:00+00:00",
    "updated_at": "2020-01-02T00:00:00+00:00",
    "revision": 2,
    "what": "edit",
    "by": "ann",
    "content": "two",
    "revisions": [{"revision": 1, "at": "2020-01-01T00:00:00+00:00", "what": "write", "by": "", "content": "one"}],
}

MEMORY = {
    "kind": "working_memory",
    "document": "x",
    "revision": 1,
    "updated_at": "2020-01-01T00:00:00+00:00",
    "origin": "a",
}
