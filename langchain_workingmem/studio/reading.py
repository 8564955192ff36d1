"""What pages read beside the methods of a memory: counts, the beginnings of threads, messages a day."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._engine.plan import Plan, attempt, everywhere, send
from langchain_workingmem._redis.queries import aggregate, build_filter, count_search, rows_of, total_of
from langchain_workingmem._redis.scripts import PAGE, find_seqs, owner_tag
from langchain_workingmem._text.messages import message_text
from langchain_workingmem._text.values import from_micros, in_zone
from langchain_workingmem.display.pictures import SHOWN_IN
from langchain_workingmem.errors import RedisReplyError, WorkingMemError
from langchain_workingmem.history.read import PageOfThread, complete_rows, selection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.memory import Memory
    from langchain_workingmem.models import StoredMessage, Thread

DAYS = 14  # that the overview shows
LOOKED_AT = 200  # threads that changed last, whose messages it counts by day
_COUNTED = 1_000  # messages of each of them
_FIRST = 3  # messages among which the first question of a thread is looked for
STEP = 100  # messages of a search that are read at once
LONGEST = 20_000_000  # characters that a search reads for a page
MOST_WORDS = 20  # of a search
_AROUND = 100  # characters on each side of the first word that is found


class Counts(NamedTuple):
    """How much is stored: of a user, or of all. None: it cannot be told."""

    messages: int
    vectors: int | None
    bytes: int | None  # of the whole server
    revisions: int
    files: int
    logs: int  # threads with lines of a log
    values: int  # threads with values of a keeper


def counts(state: MemoryState, user_id: str | None) -> Plan[Counts]:
    """Count what is stored. Two round trips."""
    query = build_filter(user_id=user_id)
    steps = ("LOAD", 1, "@count", "GROUPBY", 0, "REDUCE", "SUM", 1, "@count", "AS", "messages")
    (reply,) = yield from state.indexes.search(aggregate(state.keys.threads_index, query, *steps))
    commands: list[Command] = [count_search(state.keys.vectors_index, query)]
    if user_id is not None:
        keys = state.keys.of_user(user_id)
        commands += [
            ("XLEN", keys.revisions),
            ("ZCARD", keys.paths),
            ("ZCARD", keys.observations),
            ("ZCARD", keys.keeping),
        ]
    vectors, *sizes = yield from attempt(*commands)
    numbers = [0 if isinstance(size, RedisReplyError) else int(size) for size in sizes] or [0] * 4
    used_bytes = None
    if user_id is None:
        infos = [
            replies[0] for replies in (yield from everywhere(("INFO", "memory"))).values() if isinstance(replies, list)
        ]
        answered = [info for info in infos if not isinstance(info, RedisReplyError)]
        used_bytes = sum(int(info["used_memory"]) for info in answered) if answered else None
    rows = rows_of(reply)
    return Counts(
        int(float(rows[0][b"messages"])) if rows else 0,
        None if isinstance(vectors, RedisReplyError) else total_of(vectors),
        used_bytes,
        *numbers,
    )


def _pages(state: MemoryState, threads: Sequence[Thread], options: dict[str, Any]) -> Plan[list[PageOfThread]]:
    """Read a page of each of these threads; one that was deleted or damaged meanwhile has none. One round trip."""
    calls = (PAGE.on(state.keys.of(thread.id), user=owner_tag(thread.user_id), **options) for thread in threads)
    replies = (yield from send(*calls)) if threads else []
    pages = []
    for thread, reply in zip(threads, replies, strict=True):
        try:
            pages.append(PageOfThread.read(reply, thread.id, thread.user_id, options))
        except WorkingMemError:
            pages.append(PageOfThread(thread.id))
    return pages


def beginnings(state: MemoryState, threads: Sequence[Thread]) -> Plan[dict[str, str]]:
    """Return how the first question of each thread without a title begins. One round trip, none if all have one."""
    pages = yield from _pages(state, [thread for thread in threads if not thread.title], {"limit": _FIRST})
    questions = (next((row for row in page.rows() if row.role == "human"), None) for page in pages)
    rows = yield from complete_rows(state, [row for row in questions if row is not None])
    return {row.thread_id: shorten(message_text(row.message)[:1000], 80, placeholder=" …") for row in rows}


def days(state: MemoryState, threads: Sequence[Thread]) -> Plan[list[tuple[date, int]]]:
    """Count the messages of the last days in the threads that changed last. One round trip."""
    zone, today = SHOWN_IN.get(), in_zone(datetime.now(UTC), SHOWN_IN.get())
    start = today.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=DAYS - 1)
    recent = [thread for thread in threads if thread.updated_at >= start]
    pages = yield from _pages(state, recent, selection(limit=_COUNTED, since=start, times=True))
    times = (time for page in pages for time in page.bodies if isinstance(time, int))
    counts_by_day = Counter(in_zone(from_micros(time), zone).date() for time in times)
    return [(day, counts_by_day[day]) for day in (start.date() + timedelta(days=index) for index in range(DAYS))]


def place_of(state: MemoryState, thread: Thread, message_id: str) -> Plan[int | None]:
    """Return where a message lies in a thread. One round trip."""
    return (yield from find_seqs(state.keys.of(thread.id), [message_id])).get(message_id)


class Found(NamedTuple):
    """What a search by words has found in a part of a thread."""

    hits: list[tuple[StoredMessage, list[tuple[bool, str]]]]  # the newest first
    older: int | None  # place below which to go on; None: this was all


def search(memory: Memory, thread: Thread, text: str, *, below: int | None, most: int, hits: int) -> Found:
    """Find the messages of a thread that have all words, among the `most` newest below a place. A round trip per 100."""
    words, result, count, size = text.casefold().split()[:MOST_WORDS], Found([], None), 0, 0
    cursor = None if below is None else str(below)
    while words:
        options: dict[str, Any] = {"limit": min(STEP, most - count), "cursor": cursor, "descending": True}
        page = memory.history.page(thread.id, user_id=thread.user_id, **options)
        for row in page:
            content = message_text(row.message, whole=True)
            if all(map(content.casefold().__contains__, words)):
                result.hits.append((row, around(content, words)))
                if len(result.hits) == hits:
                    return result._replace(older=row.place)
            size += len(content)
        cursor, count = page.next_cursor, count + STEP
        if cursor is None:
            break
        if count >= most or size > LONGEST:
            return result._replace(older=int(cursor))
    return result


def around(text: str, words: list[str]) -> list[tuple[bool, str]]:
    """Return the text around the first of these words, in pieces: whether it is one of the words, and the piece."""
    pattern = "|".join(map(re.escape, words))
    match = re.search(pattern, text, re.IGNORECASE)
    start = 0 if match is None else max(0, match.start() - _AROUND)
    pieces = re.split(f"({pattern})", " ".join(text[start : start + 4 * _AROUND].split()), flags=re.IGNORECASE)
    return [(bool(index % 2), piece) for index, piece in enumerate(pieces) if piece]


def everywhere_in(
    memory: Memory, threads: Sequence[Thread], text: str, *, most: int, hits: int
) -> Iterator[tuple[Thread, Found]]:
    """Find messages in several threads: those threads that have some, or that were not read to their end."""
    search_thread = partial(search, memory, text=text, below=None, most=most, hits=hits)
    for thread in threads:
        if (result := search_thread(thread)).hits or result.older is not None:
            yield thread, result
