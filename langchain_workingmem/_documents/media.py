"""Base64 in the fields of a message: taken out of what is stored, as bytes under their hash, and put back.

A stored message that has some ends with `,"media":["<hash> <path>",...]}` behind its data, where no content of a message
can stand: so a text that looks like a reference is a text.
"""

from __future__ import annotations

import hashlib
import re
from binascii import a2b_base64, b2a_base64
from typing import TYPE_CHECKING, Any

from langchain_workingmem._text.media import Unread, strings_in, unread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from langchain_core.messages import BaseMessage

LEAST = 1_000  # characters of base64; less stays in the message
_DIGITS = 32  # of a hash: 128 bits, which hold against somebody who looks for two of the same
_FIELDS = ("content", "artifact", "additional_kwargs")
_MARK = b',"media":['
_DATA_URL = re.compile(r"data:[^,]{0,200};base64,")
_REFERENCE = re.compile(rb'"(\w+) (\w+)/([\d/]+)"')


def cut(data: dict[str, Any]) -> tuple[list[str], list[tuple[str, bytes]]]:
    """Take base64 out of the fields of a message, in place. Returns references, and hash and bytes of each.

    Only text that is encoded again to the same characters is taken.
    """
    references: list[str] = []
    found: list[tuple[str, bytes]] = []
    for name in _FIELDS:
        value = data.get(name)
        for (parent, key), text, path in [*strings_in(value, media=name == "artifact")] if value else ():
            if len(text) < LEAST or (taken := _decoded(text)) is None:
                continue
            start, raw = taken
            digest = hashlib.sha256(raw).hexdigest()[:_DIGITS]
            references.append(f"{digest} {name}/{'/'.join(map(str, path))}")
            found.append((digest, raw))
            parent[key] = text[:start]
    return references, found


def _decoded(text: str) -> tuple[int, bytes] | None:
    """Return where base64 begins in a text, and its bytes; None for other text."""
    url = _DATA_URL.match(text) if text.startswith("data:") else None
    start = url.end() if url else 0
    encoded = text[start:] if start else text
    if len(encoded) < LEAST or len(encoded) % 4:
        return None
    try:
        raw = a2b_base64(encoded, strict_mode=True)
    except ValueError:
        return None
    # only the last characters may hold bits that are no data
    return (start, raw) if b2a_base64(raw[-(len(raw) % 3 or 3) :], newline=False).decode() == encoded[-4:] else None


def encoded(raw: bytes) -> str:
    """Write bytes as they were in the message."""
    return b2a_base64(raw, newline=False).decode()


def reference_list(references: Iterable[str]) -> bytes:
    """Write what ends a stored message behind its data."""
    quoted = ",".join(f'"{one}"' for one in references)
    return f"{_MARK.decode()}{quoted}]}}".encode()


def split_media(data: bytes) -> tuple[bytes, list[tuple[bytes, ...]]]:
    """Divide what follows `"data":` in a stored message with media, without its last brace, into data and references."""
    at = data.rindex(_MARK)
    return data[:at], _REFERENCE.findall(data, at)


def digests_in(value: bytes) -> list[str]:
    """Return the hash of each reference of a stored message."""
    return [one[0].decode() for one in split_media(value)[1]] if value[-2:] == b"]}" else []


def refer(message: BaseMessage, references: Iterable[tuple[bytes, ...]], words: str) -> None:
    """Put references into a message that was read, in the places of what lies beside it."""
    for digest, name, path in references:
        parent: Any = getattr(message, name.decode())
        *way, last = map(int, path.split(b"/"))
        for position in way:
            parent = [*parent.values()][position] if isinstance(parent, dict) else parent[position]
        key = [*parent][last] if isinstance(parent, dict) else last
        parent[key] = unread(parent[key], digest.decode(), words)


def unread_in(message: BaseMessage) -> Iterator[tuple[Any, Any, Unread]]:
    """Yield the references of a message: dict or list, key or index, and the reference."""
    for name in _FIELDS:
        if (value := getattr(message, name, None)) and not isinstance(value, str):
            for (parent, key), text, _ in strings_in(value, media=True):
                if isinstance(text, Unread):
                    yield parent, key, text


def put_back(message: BaseMessage, texts: Mapping[str, str]) -> None:
    """Replace the references of a message by what they refer to, as far as it is known by its hash."""
    for parent, key, one in [*unread_in(message)]:
        if one.digest in texts:
            parent[key] = f"{one}{texts[one.digest]}" if one else texts[one.digest]
