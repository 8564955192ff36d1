"""Imports threads, messages and working memory of Mastra (TypeScript), from the SQLite file of its LibSQLStore.

python examples/from_mastra.py
"""
# That imports a sample into a private Redis. Your data: python examples/from_mastra.py mastra.db redis://localhost:6379
# You may repeat it: what is imported does not change. Mastra's tables are the same in PostgreSQL: read them by psycopg, with
# COALESCE("createdAtZ", "createdAt") in place of "createdAt".

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_workingmem import Memory, ThreadExistsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.messages import BaseMessage, ToolCall

THREADS = 'SELECT id, "resourceId", title, metadata FROM mastra_threads'
MESSAGES = 'SELECT id, role, content, "createdAt" FROM mastra_messages WHERE thread_id = ? ORDER BY "createdAt", id'
RESOURCES = 'SELECT id, "workingMemory" FROM mastra_resources'
OWN = "updateWorkingMemory"  # the tool of memory


def steps_of(parts: list[dict[str, Any]]) -> list[tuple[list[str], list[dict[str, Any]]]]:
    """Split an answer of Mastra, which holds all of its steps: of each step its texts and its finished tool calls."""
    steps: list[tuple[list[str], list[dict[str, Any]]]] = [([], [])]
    for part in parts:
        if part["type"] == "text":
            if steps[-1][1]:
                steps.append(([], []))
            steps[-1][0].append(part["text"])
        elif part["type"] == "tool-invocation":
            call = part["toolInvocation"]
            if call["state"] == "result" and call["toolName"] != OWN:
                steps[-1][1].append(call)
    return steps


def messages_of(row: sqlite3.Row) -> Iterator[BaseMessage]:
    """Yield the messages of LangChain that one message of Mastra becomes."""
    try:
        parts = json.loads(row["content"])["parts"]
    except (ValueError, TypeError, KeyError):  # older than format 2
        parts = [{"type": "text", "text": row["content"]}]
    if row["role"] == "user":
        texts = [part["text"] for part in parts if part["type"] == "text"]
        if texts:
            yield HumanMessage("\n".join(texts), id=row["id"])
    elif row["role"] == "assistant":
        for number, (texts, calls) in enumerate(steps_of(parts)):
            id = f"{row['id']}/{number}" if number else row["id"]
            made: list[ToolCall] = [
                {"name": call["toolName"], "args": call["args"], "id": call["toolCallId"]} for call in calls
            ]
            if texts or made:
                yield AIMessage("\n".join(texts), tool_calls=made, id=id)
            for call in calls:
                result = call["result"] if isinstance(call["result"], str) else json.dumps(call["result"])
                yield ToolMessage(result, tool_call_id=call["toolCallId"], id=f"{id}/{call['toolCallId']}")


def copy(database: sqlite3.Connection, memory: Memory) -> None:
    """Copy everything that memory has a place for; files, reasoning and sources of a message have none."""
    database.row_factory = sqlite3.Row
    for thread in database.execute(THREADS):
        thread_id, user_id = thread["id"], thread["resourceId"]
        metadata = json.loads(thread["metadata"] or "{}")
        kept = metadata.pop("workingMemory", None)  # of scope "thread"
        with suppress(ThreadExistsError):  # it was imported before
            memory.threads.create(
                thread_id=thread_id, user_id=user_id, title=thread["title"] or None, metadata=metadata
            )
        stored = 0
        for row in database.execute(MESSAGES, (thread_id,)):
            found = list(messages_of(row))
            times = [datetime.fromisoformat(row["createdAt"])] * len(found)
            memory.history.append(found, thread_id=thread_id, user_id=user_id, said_at=times)
            stored += len(found)
        print(f"{user_id}: thread {thread_id}, {stored} messages")
        if kept:
            print("  its working memory of scope 'thread' is for working_memory.update(..., thread_id=...)")
    for row in database.execute(RESOURCES):
        if row["workingMemory"]:
            memory.working_memory.update(row["workingMemory"], user_id=row["id"], mode="replace")
            print(f"{row['id']}: working memory")


def sample() -> sqlite3.Connection:
    """Make a database as Mastra's, with one conversation."""
    done = {
        "state": "result",
        "toolCallId": "c1",
        "toolName": "book",
        "args": {"place": "Cortina"},
        "result": {"bed": 12},
    }
    asked = [{"type": "text", "text": "Book me a hut near Cortina"}]
    answered = [
        {"type": "step-start"},
        {"type": "tool-invocation", "toolInvocation": done},
        {"type": "text", "text": "Done: bed 12."},
    ]
    database = sqlite3.connect(":memory:")
    database.executescript("""
        CREATE TABLE mastra_threads (id, "resourceId", title, metadata);
        CREATE TABLE mastra_messages (id, thread_id, role, content, "createdAt");
        CREATE TABLE mastra_resources (id, "workingMemory");
        INSERT INTO mastra_threads VALUES ('huts', 'lena', 'Huts', '{"team": 7}');
        INSERT INTO mastra_resources VALUES ('lena', '# User\n- **First Name**: Lena');
    """)
    for id, role, parts in ("m1", "user", asked), ("m2", "assistant", answered):
        row = (id, "huts", role, json.dumps({"format": 2, "parts": parts}), "2025-05-14T09:00:00.500Z")
        database.execute("INSERT INTO mastra_messages VALUES (?, ?, ?, ?, ?)", row)
    return database


def main() -> None:
    """Import the file of the command line, or the sample; and show it."""
    path, url = sys.argv[1:] or (None, None)
    database = sqlite3.connect(path) if path else sample()
    # with the options of your program: its embedding model, its template or schema
    options: dict[str, Any] = {"embeddings": "local", "working_memory": True}
    with Memory(url, **options) if url else Memory.embedded(**options) as memory:
        copy(database, memory)
        if path is None:
            copy(database, memory)  # it may be repeated
            print([message.type for message in memory.history.messages("huts", user_id="lena")])
            print(memory.working_memory.get(user_id="lena").text)
            found = memory.recall.search("a mountain hut", user_id="lena")
            print(f"recalled: {found.hits[0].message.text}, {found.hits[0].stored_at:%d %B %Y}")
    database.close()


if __name__ == "__main__":
    main()
