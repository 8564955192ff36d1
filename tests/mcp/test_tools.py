"""What each tool says of itself and returns, and a server that only reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from jsonschema import validate
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, WorkingMemoryOptions
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.types import Make
from tests.mcp.conftest import inside

READS, CHANGES, AGAIN = (True, False, True), (False, True, False), (False, True, True)  # AGAIN: twice is as once
HINTS = {
    "get_working_memory": READS,
    "update_working_memory": CHANGES,
    "clear_working_memory": AGAIN,
    "search_memory": READS,
    "list_threads": READS,
    "save_messages": CHANGES,
}
SAID = [{"role": "user", "content": "We walked to the red lake.", "id": "m1"}]
# each tool once, in an order in which each does something
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("get_working_memory", {}),
    ("update_working_memory", {"memory": "- Likes lakes."}),
    ("clear_working_memory", {}),
    ("save_messages", {"messages": SAID, "thread_id": "walks"}),
    ("search_memory", {"query": "red lake"}),
    ("list_threads", {}),
]


@pytest.fixture
def memory(make_memory: Make) -> Memory:
    """A memory with all that a server offers."""
    return make_memory(embeddings=WordEmbeddings(), working_memory=WorkingMemoryOptions())


async def test_each_tool_says_what_it_returns_and_does(memory: Memory) -> None:
    async with inside(memory, "maya") as client:
        offered = {tool.name: tool for tool in (await client.session.list_tools()).tools}
        hints: Any = {name: tool.annotations for name, tool in offered.items()}
        told = {name: (one.readOnlyHint, one.destructiveHint, one.idempotentHint) for name, one in hints.items()}
        assert told == HINTS
        assert not any(one.openWorldHint for one in hints.values())
        assert offered["list_threads"].title == hints["list_threads"].title == "List threads"
        assert {*offered} == {name for name, _ in CALLS}
        for name, arguments in CALLS:
            data, schema = await client.data(name, **arguments), offered[name].outputSchema
            validate(data, schema or {})
            assert data.keys() <= schema["properties"].keys(), name  # type: ignore[index]
            for one in offered.values():
                assert "$ref" not in json.dumps(one.outputSchema)


async def test_a_text_of_a_search_leads_on(memory: Memory) -> None:
    for at, (thread, title) in enumerate((("a & b", "Lakes"), ('c"\n', None))):
        saying = HumanMessage(f"The red lake number {at}.", id=f"m{at}")
        memory.history.append([saying], thread_id=thread, user_id="maya")
        if title:
            memory.threads.update(thread, title=title)
    async with inside(memory, "maya") as client:
        text = await client.text("search_memory", query="red lake")
        assert '<conversation thread_id="a &amp; b" label="Lakes">' in text
        assert r'<conversation thread_id="c\&quot;\n" label="conversation 1">' in text
        data = await client.data("search_memory", query="red lake", limit=1)
        assert len(data["hits"]) == 1
        for wrong in (0, 51):
            assert "limit" in await client.refusal("search_memory", query="red lake", limit=wrong)


async def test_a_server_that_only_reads_changes_no_key(memory: Memory, cleaner: redis.Redis, prefix: str) -> None:
    async with inside(memory, "maya") as client:
        for name, arguments in CALLS:
            await client.data(name, **arguments)

    def stored() -> dict[bytes, Any]:
        return {key: cleaner.dump(key) for key in cleaner.scan_iter(f"{prefix}*")}

    before = stored()
    async with inside(memory, "maya", read_only=True) as client:
        assert await client.tools() == [name for name, hints in HINTS.items() if hints is READS]
        for name, arguments in CALLS:
            if HINTS[name] is READS:
                await client.data(name, **arguments)
            else:
                said = await client.refusal(name, **arguments)
                assert said == f"{name} is not offered, because this server only reads: go on without it"
    assert stored() == before
