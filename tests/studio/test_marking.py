"""Markdown and pictures of messages: what becomes an element, and what stays text."""

from __future__ import annotations

import base64
import re
import time
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_workingmem import Memory
from langchain_workingmem.studio.marking import marked, picture_in
from tests.helpers.examples import sample
from tests.helpers.types import Make
from tests.studio.conftest import Open, Visitor

IDS = {"user": "maya", "thread": "t"}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
DATA = base64.b64encode(PNG).decode()
URL = f"data:image/png;base64,{DATA}"
ALLOWED = {
    *("p", "br", "em", "strong", "s", "code", "pre", "ul", "ol", "li", "blockquote", "hr", "a"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}


@pytest.mark.parametrize(
    ("text", "markup"),
    [
        ("**a** *b* ~~c~~ `d`", "<p><strong>a</strong> <em>b</em> <s>c</s> <code>d</code></p>\n"),
        ("- a\n- b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n"),
        (
            "|a|\n|-:|\n|b|",
            "<table>\n<thead>\n<tr>\n<th>a</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>b</td>\n</tr>\n</tbody>\n</table>\n",
        ),
        ("# Title", '<p class="heading">Title</p>\n'),
        ("```py\n<b>\n```", '<pre><code class="language-py">&lt;b&gt;\n</code></pre>\n'),
        ("*a*\nb", "<p><em>a</em><br />\nb</p>\n"),
        ("[a](https://b.c/d?e=f&g)", '<p><a href="https://b.c/d?e=f&amp;g" rel="noreferrer noopener">a</a></p>\n'),
        ("[a](mailto:b@c.d)", '<p><a href="mailto:b@c.d" rel="noreferrer noopener">a</a></p>\n'),
        ("![a](https://b.c/d.png)", "<p>[picture: a https://b.c/d.png]</p>\n"),
        ("&#x202e; *a*", "<p>&amp;#x202e; <em>a</em></p>\n"),
        (
            "<https://a.b/%E2%80%AEc>",
            '<p><a href="https://a.b/%E2%80%AEc" rel="noreferrer noopener">https://a.b/\\u202ec</a></p>\n',
        ),
    ],
)
def test_markdown_becomes_elements(text: str, markup: str) -> None:
    assert marked(text) == markup


@pytest.mark.parametrize("text", ["", "plain", "two\nlines", '5 < 6 & "x"', "a_b", "1.5", "a - b"])
def test_a_text_without_marks_stays_as_it_is(text: str) -> None:
    assert marked(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "*a* <script>alert(1)</script>",
        "*a* <img src=x onerror=alert(1)>",
        "<b onmouseover=alert(1)>*a*</b>",
        "[a](javascript:alert(1))",
        "[a](JaVaScRiPt:alert(1))",
        "[a](java\nscript:alert(1))",
        "[a](&#106;avascript:alert(1))",
        "[a](data:text/html,<script>)",
        "[a](vbscript:x) [b](file:///etc/passwd) [c](//evil.example) [d](/thread/delete)",
        "<javascript:alert(1)> *a*",
        "![a](javascript:alert(1))",
        f"![a]({URL[:60]})",
        '![a"onerror="alert(1)](https://b.c/"onerror="x)',
        '[a](https://b.c "x\\" onclick=\\"alert(1)")',
        "[a]: javascript:alert(1)\n[a]",
        '```" onload="alert(1)\nx\n```',
        "| <script> |\n|--|\n| <img src=x> |",
        "#  <style>x</style>",
        '[a](https://b.c/"><script>alert(1)</script>)',
    ],
)
def test_nothing_hostile_becomes_an_element_or_an_attribute(text: str) -> None:
    found = str(marked(text) or "")
    for name, attributes in re.findall(r"<\s*/?\s*([^\s/>]+)([^>]*)>", found):
        assert name in ALLOWED, found
        for attribute, value in re.findall(r'([\w-]+)="([^"]*)"', attributes):
            assert attribute in {"href", "rel", "class"}, found
            assert attribute != "href" or value.startswith(("http://", "https://", "mailto:"))
        assert not re.sub(r'[\w-]+="[^"]*"', "", attributes).strip(" /"), found


@pytest.mark.parametrize(
    "text", sample(["[" * 20_000, "- a\n" * 5_000, "![" * 9_000, "**a" * 6_000, "a*b_" * 5_000], 3)
)
def test_no_text_takes_long(text: str) -> None:
    start = time.process_time()
    marked(text)
    assert time.process_time() - start < 1  # most take a tenth


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": {"url": URL}},
        {"type": "input_image", "image_url": URL},
        {"type": "image", "base64": DATA, "mime_type": "image/png"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
        {"type": "media", "mime_type": "image/png", "data": DATA},
    ],
    ids=["url", "input", "base64", "anthropic", "google"],
)
def test_a_picture_of_every_provider_is_sent(make_memory: Make, open_studio: Open, block: dict[str, Any]) -> None:
    memory = make_memory()
    memory.save_turn([HumanMessage([{"type": "text", "text": "look"}, block])], thread_id="t", resource_id="maya")
    visitor = open_studio(memory)
    page = visitor.page("/thread", **IDS)
    address = re.search(r'<img src="(/picture[^"]+)" alt="\[picture\]"', page)
    assert address
    answer = visitor.client.get(address[1].replace("&amp;", "&"))
    assert (answer.content, answer.headers["content-type"]) == (PNG, "image/png")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert DATA[:100] not in page


@pytest.mark.parametrize(
    "raw", [b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", b"<html><script>", b"%PDF-1.4", b""]
)
def test_what_a_browser_could_run_is_no_picture(raw: bytes) -> None:
    data = base64.b64encode(raw).decode()
    assert picture_in({"type": "image", "base64": data, "mime_type": "image/png"}) is None
    assert picture_in({"type": "image", "base64": "é", "mime_type": "image/png"}) is None


def pictured(make_memory: Make) -> Memory:
    memory = make_memory()
    block = {"type": "image", "base64": DATA, "mime_type": "image/png"}
    memory.save_turn([HumanMessage([block], id="q"), AIMessage("ok", id="a")], thread_id="t", resource_id="maya")
    memory.save_turn([HumanMessage([block], id="q")], thread_id="s", resource_id="jonas")
    return memory


@pytest.mark.parametrize(
    "of", [{"message": "a"}, {"message": "nobody"}, {"message": "q", "position": "1"}, {"message": "q", "thread": "s"}]
)
def test_there_is_no_other_picture(make_memory: Make, open_studio: Open, of: dict[str, str]) -> None:
    visitor: Visitor = open_studio(pictured(make_memory))
    assert visitor.get("/picture", **{**IDS, "message": "q"}).status_code == 200
    assert visitor.get("/picture", **{**IDS, **of}).status_code == 404


def test_a_conversation_shows_markdown_or_the_texts_as_they_are(make_memory: Make, open_studio: Open) -> None:
    memory = make_memory()
    call = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "c"}])
    result = ToolMessage("**no** markdown", tool_call_id="c")
    turn = [HumanMessage("**bold** question"), call, result, AIMessage("*soft* answer")]
    memory.save_turn(turn, thread_id="t", resource_id="maya")
    visitor = open_studio(memory)
    page = visitor.page("/thread", **IDS)
    assert "<strong>bold</strong>" in page
    assert "<em>soft</em>" in page
    assert "**no** markdown" in page
    assert "**bold** question" in visitor.page("/thread", **IDS, plain="1")
