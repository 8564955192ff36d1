"""What pictures, audio and files weigh: small real files, and what providers bill for them."""

from __future__ import annotations

import struct
import wave
import zlib
from base64 import b64encode
from io import BytesIO
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_workingmem._text.media import media_tokens
from langchain_workingmem._text.said import weight_of


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0" * (width + 1) * height, 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0" * 60


def jpeg(width: int, height: int) -> bytes:
    thumbnail = b"\xff\xe1" + struct.pack(">H", 30_002) + b"\xff\xc0" * 15_000  # bytes that look like a size
    tables = b"\xff\xdb" + struct.pack(">H", 67) + b"\0" * 65 + b"\xff\xc4" + struct.pack(">H", 4) + b"\0" * 2
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\1\x11\0"
    return b"\xff\xd8" + thumbnail + tables + frame + b"\0" * 60


def webp(width: int, height: int, kind: bytes) -> bytes:
    lossless = b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14)
    extended = b"\0" * 4 + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    lossy = b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)
    data = {b"VP8L": lossless, b"VP8X": extended, b"VP8 ": lossy}[kind] + b"\0" * 60
    return b"RIFF" + struct.pack("<I", len(data) + 12) + b"WEBP" + kind + struct.pack("<I", len(data)) + data


def wav(seconds: float, rate: int = 8_000) -> bytes:
    made = BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(b"\0\0" * int(rate * seconds))
    return made.getvalue()


def flac(seconds: int, rate: int = 44_100) -> bytes:
    info = struct.pack(">HH", 4096, 4096) + b"\0" * 6
    info += (rate << 44 | 1 << 41 | 15 << 36 | rate * seconds).to_bytes(8, "big") + b"\0" * 16
    return b"fLaC" + b"\x80" + len(info).to_bytes(3, "big") + info + b"\0" * 4_000


def mp3(seconds: int, kbits_index: int = 5) -> bytes:  # 64 kbit/s
    tags = b"ID3\4\0\0" + bytes([0, 0, 2, 0]) + b"\0" * 256
    return tags + (b"\xff\xfb" + bytes([kbits_index << 4, 0])).ljust(8_000 * seconds, b"\0")


def pdf(pages: int, *, compressed: bool = False, linearized: bool = False) -> bytes:
    kids = " ".join(f"{3 + at} 0 R" for at in range(pages))
    found = [b"%PDF-1.7"]
    if linearized:
        found.append(b"1 0 obj << /Linearized 1 /L 9999 /H [ 5 6 ] /O 7 /E 8 /N %d /T 9 >> endobj" % pages)
    found.append(b"1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj")
    if not compressed:
        found.append(f"2 0 obj << /Type /Pages /Kids [{kids}] /Count {pages} >> endobj".encode())
        found += [b"3 0 obj << /Type /Page /Parent 2 0 R >> endobj"] * pages
    return b"\n".join([*found, b"stream", b"x" * 5_000, b"trailer << /Root 1 0 R >>", b"%%EOF"])


def openai(width: int, height: int) -> float:
    scale = min(1, 2048 / max(width, height))
    scale = min(scale, 768 / (min(width, height)))
    return 85 + 170 * ceil(width * scale / 512) * ceil(height * scale / 512)


def anthropic(width: int, height: int) -> float:
    scale = min(1, 1568 / max(width, height))
    return min(1_600, width * height * scale * scale / 750)


def picture_of(kind: str, width: int, height: int) -> bytes:
    if kind.startswith("webp"):
        return webp(width, height, {"webp": b"VP8L", "webp extended": b"VP8X", "webp lossy": b"VP8 "}[kind])
    return {"png": png, "gif": gif, "jpeg": jpeg}[kind](width, height)


def block(kind: str, data: bytes, mime: str) -> dict[str, Any]:
    return {"type": kind, "base64": b64encode(data).decode(), "mime_type": mime}


SIZES = [(320, 320), (640, 480), (1024, 1024), (1092, 1092), (1920, 1080), (3000, 4000), (300, 2000)]
PICTURES = ["png", "gif", "jpeg", "webp", "webp extended", "webp lossy"]


@pytest.mark.parametrize("kind", PICTURES)
def test_a_picture_weighs_what_providers_bill_by_the_size_in_its_header(kind: str) -> None:
    found = set()
    for size in SIZES if kind != "png" else SIZES[:4]:
        weight = media_tokens(block("image", picture_of(kind, *size), f"image/{kind}"))
        found.add(weight)
        for billed in (openai(*size), anthropic(*size)):
            assert billed / 2 <= weight <= billed * 2, size
    assert len(found) > 2


@pytest.mark.parametrize("pages", [1, 3, 40])
@pytest.mark.parametrize("form", [{}, {"linearized": True}, {"linearized": True, "compressed": True}])
def test_a_pdf_weighs_its_pages(pages: int, form: dict[str, bool]) -> None:
    assert media_tokens(block("file", pdf(pages, **form), "application/pdf")) == 2_000 * pages


def test_a_pdf_that_hides_its_pages_weighs_its_size() -> None:
    hidden = pdf(5, compressed=True)
    assert media_tokens(block("file", hidden, "application/pdf")) == 2_000
    # 300 KB, 100,033 tokens of base64
    assert media_tokens(block("file", hidden + b"x" * 295_000, "application/pdf")) == 12_000


@pytest.mark.parametrize(
    ("data", "mime"),
    [(wav(30), "audio/wav"), (flac(30), "audio/flac"), (mp3(30), "audio/mpeg"), (b"OggS".ljust(480_000), "audio/ogg")],
    ids=["wav", "flac", "mp3", "ogg"],
)
def test_audio_weighs_its_seconds(data: bytes, mime: str) -> None:
    weight = media_tokens(block("audio", data, mime))
    for billed in (30 * 10, 30 * 32):  # OpenAI, Gemini
        assert billed / 2 <= weight <= billed * 2


SMALL = b64encode(png(640, 480)).decode()
FORMS: dict[str, dict[str, Any]] = {
    "langchain": {"type": "image", "base64": SMALL, "mime_type": "image/png"},
    "langchain 0": {"type": "image", "source_type": "base64", "data": SMALL, "mime_type": "image/png"},
    "chat completions": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{SMALL}"}},
    "responses": {"type": "input_image", "image_url": f"data:image/png;base64,{SMALL}"},
    "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": SMALL}},
    "bedrock": {"image": {"format": "png", "source": {"bytes": png(640, 480)}}},
    "google": {"type": "media", "mime_type": "image/png", "data": SMALL},
    "a file that is a picture": {"type": "file", "base64": SMALL, "mime_type": "application/octet-stream"},
}


@pytest.mark.parametrize("form", FORMS)
def test_a_picture_weighs_the_same_in_each_form(form: str) -> None:
    assert media_tokens(FORMS[form]) == media_tokens(FORMS["langchain"])


def test_what_lies_elsewhere_weighs_as_usual() -> None:
    url = "https://example.com/" + "long/" * 40
    assert media_tokens({"type": "image", "url": url}) == media_tokens(block("image", png(1024, 1024), "image/png"))
    assert media_tokens({"type": "image_url", "image_url": {"url": url, "detail": "low"}}) == 85
    assert media_tokens({"type": "file", "file_id": "file-123"}) == 2_000
    assert media_tokens({"type": "audio", "url": url}) == 18 * 60


def test_text_in_a_file_weighs_its_text() -> None:
    words = "Dear diary, today it rained. " * 40
    assert media_tokens({"type": "text-plain", "text": words}) == len(words) // 4
    source = {"type": "text", "media_type": "text/plain", "data": words}
    assert media_tokens({"type": "document", "source": source}) == len(words) // 4
    assert media_tokens(block("file", words.encode(), "text/csv")) == pytest.approx(len(words) / 4, abs=2)


def test_a_message_weighs_its_media_and_its_words_wherever_they_are() -> None:
    picture, words = FORMS["anthropic"], "what is this? " * 20
    one = media_tokens(picture)
    texts = weight_of([HumanMessage(words)])
    said = HumanMessage([{"type": "text", "text": words}, picture, picture])
    assert one * 2 + texts <= weight_of([said]) <= one * 2 + texts + 20
    nested: Any = [{"type": "tool_result", "tool_use_id": "1", "content": [picture, {"type": "text", "text": words}]}]
    assert one + texts <= weight_of([HumanMessage(nested)]) <= one + texts + 40
    result = ToolMessage([picture], tool_call_id="c")
    assert one <= weight_of([result]) <= one + 20
    artifact = ToolMessage("seen", tool_call_id="c", artifact=picture)  # no model is shown it
    assert weight_of([artifact]) == weight_of([ToolMessage("seen", tool_call_id="c")])
    assert weight_of([AIMessage([{"type": "text", "text": words}])]) < 100


@given(st.binary(max_size=300), st.sampled_from(["image", "audio", "video", "file", "document", "media"]))
def test_any_bytes_have_a_weight(data: bytes, kind: str) -> None:
    for head in (b"", b"\xff\xd8", b"RIFF1234WEBP", b"RIFF1234WAVE", b"%PDF-", b"fLaC", b"ID3", b"\x89PNG\r\n\x1a\n"):
        assert media_tokens(block(kind, (head + data).ljust(80, b"\0"), "")) >= 1
    broken = {"type": kind, "base64": "é" * 100, "mime_type": 7, "source": [1, None, {"x": data}]}
    assert media_tokens(broken) >= 1
