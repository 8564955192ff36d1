"""`memory.history`: the messages of a thread, whole and in order."""

from __future__ import annotations

import re
from collections import defaultdict
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from langchain_workingmem._redis.codec import as_messages, is_storable
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._redis.queries import read_cursor
from langchain_workingmem._redis.scripts import delete_from, find_seqs
from langchain_workingmem._redis.state import Operations, operation, twin
from langchain_workingmem.checks import as_tuple, at_least
from langchain_workingmem.errors import IdError, MessageNotFoundError, OptionError
from langchain_workingmem.history.read import complete_rows, read_page, read_pages, selection
from langchain_workingmem.history.save import append, write
from langchain_workingmem.models import Page

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from langchain_core.messages import BaseMessage, MessageLikeRepresentation

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.models import StoredMessage

_PAGE_CURSOR = re.compile(r"(\d{1,16})")  # the last sequence number
_USER_CURSOR = re.compile(r"(\d{1,16}):(.+)", re.DOTALL)  # the time and thread of the last message
_STEP = 100  # messages of one step of a deletion


class History(Operations):
    """The messages of a memory, as `memory.history`.

    Where `user_id` is optional, None accepts any owner. Another user's thread raises `ThreadOwnershipError`.
    """

    @operation
    def append(
        self,
        messages: Iterable[MessageLikeRepresentation],
        *,
        thread_id: str,
        user_id: str,
        said_at: datetime | Sequence[datetime] | None = None,
    ) -> Plan[list[BaseMessage]]:
        """Save messages at the end of a thread, which is created if it is new, and return those that are stored.

        One atomic step, one round trip, and with recall one call of the embedding model. Idempotent by message id: an
        equal message is left alone, a different one replaces the old one. Missing ids are set on the messages that you
        pass, so that saving them again is safe. System messages and messages marked `lc_source` (summaries, recalled
        messages) are skipped; chunks become full messages. When the embedding model fails, messages are stored without
        vectors: `EmbeddingError` says so (or the log, with on_error="log"), and `recall.reindex` adds them.

        `said_at` dates what was said earlier, elsewhere: one time for all, or one for each message. Times rise within a
        thread, so one that is not after the newest stored message becomes a microsecond after it; one that is more than
        a minute in the future is an `OptionError`, and so are times before 1970 or that fall.
        """
        return append(self._core, messages, thread_id, user_id, said_at=said_at)

    aappend = twin(append)

    @operation
    def update(
        self, messages: Iterable[MessageLikeRepresentation], *, thread_id: str, user_id: str | None = None
    ) -> Plan[list[BaseMessage]]:
        """Replace messages by id; position and time stay, vectors follow. One atomic step, one round trip.

        Raises `MessageNotFoundError` when one of them is not stored, and changes none then. A structured answer (a call
        of a tool that ended its turn) is no longer recalled after that: delete it, and save its turn again.
        """
        updates = as_messages(messages)
        for message in updates:
            if message.id is None:
                raise IdError("a message to update has no id", remedy="take it from history.messages()")
            if not is_storable(message):
                raise OptionError(
                    f"message {message.id!r} is a system or generated message, which history does not store",
                    remedy="take it from history.messages()",
                )
        return append(self._core, updates, thread_id, user_id, must_exist=True)

    aupdate = twin(update)

    @operation
    def messages(
        self,
        thread_id: str,
        *,
        user_id: str | None = None,
        last: int | None = None,
        before: str | None = None,
        after: str | None = None,
        roles: Sequence[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        superseded: bool = False,
    ) -> Plan[list[BaseMessage]]:
        """Return messages as they were stored, in chronological order; the `last` n of those that the filters select.

        One round trip, whose cost follows the number of messages (with `roles` one for each 500 it reads), and one for
        `before` and `after`: message ids, exclusive. Times are inclusive. An unknown thread has no messages; an unknown
        message id raises `MessageNotFoundError`. For what a model may be shown, use `memory.context`. `superseded`
        adds, and counts, superseded messages (regenerated answers, edited questions, other branches) in their place.
        """
        if last is not None:
            at_least(last, 0, "last")
        filters = selection(limit=last, newest=True, roles=roles, since=since, until=until)
        bounds = ("below", "before", before), ("above", "after", after)
        edges = {edge: check_id(id, name) for edge, name, id in bounds if id is not None}
        keys = self._core.state.keys.of(check_id(thread_id, "thread_id"))
        seqs = yield from find_seqs(keys, [*edges.values()])
        filters |= {edge: seqs[id] for edge, id in edges.items() if id in seqs}
        page = yield from read_page(self._core.state, thread_id, user_id, filters)
        missing = [id for id in edges.values() if id not in seqs]
        if missing and page.owner is not None:  # whose thread it is was asked first
            raise MessageNotFoundError(missing[0], thread_id)
        rows = page.rows()
        if superseded:
            hidden_page = yield from read_page(self._core.state, thread_id, user_id, {**filters, "superseded": True})
            rows = sorted([*rows, *hidden_page.rows()], key=lambda row: row.seq)
            rows = rows if last is None else rows[len(rows) - min(last, len(rows)) :]
        return [row.message for row in (yield from complete_rows(self._core.state, rows))]

    amessages = twin(messages)

    @operation
    def page(
        self,
        thread_id: str,
        *,
        limit: int = 50,
        cursor: str | None = None,
        user_id: str | None = None,
        roles: Sequence[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        descending: bool = False,
    ) -> Plan[Page[StoredMessage]]:
        """Return one page of a thread, oldest first unless `descending`, with times and sequence numbers.

        One round trip. Each message comes exactly once, even if the thread grows; `total` with `roles` reads it all.
        """
        at_least(limit, 1, "limit")
        filters = selection(limit=limit + 1, newest=descending, roles=roles, since=since, until=until, total=True)
        if cursor is not None:
            (seq,) = read_cursor(cursor, _PAGE_CURSOR)
            filters["below" if descending else "above"] = int(seq)
        page = yield from read_page(self._core.state, thread_id, user_id, filters)
        facts = page.facts[::-1] if descending else page.facts
        next_cursor = str(facts[limit - 1].seq) if len(facts) > limit else None
        seqs = {fact.seq for fact in facts[:limit]}
        items = yield from complete_rows(self._core.state, [row for row in page.rows() if row.place in seqs])
        return Page(items=items[::-1] if descending else items, total=page.total, next_cursor=next_cursor)

    apage = twin(page)

    @operation
    def for_user(
        self,
        user_id: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Plan[Page[StoredMessage]]:
        """Return the messages of all threads of a user, in chronological order.

        Reads the times of the next `limit` messages of each thread, and only the messages of the page. Round trips: one
        per 10,000 threads lists them, one per 1,000 threads reads times, one reads the page. `since` and `until` cost
        one more per 1,000 threads, for `total`. The cursor is a time and a thread.
        """
        at_least(limit, 1, "limit")
        state, user_id = self._core.state, check_id(user_id, "user_id")
        # threads live in different slots of a cluster, so no key holds all messages: the times of each are merged
        last_time, last_thread = (None, "") if cursor is None else read_cursor(cursor, _USER_CURSOR)
        span = selection(since=since, until=until)
        start, end = span.get("since"), span.get("until")
        threads = [thread for thread in (yield from state.indexes.threads(user_id)) if thread.message_count]
        total, time_reads = sum(count for _, count, _ in threads), list[tuple[str, dict[str, Any]]]()
        if span:
            count_only = {**span, "limit": 0, "total": True}
            count_reads = [(id, count_only) for id, _, last_at in threads if last_at >= (start or 0)]
            total = sum(page.total for page in (yield from read_pages(state, user_id, count_reads)))
        for id, _, last_at in threads:
            # times rise strictly within a thread, so a thread after the cursor's goes on just after that time
            first = start if last_time is None else max(int(last_time) + (id <= last_thread), start or 0)
            if first is None or last_at >= first:
                time_reads.append((id, {"limit": limit + 1, "since": first, "until": end, "times": True}))
        pages = yield from read_pages(state, user_id, time_reads)
        pairs = ((time, page.thread_id) for page in pages for time in page.bodies if isinstance(time, int))
        earliest = nsmallest(limit + 1, pairs)
        on_page: dict[str, list[int]] = defaultdict(list)
        for time, id in earliest[:limit]:
            on_page[id].append(time)
        reads = [(id, {"limit": len(times), "since": times[0], "until": times[-1]}) for id, times in on_page.items()]
        pages = yield from read_pages(state, user_id, reads)
        rows = yield from complete_rows(
            state, [row for page in pages for row in page.rows()]
        )  # but for those deleted meanwhile
        items = sorted(rows, key=lambda row: (row.stored_at, row.thread_id))
        next_cursor = None if len(earliest) <= limit else "{}:{}".format(*earliest[limit - 1])
        return Page(items=items, total=total, next_cursor=next_cursor)

    afor_user = twin(for_user)

    @operation
    def delete(
        self,
        message_ids: Sequence[str | None] | None = None,
        *,
        thread_id: str,
        user_id: str | None = None,
        until: datetime | None = None,
    ) -> Plan[int]:
        """Delete messages by id, or all that were stored until a time (inclusive), and return how many there were.

        With their vectors and older versions; with `until` also those on other branches, and an edited message when its
        newest version is that old. By id, each 100 messages are one atomic step: a round trip, and one per 500 vectors.
        What was deleted by id does not come back from a list or state that still holds it, nor from an older export;
        `append` stores it again. `until` deletes 100 in a step of two round trips, the oldest first, so call it again
        after an interruption. A tool call may go while its result stays: no model is shown one without the other.
        """
        if (message_ids is None) == (until is None):
            problem = "neither message_ids nor until" if until is None else "both message_ids and until"
            raise OptionError(problem, remedy="pass one of them; `clear` deletes all messages of a thread")
        state, count = self._core.state, 0
        if until is None:
            passed = (message_ids,) if isinstance(message_ids, str) else as_tuple(message_ids, "message_ids", "ids")
            ids = [check_id(id, "message id") for id in passed]
            for start in range(0, max(len(ids), 1), _STEP):
                batch = ids[start : start + _STEP]
                reply = yield from delete_from(state, thread_id, user_id, what="messages", ids=batch)
                count += int(reply.get("deleted", 0))
            return count
        for superseded in (False, True):
            filters = selection(until=until, limit=_STEP, superseded=superseded, times=True)
            while (page := (yield from read_page(state, thread_id, user_id, filters))).facts:
                ids, last = [fact.id for fact in page.facts], page.facts[-1].seq
                reply = yield from delete_from(state, thread_id, user_id, what="messages", ids=ids, last=last)
                count, filters["above"] = count + int(reply.get("deleted", 0)), last
        return count

    adelete = twin(delete)

    @operation
    def truncate(self, thread_id: str, *, after: str | None, user_id: str | None = None) -> Plan[int]:
        """Supersede all messages after one, as when it is edited or answered again, and return how many they are.

        They stay stored: `messages(superseded=True)` returns them, recall does not find them, and saving one again puts
        it back. Atomic; one round trip; more than 500 vectors go in the background. `ThreadNotFoundError`,
        `MessageNotFoundError`.
        """
        message_id = check_id(after, "after")
        head: dict[str, Any] = {"question": message_id, "exists": True, "truncate": True}
        reply, _ = yield from write(self._core.state, (), thread_id, user_id, at_most_once=True, **head)
        if reply.get("is_deleted") or reply.get("stale"):
            raise MessageNotFoundError(message_id, thread_id)
        return int(reply.get("superseded", 0))

    atruncate = twin(truncate)

    @operation
    def clear(self, thread_id: str, *, user_id: str | None = None) -> Plan[int]:
        """Delete all messages of a thread, which stays, and return how many there were.

        Atomic. One round trip, one for each further 500 vectors. A list that still has the messages stores them again,
        but for those that were deleted by id.
        """
        reply = yield from delete_from(self._core.state, thread_id, user_id, what="all")
        return int(reply.get("deleted", 0))

    aclear = twin(clear)
