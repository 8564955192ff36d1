"""Pictures, audio and files in the content of messages: what they are, their names, what shows instead, and what they weigh."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_workingmem._text.chunks import count_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from langchain_core.messages import BaseMessage

    Slot: TypeAlias = "tuple[Any, Any]"  # a dict or list, and a key or an index

_ATTACHED = re.compile(r"(?:input_)?(image|audio|video|file|document|media|text-plain)(?:_url)?")
_KINDS = {"image": "picture", "audio": "audio", "video": "video"}  # the others are files
_LONGEST_NAME = 80
# Tokens of a picture of 1024 x 1024, a minute of audio, half a minute of video; anything else is a file of two pages.
_TOKENS = {"image": 1_000, "audio": 1_000, "video": 9_000}
_FILE_TOKENS = 4_000


def kind_of(block: Any) -> str:
    """Return image, audio, video, file, document, media or text-plain for such a block, in any provider's form; else empty."""
    found = _named_kind(block) if isinstance(block, dict) else None
    return found[1] if found else ""


def _named_kind(block: Mapping[Any, Any]) -> re.Match[str] | None:
    keys = [block["type"]] if block.get("type") else block  # Bedrock has the kind as a key
    return next(filter(None, (_ATTACHED.fullmatch(str(key)) for key in keys)), None)


def attachment(block: str | Mapping[Any, Any]) -> str:
    """Name one block of content, in LangChain's form or a provider's; empty for text and calls. Data is never shown."""
    if isinstance(block, str) or (found := _named_kind(block)) is None:
        return ""
    kind = found[1] if found[1] in _KINDS else str(block.get("mime_type")).partition("/")[0]
    parts = (block, *(block.get(key) for key in (found[0], "extras", "metadata")))
    named = [part for part in parts if isinstance(part, dict)]
    names = (part.get(key) for part in named for key in ("filename", "name", "title"))
    name = " ".join(next((name for name in names if isinstance(name, str)), "").split())
    name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    return f"[{_KINDS.get(kind, 'file')}{name and ': '}{name}]"


def has_media(message: BaseMessage) -> bool:
    """Tell whether the content of a message has pictures, audio or files."""
    return not isinstance(message.content, str) and any(True for _ in media_in(message.content))


def media_in(content: Iterable[Any]) -> Iterator[Mapping[Any, Any]]:
    """Yield the blocks that are media, also those within results of tools, in Anthropic's form."""
    for block in content:
        if kind_of(block):
            yield block
        elif isinstance(block, dict) and isinstance(inner := block.get("content"), list):
            yield from media_in(inner)


def media_tokens(block: Mapping[Any, Any]) -> int:
    """Estimate the tokens of a block that is no text: one number for each kind, whatever its size. Text in it counts as text."""
    kind, source = kind_of(block), block.get("source")
    texts = (
        block.get("text"),
        source.get("data") if isinstance(source, dict) and source.get("type") == "text" else None,
    )
    if text := next((one for one in texts if isinstance(one, str)), ""):
        return count_tokens(text)
    types = (part.get(key) for part in (block, source) if isinstance(part, dict) for key in ("mime_type", "media_type"))
    mime = next((one.partition("/")[0] for one in types if isinstance(one, str)), "")
    return _TOKENS.get(mime) or _TOKENS.get(kind, _FILE_TOKENS)


def named_media(content: Sequence[Any]) -> list[Any]:
    """Copy content with a block of text, such as "[picture: name]", instead of each that is media."""
    found: list[Any] = []
    for block in content:
        if kind_of(block):
            found.append({"type": "text", "text": attachment(block)})
        elif isinstance(block, dict) and isinstance(inner := block.get("content"), list):
            found.append({**block, "content": named_media(inner)})
        else:
            found.append(block)
    return found
