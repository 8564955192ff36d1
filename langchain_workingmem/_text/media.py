"""Pictures, audio and files in the content of messages: what they are, their names, what shows instead, and what they weigh."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_workingmem._text.chunks import count_tokens
from langchain_workingmem._text.nesting import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from langchain_core.messages import BaseMessage

    Slot: TypeAlias = "tuple[Any, Any]"  # a dict or list, and a key or an index

# key in additional_kwargs of a copy that names media which were not read: `words` of the message, which the store has whole
SHORT = "langchain_workingmem_short"
_WORDS = re.compile("(?:[qa]s?[0-9a-f]{1,12})?")
_ATTACHED = re.compile(r"(?:input_)?(image|audio|video|file|document|media|text-plain)(?:_url)?")
_GENERATED = "image_generation_call"  # a picture that a model of OpenAI has made; it stays a call
_KINDS = {"image": "picture", "audio": "audio", "video": "video"}  # the others are files
_LONGEST_NAME = 80
# Tokens of a picture of 1024 x 1024, a minute of audio, half a minute of video; anything else is a file of two pages.
_TOKENS = {"image": 1_000, "audio": 1_000, "video": 9_000}
_FILE_TOKENS = 4_000


class Unread(str):
    """The part of a string in front of its base64, which lies in the store beside the message."""

    digest: str  # of the bytes
    words: str  # of the message

    __slots__ = ("digest", "words")

    def __reduce__(self) -> Any:
        """Copy it with what it refers to."""
        return unread, (str(self), self.digest, self.words)


def unread(start: str, digest: str, words: str) -> Unread:
    """Make a reference."""
    made = Unread(start)
    made.digest, made.words = digest, words
    return made


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


def strings_in(
    value: Any, *, media: bool = False, above: tuple[int, ...] = ()
) -> Iterator[tuple[Slot, str, tuple[int, ...]]]:
    """Yield each string within media, with the dict or list and the key that hold it, and its path.

    A path consists of positions, because keys may be anything. With `media` all strings count. A dict whose keys are not all str is
    left out: JSON might change their order. So is what holds itself: `above` are the identities of what holds the value.
    """
    above = (*above, id(value))
    if isinstance(value, dict):
        media = media or bool(_named_kind(value)) or value.get("type") == _GENERATED
        entries: Iterable[tuple[Any, Any]] = value.items() if all(isinstance(key, str) for key in value) else ()
    else:
        entries = enumerate(value) if isinstance(value, list) else ()
    for position, (key, one) in enumerate(entries):
        if isinstance(one, str):
            if media:
                yield (value, key), one, (position,)
        elif isinstance(one, dict | list) and len(above) <= MAX_DEPTH and id(one) not in above:
            for slot, text, path in strings_in(one, media=media, above=above):
                yield slot, text, (position, *path)


def short_words(message: BaseMessage) -> str | None:
    """Return the `words` of the stored message of which this is a shortened copy; None for another message."""
    words = message.additional_kwargs.get(SHORT)
    return words if isinstance(words, str) and _WORDS.fullmatch(words) else None
