"""What each tool says of itself and returns, undo and deletion, and a server that only reads."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import redis
from jsonschema import validate
from langchain_core.messages import HumanMessage
from mcp import McpError
from pydantic import BaseModel

from langchain_workingmem import FileOptions, Memory, ObservationOptions, WorkingMemoryOptions
from langchain_workingmem.options import Scope
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.observers import Echo
from tests.helpers.types import Make
from tests.mcp.conftest import Client, inside

READS, CHANGES, AGAIN = (True, False, True), (False, True, False), (False, True, True)  # AGAIN: twice is as once
HINTS = {
    "get_working_memory": READS,
    "list_working_memory_revisions": READS,
    "update_working_memory": CHANGES,
    "clear_working_memory": AGAIN,
    "revert_working_memory": AGAIN,
    "search_memory": READS,
    "list_threads": READS,
    "read_thread": READS,
    "save_messages": CHANGES,
    "delete_message": AGAIN,
    "list_files": READS,
    "read_file": READS,
    "write_file": AGAIN,
    "edit_file": CHANGES,
    "list_file_revisions": READS,
    "revert_file": AGAIN,
}
SAID = [{"role": "user", "content": "We walked to the red lake.", "id": "m1"}]
# each tool once, in an order in which each does something
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("get_working_memory", {}),
    ("update_working_memory", {"memory": "- Likes lakes."}),
    ("clear_working_memory", {}),
    ("list_working_memory_revisions", {"limit": 1}),
    ("revert_working_memory", {"revision": 1}),
    ("save_messages", {"messages": SAID, "thread_id": "walks"}),
    ("write_file", {"path": "/lake.md", "content": "The red lake is cold."}),
    ("edit_file", {"path": "/lake.md", "old": "cold", "new": "warm"}),
    ("list_file_revisions", {"path": "/lake.md"}),
    ("revert_file", {"path": "/lake.md", "revision": 1}),
    ("read_file", {"path": "/lake.md"}),
    ("list_files", {}),
    ("search_memory", {"query": "red lake"}),
    ("list_threads", {}),
    ("read_thread", {"thread_id": "walks"}),
    ("delete_message", {"thread_id": "walks", "message_id": "m1"}),
]


@pytest.fixture
def memory(make_memory: Make) -> Memory:
    """A memory with all that a server offers."""
    files, documents = FileOptions(), WorkingMemoryOptions()
    return make_memory(embeddings=WordEmbeddings(), working_memory=documents, files=files)


async def test_each_tool_says_what_it_returns_and_does(memory: Memory) -> None:
    async with inside(memory, "maya") as client:
        offered = {tool.name: tool for tool in (await client.session.list_tools()).tools}
        hints: Any = {name: tool.annotations for name, tool in offered.items()}
        told = {name: (one.readOnlyHint, one.destructiveHint, one.idempotentHint) for name, one in hints.items()}
        assert told == HINTS
        assert not any(one.openWorldHint for one in hints.values())
        assert offered["read_thread"].title == hints["read_thread"].title == "Read thread"
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
        memory.history.append([saying], thread_id=thread, resource_id="maya")
        if title:
            memory.threads.update(thread, title=title)
    async with inside(memory, "maya") as client:
        text = await client.text("search_memory", query="red lake")
        assert '<conversation thread_id="a &amp; b" label="Lakes">' in text
        assert r'<conversation thread_id="c\&quot;\n" label="conversation 1">' in text
        assert re.findall(r'<message id="(\w+)" role="user"', text) == ["m0", "m1"]
        data = await client.data("search_memory", query="red lake", limit=1)
        assert len(data["hits"]) == 1
        for wrong in (0, 51):
            assert "limit" in await client.refusal("search_memory", query="red lake", limit=wrong)


async def test_a_message_is_deleted_for_good(memory: Memory) -> None:
    memory.history.append([("user", "a secret")], thread_id="theirs", resource_id="jonas")
    (theirs,) = memory.history.messages("theirs")
    async with inside(memory, "maya") as client:
        await client.data("save_messages", messages=SAID, thread_id="t")
        one: dict[str, Any] = {"thread_id": "t", "message_id": "m1"}
        assert await client.text("delete_message", **one) == 'Deleted 1 message of thread "t".'
        assert "read_thread" in await client.refusal("delete_message", **one)
        assert await client.text("search_memory", query="red lake") == "Nothing was found."
        told = [
            await client.refusal("delete_message", thread_id=thread, message_id=theirs.id)
            for thread in ("theirs", "nope")
        ]
        assert told[0].replace("theirs", "nope") == told[1]
    assert [message.text for message in memory.history.messages("theirs")] == ["a secret"]


@pytest.mark.parametrize("scope", ["resource", "thread"])
async def test_working_memory_goes_back_to_a_revision(make_memory: Make, scope: Scope) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(scope=scope, template=""))
    of: dict[str, Any] = {"thread_id": "t"} if scope == "thread" else {}
    async with inside(memory, "maya") as client:
        await client.save("hello", thread_id="t")
        await client.text("update_working_memory", memory="- one", **of)
        await client.text("update_working_memory", memory="- two", **of)
        await client.text("clear_working_memory", **of)
        listed = await client.text("list_working_memory_revisions", **of, limit=2)
        assert [line.split(",")[0] for line in listed.splitlines() if line[:1] != " "] == ["Revision 3", "Revision 2"]
        assert listed.splitlines()[1:3] == ["  - - one", "  - - two"]
        assert listed.splitlines()[-1] == "  + - two"
        kept = (await client.data("list_working_memory_revisions", **of))["revisions"]
        assert [one["text"] for one in kept] == ["", "- one\n\n- two", "- one"]
        assert "+ - one" in await client.text("revert_working_memory", revision=1, **of)
        assert (await client.data("get_working_memory", **of))["text"] == "- one"
        missing = await client.refusal("revert_working_memory", revision=77, **of)
        assert missing == "revision 77 is not kept: list_working_memory_revisions lists those that are"
        if of:
            memory.history.append([HumanMessage("x")], thread_id="theirs", resource_id="jonas")
            for name, more in (("list_working_memory_revisions", {}), ("revert_working_memory", {"revision": 1})):
                foreign = await client.refusal(name, thread_id="theirs", **more)
                assert foreign.replace("theirs", "nope") == await client.refusal(name, thread_id="nope", **more)


async def test_a_file_goes_back_to_a_revision_and_returns(memory: Memory) -> None:
    for text in ("one", "two"):
        memory.files.write("/a.md", text, resource_id="maya", by="ann")
    memory.files.delete("/a.md", resource_id="maya")
    async with inside(memory, "maya") as client:
        listed = await client.text("list_file_revisions", path="/a.md", limit=2)
        assert re.sub(r"\d{4}.*?:\d\d ", "DAY ", listed).splitlines()[1:] == [
            "Revision 3, DAY UTC: delete, 0 bytes",
            'Revision 2, DAY UTC: write by "ann", 3 bytes',
        ]
        assert await client.text("revert_file", path="/a.md", revision=1) == (
            "/a.md has the text of revision 1 again; revision 4."
        )
        assert (await client.data("read_file", path="/a.md"))["text"] == "one"
        assert "list_file_revisions" in await client.refusal("revert_file", path="/a.md", revision=77)
    async with inside(memory, "jonas") as client:
        for name, more in (("list_file_revisions", {}), ("revert_file", {"revision": 1})):
            foreign = await client.refusal(name, path="/a.md", **more)
            assert foreign.replace("/a.md", "/no.md") == await client.refusal(name, path="/no.md", **more)


async def test_a_server_that_only_reads_changes_no_key(memory: Memory, cleaner: redis.Redis, prefix: str) -> None:
    async with inside(memory, "maya") as client:
        for name, arguments in CALLS[:-1]:
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
        for one in (await client.session.list_resources()).resources:
            assert await client.read(str(one.uri))
    assert stored() == before


@pytest.mark.parametrize("scope", ["thread", "resource"])
async def test_observations_are_resources(make_memory: Make, scope: Scope) -> None:
    options = ObservationOptions(scope=scope, model=Echo(), message_tokens=50, keep_tokens=0, background=False)
    memory = make_memory(observations=options)
    for thread, owner, word in (("a/b", "maya", "larch"), ("theirs", "jonas", "secret")):
        rows: list[Any] = [
            ("user", f"please note {word}"),
            ("assistant", "noted"),
            ("user", "all?"),
            ("assistant", "yes"),
        ]
        memory.history.append(rows, thread_id=thread, resource_id=owner)
        memory.observations.observe(thread, resource_id=owner)
    of_user, of_thread = "workingmem://observations", "workingmem://threads/{}/observations"
    async with inside(memory, "maya") as client:
        uri = of_thread.format("a%2Fb") if scope == "thread" else of_user
        assert "larch" in await client.read(uri)
        assert (scope == "resource") == (of_user in [str(one.uri) for one in (await listed(client)).resources])
        templates = (await client.session.list_resource_templates()).resourceTemplates
        assert (scope == "thread") == (of_thread.format("{thread_id}") in [one.uriTemplate for one in templates])
        told = []
        for thread in ("theirs", "nope"):
            with pytest.raises(McpError) as unread:
                await client.read(of_thread.format(thread))
            told.append(str(unread.value).replace(thread, "ID"))
        assert told[0] == told[1]
    async with inside(make_memory(), "maya") as client:  # of a program whose options are not known here
        assert "larch" in await client.read(uri)
        missing = of_user if scope == "thread" else of_thread.format("none")
        memory.threads.create(thread_id="none", resource_id="maya")
        assert await client.read(missing) == "There are no observations."


async def listed(client: Client) -> Any:
    return await client.session.list_resources()


class Pet(BaseModel):
    name: str | None = None


class Owner(BaseModel):
    city: str | None = None
    pet: Pet | None = None
    others: list[Pet] = []


async def test_fields_that_the_schema_ignores_are_named(make_memory: Make) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(schema=Owner))
    async with inside(memory, "maya") as client:
        sent = {"city": "Bern", "age": 4, "pet": {"name": "Rex", "kind": "dog"}, "others": [{"name": "Tom", "tail": 1}]}
        text = await client.text("update_working_memory", memory=sent)
        assert "has no 'age', so nothing was stored of it" in text
        assert "has no" not in await client.text("update_working_memory", memory={"city": "Rome"})
