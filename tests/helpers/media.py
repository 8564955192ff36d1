"""Messages with pictures, audio and files, and what a thread keeps of them beside its messages."""

from __future__ import annotations

import random
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem.history import references

REFERENCE = re.compile(rb'"(\w{32}) \w+/[\d/]+"')


NAMED = {"type": "text", "text": "[picture: map.png]"}


def data_of(seed: int, size: int = 1_500) -> str:
    """Return base64 of bytes that depend on the seed."""
    return b64encode(random.Random(seed).randbytes(size)).decode()


def picture(seed: int, name: str = "map.png") -> dict[str, Any]:
    return {"type": "image", "base64": data_of(seed), "mime_type": "image/png", "name": name}


def asks(text: str, *seeds: int, id: str | None = None) -> HumanMessage:
    return HumanMessage([{"type": "text", "text": text}, *map(picture, seeds)], id=id)


def forms() -> dict[str, BaseMessage]:
    """Return messages with media in the forms of LangChain and of providers."""
    one, url = data_of(1), f"data:image/png;base64,{data_of(2)}"
    blocks: dict[str, list[dict[str, Any]]] = {
        "langchain": [picture(1)],
        "langchain 0": [{"type": "image", "source_type": "base64", "data": one, "mime_type": "image/png"}],
        "several": [picture(1), {"type": "text", "text": "and"}, picture(1), picture(2)],
        "chat completions": [{"type": "image_url", "image_url": {"url": url, "detail": "high"}}],
        "responses": [{"type": "input_image", "image_url": url}],
        "audio": [{"type": "input_audio", "input_audio": {"data": one, "format": "wav"}}],
        "file": [{"type": "file", "file": {"filename": "cv.pdf", "file_data": f"data:application/pdf;base64,{one}"}}],
        "anthropic": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": one}}],
        "google": [{"type": "media", "mime_type": "video/mp4", "data": one}],
        "result": [{"type": "tool_result", "tool_use_id": "1", "content": [picture(3)]}],
    }
    found: dict[str, BaseMessage] = {
        name: HumanMessage([{"type": "text", "text": f"look at {name}"}, *content], id=name)
        for name, content in blocks.items()
    }
    found["spoken answer"] = AIMessage(
        "", id="spoken answer", additional_kwargs={"audio": {"id": "a", "data": one, "transcript": "hello"}}
    )
    found["drawn answer"] = AIMessage([{"type": "image_generation_call", "id": "i", "result": one}], id="drawn answer")
    found["tool"] = ToolMessage([picture(4)], tool_call_id="c", id="tool", artifact={"plots": [one, {"svg": one}]})
    return found


def kept(raw: redis.Redis, prefix: str, thread_id: str = "t") -> int:
    """Check that each reference of a thread counts, and that nothing else is kept; return how many media there are."""
    stored: Any = raw.hgetall(f"{prefix}:messages:{{{thread_id}}}")
    values = [value for field, value in stored.items() if field[:1] != b"\0"]
    counts = Counter(digest for value in values for digest in REFERENCE.findall(value.rpartition(b',"media":[')[2]))
    assert {field[2:]: int(value) for field, value in stored.items() if field[:2] == b"\0#"} == counts
    assert {field[1:] for field in stored if field[:1] == b"\0" and field[:2] != b"\0#"} == counts.keys()
    ids = {id for key in ("order", "superseded") for id in raw.zrange(f"{prefix}:{key}:{{{thread_id}}}", 0, -1)}
    assert {field for field in stored if field[:1] != b"\0"} == ids
    return len(counts)


def seen(messages: list[Any]) -> str:
    """Write for each message how many media it shows, - for none, and n for names."""
    found = []
    for one in messages:
        blocks = [] if isinstance(one.content, str) else one.content
        media = sum(block.get("type") == "image" for block in blocks)
        found.append(str(media) if media else "n" if NAMED in blocks else "-")
    return "".join(found)


def spied(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Return a list that grows by the hashes of each round trip for media."""
    read, asked = references._read, []

    def noting(key: str, digests: Sequence[str]) -> Any:
        asked.append(digests)
        return read(key, digests)

    monkeypatch.setattr(references, "_read", noting)
    return asked
