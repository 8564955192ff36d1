"""`memory.history`: the messages of a thread, whole and in order."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain_workingmem._documents.metadata import DECLARED, metadata_filter, metadata_in
from langchain_workingmem._redis.access import owner_tag, run_script, sweep_now
from langchain_workingmem._redis.codec import as_dict, as_messages, is_storable, metadata_of
from langchain_workingmem._redis.core import Operations, operation, twin
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._redis.queries import read_cursor
from langchain_workingmem._redis.scripts import COMMON, Script
from langchain_workingmem.checks import at_least, check_declared
from langchain_workingmem.errors import IdError, OptionError
from langchain_workingmem.history import operations as plans
from langchain_workingmem.history import timeline
from langchain_workingmem.history.rows import READ, MessageSelection
from langchain_workingmem.models import Page

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from langchain_core.messages import BaseMessage, MessageLikeRepresentation

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.models import StoredMessage

TRUNCATE = Script("history/truncate", *COMMON, "said", "supersede")
_PAGE_CURSOR = re.compile(r"(\d{1,16})")  # the last sequence number


class History(Operations):
    """The messages of a memory, as `memory.history`.

    Where `user_id` is optional, None accepts any owner. An id that does not own the thread raises `ThreadOwnershipError`.
    """

    @operation
    def append(
        self, messages: Iterable[MessageLikeRepresentation], *, thread_id: str, user_id: str
    ) -> Plan[list[BaseMessage]]:
        """Save messages at the end of a thread, which is created if it is new, and return those that are stored.

        One atomic step, one round trip, and with recall one call of the embedding model. Idempotent by message id: an equal
        message is left alone, a different one replaces the old one. Missing ids are set on the messages that you pass, so that
        saving them again is safe. System messages and messages marked `lc_source` (summaries, recalled messages) are skipped;
        chunks become full messages. When the embedding model fails, the messages are stored without vectors: `EmbeddingError`
        says so (or the log, with on_error="log"), and `recall.reindex` adds the vectors.
        """
        return plans.save_messages(self._core, messages, thread_id, user_id)

    aappend = twin(append)

    @operation
    def update(
        self, messages: Iterable[MessageLikeRepresentation], *, thread_id: str, user_id: str | None = None
    ) -> Plan[list[BaseMessage]]:
        """Replace messages by id; position and time stay, vectors follow. One atomic step, one round trip.

        Raises `MessageNotFoundError` when one of them is not stored, and changes none then.
        """
        given = as_messages(messages)
        for message in given:
            if message.id is None:
                raise IdError("a message to update has no id", remedy="take it from history.messages()")
            if not is_storable(message):
                raise OptionError(
                    f"message {message.id!r} is a system or generated message, which history does not store",
                    remedy="take it from history.messages()",
                )
        return plans.save_messages(self._core, given, thread_id, user_id, mode="update")

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

        One round trip, whose cost follows the number of returned messages (with `roles`, of those it reads). `before` and
        `after` are message ids, exclusive; times are inclusive. An unknown thread has no messages; an unknown message id
        raises `MessageNotFoundError`. For what a model may be shown, use `memory.context`. Superseded messages (regenerated
        answers, edited questions, other branches) come only with `superseded`, each at its position; then `last` counts both.
        """
        wanted = MessageSelection.of(
            limit=last, newest=True, before=before, after=after, roles=roles, since=since, until=until
        )
        return plans.read(self._core.state, thread_id, user_id, wanted, superseded=superseded)

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
        metadata: Mapping[str, Any] | None = None,
    ) -> Plan[Page[StoredMessage]]:
        """Return one page of a thread, oldest first unless `descending`, with times and sequence numbers.

        One round trip. Each message is returned exactly once, even if the thread grows between the pages. With `roles`, the
        whole thread is read for `total`. `metadata` is a filter as in `recall.search`, of the `limit` messages that a page reads:
        the page may hold fewer, or none, while `next_cursor` says that there are more, and `total` does not regard it.
        """
        at_least(limit, 1, "limit")
        state = self._core.state
        keys_of_messages = state.recall.filterable if state.recall else ()
        passing = metadata_filter(metadata)
        check_declared(passing.keys, (*keys_of_messages, *state.thread_filters), DECLARED)
        wanted = MessageSelection.of(
            limit=limit + 1, newest=descending, roles=roles, since=since, until=until, count=True
        )
        if cursor is not None:
            (seq,) = read_cursor(cursor, _PAGE_CURSOR)
            wanted = replace(wanted, below=int(seq)) if descending else replace(wanted, above=int(seq))
        keys = state.keys.of(check_id(thread_id, "thread_id"))
        call = READ.call(keys.all, owner_tag(user_id), *wanted.arguments())
        beside = [("HGETALL", keys.thread)] if passing.wanted else []
        reply, *stored = yield from run_script(thread_id, user_id, call, *beside)
        rows = yield from replace(wanted, newest=False).reading(state, reply, thread_id)
        more = str(rows[limit - 1].seq) if len(rows) > limit else None
        items = rows[:limit]
        if stored:
            own = {key: value for key, value in metadata_in(as_dict(stored[0])).items() if key in state.thread_filters}
            items = [row for row in items if passing.matches({**own, **metadata_of(row.message, keys_of_messages)})]
        return Page(items=items, total=int(reply[0]), next_cursor=more)

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

        Reads only the messages of the page. Round trips: one per 10,000 threads lists them, one per 1,000 threads reads times
        of messages, a few more find the page (five for 100 messages), one reads it. `since` and `until` cost one more per 1,000
        threads, for `total`. The cursor is a time and a thread.
        """
        return timeline.of_user(self._core.state, user_id, since, until, limit, cursor)

    afor_user = twin(for_user)

    @operation
    def delete(
        self,
        message_ids: Sequence[str] | None = None,
        *,
        thread_id: str,
        user_id: str | None = None,
        until: datetime | None = None,
    ) -> Plan[int]:
        """Delete messages by id, or all that were stored until a time (inclusive), and return how many there were.

        With their vectors and older versions; with `until` also those on other branches. By id it is
        atomic. One round trip for these, and one for each further 500 vectors.
        What was deleted by id does not come back from a list or state that still holds it; `append` or an older export stores it again.
        `until` deletes 100 in a step and round trip, the oldest first, so call it again after an interruption. A tool call
        and its results go together, so the last call before the time may stay; so do calls at the end of the thread that are
        younger than a day.
        """
        if (message_ids is None) == (until is None):
            seen = "neither message_ids nor until" if until is None else "both message_ids and until"
            raise OptionError(seen, remedy="pass one of them; `clear` deletes all messages of a thread")
        return plans.delete(self._core.state, thread_id, user_id, message_ids, until=until)

    adelete = twin(delete)

    @operation
    def truncate(self, thread_id: str, *, after: str, user_id: str | None = None) -> Plan[int]:
        """Supersede all messages after one, as when it is edited or answered again, and return how many they are.

        They stay stored: `messages(superseded=True)` returns them, recall does not find them, and saving one again puts it back.
        Atomic; one round trip, and one for each further 500 vectors. Raises `ThreadNotFoundError`, `MessageNotFoundError`.
        """
        keys = self._core.state.keys.of(check_id(thread_id, "thread_id"))
        call = TRUNCATE.call(keys.all, owner_tag(user_id), check_id(after, "after"))
        ids = {"after": after}
        ((count, left),) = yield from run_script(thread_id, user_id, call, message_ids=ids, at_most_once=True)
        if left:
            remedy = f"recall.reindex(thread_id={thread_id!r}) goes on, and the next write to the thread"
            yield from sweep_now(self._core.state, thread_id, "the thread is truncated", remedy)
        return int(count)

    atruncate = twin(truncate)

    @operation
    def clear(self, thread_id: str, *, user_id: str | None = None) -> Plan[int]:
        """Delete all messages of a thread, which stays, and return how many there were.

        Atomic. One round trip, and one for each further 500 vectors.
        """
        return plans.delete(self._core.state, thread_id, user_id, None)

    aclear = twin(clear)
