"""What clients do, over standard input and output and over HTTP, with the command as a process of its own."""

from __future__ import annotations

import asyncio
import json

import pytest

from langchain_workingmem import Memory, WorkingMemoryOptions
from tests.helpers.types import Make
from tests.mcp.conftest import Connect

pytestmark = [pytest.mark.in_turn("connect"), pytest.mark.programs]

WRITING = ["update_working_memory", "clear_working_memory", "save_messages"]
READING = ["get_working_memory", "list_threads"]
ODD = ["a|b,{c}*", "a/b", "?", "..", ".", "#", "%2F", "é😀", "a b", "\u202ea", "a\nb", "x" * 512]


async def test_what_is_saved_is_found_and_read(connect: Connect) -> None:
    async with connect(embeddings="local") as client:
        assert "search_memory" in await client.tools()
        saved = await client.save("My dog is called Nougat.", "A fine <name>!", thread_id="dog", title="A dog")
        await client.save("Book me a hut.", thread_id="trip")
        assert saved["thread_id"] == "dog"
        found = await client.text("search_memory", query="What is my dog called?")
        assert "Nougat" in found
        assert '<conversation thread_id="dog" label="A dog">' in found
        assert await client.text("search_memory", query="dog", until="2001-01-01") == "Nothing was found."
        hits = (await client.data("search_memory", query="What is my dog called?"))["hits"]
        assert (hits[0]["thread_id"], hits[0]["id"]) == ("dog", saved["message_ids"][0])
        listed = await client.data("list_threads", limit=1)
        assert [one["thread_id"] for one in listed["threads"]] == ["trip"]
        more = await client.data("list_threads", limit=1, cursor=listed["next_cursor"])
        assert [one["title"] for one in more["threads"]] == ["A dog"]
        assert found.index("Nougat") < found.index("A fine &lt;name&gt;!")


async def test_messages_with_ids_are_stored_once(connect: Connect, plain: Memory) -> None:
    async with connect() as client:
        message = {"role": "user", "content": "Hello.", "id": "m1", "name": "Maya"}
        first = await client.data("save_messages", messages=[message])
        again = await client.data("save_messages", messages=[message], thread_id=first["thread_id"])
        assert again == first
    (stored,) = plain.history.messages(first["thread_id"], user_id="maya")
    assert (stored.id, stored.name, stored.type) == ("m1", "Maya", "human")


async def test_threads_have_any_id(connect: Connect) -> None:
    async with connect() as client:
        for name in ODD:
            await client.save("hello", thread_id=name)
            assert name in [one["thread_id"] for one in (await client.data("list_threads"))["threads"]]


async def test_working_memory_is_read_changed_and_cleared(connect: Connect) -> None:
    async with connect() as client:
        assert "Working memory is empty (revision 0). Its template:" in await client.text("get_working_memory")
        assert "+ - Has a dog." in await client.text("update_working_memory", memory="- Has a dog.")
        edits = [{"find": "a dog", "replace": "two dogs"}]
        assert "- Has two dogs." in await client.text("update_working_memory", edits=edits)
        state = await client.data("get_working_memory")
        assert (state["revision"], "Has two dogs." in state["text"]) == (2, True)
        assert "does not stand" in await client.refusal("update_working_memory", edits=edits)
        assert await client.text("clear_working_memory") == "Working memory is empty now.\n(revision 3)"
        assert "empty" in await client.text("get_working_memory")


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


async def test_read_only_offers_and_does_nothing_that_writes(connect: Connect, plain: Memory) -> None:
    plain.setup()
    plain.threads.create(user_id="maya", thread_id="t")
    async with connect("--read-only") as client:
        assert await client.tools() == READING
        for name in WRITING:
            assert f"{name} is not offered, because this server only reads" in await client.refusal(name, memory="x")
        assert [one["thread_id"] for one in (await client.data("list_threads"))["threads"]] == ["t"]
        assert "Working memory is empty" in await client.text("get_working_memory")


async def test_a_foreign_thread_is_not_written_to(connect: Connect, plain: Memory) -> None:
    plain.history.append([("user", "a secret")], thread_id="theirs", user_id="jonas")
    async with connect() as client:
        refusal = await client.refusal(
            "save_messages", messages=[{"role": "user", "content": "mine"}], thread_id="theirs"
        )
        assert 'thread "theirs" cannot be written to' in refusal
        assert "jonas" not in refusal
        assert (await client.data("list_threads"))["total"] == 0
    assert [message.text for message in plain.history.messages("theirs")] == ["a secret"]


async def test_what_cannot_be_stored_is_refused_with_the_remedy(connect: Connect) -> None:
    message = {"role": "user", "content": "x"}
    async with connect() as client:
        for thread in ("a\0b", "x" * 513, ""):
            assert "thread_id" in await client.refusal("save_messages", thread_id=thread, messages=[message])
        large = [{"role": "user", "content": "x" * 1_010_000}]
        assert "save them in several calls" in await client.refusal("save_messages", messages=large)
        assert "at most 100 items" in await client.refusal("save_messages", messages=[message] * 101)
        assert "limit is 65536" in await client.refusal("update_working_memory", memory="x" * 1_000_000)
        assert "user_id" in await client.refusal("list_threads", user_id="jonas")
        assert "cursor" in await client.refusal("list_threads", cursor="x")
        assert (await client.data("list_threads"))["total"] == 0


async def test_a_json_object_of_a_program_is_shown_and_not_changed(connect: Connect, make_memory: Make) -> None:
    program = make_memory(working_memory=WorkingMemoryOptions(schema={"type": "object"}))
    program.working_memory.update({"city": "Porto"}, user_id="maya")
    async with connect() as client:
        assert json.loads((await client.data("get_working_memory"))["text"]) == {"city": "Porto"}
        for name, arguments in (("update_working_memory", {"memory": "x"}), ("clear_working_memory", {})):
            assert "tell the user to connect the server of that program" in await client.refusal(name, **arguments)
    assert program.working_memory.get(user_id="maya").value == {"city": "Porto"}
