"""A tampered export is imported whole, or refused with the number of a record and without a trace."""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import uuid4

import pytest
import redis
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_workingmem import Memory, OptionError, RecallOptions, WorkingMemoryOptions
from tests.helpers.archives import unsealed
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.examples import examples
from tests.helpers.types import Make

TIMES = [
    "1970-01-01T00:00:00Z",
    "2255-06-05T23:47:34.740991Z",
    "2249-12-31T23:59:59Z",
    "0001-01-01",
    "9999-12-31T23:59:59Z",
]
HOSTILE: list[Any] = [
    *(0, 1, -1, 2**31, 2**48, 2**53 - 1, 2**53, 2**63, 2**64, 10**400, 10**4000, -(10**4000), 1e308, 0.5, float("nan")),
    *(None, True, False, "", "x", "\0", "a\ud800", "x" * 600, "x" * 70_000, "_", "{}", "tom", "maya", "9" * 4000),
    *([], {}, [5], {"a": 5}, [None], [[]] * 3, ["memories", "tom", "maya"], ["memories", "tom"]),
    *({"type": "human", "data": {}}, "human", "system", "remove", "AIMessageChunk"),
    *("thread", "message", "header", "working_memory", *TIMES),
]
DEEP = json.loads("[" * 400 + "]" * 400)


@pytest.fixture(scope="module")
def lines(server: Any) -> list[str]:
    """A valid export that holds something of every kind."""
    prefix = f"t{uuid4().hex[:12]}"
    options: Any = {"embeddings": WordEmbeddings(), "recall": RecallOptions(), "key_prefix": prefix}
    with (
        Memory(server.url, working_memory=WorkingMemoryOptions(template=""), **options) as memory,
        Memory(server.url, working_memory=WorkingMemoryOptions(template="", scope="thread"), **options) as threaded,
    ):
        memory.threads.create(thread_id="one", user_id="maya", title="Ünï", metadata={"tags": ["x", {"y": 1.5}]})
        call = {"name": "find", "args": {"q": [1]}, "id": "c", "type": "tool_call"}
        turn: Any = {"thread_id": "one", "user_id": "maya"}
        found = ToolMessage("found", id="found", tool_call_id="c", artifact={"rows": [1]})
        asked = HumanMessage("red fox", id="q1", name="Ann"), AIMessage("", id="call", tool_calls=[call])
        memory.save_turn([*asked, found, AIMessage("a fox", id="a1")], **turn)
        memory.save_turn([HumanMessage("blue sea", id="q2"), AIMessage("waves", id="a2")], **turn)
        memory.save_turn([HumanMessage("blue sea", id="q2"), AIMessage("ships", id="a3")], **turn)  # answered anew
        memory.threads.clone("one", new_thread_id="two")
        threaded.working_memory.update("of the thread", thread_id="two", user_id="maya")
        for text in ("likes tea", "likes milk"):
            memory.working_memory.update(text, user_id="maya", mode="replace")
        records = unsealed(memory.users.export("maya", vectors=True))
        memory.users.delete("maya")
    assert {record["kind"] for record in records} == {"header", "thread", "message", "working_memory"}
    assert [record for record in records if record.get("superseded")]
    return [json.dumps(record) for record in records]


numbers = st.integers(0, 10**6)
changes = st.lists(
    st.tuples(st.sampled_from(["drop", "double", "swap"]), numbers, numbers)
    | st.tuples(st.just("set"), numbers, st.lists(numbers, max_size=6), st.sampled_from([*HOSTILE, DEEP]))
    | st.tuples(st.just("lose"), numbers, st.lists(numbers, min_size=1, max_size=6)),
    min_size=1,
    max_size=3,
)


def tampered(lines: list[str], changes: list[Any]) -> list[str]:
    lines = list(lines)
    for what, number, *rest in changes:
        if not lines:
            return lines
        at = number % len(lines)
        match what:
            case "drop":
                del lines[at]
            case "double":
                lines.insert(rest[0] % (len(lines) + 1), lines[at])
            case "swap":
                other = rest[0] % len(lines)
                lines[at], lines[other] = lines[other], lines[at]
            case _:
                lines[at] = changed(lines[at], *rest)
    return lines


def changed(line: str, path: list[int], *value: Any) -> str:
    """Set a value somewhere in a record, or take it away."""
    try:
        root: Any = {"": json.loads(line)}
    except ValueError:
        return line
    place: Any = root
    key: Any = ""
    for step in path:
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner:
            break
        place, key = inner, list(inner)[step % len(inner)] if isinstance(inner, dict) else step % len(inner)
    if value:
        place[key] = value[0]
    else:
        del place[key]
    return json.dumps(root.get(""))


def dumped(raw: redis.Redis, prefix: str) -> dict[bytes, Any]:
    """Return all that is stored, byte for byte, and the names of indexes."""
    bare: Any = raw
    keys = list(raw.scan_iter(f"{prefix}*", count=1000))
    return {key: raw.dump(key) for key in keys} | {b"indexes": sorted(bare.execute_command("FT._LIST"))}


def works(memory: Memory, owner: str) -> None:
    """Read all that was imported in every way, and go on from there."""
    threads = memory.threads.list(user_id=owner, limit=1000)
    assert threads.total == len(threads)
    seen = 0
    for thread in threads:
        rows = memory.history.page(thread.id, limit=1000).items
        assert len(rows) == thread.message_count
        seen += len(rows)
        assert len(memory.history.messages(thread.id, superseded=True)) >= len(rows)
        (new,) = memory.history.append([HumanMessage("and now?")], thread_id=thread.id, user_id=owner)
        memory.history.append([HumanMessage("and then?")], thread_id=thread.id, user_id=owner)
        rows = memory.history.page(thread.id, limit=1000).items
        times = [row.stored_at for row in rows]
        assert times == sorted(set(times))
        assert rows[-2].message.id == new.id
        memory.context("red fox", thread_id=thread.id, user_id=owner)
    assert memory.history.for_user(owner, limit=1000).total == seen + 2 * len(threads)
    assert memory.recall.reindex(user_id=owner, progress=False) == 0
    memory.recall.search("red fox", user_id=owner)
    before = memory.working_memory.get(user_id=owner).revision
    for number in range(3):
        after = memory.working_memory.update(f"note {number}", user_id=owner, mode="replace")
        assert after.revision == before + number + 1
    assert len(memory.working_memory.revisions(user_id=owner)) >= 3


def tried(make_memory: Make, raw: redis.Redis, own: str, given: list[str]) -> None:
    """Import lines: they are refused without a trace, or everything works."""
    options: Any = {"embeddings": WordEmbeddings(), "recall": RecallOptions(), "key_prefix": own}
    memory = make_memory(working_memory=WorkingMemoryOptions(template=""), **options)
    before = dumped(raw, own)
    refused = ""
    try:
        report = memory.users.load(map(json.loads, given))
    except OptionError as error:
        refused = str(error)
    if refused:
        assert re.match(r"record \d+: .*; nothing was imported$|there is no record", refused)
        assert dumped(raw, own) == before
        return
    exported = unsealed(memory.users.export(report.user_id, vectors=True))
    records = [json.loads(line) for line in given]
    distinct = {(r["thread_id"], r["message"]["data"]["id"]) for r in records if r.get("kind") == "message"}
    assert sum(record["kind"] == "message" for record in exported) == report.messages == len(distinct)
    assert memory.users.load(json.loads(json.dumps(exported))).messages == 0
    other = make_memory(working_memory=WorkingMemoryOptions(template=""), **{**options, "key_prefix": f"{own}-2"})
    other.users.load(json.loads(json.dumps(exported)))
    assert unsealed(other.users.export(report.user_id, vectors=True)) == exported
    works(memory, report.user_id)
    for one in (memory, other):
        assert one.users.delete(report.user_id).verified


@examples(40, server=True, derandomize=True)
@given(changes=changes)
@example(changes=[])
def test_an_import_succeeds_as_a_whole_or_is_refused_without_a_trace(
    make_memory: Make, raw: redis.Redis, prefix: str, lines: list[str], changes: list[Any]
) -> None:
    tried(make_memory, raw, f"{prefix}{uuid4().hex[:6]}", tampered(lines, changes))
