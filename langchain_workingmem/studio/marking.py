"""Markdown and pictures of messages, made safe for a page.

Markdown becomes a few elements without attributes that act: markup in it stays text, links lead to http, https or mailto and tell no
referrer, and a picture of another host is a link, because the studio fetches nothing. Pictures that are stored come from the studio,
in the four formats that its first bytes name: a browser does not run them.
"""

from __future__ import annotations

import re
from binascii import Error, a2b_base64
from typing import TYPE_CHECKING, Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from starlette.responses import Response

from langchain_workingmem._engine.effects import send
from langchain_workingmem._redis.codec import decode_message
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._text.media import attachment, strings_in
from langchain_workingmem.display.pictures import as_json
from langchain_workingmem.display.safe import clean
from langchain_workingmem.history import with_media
from langchain_workingmem.studio.site import Missing, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_core.messages import BaseMessage
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token
    from starlette.requests import Request

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.studio.site import Studio

MOST_BRACKETS = 500  # the time of the parser grows with their square: 20,000 take two seconds
_MARKS = re.compile(r"[*_`#\[|~\\]|^\s*(?:[-+>=]|\d+[.)])|<\w+[:@]", re.MULTILINE)  # without any, a text is plain
_ALLOWED = re.compile(r"(?:https?:|mailto:)", re.IGNORECASE)
_DATA_URL = re.compile(r"data:[^,]{0,200},")
_HTTP = re.compile(r"https?://", re.IGNORECASE)
_BYTES = {  # the first bytes of what browsers show as a picture and do not run
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}


class Part(NamedTuple):
    """A part of a message: text, a picture, or the JSON of anything else."""

    kind: str
    text: str
    position: int = 0  # of a picture, among the blocks


def parts_of(message: BaseMessage) -> list[Part]:
    """Return what a message holds. What is neither text nor a picture is shown as JSON."""
    if isinstance(message.content, str):
        return [Part("text", message.content)] if message.content else []
    found = []
    for position, part in enumerate(message.content):
        block = {"type": "text", "text": part} if isinstance(part, str) else part
        kind, name = str(block.get("type") or "content"), attachment(block)
        if kind == "text":
            found.append(Part(kind, str(block.get("text") or "")))
        elif name.startswith("[picture"):
            address = next((text for _, text, _ in strings_in(block, media=True) if _HTTP.match(text)), None)
            found.append(Part("picture", name, position) if address is None else Part("elsewhere", address))
        elif kind not in {"tool_use", "tool_call", "function_call"}:  # shown as calls
            rest = {key: value for key, value in block.items() if key != "type"}
            found.append(Part(name.strip("[]") or kind, as_json(rest, 2)))
    return found


def marked(text: str) -> str | None:
    """Return the markup of a text in Markdown; None if it has none, or too many brackets: it is to be shown as it is."""
    if not _MARKS.search(text) or text.count("[") > MOST_BRACKETS:
        return None
    made = str(_MARKDOWN.render(text))
    if made == f"<p>{escapeHtml(text)}</p>\n":
        return None
    # escaped percent signs of an address may have become characters that nobody sees
    return clean(made)


def _markdown() -> MarkdownIt:
    found = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    found.disable("entity")  # it could write any character
    found.validateLink = lambda url: bool(_ALLOWED.match(url))  # type: ignore[method-assign]
    rules = {"link_open": _link, "image": _picture, "heading_open": _heading, "heading_close": _heading}
    for name, rule in {**rules, "th_open": _cell, "td_open": _cell}.items():
        found.add_render_rule(name, rule)
    return found


def _link(_: RendererHTML, tokens: Sequence[Token], at: int, *__: Any) -> str:
    return f'<a href="{escapeHtml(str(tokens[at].attrs["href"]))}" rel="noreferrer noopener">'


def _picture(_: RendererHTML, tokens: Sequence[Token], at: int, *__: Any) -> str:
    """Write where a picture is, as text: it may stand in a link already."""
    return f"[picture: {escapeHtml(tokens[at].content)} {escapeHtml(str(tokens[at].attrs['src']))}]"


def _heading(_: RendererHTML, tokens: Sequence[Token], at: int, *__: Any) -> str:
    """Write a heading as a paragraph: it is none of the page."""
    return '<p class="heading">' if tokens[at].nesting == 1 else "</p>\n"


def _cell(_: RendererHTML, tokens: Sequence[Token], at: int, *__: Any) -> str:
    """Write a cell without its alignment, which would be a style."""
    return f"<{tokens[at].tag}>"


_MARKDOWN = _markdown()


# ---------------------------------------------------------------------- pictures


async def picture(studio: Studio, request: Request) -> Response:
    """Send a picture of a message."""
    one, given = await studio.thread(request), request.query_params
    id, position = check_id(given.get("message", ""), "message"), number(given.get("position")) or 0
    found = await studio.run(_read(studio.state, one.id, id, position))
    if found is None:
        raise Missing
    kind, raw = found
    return Response(raw, media_type=kind)


def _read(state: MemoryState, thread_id: str, id: str, position: int) -> Plan[tuple[str, bytes] | None]:
    (value,) = yield from send(("HGET", state.keys.of(thread_id).messages, id))
    if value is None:
        return None
    message = decode_message(id.encode(), b"0", value, thread_id).message
    yield from with_media(state, [message], thread_id)
    content = message.content
    block = content[position] if isinstance(content, list) and position < len(content) else ""
    return None if isinstance(block, str) else picture_in(block)


def picture_in(block: Mapping[Any, Any]) -> tuple[str, bytes] | None:
    """Return the type and the bytes of a picture that a block holds as base64; None if its first bytes name no allowed type."""
    longest = max((text for _, text, _ in strings_in(block, media=True)), key=len, default="")
    try:
        raw = a2b_base64(longest[match.end() :] if (match := _DATA_URL.match(longest)) else longest)
    except (Error, ValueError):
        return None
    kind = next((kind for kind, first in _BYTES.items() if first.match(raw)), None)
    return None if kind is None else (kind, raw)
