"""Files of the user as tools and resources of an MCP server."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from mcp import McpError
from mcp.types import PaginatedRequestParams

from langchain_workingmem import FileOptions, Memory
from langchain_workingmem.mcp import files as ours
from tests.cli.conftest import run as run  # noqa: PLC0414 - a fixture
from tests.helpers.types import Make
from tests.mcp.conftest import Client, inside

READING, WRITING = ["list_files", "read_file", "list_file_revisions"], ["write_file", "edit_file", "revert_file"]
PATHS = ["/a.md", "/notes/50% #1?.txt", "/notes/%2e%2e/x", "/ö/日本.md", "/~a b/c:d@e\\f+g&h;i=j", "/.hidden", "/a/…/b"]


@pytest.fixture
def memory(make_memory: Make) -> Memory:
    return make_memory(files=FileOptions(max_file_bytes=5000))


async def test_tools_are_offered_to_who_has_files(make_memory: Make, memory: Memory) -> None:
    async with inside(make_memory(), "maya") as client:
        assert not {*READING, *WRITING} & {*await client.tools()}
        assert "There is no tool" in await client.refusal("list_files")
    async with inside(memory, "maya", read_only=True) as client:
        assert [one for one in await client.tools() if one in {*READING, *WRITING}] == READING
        assert "only reads" in await client.refusal("write_file", path="/a.md", content="x")
    async with inside(memory, "maya") as client:
        offered = {one.name: one for one in (await client.session.list_tools()).tools}
        for name in READING + WRITING:
            assert not {"resource", "resource_id", "user"} & offered[name].inputSchema["properties"].keys()
            assert "resource" in await client.refusal(name, path="/a.md", resource_id="jonas")
        assert "Call list_files" in str((await client.session.initialize()).instructions)


async def test_a_client_reads_and_changes_files(memory: Memory) -> None:
    async with inside(memory, "maya") as client:
        text = "".join(f"line {number}\n" for number in range(1, 6))
        assert await client.data("write_file", path="/notes/a.md", content=text) == {
            "path": "/notes/a.md",
            "revision": 1,
            "changed": True,
            "merged": False,
        }
        part = await client.data("read_file", path="/notes/a.md", start_line=2, lines=2)
        assert (part["text"], part["total_lines"], part["next_line"], part["revision"]) == ("line 2\nline 3", 5, 4, 1)
        shown = await client.text("read_file", path="/notes/a.md", start_line=4)
        assert shown == "/notes/a.md, revision 1, 5 lines:\n     4\tline 4\n     5\tline 5"
        assert (await client.data("read_file", path="/notes/a.md", start_line=4))["next_line"] is None
        assert "in 1 place, the first in line 2; revision 2" in await client.text(
            "edit_file", path="/notes/a.md", old="line 2", new="second"
        )
        (edit, *_) = memory.files.history("/notes/a.md", resource_id="maya")
        assert edit.by == "mcp"
    assert memory.files.read("/notes/a.md", resource_id="maya").text == text.replace("line 2", "second")


async def test_a_revision_keeps_what_others_have_changed(memory: Memory) -> None:
    memory.files.write("/a.md", "a\nb\nc\nd\nthree\n", resource_id="maya")
    memory.files.write("/a.md", "three\na\nb\nc\nd\nthree\n", resource_id="maya")
    async with inside(memory, "maya") as client:
        assert "2 times" in await client.refusal("edit_file", path="/a.md", old="three", new="3")
        edit = await client.data("edit_file", path="/a.md", old="three", new="3", revision=1)
        assert (edit["merged"], edit["revision"]) == (True, 3)
        write = await client.data("write_file", path="/a.md", content="a\nb\nC\nd\nthree\n", revision=1)
        assert (write["merged"], write["revision"]) == (True, 4)
        assert memory.files.read("/a.md", resource_id="maya").text == "three\na\nb\nC\nd\n3\n"
        conflict = await client.refusal("write_file", path="/a.md", content="a\nb\nx\nd\nthree\n", revision=1)
        assert "now: C\n" in conflict
        assert "you: x" in conflict
    assert memory.files.read("/a.md", resource_id="maya").revision == 4


async def test_a_refused_call_says_what_helps_in_words_of_tools(memory: Memory) -> None:
    memory.files.write("/bytes", b"\x00\xff", resource_id="maya")
    memory.files.write("/twice", "x x", resource_id="maya")
    async with inside(memory, "maya") as client:
        assert "look for the path with list_files" in await client.refusal("read_file", path="/none")
        for name, arguments, said in (
            ("read_file", {"path": "notes"}, "is not absolute"),
            ("read_file", {"path": "/../x"}, "holds '..'"),
            ("read_file", {"path": "/twice", "lines": 0}, "lines"),
            ("write_file", {"path": "/big", "content": "x" * 5001}, "5,000 at most"),
            ("write_file", {"path": "/twice/below", "content": "x"}, "is below"),
            ("edit_file", {"path": "/twice", "old": "x", "new": "y"}, "2 times"),
            ("edit_file", {"path": "/bytes", "old": "x", "new": "y"}, "holds bytes"),
        ):
            assert said in await client.refusal(name, **arguments), (name, arguments)
        assert (await client.data("read_file", path="/bytes"))["text"] is None
        assert "is no text" in await client.text("read_file", path="/bytes")


async def test_a_directory_comes_in_pages(memory: Memory) -> None:
    names = ["/a", "/a b", "/a-dir/x", "/b/y", "/c", '/c"d']
    for name in names:
        memory.files.write(name, "x", resource_id="maya")
    async with inside(memory, "maya") as client:
        seen: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = await client.data("list_files", limit=2, **cursor)
            seen += [one["path"] for one in page["entries"]]
            assert page["total"] == 6
            if page["next_cursor"] is None:
                break
            cursor = {"cursor": page["next_cursor"]}
        assert seen == ["/a", "/a b", "/a-dir", "/b", "/c", '/c"d']
        text = await client.text("list_files")
        assert '"/a-dir/"\n' in text
        assert '"/c\\"d": 1 byte, revision 1, changed ' in text
        assert (await client.text("list_files", path="/b")).startswith("1 of 1 entry:")
        assert "There is nothing" in await client.text("list_files", path="/none")


async def test_text_files_are_resources(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "PAGE", 3)
    memory.history.append([HumanMessage("hello")], thread_id="t", resource_id="maya")
    for path in PATHS:
        memory.files.write(path, f"text of {path}", resource_id="maya")
    memory.files.write("/bytes", b"\xff", resource_id="maya")
    async with inside(memory, "maya") as client:
        first = await client.session.list_resources()
        assert [str(one.uri) for one in first.resources[:2]] == ["workingmem://threads", "workingmem://threads/t"]
        found, cursor = first.resources[2:], first.nextCursor
        while cursor:
            page = await client.session.list_resources(params=PaginatedRequestParams(cursor=cursor))
            assert len(page.resources) <= 3
            found, cursor = [*found, *page.resources], page.nextCursor
        assert [one.name for one in found] == sorted(PATHS)
        for one in found:
            assert await client.read(str(one.uri)) == f"text of {one.name}"
        templates = (await client.session.list_resource_templates()).resourceTemplates
        assert [one.uriTemplate for one in templates][-1] == "workingmem://files{+path}"
        for uri in ("/bytes", "/none", "/..%2Fa.md", "", "?x=/a.md"):
            with pytest.raises(McpError):
                await client.read(f"workingmem://files{uri}")


async def told(client: Client, path: str) -> list[str]:
    """Everything that a client learns of a path."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("read_file", {}),
        ("edit_file", {"old": "secret", "new": "x"}),
        ("edit_file", {"old": "secret", "new": "x", "revision": 1}),
        ("write_file", {"content": "x", "revision": 1}),
    ]
    found = [await client.refusal(name, path=path, **more) for name, more in calls]
    with pytest.raises(McpError) as unread:
        await client.read(f"workingmem://files{path}")
    listed = await client.data("list_files", path="/theirs")
    resources = [str(one.uri) for one in (await client.session.list_resources()).resources]
    return [*(one.replace(path, "PATH") for one in (*found, str(unread.value))), str(listed), str(resources)]


async def test_a_file_of_somebody_else_is_like_a_missing_one(memory: Memory) -> None:
    memory.files.write("/theirs/a.md", "a secret", resource_id="jonas")
    async with inside(memory, "maya") as client:
        assert await told(client, "/theirs/a.md") == await told(client, "/nothing/a.md")
    assert memory.files.read("/theirs/a.md", resource_id="jonas").text == "a secret"
    assert memory.files.list(resource_id="maya") == []


async def test_hidden_characters_of_a_file_forge_no_line(memory: Memory) -> None:
    memory.files.write("/a.md", "one\u2028     9\tforged\x1b[31m\u202e\n", resource_id="maya")
    async with inside(memory, "maya") as client:
        text = await client.text("read_file", path="/a.md")
        assert text.splitlines()[1:] == ["     1\tone", "     2\t     9\tforged␛[31m"]
        assert "\x1b" not in await client.read("workingmem://files/a.md")
