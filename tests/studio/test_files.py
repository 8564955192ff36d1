"""The pages of files."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from langchain_workingmem import FileOptions, Memory
from langchain_workingmem.studio import files as ours
from tests.helpers.types import Make
from tests.studio.conftest import EVIL, Open, Visitor

MAYA: Any = {"user": "maya"}
ODD = '/a "b" <b>&amp; %2e+=#?/</script><img src=x onerror=1>.md'
BYTES = b"<html><script>alert(1)</script>\x00\xff"


@pytest.fixture
def memory(make_memory: Make) -> Memory:
    """Maya's files, with two revisions of one, and one of Jonas."""
    memory = make_memory(files=FileOptions(max_file_bytes=30_000))
    for text in ("one\ntwo\nthree\n", "one\n2\nthree\n"):
        memory.files.write("/notes/plan.md", text, resource_id="maya", by="agent")
    memory.files.write("/notes/deep/x.md", "x", resource_id="maya")
    memory.files.write("/bytes.html", BYTES, resource_id="maya")
    memory.files.write("/theirs.md", "Kestrel", resource_id="jonas")
    return memory


def links(page: str) -> list[str]:
    return [unescape(one) for one in re.findall(r'href="(/files[^"]*)"', page)]


def edit(visitor: Visitor, text: str, revision: int = 2, path: str = "/notes/plan.md", **more: str) -> Any:
    data = {"action": "edit", "text": text.replace("\n", "\r\n"), "revision": str(revision), **more}
    return visitor.send("/files", data, **MAYA, path=path)


def textarea(page: str) -> str:
    """Return what a browser would show in the field."""
    return unescape(re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.DOTALL)[0])


def test_a_tree_leads_to_each_file(memory: Memory, open_studio: Open) -> None:
    memory.files.write(ODD, "odd", resource_id="maya")
    visitor, seen, left = open_studio(memory), set[str](), ["/files?user=maya"]
    while left:
        address = left.pop()
        if address in seen or "later=" in address or "earlier=" in address:
            continue
        seen.add(address)
        answer = visitor.client.get(address)
        assert answer.status_code == 200
        if "/download" not in address:
            assert "<script>alert" not in answer.text
            assert "<img src=x" not in answer.text
            left += links(answer.text)
    paths = {dict(parse_qsl(urlsplit(one).query)).get("path", "") for one in seen}
    assert {"", "/notes", "/notes/deep", "/notes/plan.md", "/notes/deep/x.md", "/bytes.html", ODD} <= paths
    assert "/files?user=maya" in visitor.page("/", **MAYA)


def test_a_directory_shows_what_is_in_it(memory: Memory, open_studio: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    visitor = open_studio(memory)
    page = visitor.page("/files", **MAYA, path="/notes")
    assert re.findall(r"<li data-item><a [^>]*><bdi>(.*?)</bdi>", page) == ["deep/", "plan.md"]
    assert re.search(r"12 bytes · revision 2 · \d{4}-.* · <bdi>agent</bdi>", page)
    found = visitor.page("/files", **MAYA, q="*.md")
    assert re.findall(r"<li data-item><a [^>]*><bdi>(.*?)</bdi>", found) == ["/notes/deep/x.md", "/notes/plan.md"]
    assert "No file is here that matches" in visitor.page("/files", **MAYA, q="*.none")
    monkeypatch.setattr(ours, "ENTRIES", 1)
    assert "1 more are not shown" in visitor.page("/files", **MAYA, path="/notes")


def test_a_file_shows_its_revisions_and_what_changed(memory: Memory, open_studio: Open) -> None:
    memory.files.write("/notes/plan.md", "one\n2\n3\n", resource_id="maya")
    visitor = open_studio(memory)
    page = visitor.page("/files", **MAYA, path="/notes/plan.md")
    assert ">one\n2\n3\n</pre>" in page
    assert "<del>-three</del>" in page
    assert "<ins>+3</ins>" in page
    assert '<form method="post"' not in page
    older = visitor.page("/files", **MAYA, path="/notes/plan.md", revision="1", later="2")
    assert ">one\ntwo\nthree\n</pre>" in older
    assert "1 of 3" in older
    assert "data-live" not in older
    assert "<del>-two</del>" in older
    assert "Revision 1 → 3" in visitor.page("/files", **MAYA, path="/notes/plan.md", earlier="1")
    assert "Revision 0 → 1" in visitor.page("/files", **MAYA, path="/notes/plan.md", earlier="0", later="1")
    for more in ({"revision": "9"}, {"later": "9"}, {"path": "/none"}):
        assert visitor.get("/files", **{**MAYA, "path": "/notes/plan.md", **more}).status_code == 404
    assert visitor.get("/files", **MAYA, path="/a/../b").status_code == 400
    page = visitor.page("/files", **MAYA, path="/notes/plan.md", zone="Asia/Tokyo")
    assert "Asia/Tokyo" in page
    hour = f"{memory.files.history('/notes/plan.md', resource_id='maya')[0].at.hour + 9:02}"
    assert f" {int(hour) % 24:02}:" in page.partition("<h2>Revisions</h2>")[2]


def test_contents_never_become_markup(memory: Memory, open_studio: Open) -> None:
    memory.files.write("/e.md", f"</textarea></pre>{EVIL}", resource_id="maya", by="<b>x</b>")
    memory.files.write("/e.md", f"</textarea></pre>{EVIL}\n{EVIL}", resource_id="maya", by="<b>x</b>")
    memory.files.write("/long.md", "word " * 5_900, resource_id="maya")
    visitor = open_studio(memory, write=True)
    page = visitor.page("/files", **MAYA, path="/e.md")
    assert not {"<script>alert", "<b>x", "</textarea></pre>"} & {page[at : at + 17] for at in range(len(page))}
    assert "<script>alert" not in page
    assert "<b>x" not in page
    assert textarea(page) == f"</textarea></pre>{EVIL}\n{EVIL}"  # a form gives back what it was given
    shown = page.replace(page.partition("<textarea")[2].partition("</textarea>")[0], "")
    assert not {"\x1b", "\u202e"} & set(shown)
    assert "more]" in visitor.page("/files", **MAYA, path="/long.md")


def test_a_download_is_bytes_that_no_browser_shows(memory: Memory, open_studio: Open) -> None:
    memory.files.write(ODD, "odd ö\r\n", resource_id="maya")
    visitor = open_studio(memory)
    answer = visitor.get("/files/download", **MAYA, path="/bytes.html")
    assert answer.content == BYTES
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''bytes.html"
    odd = visitor.get("/files/download", **MAYA, path=ODD)
    assert odd.content == "odd ö\r\n".encode()
    assert odd.headers["content-disposition"].endswith("%3Cimg%20src%3Dx%20onerror%3D1%3E.md")
    old = visitor.get("/files/download", **MAYA, path="/notes/plan.md", revision="1")
    assert old.text == "one\ntwo\nthree\n"
    assert "It holds no text" in visitor.page("/files", **MAYA, path="/bytes.html")
    for path, status in (("/none", 404), ("/notes", 400)):
        assert visitor.get("/files/download", **MAYA, path=path).status_code == status


def test_an_edit_keeps_what_others_have_changed(memory: Memory, open_studio: Open) -> None:
    visitor = open_studio(memory, write=True)
    opened = visitor.page("/files", **MAYA, path="/notes/plan.md")
    assert textarea(opened) == "one\n2\nthree\n"
    memory.files.edit("/notes/plan.md", "one", "ONE", resource_id="maya")
    assert edit(visitor, "one\n2\n3\n").status_code == 200
    found = memory.files.history("/notes/plan.md", resource_id="maya")[0]
    assert (memory.files.read("/notes/plan.md", resource_id="maya").text, found.by) == ("ONE\n2\n3\n", "person")


def test_a_conflict_shows_both_and_loses_nothing(memory: Memory, open_studio: Open) -> None:
    visitor = open_studio(memory, write=True)
    memory.files.edit("/notes/plan.md", "2", "theirs", resource_id="maya")
    answer = edit(visitor, "one\nmine\nthree\n")
    assert answer.status_code == 409
    clash = answer.text.partition("<h2>Stored (-) and your text (+)</h2>")[2].partition("</pre>")[0]
    assert "<del>-theirs</del>" in clash
    assert "<ins>+mine</ins>" in clash
    assert textarea(answer.text) == "one\nmine\nthree\n"
    assert memory.files.read("/notes/plan.md", resource_id="maya").text == "one\ntheirs\nthree\n"
    assert '<input type="hidden" name="revision" value="3">' in answer.text
    assert edit(visitor, textarea(answer.text), revision=3).status_code == 200
    assert memory.files.read("/notes/plan.md", resource_id="maya").text == "one\nmine\nthree\n"


@pytest.mark.parametrize("purge", [False, True])
def test_an_edit_of_a_file_that_is_gone_loses_nothing(memory: Memory, open_studio: Open, purge: bool) -> None:
    visitor = open_studio(memory, write=True)
    memory.files.delete("/notes/plan.md", resource_id="maya", purge=purge)
    answer = edit(visitor, "mine\n")
    assert answer.status_code == 409
    base = re.findall(r'name="revision" value="(\d+)">\n<label', answer.text)
    assert edit(visitor, textarea(answer.text), revision=int(base[0])).status_code == 200
    assert memory.files.read("/notes/plan.md", resource_id="maya").text == "mine\n"


def test_a_refused_text_is_shown_again(memory: Memory, open_studio: Open) -> None:
    visitor = open_studio(memory, write=True)
    answer = edit(visitor, "x" * 30_001)
    assert answer.status_code == 422
    assert "30,000 at most" in answer.text
    assert textarea(answer.text) == "x" * 30_001
    data = {"action": "edit", "text": "x"}
    assert "names no revision" in visitor.send("/files", data, **MAYA, path="/notes/plan.md").text
    assert visitor.send("/files", {"action": "no"}, **MAYA, path="/notes/plan.md").status_code == 422
    memory.files.write("/crlf.md", "one\r\n", resource_id="maya")
    page = visitor.page("/files", **MAYA, path="/crlf.md")
    assert "<textarea" not in page
    assert "workingmem files edit" in page
    assert edit(open_studio(memory), "x").status_code == 403


def test_a_file_is_deleted_restored_and_forgotten(memory: Memory, open_studio: Open) -> None:
    visitor = open_studio(memory, write=True)
    plan: Any = {**MAYA, "path": "/notes/plan.md"}
    gone = visitor.send("/files", {"action": "delete"}, **plan)
    assert gone.url.params["path"] == "/notes/plan.md"
    assert "it was deleted" in gone.text
    visitor.send("/files", {"action": "revert", "revision": "1"}, **plan)
    assert memory.files.read("/notes/plan.md", resource_id="maya").text == "one\ntwo\nthree\n"
    assert visitor.send("/files", {"action": "revert", "revision": "99"}, **plan).status_code == 404
    for confirm in ({}, {"confirm": "/notes"}):
        assert visitor.send("/files", {"action": "purge", **confirm}, **plan).status_code == 422
    emptied = visitor.send("/files", {"action": "purge", "confirm": "/notes/plan.md"}, **plan)
    assert emptied.url.params["path"] == "/notes"
    assert visitor.get("/files", **plan).status_code == 404
    notes: Any = {**MAYA, "path": "/notes"}
    assert visitor.send("/files", {"action": "delete"}, **notes).status_code == 422
    assert visitor.send("/files", {"action": "delete", "confirm": "/notes"}, **notes).status_code == 200
    assert [one.path for one in memory.files.list(resource_id="maya")] == ["/bytes.html"]


def test_the_page_of_all_data_counts_files(memory: Memory, open_studio: Open) -> None:
    usage = memory.files.usage(resource_id="maya")
    assert f"3, {usage.bytes:,} bytes with revisions" in open_studio(memory).page("/data", **MAYA)
    assert "<dt>files</dt><dd><bdi>none" in open_studio(memory).page("/data", user="nobody")


def test_a_deletion_of_all_data_counts_files(memory: Memory, open_studio: Open) -> None:
    page = open_studio(memory, write=True).send("/delete", {"confirm": "maya"}, **MAYA).text
    assert "<dt>files</dt><dd><bdi>3<" in page
    assert memory.files.list(resource_id="maya") == []
    assert memory.files.read("/theirs.md", resource_id="jonas").text == "Kestrel"


def test_a_studio_of_one_user_reaches_no_file_of_another(memory: Memory, open_studio: Open) -> None:
    visitor = open_studio(memory, resource_id="maya", write=True)
    for path in ("/files", "/files/download"):
        for user in ("jonas", "maya&user=jonas"):
            answer = visitor.client.get(f"{path}?user={user}&path=/theirs.md")
            missing = visitor.client.get(f"{path}?user={user}&path=/nothing.md")
            assert (answer.status_code, answer.text) == (missing.status_code, missing.text)
            assert answer.status_code == 404
        assert visitor.get(path, path="/theirs.md").status_code == 404
    for action in ("edit", "delete", "purge", "revert"):
        data = {"action": action, "text": "x", "revision": "1", "confirm": "/theirs.md", "user": "jonas"}
        assert visitor.send("/files", data, user="jonas", path="/theirs.md").status_code == 404
        visitor.send("/files", data, path="/theirs.md")
    assert memory.files.read("/theirs.md", resource_id="jonas").text == "Kestrel"
    assert len(memory.files.history("/theirs.md", resource_id="jonas")) == 1
