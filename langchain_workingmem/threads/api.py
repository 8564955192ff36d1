"""Threads: conversations and who owns them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_workingmem.errors import IdError, OptionError, WorkingMemError
from langchain_workingmem.history import MessageSelection
from langchain_workingmem.options import at_least
from langchain_workingmem.threads import clones
from langchain_workingmem.threads import operations as plans
from langchain_workingmem.threads.with_memory import copy_memory, create_with_memory, update_with_memory

if TYPE_CHECKING:
    import builtins
    from collections.abc import Collection, Mapping
    from datetime import datetime
    from types import EllipsisType

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem.models import ClonedThread, Page, Thread
    from langchain_workingmem.threads.operations import OrderBy


class Threads:
    """The threads of a memory, as `memory.threads`.

    Wherever `resource_id` may be given beside a thread, another owner raises `ThreadOwnershipError` and nothing
    happens; left out, whoever owns the thread is accepted.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def create(
        self,
        *,
        resource_id: str,
        thread_id: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        working_memory: Any = None,
    ) -> Thread:
        """Create a thread; without `thread_id` it gets a random one. One round trip, two with working memory.

        Metadata is any JSON under string keys, but no working memory, which belongs into its argument. `working_memory` is the whole first content of the working memory that
        the thread or its owner has, unless there is one already. Raises `ThreadExistsError` when the id is taken, whoever owns it.
        """
        return self._core.run(self._create(resource_id, thread_id, title, metadata, working_memory))

    async def acreate(
        self,
        *,
        resource_id: str,
        thread_id: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        working_memory: Any = None,
    ) -> Thread:
        """Async twin of `create`."""
        return await self._core.arun(self._create(resource_id, thread_id, title, metadata, working_memory))

    def _create(
        self,
        resource_id: str,
        thread_id: str | None,
        title: str | None,
        metadata: Mapping[str, Any] | None,
        working_memory: Any,
    ) -> Plan[Thread]:
        state, new_id = self._core.state, self._core.new_id() if thread_id is None else thread_id
        if working_memory is None:
            return plans.create_thread(state, new_id, resource_id, title, metadata)
        return create_with_memory(state, new_id, resource_id, title, metadata, working_memory)

    def get(self, thread_id: str, *, resource_id: str | None = None) -> Thread | None:
        """Return a thread, None when there is none. One round trip."""
        return self._core.run(plans.get_thread(self._core.state, thread_id, resource_id))

    async def aget(self, thread_id: str, *, resource_id: str | None = None) -> Thread | None:
        """Async twin of `get`."""
        return await self._core.arun(plans.get_thread(self._core.state, thread_id, resource_id))

    def list(
        self,
        *,
        resource_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        limit: int = 100,
        cursor: str | None = None,
        order_by: OrderBy = "updated_at",
        descending: bool = True,
    ) -> Page[Thread]:
        """List threads, of one resource or of all, newest first. One round trip a page, any number of pages.

        `metadata` keeps the threads that hold all of its pairs, compared as JSON. Threads that change while you page
        through `updated_at` move to its new end; by `created_at` each is seen exactly once.
        """
        return self._core.run(self._list(resource_id, metadata, limit, cursor, order_by, descending))

    async def alist(
        self,
        *,
        resource_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        limit: int = 100,
        cursor: str | None = None,
        order_by: OrderBy = "updated_at",
        descending: bool = True,
    ) -> Page[Thread]:
        """Async twin of `list`."""
        return await self._core.arun(self._list(resource_id, metadata, limit, cursor, order_by, descending))

    def _list(
        self,
        resource_id: str | None,
        metadata: Mapping[str, Any] | None,
        limit: int,
        cursor: str | None,
        order_by: OrderBy,
        descending: bool,  # noqa: FBT001 - the public twins take it by keyword
    ) -> Plan[Page[Thread]]:
        return plans.list_threads(
            self._core.state, resource_id, metadata, limit, cursor, order_by, descending=descending
        )

    def update(
        self,
        thread_id: str,
        *,
        resource_id: str | None = None,
        title: str | EllipsisType | None = ...,
        metadata: Mapping[str, Any] | EllipsisType | None = ...,
        working_memory: Any = ...,
    ) -> Thread:
        """Change what is given: a title (None removes it), metadata key by key (None deletes a key), working memory.

        One round trip, atomic: two updates of different keys keep both. `working_memory` replaces the working memory that the
        thread or its owner has (None empties it), in a second round trip. It is checked before anything is written. When the
        second fails, title and metadata are changed and working memory is not; the error says so, and to repeat
        the call is safe. Raises `ThreadNotFoundError`, `WorkingMemoryValidationError`, `ReadOnlyError`.
        """
        return self._core.run(self._update(thread_id, resource_id, title, metadata, working_memory))

    async def aupdate(
        self,
        thread_id: str,
        *,
        resource_id: str | None = None,
        title: str | EllipsisType | None = ...,
        metadata: Mapping[str, Any] | EllipsisType | None = ...,
        working_memory: Any = ...,
    ) -> Thread:
        """Async twin of `update`."""
        return await self._core.arun(self._update(thread_id, resource_id, title, metadata, working_memory))

    def _update(
        self,
        thread_id: str,
        resource_id: str | None,
        title: str | EllipsisType | None,
        metadata: Mapping[str, Any] | EllipsisType | None,
        working_memory: Any,
    ) -> Plan[Thread]:
        if working_memory is ...:
            return plans.update(self._core.state, thread_id, resource_id, title, metadata)
        return update_with_memory(self._core.state, thread_id, resource_id, title, metadata, working_memory)

    def delete(self, thread_id: str, *, resource_id: str | None = None) -> bool:
        """Delete a thread with its messages and vectors, and tell whether there was one.

        Atomic: it is gone at once. One round trip, and one for each further 500 vectors; after an error on the way a second
        call takes the rest of them.
        """
        return self._core.run(plans.delete(self._core.state, thread_id, resource_id))

    async def adelete(self, thread_id: str, *, resource_id: str | None = None) -> bool:
        """Async twin of `delete`."""
        return await self._core.arun(plans.delete(self._core.state, thread_id, resource_id))

    def transfer(self, thread_id: str, *, resource_id: str, to: str) -> Thread:
        """Hand a thread and its vectors from `resource_id` to another resource.

        Atomic: at once it is the other's and nobody else's. One round trip, and one for each further 500 vectors, behind which
        the new owner's recall finds them.

        Raises `ThreadNotFoundError`, and `ThreadOwnershipError` when `resource_id` is not the owner. While one of both is
        being deleted: `ResourceDeletedError`, and the thread goes back, or with its owner.
        """
        return self._core.run(plans.transfer(self._core.state, thread_id, resource_id, to))

    async def atransfer(self, thread_id: str, *, resource_id: str, to: str) -> Thread:
        """Async twin of `transfer`."""
        return await self._core.arun(plans.transfer(self._core.state, thread_id, resource_id, to))

    def clone(
        self,
        thread_id: str,
        *,
        new_thread_id: str | None = None,
        resource_id: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        last_messages: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        message_ids: Collection[str] | None = None,
    ) -> ClonedThread:
        """Copy a thread of `resource_id` for the same owner (`transfer` the copy to give it away).

        Messages get new ids and keep order, times and vectors: nothing is embedded again. The copy has the title, the
        metadata and the thread-scoped working memory of the source, changed by what is given. `last_messages`, a time range and ids choose a part, what all allow.
        One round trip, and two per 200 messages or 64 MiB, up to which the copy appears in one step; one more to look for
        thread-scoped working memory, and one to write it. A longer copy is `unfinished` while it grows; where its writer has
        died, a clone with its id takes its place. Raises `ThreadNotFoundError`, and `ThreadExistsError` for a `new_thread_id` that is taken.
        """
        return self._core.run(
            self._clone(
                thread_id,
                new_thread_id,
                resource_id,
                title,
                metadata,
                last_messages,
                since,
                until,
                message_ids,
            )
        )

    async def aclone(
        self,
        thread_id: str,
        *,
        new_thread_id: str | None = None,
        resource_id: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        last_messages: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        message_ids: Collection[str] | None = None,
    ) -> ClonedThread:
        """Async twin of `clone`."""
        return await self._core.arun(
            self._clone(
                thread_id,
                new_thread_id,
                resource_id,
                title,
                metadata,
                last_messages,
                since,
                until,
                message_ids,
            )
        )

    def _clone(
        self,
        thread_id: str,
        new_thread_id: str | None,
        resource_id: str | None,
        title: str | None,
        metadata: Mapping[str, Any] | None,
        last_messages: int | None,
        since: datetime | None,
        until: datetime | None,
        message_ids: Collection[str] | None,
    ) -> Plan[ClonedThread]:
        core = self._core
        if isinstance(message_ids, str):
            raise OptionError(f"message_ids={message_ids!r}", remedy="pass a list of ids")
        if new_thread_id is not None and new_thread_id == thread_id:
            raise IdError("new_thread_id is the thread itself", remedy="pass another one, or none")
        if last_messages is not None:
            at_least(last_messages, 0, "last_messages")
        wanted = MessageSelection.of(
            limit=clones.CLONE_BATCH if last_messages is None else last_messages,
            newest=last_messages is not None,
            since=since,
            until=until,
        )
        new_id = core.new_id() if new_thread_id is None else new_thread_id
        cloning = partial(
            clones.clone, core.state, thread_id, new_id, resource_id, title, metadata, wanted, message_ids, core.new_id
        )
        copy = yield from clones.anew(core.state, new_id, resource_id, cloning)
        try:
            yield from copy_memory(core.state, thread_id, copy.thread)
        except WorkingMemError:
            yield from plans.delete(core.state, new_id, copy.thread.resource_id)
            raise
        return copy

    def source_of(self, thread_id: str, *, resource_id: str | None = None) -> Thread | None:
        """Return the thread that this one was cloned from. Two round trips, one when it is no clone.

        None when it is no clone, or its source is gone or not theirs. Raises `ThreadNotFoundError` for the thread itself.
        """
        return self._core.run(plans.source(self._core.state, thread_id, resource_id))

    async def asource_of(self, thread_id: str, *, resource_id: str | None = None) -> Thread | None:
        """Async twin of `source_of`."""
        return await self._core.arun(plans.source(self._core.state, thread_id, resource_id))

    def clones_of(self, thread_id: str, *, resource_id: str | None = None) -> builtins.list[Thread]:
        """Return the threads that were cloned from this one and belong to its owner, oldest first."""
        return self._core.run(plans.clones(self._core.state, thread_id, resource_id))

    async def aclones_of(self, thread_id: str, *, resource_id: str | None = None) -> builtins.list[Thread]:
        """Async twin of `clones_of`."""
        return await self._core.arun(plans.clones(self._core.state, thread_id, resource_id))

    def lineage(self, thread_id: str, *, resource_id: str | None = None) -> builtins.list[Thread]:
        """Return the chain of sources, the oldest first and the thread itself last. One round trip a generation.

        It ends where a source is gone, or belongs to somebody else. Raises `ThreadNotFoundError` for the thread itself.
        """
        return self._core.run(plans.lineage(self._core.state, thread_id, resource_id))

    async def alineage(self, thread_id: str, *, resource_id: str | None = None) -> builtins.list[Thread]:
        """Async twin of `lineage`."""
        return await self._core.arun(plans.lineage(self._core.state, thread_id, resource_id))
