"""Media of stored messages: bytes beside the messages of their thread, each once, read when somebody is shown them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from langchain_workingmem._documents.media import digests_in, encoded, put_back, unread_in
from langchain_workingmem._engine.plan import compute, send
from langchain_workingmem._redis.codec import decode_message
from langchain_workingmem._redis.state import Recent
from langchain_workingmem.errors import WorkingMemError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import RecallResult, StoredMessage

MOST_KEPT = 32 * 2**20  # characters


class _Kept(Recent[str, str]):
    """Base64 that this process has read lately, by its hash: so a conversation about pictures reads each of them once."""

    def keep(self, texts: Mapping[str, str]) -> None:
        """Add some; the least recently used go where all have more than `MOST_KEPT` characters."""
        for digest, text in texts.items():
            self.put(digest, text)
        with self._lock:
            while sum(map(len, self._entries.values())) > MOST_KEPT:
                self._entries.popitem(last=False)


def with_media(state: MemoryState, messages: Iterable[BaseMessage], thread_id: str) -> Plan[set[int]]:
    """Put media back into messages of a thread that were read, in place. One round trip if some have to be read, else none.

    Returns the Python `id` of those that were deleted meanwhile. A message that was edited meanwhile gets its new content.
    """
    key, kept = state.keys.of(thread_id).messages, state.room(_Kept)
    gone: set[int] = set()
    waiting = [(one, wanted) for one in messages if (wanted := {ref.digest for _, _, ref in unread_in(one)})]
    while waiting:
        digests = sorted({digest for _, wanted in waiting for digest in wanted})
        found = {digest: text for digest in digests if (text := kept.get(digest)) is not None}
        if unknown := [digest for digest in digests if digest not in found]:
            read = yield from _read(key, unknown)
            texts = yield from compute(partial(_encoded, read), sum(map(len, read.values())))
            kept.keep(texts)
            found |= texts
        for one, _ in waiting:
            put_back(one, found)
        waiting = [(one, wanted) for one, wanted in waiting if wanted - found.keys()]
        if not waiting:
            break
        (values,) = yield from send(("HMGET", key, *(one.id or "" for one, _ in waiting)))
        again = []
        for (one, wanted), value in zip(waiting, values, strict=True):
            if value is None:
                gone.add(id(one))
                continue
            fresh = decode_message((one.id or "").encode(), b"0", value, thread_id).message
            if wanted - found.keys() <= {*digests_in(value)}:
                raise _lost(one.id, thread_id)
            vars(one).update(vars(fresh))
            again.append((one, {ref.digest for _, _, ref in unread_in(one)}))
        waiting = [pair for pair in again if pair[1]]
    return gone


def rows_with_media(
    state: MemoryState, rows: Sequence[StoredMessage], values: Iterable[bytes]
) -> Plan[list[StoredMessage]]:
    """Put media back into rows, whose stored `values` tell cheaply whether there are any; without rows deleted meanwhile."""
    if not [value for value in values if value[-2:] == b"]}"]:
        return list(rows)
    by_thread: dict[str, list[BaseMessage]] = defaultdict(list)
    for row in rows:
        by_thread[row.thread_id].append(row.message)
    gone: set[int] = set()
    for thread_id, messages in by_thread.items():
        gone |= yield from with_media(state, messages, thread_id)
    return [row for row in rows if id(row.message) not in gone]


def result_with_media(state: MemoryState, result: RecallResult) -> Plan[RecallResult]:
    """Put media back into what recall found, without messages deleted meanwhile. One round trip a thread."""
    by_thread: dict[str, dict[int, BaseMessage]] = defaultdict(dict)
    for row in result.rows:
        by_thread[row.thread_id][id(row.message)] = row.message
    for hit in result.hits:
        by_thread[hit.thread_id] |= {id(one): one for one in (*hit.before, hit.message, *hit.after)}
    gone: set[int] = set()
    for thread_id, messages in by_thread.items():
        gone |= yield from with_media(state, messages.values(), thread_id)
    if not gone:
        return result
    hits = [
        replace(
            hit,
            before=[one for one in hit.before if id(one) not in gone],
            after=[one for one in hit.after if id(one) not in gone],
        )
        for hit in result.hits
        if id(hit.message) not in gone
    ]
    return replace(result, hits=hits, rows=[row for row in result.rows if id(row.message) not in gone])


def media_of(state: MemoryState, rows: Iterable[tuple[bytes, bytes]], thread_id: str) -> Plan[dict[str, bytes] | None]:
    """Return the bytes that stored messages (id, value) refer to, by hash; None if messages were changed meanwhile.

    One round trip if there are any, else none.
    """
    wanted = [(id, digest) for id, value in rows for digest in digests_in(value)]
    if not wanted:
        return {}
    key = state.keys.of(thread_id).messages
    found = yield from _read(key, sorted({digest for _, digest in wanted}))
    for id, digest in wanted:
        if digest not in found:
            (value,) = yield from send(("HGET", key, id))
            if value is not None and digest in digests_in(value):
                raise _lost(id.decode(), thread_id)
            return None
    return found


def _lost(id: str | None, thread_id: str) -> WorkingMemError:
    return WorkingMemError(
        f"the media of message {id!r} in thread {thread_id!r} are lost",
        remedy="was the thread changed by another program?",
    )


def _read(key: str, digests: Sequence[str]) -> Plan[dict[str, bytes]]:
    (found,) = yield from send(("HMGET", key, *(f"\0{digest}" for digest in digests)))
    return {digest: raw for digest, raw in zip(digests, found, strict=True) if raw is not None}


def _encoded(read: Mapping[str, bytes]) -> dict[str, str]:
    return {digest: encoded(raw) for digest, raw in read.items()}
