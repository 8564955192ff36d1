"""The methods of `memory.threads`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_workingmem.threads import operations as plans
from langchain_workingmem.threads.clones import clone

if TYPE_CHECKING:
    import builtins
    from collections.abc import Collection, Mapping
    from datetime import datetime
    from types import EllipsisType

    from langchain_workingmem._redis.core import Core
    from langchain_workingmem.models import ClonedThread, Page, Thread
    from langchain_workingmem.threads.operations import OrderBy


class Threads:
    """The threads of a memory and their owners, as `memory.threads`.

    A method that takes `resource_id` next to a thread raises `ThreadOwnershipError` when another resource owns the thread, and
    changes nothing. Without `resource_id` it accepts any owner.
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
        """Create a thread; without `thread_id` it gets a random id. One round trip, two with `working_memory`.

        `metadata` is a dict of JSON values. `working_memory` is the first content of the working memory of the thread or of its
        resource (see `scope`); existing content stays. Raises `ThreadExistsError` if any resource has a thread with this id.
        """
        return self._core.run(plans.create(self._core, resource_id, thread_id, title, metadata, working_memory))

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
        return await self._core.arun(plans.create(self._core, resource_id, thread_id, title, metadata, working_memory))

    def get(self, thread_id: str, *, resource_id: str | None = None) -> Thread | None:
        """Return a thread, or None if it does not exist. One round trip."""
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
        """List the threads of one resource or of all, newest first. One round trip per page.

        `metadata` selects the threads that have all of its pairs; values are compared as JSON, and a filter with
        operators is an `OptionError`. A thread that changes while you page by `updated_at` moves to the newest end. By
        `created_at` you see each thread exactly once.
        """
        return self._core.run(
            plans.list_threads(self._core.state, resource_id, metadata, limit, cursor, order_by, descending=descending)
        )

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
        return await self._core.arun(
            plans.list_threads(self._core.state, resource_id, metadata, limit, cursor, order_by, descending=descending)
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
        """Change the title (None removes it), metadata key by key (None deletes a key), and working memory.

        One round trip, atomic: parallel updates of different keys keep both. `working_memory` replaces the working memory of the
        thread or of its resource (None empties it) in a second round trip. It is checked before the first write. If the second
        write fails, title and metadata are changed already; the error says so, and you can repeat the call. Raises
        `ThreadNotFoundError`, `WorkingMemoryValidationError`, `ReadOnlyError`.
        """
        return self._core.run(plans.update(self._core.state, thread_id, resource_id, title, metadata, working_memory))

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
        return await self._core.arun(
            plans.update(self._core.state, thread_id, resource_id, title, metadata, working_memory)
        )

    def delete(self, thread_id: str, *, resource_id: str | None = None) -> bool:
        """Delete a thread with its messages, vectors and working memory; return whether it existed.

        Atomic: the thread disappears at once. One round trip, and one for each further 500 vectors. After an error, call it
        again: it deletes the remaining vectors.
        """
        return self._core.run(plans.delete(self._core.state, thread_id, resource_id))

    async def adelete(self, thread_id: str, *, resource_id: str | None = None) -> bool:
        """Async twin of `delete`."""
        return await self._core.arun(plans.delete(self._core.state, thread_id, resource_id))

    def transfer(self, thread_id: str, *, resource_id: str, to: str) -> Thread:
        """Give a thread from `resource_id` to another resource.

        Atomic: the owner changes at once. One round trip, and one for each further 500 vectors; recall of the new owner finds
        the messages after that. Raises `ThreadNotFoundError`, `ThreadOwnershipError` if `resource_id` is not the owner, and
        `ResourceDeletedError` while one of the two is being deleted: then the thread goes back, or is deleted with its owner.
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
        """Copy a thread for the same owner; `transfer` gives the copy to another one.

        Messages get new ids and keep order, times and vectors, so nothing is embedded again. The copy has the title, metadata
        and thread-scoped working memory of the source; `title` replaces, `metadata` changes it key by key. It has a title that
        a model made only together with the message that it was made from. A message is copied if `last_messages`, `since`, `until` and `message_ids` all select it. The copy has the log of its source, as far as the
        messages of an observation are all in it; in the scope "resource" its messages are observed anew. One round trip, two
        per 200 messages or 64 MiB, up to two for thread-scoped working memory, and three for a log. A larger copy is not atomic: it is `unfinished` while it grows. If its
        process dies, a clone with the same id replaces it. Raises `ThreadNotFoundError`, and `ThreadExistsError` if a thread
        `new_thread_id` exists.
        """
        plan = clone(
            self._core, thread_id, new_thread_id, resource_id, title, metadata, last_messages, since, until, message_ids
        )
        return self._core.run(plan)

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
        plan = clone(
            self._core, thread_id, new_thread_id, resource_id, title, metadata, last_messages, since, until, message_ids
        )
        return await self._core.arun(plan)

    def source_of(self, thread_id: str, *, resource_id: str | None = None) -> Thread | None:
        """Return the thread that this one was cloned from. Two round trips, one for a thread that is not a clone.

        None if it is not a clone, or if the source is deleted or has another owner. Raises `ThreadNotFoundError`.
        """
        return self._core.run(plans.source(self._core.state, thread_id, resource_id))

    async def asource_of(self, thread_id: str, *, resource_id: str | None = None) -> Thread | None:
        """Async twin of `source_of`."""
        return await self._core.arun(plans.source(self._core.state, thread_id, resource_id))

    def clones_of(self, thread_id: str, *, resource_id: str | None = None) -> builtins.list[Thread]:
        """Return the clones of this thread that have the same owner, oldest first. Two round trips, one more per further 1,000."""
        return self._core.run(plans.clones(self._core.state, thread_id, resource_id))

    async def aclones_of(self, thread_id: str, *, resource_id: str | None = None) -> builtins.list[Thread]:
        """Async twin of `clones_of`."""
        return await self._core.arun(plans.clones(self._core.state, thread_id, resource_id))

    def lineage(self, thread_id: str, *, resource_id: str | None = None) -> builtins.list[Thread]:
        """Return the sources of a clone, oldest first, and the thread itself last. One round trip per thread.

        The list begins after a source that is deleted or has another owner. Raises `ThreadNotFoundError`.
        """
        return self._core.run(plans.lineage(self._core.state, thread_id, resource_id))

    async def alineage(self, thread_id: str, *, resource_id: str | None = None) -> builtins.list[Thread]:
        """Async twin of `lineage`."""
        return await self._core.arun(plans.lineage(self._core.state, thread_id, resource_id))
