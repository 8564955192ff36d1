"""Finding a message in a long conversation: by its words, its position or its id. No page reads the whole conversation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langchain_workingmem._engine.effects import send
from langchain_workingmem._redis.codec import decode_message
from langchain_workingmem._redis.queries import (
    build_filter,
    columns,
    count_search,
    is_stale,
    numbers,
    total_of,
    word_search,
    words_of,
)
from langchain_workingmem._text.rendering import message_text
from langchain_workingmem.errors import RedisReplyError
from langchain_workingmem.recall import Candidates
from langchain_workingmem.studio.conversations import read_slice
from langchain_workingmem.studio.site import number

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import StoredMessage, Thread
    from langchain_workingmem.studio.site import Studio

FOUND = 50  # messages of a page
CHUNKS = 4 * FOUND  # that the index of words is asked for: a long message has several
READ = 2_000  # messages that one page compares itself
_AROUND = 100  # characters on each side of the first word that is found
_SHORT = 4  # letters


async def find(studio: Studio, request: Request) -> Response:
    """List the messages of a thread that have all words: by the index of recall, else, or with `every`, by reading a part of it."""
    one, given = await studio.thread(request), request.query_params
    text, every, below = given.get("q", "").strip(), given.get("every") == "1", number(given.get("below"))
    state, found, older = studio.memory._core.state, None, None
    if text and not every:
        found = await studio.memory._core.arun(by_index(state, one, text))
    if text and (every := found is None):
        part = await studio.memory._core.arun(read_slice(state, one.id, one.resource_id, limit=READ, below=below))
        wanted = [word.casefold() for word in text.split()]
        rows = [row for row in reversed(part.rows) if all(word in said(row).casefold() for word in wanted)]
        found, older = rows[:FOUND], part.first if part.has_older else None
        if len(rows) > FOUND:
            older = found[-1].seq
    words = text.split() if every else words_of(text)
    hits = [(row, around(said(row), words)) for row in found or ()]
    values = {"hits": hits, "every": every, "older": older, "read": READ, "most": FOUND, "question": text}
    return studio.page(request, "find.html", user=one.resource_id, thread=one, **values)


def by_index(state: MemoryState, thread: Thread, text: str) -> Plan[list[StoredMessage] | None]:
    """Find messages with all these words, or other forms of them, the newest first; None: the index does not know this thread.

    Three round trips. The best `FOUND` are returned.
    """
    name, where = state.keys.vectors_index, build_filter(resource_id=thread.resource_id, thread_id=thread.id)
    words = words_of(text)
    asked = [word_search(name, [" ".join(words)], where, CHUNKS)] if words else []
    try:
        counted, *replies = yield from send(count_search(name, where), *asked)
    except RedisReplyError as error:
        if not is_stale(error):
            raise
        return None
    if not total_of(counted) or not replies:
        return None
    keys, ranks, _ = columns(replies[0], "score", content=False)
    chunks, _ = Candidates.read(keys, numbers(ranks), 0)
    own = (seq for seq, chunk in zip(chunks.seqs.tolist(), chunks.chunks, strict=True) if not chunk.startswith(b"o"))
    seqs = sorted([*dict.fromkeys(own)][:FOUND], reverse=True)  # not the words of observations
    return (yield from _at(state, thread.id, seqs))


def _at(state: MemoryState, thread_id: str, seqs: list[int]) -> Plan[list[StoredMessage]]:
    """Read the messages at these positions, without their media; those that are gone are left out."""
    keys = state.keys.of(thread_id)
    named = (yield from send(*(("ZRANGEBYSCORE", keys.order, seq, seq) for seq in seqs))) if seqs else []
    ids = {seq: found[0] for seq, found in zip(seqs, named, strict=True) if found}
    if not ids:
        return []
    (values,) = yield from send(("HMGET", keys.messages, *ids.values()))
    rows = zip(ids.items(), values, strict=True)
    return [decode_message(id, str(seq).encode(), value, thread_id) for (seq, id), value in rows if value is not None]


def said(row: StoredMessage) -> str:
    """Return what a search of a conversation reads of a message: its text, its calls, the names of its files."""
    return message_text(row.message, whole=True)


def pattern(word: str) -> str:
    """Match a word at its beginning, because the index also finds other endings; a short word as a whole."""
    return (
        rf"\b{re.escape(word)}\b" if len(word) <= _SHORT else rf"\b{re.escape(word[: max(_SHORT, len(word) - 2)])}\w*"
    )


def around(text: str, words: list[str]) -> list[tuple[bool, str]]:
    """Return the text around the first of these words, in pieces: whether it is one of the words, and the piece."""
    text = " ".join(text.split())
    one_of = "|".join([*map(pattern, words), *map(re.escape, words)]) or r"(?!)"
    first = re.search(one_of, text, re.IGNORECASE)
    start = 0 if first is None else max(0, first.start() - _AROUND)
    shown = text[start : start + 3 * _AROUND]
    pieces = re.split(f"({one_of})", shown, flags=re.IGNORECASE)
    found = [(bool(at % 2), piece) for at, piece in enumerate(pieces) if piece]
    return [*([(False, "… ")] if start else []), *found, *([(False, " …")] if start + len(shown) < len(text) else [])]
