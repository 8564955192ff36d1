"""What pictures, audio and files cost a model, by their kind and their headers."""

from __future__ import annotations

import re
from binascii import a2b_base64
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

from langchain_workingmem._text.chunks import count_tokens
from langchain_workingmem._text.media.blocks import Unread, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_USUAL_SIZE = (1024, 1024)  # of a picture whose size is not known
_PAGE, _PAGE_BYTES = 2_000, 60_000  # tokens of a page, and bytes of one where nobody says how many there are
_SECOND, _SECOND_BYTES = 18, 16_000  # of audio; MP3 and the like at 128 kbit/s
_FILM, _FILM_BYTES = 290, 250_000  # of video with sound, at 2 Mbit/s
_MINUTE = 60  # seconds of what lies elsewhere
_LEAST = 64  # characters of data; less is an id
_HEAD = 256 * 1024  # characters that are decoded at the beginning and at the end
_DATA_URL = re.compile(r"data:([^;,]*)[^,]{0,200},")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]{1,20}://", re.IGNORECASE)
_PAGES = re.compile(rb"/Type\s*/Pages\b[^>]{0,500}?/Count\s+(\d{1,6})|/Count\s+(\d{1,6})[^>]{0,500}?/Type\s*/Pages\b")
_LINEARIZED = re.compile(rb"/Linearized\b[^>]{0,500}?/N\s+(\d{1,6})")
_ONE_PAGE = re.compile(rb"/Type\s*/Page\b")
_KBITS = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0)  # of MPEG 1, layer 3
_KBITS_2 = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0)  # of MPEG 2


def media_tokens(block: Mapping[Any, Any]) -> int:
    """Estimate the tokens of a block that is no text, from its first bytes: within a factor of two of what providers bill.

    Pictures: the mean between the tiles of OpenAI (85, and 170 for each 512 x 512 after scaling;
    platform.openai.com/docs/guides/images-vision) and width * height / 750 of Anthropic (at most about 1,600;
    docs.anthropic.com/en/docs/build-with-claude/vision). PDF: 2,000 a page, as Anthropic says 1,500 to 3,000
    (docs.anthropic.com/en/docs/build-with-claude/pdf-support). Audio: 18 a second, between OpenAI's 10
    (platform.openai.com/docs/guides/realtime-costs) and Gemini's 32; video 290 a second (ai.google.dev/gemini-api/docs/tokens).
    What lies elsewhere counts as a picture of 1024 x 1024, a page, or a minute.
    """
    strings = [*_strings(block)]
    if known := [one.tokens for one in strings if isinstance(one, Unread)]:
        return max(known)
    data = max(strings, key=len, default="")
    kind, mime = kind_of(block), _mime(block)
    if isinstance(data, str):
        if url := _DATA_URL.match(data):
            data, mime = data[url.end() :], url[1] or mime
        elif len(data) < _LEAST or _ELSEWHERE.match(data):
            return _of(mime.partition("/")[0] or kind, block, b"", b"", 0)
        elif kind == "text-plain" or (mime.startswith("text/") and " " in data):
            return count_tokens(data)
        head, size = _decoded(data[:_HEAD]), len(data) * 3 // 4
        tail = _decoded(data[-_HEAD:]) if len(data) > _HEAD and len(data) % 4 == 0 else b""
    else:
        head, tail, size = data[:_HEAD], data[_HEAD:][-_HEAD:], len(data)
    if mime.startswith("text/") or mime == "application/json":
        return -(-size // 4)
    return _of(_kind_by(head) or mime.partition("/")[0] or kind, block, head, tail, size)


def _strings(value: Any, depth: int = 4) -> Iterator[str | bytes]:
    if isinstance(value, str | bytes):
        yield value
    elif depth and isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _strings(one, depth - 1)


def _mime(value: Any) -> str:
    """Return the MIME type that a block names, in itself or in a part of it."""
    parts = [value, *(one for one in value.values() if isinstance(one, dict))]
    names = (part.get(key) for part in parts for key in ("mime_type", "media_type"))
    return next((one.lower() for one in names if isinstance(one, str)), "")


def _decoded(text: str) -> bytes:
    try:
        return a2b_base64(text[: len(text) // 4 * 4])
    except ValueError:
        return b""


def _kind_by(head: bytes) -> str:
    """Return the kind that the first bytes tell, empty if they tell none."""
    if _size_of_picture(head):
        return "image"
    if head[:5] == b"%PDF-":
        return "file"
    if (head[:4] == b"RIFF" and head[8:12] == b"WAVE") or head[:3] == b"ID3" or head[:4] in {b"fLaC", b"OggS"}:
        return "audio"
    return ""


def _of(kind: str, block: Mapping[Any, Any], head: bytes, tail: bytes, size: int) -> int:
    if kind == "image":
        if any(isinstance(one, dict) and one.get("detail") == "low" for one in (block, *block.values())):
            return 85
        return _of_picture(*(_size_of_picture(head) or _USUAL_SIZE))
    if kind == "audio":
        return max(1, round(_SECOND * (_seconds(head, size) if size else _MINUTE)))
    if kind == "video":
        return max(1, round(_FILM * (size / _FILM_BYTES if size else _MINUTE)))
    return _PAGE * max(1, _pages(head, tail, size))


def _of_picture(width: int, height: int) -> int:
    """Return the geometric mean of what OpenAI and Anthropic count."""
    width, height = max(1, width), max(1, height)
    scale = min(1, 1568 / max(width, height))
    by_area = min(1_600, width * height * scale**2 / 750)
    scale = min(1, 2048 / max(width, height))
    scale = min(scale, 768 / min(width, height))
    tiles = ceil(width * scale / 512) * ceil(height * scale / 512)
    return max(1, round(sqrt(max(1, by_area) * (85 + 170 * tiles))))


def _size_of_picture(head: bytes) -> tuple[int, int] | None:
    """Return width and height of a PNG, GIF, WebP or JPEG; None for anything else."""

    def number(at: int, width: int, order: Any = "little") -> int:
        return int.from_bytes(head[at : at + width], order)

    if head[:8] == b"\x89PNG\r\n\x1a\n":
        return number(16, 4, "big"), number(20, 4, "big")
    if head[:4] == b"GIF8":
        return number(6, 2), number(8, 2)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        if head[12:16] == b"VP8X":
            return number(24, 3) + 1, number(27, 3) + 1
        if head[12:16] == b"VP8L":
            bits = number(21, 4)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        return number(26, 2) & 0x3FFF, number(28, 2) & 0x3FFF
    at = 2
    while head[:2] == b"\xff\xd8" and at + 9 <= len(head) and head[at] == 0xFF:  # segments of a JPEG
        if head[at + 1] in range(0xC0, 0xD0) and head[at + 1] not in {0xC4, 0xC8, 0xCC}:
            return number(at + 7, 2, "big"), number(at + 5, 2, "big")
        at += 2 + max(2, number(at + 2, 2, "big"))
    return None


def _pages(head: bytes, tail: bytes, size: int) -> int:
    """Return the pages of a PDF, of another file by its size."""
    if head[:5] == b"%PDF-":
        if linearized := _LINEARIZED.search(head[:2048]):
            return int(linearized[1])
        for part in (tail, head):
            if counts := [int(one[1] or one[2]) for one in _PAGES.finditer(part)]:
                return max(counts)
        if pages := len(_ONE_PAGE.findall(head)) + len(_ONE_PAGE.findall(tail)):
            return pages
    return ceil(size / _PAGE_BYTES)


def _seconds(head: bytes, size: int) -> float:
    """Return how long audio is: WAV and FLAC say so, MP3 by its first frame, others as MP3 usually is."""
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return size / max(1, int.from_bytes(head[28:32], "little"))
    if head[:4] == b"fLaC":
        rate, samples = int.from_bytes(head[18:21], "big") >> 4, int.from_bytes(head[21:26], "big") & 0xFFFFFFFFF
        if rate and samples:
            return samples / rate
    at = 0
    if head[:3] == b"ID3" and len(head) > 10:  # the size of the tags has seven bits in each byte
        at = 10 + sum((byte & 0x7F) << shift for byte, shift in zip(head[6:10], (21, 14, 7, 0), strict=True))
    if head[at : at + 1] == b"\xff" and len(head) > at + 2 and head[at + 1] & 0xE6 == 0xE2:
        kbits = (_KBITS if head[at + 1] & 0x18 == 0x18 else _KBITS_2)[head[at + 2] >> 4]
        if kbits:
            return max(0, size - at) / (kbits * 125)
    return size / _SECOND_BYTES
