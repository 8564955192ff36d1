"""Records of every kind, and how somebody sees them who looks at them in a notebook or in a terminal."""

from __future__ import annotations

import io
import unicodedata
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from rich.console import Console

from langchain_workingmem import MemoryContext, Page, RecallHit, RecallResult, StoredMessage, Thread, WorkingMemoryState
from langchain_workingmem._text.sending import Marks
from langchain_workingmem.models import Diagnosis, Finding
from tests.helpers.threads import row_of

AT = datetime(2026, 5, 17, 9, 30, tzinfo=UTC)


def thread(text: str = "trip", **fields: Any) -> Thread:
    given: dict[str, Any] = {"id": text, "user_id": text, "title": text, "metadata": {text: text}}
    return Thread(**given | fields, created_at=AT, updated_at=AT, message_count=1234)


def stored(message: BaseMessage, seq: int = 0, thread_id: str = "trip") -> StoredMessage:
    return row_of(message, thread_id, seq, AT + timedelta(minutes=seq))


def recalled(*messages: BaseMessage, hit: int = 0, thread_id: str = "trip", title: str | None = "Trip") -> RecallResult:
    for seq, message in enumerate(messages):
        message.id = message.id or str(seq)
    rows = [stored(message, seq, thread_id) for seq, message in enumerate(messages)]
    found = RecallHit(thread_id=thread_id, score=0.9, similarity=0.714, thread_title=title, rows=rows, at=hit)
    return RecallResult(hits=[found], rows=rows)


def state(text: str, revision: int = 1, **fields: Any) -> WorkingMemoryState:
    given: dict[str, Any] = {"value": text, "is_empty": not text, "updated_at": AT, "origin": "tool"}
    return WorkingMemoryState(**given | fields, text=text, revision=revision)


def every_record(text: str) -> list[Any]:
    """Return every kind of record that has a picture, with a text in each place that somebody else fills."""
    said = "".join(one for one in text if unicodedata.category(one) != "Cs")  # no message can hold lone surrogates
    calls = AIMessage(said, id="2", name=said, tool_calls=[{"name": said, "args": {said: said}, "id": said}])
    messages = [HumanMessage(said, id="1"), calls, ToolMessage(said, tool_call_id=said, id="3")]
    blocks = HumanMessage([{"type": "text", "text": said}, said, {"type": said, "x": said}], id="4")
    found = recalled(*messages, blocks, thread_id=text, title=text)
    memory, shown = state(text, origin=text), [*messages, Marks(b"secret", "t", "u").with_memory(blocks, [said])]
    return [
        found,
        MemoryContext(messages=shown, system=[text, text], recalled=found, working_memory=memory),
        memory,
        Page(items=[thread(text)], total=2, next_cursor=text),
        Page(items=found.rows, total=4),
        Diagnosis(findings=[Finding(check=text, level="error", message=text, remedy=text)]),
    ]


class Seen(HTMLParser):
    """What a browser makes of HTML: its elements with their attributes, and its text. Elements must be closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: set[str] = set()
        self.attributes: set[tuple[str, str | None]] = set()
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.elements.add(tag)
        self.attributes |= set(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def forbidden(self, *data: Any, **more: Any) -> None:
        raise AssertionError(data, more)

    handle_comment = handle_decl = handle_pi = unknown_decl = forbidden


def in_notebook(record: Any) -> str:
    return Seen(record._repr_html_()).text


def in_terminal(record: Any) -> str:
    """Return what rich writes into a file: without colours, so every control character in it would be ours."""
    file = io.StringIO()
    Console(file=file, width=300, color_system=None).print(record)
    return file.getvalue()
