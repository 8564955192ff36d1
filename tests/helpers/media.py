"""Messages with pictures, audio and files, and what a thread keeps of them beside its messages."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from typing import Any

import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

NAMED = {"type": "text", "text": "[picture: map.png]"}


def data_of(seed: int, size: int = 1_500) -> str:
    """Return base64 of bytes that depend on the seed."""
    return b64encode(random.Random(seed).randbytes(size)).decode()


def picture(seed: int, name: str = "map.png", size: int = 1_500) -> dict[str, Any]:
    return {"type": "image", "base64": data_of(seed, size), "mime_type": "image/png", "name": name}


def asks(text: str, *seeds: int, id: str | None = None, size: int = 1_500) -> HumanMessage:
    return HumanMessage([{"type": "text", "text": text}, *(picture(seed, size=size) for seed in seeds)], id=id)


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
    """Check that each string beside the messages belongs to one of them; return how many there are."""
    bodies: Any = raw.hgetall(f"{prefix}:messages:{{{thread_id}}}")
    fields: Any = raw.hkeys(f"{prefix}:media:{{{thread_id}}}")
    records = {seq: json.loads(body.lstrip(b"-!")) for seq, body in bodies.items()}
    wanted = {b"%s:%d" % (seq, at) for seq, one in records.items() for at in range(len(one.get("media", ())))}
    assert {*fields} == wanted
    return len(fields)


def seen(messages: list[Any]) -> str:
    """Write for each message how many media it shows, - for none, and n for names."""
    found = []
    for one in messages:
        blocks = [] if isinstance(one.content, str) else one.content
        media = sum(block.get("type") == "image" for block in blocks)
        found.append(str(media) if media else "n" if NAMED in blocks else "-")
    return "".join(found)
