"""What clients do, over standard input and output and over HTTP, with the command as a process of its own."""

from __future__ import annotations

import asyncio

import pytest

from langchain_workingmem import Memory
from tests.mcp.conftest import Connect

pytestmark = pytest.mark.in_turn("connect")

ODD = ["a|b,{c}*", "a/b", "?", "..", ".", "#", "%2F", "é😀", "a b", "\u202ea", "a\nb", "x" * 512]


async def test_what_is_saved_is_found_and_read(connect: Connect) -> None:
    async with connect(embeddings="local") as client:
        for name in ODD:
            await client.save("hello", thread_id=name)
            assert name in [one["thread_id"] for one in (await client.data("list_threads"))["threads"]]
        saved = await client.save("My dog is called Nougat.", "A fine <name>!", thread_id="dog", title="A dog")
        await client.save("Book me a hut.", thread_id="trip")
        assert saved["thread_id"] == "dog"
        found = await client.text("search_memory", query="What is my dog called?")
        assert '<conversation thread_id="dog" label="A dog">' in found
        assert found.index("Nougat") < found.index("A fine &lt;name&gt;!")
        assert await client.text("search_memory", query="dog", until="2001-01-01") == "Nothing was found."
        hits = (await client.data("search_memory", query="What is my dog called?", limit=1))["hits"]
        assert [(hit["thread_id"], hit["id"]) for hit in hits] == [("dog", saved["message_ids"][0])]
        listed = await client.data("list_threads", limit=1)
        assert [one["thread_id"] for one in listed["threads"]] == ["trip"]
        more = await client.data("list_threads", limit=1, cursor=listed["next_cursor"])
        assert [one["title"] for one in more["threads"]] == ["A dog"]


async def test_parallel_updates_lose_nothing(connect: Connect) -> None:
    facts = [f"- The number {number} matters." for number in range(8)]
    async with connect() as client:

        async def add(fact: str) -> None:
            while True:
                state = await client.data("get_working_memory")
                whole = f"{state['text'] or state['template']}\n{fact}"
                told = await client.call("update_working_memory", memory=whole, revision=state["revision"])
                if not told.isError:
                    return

        await asyncio.gather(*map(add, facts))
        text = (await client.data("get_working_memory"))["text"]
        assert sorted(line for line in text.splitlines() if "number" in line) == facts


async def test_read_only_offers_nothing_that_writes(connect: Connect, plain: Memory) -> None:
    plain.setup()
    plain.threads.create(user_id="maya", thread_id="t")
    async with connect("--read-only") as client:
        assert await client.tools() == ["get_working_memory", "list_threads"]
        assert [one["thread_id"] for one in (await client.data("list_threads"))["threads"]] == ["t"]
