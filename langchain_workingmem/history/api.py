"""History: the messages of a thread, whole and in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_workingmem._redis.codec import as_messages, is_storable
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem.errors import IdError, OptionError
from langchain_workingmem.history import operations as plans
from langchain_workingmem.history import timeline
from langchain_workingmem.history.rows import MessageSelection
from langchain_workingmem.options import at_least

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from langchain_core.messages import BaseMessage, MessageLikeRepresentation

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem.models import Page, StoredMessage


class History:
    """The messages of a memory, as `memory.history`.

    Wherever `resource_id` may be left out, whoever owns the thread is accepted; another owner than the one given
    raises `ThreadOwnershipError` and nothing happens.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def append(
        self, messages: Iterable[MessageLikeRepresentation], *, thread_id: str, resource_id: str
    ) -> list[BaseMessage]:
        """Save messages at the end of a thread, which is created if it is new, and return those that are stored.

        One atomic step, one round trip, and with recall one call of the embedding model. Idempotent by message id:
        an equal message is left alone, one that differs takes the old one's place. Missing ids are set on the
        messages that you pass, so that saving them again is safe. System messages and messages marked `lc_source`
        (summaries, what memory recalled) are skipped; chunks become full messages.
        When the embedding model fails, the messages are stored all the same, without vectors: `EmbeddingError` says
        so (or the log, with on_error="log"), and `recall.reindex` adds the vectors.
        """
        return self._core.run(self._append(messages, thread_id, resource_id))

    async def aappend(
        self, messages: Iterable[MessageLikeRepresentation], *, thread_id: str, resource_id: str
    ) -> list[BaseMessage]:
        """Async twin of `append`."""
        return await self._core.arun(self._append(messages, thread_id, resource_id))

    def update(
        self, messages: Iterable[MessageLikeRepresentation], *, thread_id: str, resource_id: str | None = None
    ) -> list[BaseMessage]:
        """Replace messages by id; place and time stay, vectors follow. One atomic step, one round trip.

        Raises `MessageNotFoundError` when one of them is not there, and then changes none.
        """
        return self._core.run(self._update(messages, thread_id, resource_id))

    async def aupdate(
        self, messages: Iterable[MessageLikeRepresentation], *, thread_id: str, resource_id: str | None = None
    ) -> list[BaseMessage]:
        """Async twin of `update`."""
        return await self._core.arun(self._update(messages, thread_id, resource_id))

    def _update(
        self, messages: Iterable[MessageLikeRepresentation], thread_id: str, resource_id: str | None
    ) -> Plan[list[BaseMessage]]:
        given = as_messages(messages)
        for message in given:
            if message.id is None:
                raise IdError("a message to update has no id", remedy="take it from history.messages()")
            if not is_storable(message):
                raise OptionError(
                    f"message {message.id!r} is nothing that history keeps",
                    remedy="take it from history.messages()",
                )
        return plans.save_messages(self._core, given, thread_id, resource_id, mode="update")

    def _append(
        self, messages: Iterable[MessageLikeRepresentation], thread_id: str, resource_id: str
    ) -> Plan[list[BaseMessage]]:
        check_id(resource_id, "resource_id")
        return plans.save_messages(self._core, messages, thread_id, resource_id)

    def messages(
        self,
        thread_id: str,
        *,
        resource_id: str | None = None,
        last: int | None = None,
        before: str | None = None,
        after: str | None = None,
        roles: Sequence[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        superseded: bool = False,
    ) -> list[BaseMessage]:
        """Return messages as they were stored, in chronological order; the `last` n of what the filters leave.

        One round trip, whose cost follows what is returned (with `roles`, what is looked through). `before` and
        `after` are message ids, exclusive; times are inclusive. An unknown thread has no messages; an unknown
        message id raises `MessageNotFoundError`. What a model may be shown is a matter of `memory.context`.
        What the conversation has left behind (answers that were regenerated, questions that were edited, other branches) comes
        only with `superseded`, between the messages among which it was said; then `last` counts both.
        """
        plan = self._messages(thread_id, resource_id, last, before, after, roles, since, until, superseded=superseded)
        return [row.message for row in self._core.run(plan)]

    async def amessages(
        self,
        thread_id: str,
        *,
        resource_id: str | None = None,
        last: int | None = None,
        before: str | None = None,
        after: str | None = None,
        roles: Sequence[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        superseded: bool = False,
    ) -> list[BaseMessage]:
        """Async twin of `messages`."""
        plan = self._messages(thread_id, resource_id, last, before, after, roles, since, until, superseded=superseded)
        return [row.message for row in await self._core.arun(plan)]

    def _messages(
        self,
        thread_id: str,
        resource_id: str | None,
        last: int | None,
        before: str | None,
        after: str | None,
        roles: Sequence[str] | None,
        since: datetime | None,
        until: datetime | None,
        *,
        superseded: bool,
    ) -> Plan[list[StoredMessage]]:
        if last is not None:
            at_least(last, 0, "last")
        wanted = MessageSelection.of(
            limit=last,
            newest=last is not None,
            before=before,
            after=after,
            roles=roles,
            since=since,
            until=until,
        )
        read = plans.read_with_superseded if superseded else plans.read
        return read(self._core.state, thread_id, resource_id, wanted)

    def page(
        self,
        thread_id: str,
        *,
        limit: int = 50,
        cursor: str | None = None,
        resource_id: str | None = None,
        roles: Sequence[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        descending: bool = False,
    ) -> Page[StoredMessage]:
        """Return one page of a thread, oldest first unless `descending`, with times and sequence numbers.

        One round trip. Each message is seen exactly once however the thread grows meanwhile. With `roles` the whole
        thread is looked through for `total`.
        """
        wanted = MessageSelection.of(limit=limit, newest=descending, roles=roles, since=since, until=until)
        return self._core.run(plans.page(self._core.state, thread_id, resource_id, wanted, cursor))

    async def apage(
        self,
        thread_id: str,
        *,
        limit: int = 50,
        cursor: str | None = None,
        resource_id: str | None = None,
        roles: Sequence[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        descending: bool = False,
    ) -> Page[StoredMessage]:
        """Async twin of `page`."""
        wanted = MessageSelection.of(limit=limit, newest=descending, roles=roles, since=since, until=until)
        return await self._core.arun(plans.page(self._core.state, thread_id, resource_id, wanted, cursor))

    def for_resource(
        self,
        resource_id: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[StoredMessage]:
        """Return the messages of all threads of a resource, in chronological order.

        Only the messages of the page are read. Of the threads that do not end before it, each tells the times of its next messages: one round
        trip per 1,000 of them, a few more that find the page (five for 100 messages), one that reads it, and one before all that per 10,000 threads. `since` and
        `until` cost one more per 1,000 threads, for `total`. The cursor is a time and a thread.
        """
        return self._core.run(timeline.of_resource(self._core.state, resource_id, since, until, limit, cursor))

    async def afor_resource(
        self,
        resource_id: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[StoredMessage]:
        """Async twin of `for_resource`."""
        return await self._core.arun(timeline.of_resource(self._core.state, resource_id, since, until, limit, cursor))

    def delete(self, message_ids: Sequence[str], *, thread_id: str, resource_id: str | None = None) -> int:
        """Delete messages with their vectors, and return how many there were.

        Atomic: nobody sees a part of them. One round trip, and one for each further 500 vectors.
        """
        return self._core.run(self._delete(message_ids, thread_id, resource_id))

    async def adelete(self, message_ids: Sequence[str], *, thread_id: str, resource_id: str | None = None) -> int:
        """Async twin of `delete`."""
        return await self._core.arun(self._delete(message_ids, thread_id, resource_id))

    def _delete(self, message_ids: Sequence[str], thread_id: str, resource_id: str | None) -> Plan[int]:
        ids = [message_ids] if isinstance(message_ids, str) else list(message_ids)
        return plans.delete(self._core.state, thread_id, resource_id, ids)

    def truncate(self, thread_id: str, *, after: str, resource_id: str | None = None) -> int:
        """Leave behind what stands behind a message, as when it is edited or answered anew, and return how many that are.

        They stay stored as superseded: `messages(superseded=True)` shows them, and recall does not find them. Saving one of them
        again puts it back. Atomic; one round trip, and one for each further 500 vectors. Raises `ThreadNotFoundError`, `MessageNotFoundError`.
        """
        return self._core.run(plans.truncate(self._core.state, thread_id, resource_id, after))

    async def atruncate(self, thread_id: str, *, after: str, resource_id: str | None = None) -> int:
        """Async twin of `truncate`."""
        return await self._core.arun(plans.truncate(self._core.state, thread_id, resource_id, after))

    def clear(self, thread_id: str, *, resource_id: str | None = None) -> int:
        """Delete all messages of a thread, which stays, and return how many there were.

        Atomic: nobody sees a part of them. One round trip, and one for each further 500 vectors.
        """
        return self._core.run(plans.delete(self._core.state, thread_id, resource_id, None))

    async def aclear(self, thread_id: str, *, resource_id: str | None = None) -> int:
        """Async twin of `clear`."""
        return await self._core.arun(plans.delete(self._core.state, thread_id, resource_id, None))
