"""The methods of `memory.threads`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_workingmem._redis.core import operation, twin
from langchain_workingmem.threads import operations as plans
from langchain_workingmem.threads.clones import clone

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
    """The threads of a memory and their owners, as `memory.threads`.

    A method that takes `resource_id` next to a thread raises `ThreadOwnershipError` when another resource owns the thread, and
    changes nothing. Without `resource_id` it accepts any owner.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    @operation
    def create(
        self,
        *,
        resource_id: str,
        thread_id: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        working_memory: Any = None,
    ) -> Plan[Thread]:
        """Create a thread; without `thread_id` it gets a random id. One round trip, two with `working_memory`.

        `metadata` is a dict of JSON values. `working_memory` is the first content of the working memory of the thread or of its
        resource (see `scope`); existing content stays. Raises `ThreadExistsError` if any resource has a thread with this id.
        """
        return plans.create(self._core, resource_id, thread_id, title, metadata, working_memory)

    acreate = twin(create)

    @operation
    def get(self, thread_id: str, *, resource_id: str | None = None) -> Plan[Thread | None]:
        """Return a thread, or None if it does not exist. One round trip."""
        return plans.get_thread(self._core.state, thread_id, resource_id)

    aget = twin(get)

    @operation
    def list(
        self,
        *,
        resource_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        limit: int = 100,
        cursor: str | None = None,
        order_by: OrderBy = "updated_at",
        descending: bool = True,
    ) -> Plan[Page[Thread]]:
        """List the threads of one resource or of all, newest first. One round trip per page.

        `metadata` selects the threads that have all of its pairs; values are compared as JSON, and a filter with
        operators is an `OptionError`. A thread that changes while you page by `updated_at` moves to the newest end. By
        `created_at` you see each thread exactly once.
        """
        return plans.list_threads(
            self._core.state, resource_id, metadata, limit, cursor, order_by, descending=descending
        )

    alist = twin(list)  # noqa: A003 - the method

    @operation
    def update(
        self,
        thread_id: str,
        *,
        resource_id: str | None = None,
        title: str | EllipsisType | None = ...,
        metadata: Mapping[str, Any] | EllipsisType | None = ...,
        working_memory: Any = ...,
    ) -> Plan[Thread]:
        """Change the title (None removes it), metadata key by key (None deletes a key), and working memory.

        One round trip, atomic: parallel updates of different keys keep both. `working_memory` replaces the working memory of the
        thread or of its resource (None empties it) in a second round trip. It is checked before the first write. If the second
        write fails, title and metadata are changed already; the error says so, and you can repeat the call. Raises
        `ThreadNotFoundError`, `WorkingMemoryValidationError`, `ReadOnlyError`.
        """
        return plans.update(self._core.state, thread_id, resource_id, title, metadata, working_memory)

    aupdate = twin(update)

    @operation
    def delete(self, thread_id: str, *, resource_id: str | None = None) -> Plan[bool]:
        """Delete a thread with its messages, vectors and working memory; return whether it existed.

        Atomic: the thread disappears at once. One round trip, and one for each further 500 vectors. After an error, call it
        again: it deletes the remaining vectors.
        """
        return plans.delete(self._core.state, thread_id, resource_id)

    adelete = twin(delete)

    @operation
    def transfer(self, thread_id: str, *, resource_id: str, to: str) -> Plan[Thread]:
        """Give a thread from `resource_id` to another resource.

        Atomic: the owner changes at once. One round trip, and one for each further 500 vectors; recall of the new owner finds
        the messages after that. Raises `ThreadNotFoundError`, `ThreadOwnershipError` if `resource_id` is not the owner, and
        `ResourceDeletedError` while one of the two is being deleted: then the thread goes back, or is deleted with its owner.
        """
        return plans.transfer(self._core.state, thread_id, resource_id, to)

    atransfer = twin(transfer)

    @operation
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
    ) -> Plan[ClonedThread]:
        """Copy a thread for the same owner; `transfer` gives the copy to another one.

        Messages get new ids and keep order, times and vectors, so nothing is embedded again. The copy has the title, metadata
        and thread-scoped working memory of the source; `title` replaces, `metadata` changes it key by key. It has a title that
        a model made only together with the message that it was made from. A message is copied if `last_messages`, `since`, `until` and `message_ids` all select it. The copy has the log of its source, as far as the
        messages of an observation are all in it; in the scope "resource" its messages are observed anew. One round trip, two
        per 200 messages or 64 MiB, up to two for thread-scoped working memory, and three for a log. A larger copy is not atomic: it is `unfinished` while it grows. If its
        process dies, a clone with the same id replaces it. Raises `ThreadNotFoundError`, and `ThreadExistsError` if a thread
        `new_thread_id` exists.
        """
        return clone(
            self._core, thread_id, new_thread_id, resource_id, title, metadata, last_messages, since, until, message_ids
        )

    aclone = twin(clone)

    @operation
    def source_of(self, thread_id: str, *, resource_id: str | None = None) -> Plan[Thread | None]:
        """Return the thread that this one was cloned from. Two round trips, one for a thread that is not a clone.

        None if it is not a clone, or if the source is deleted or has another owner. Raises `ThreadNotFoundError`.
        """
        return plans.source(self._core.state, thread_id, resource_id)

    asource_of = twin(source_of)

    @operation
    def clones_of(self, thread_id: str, *, resource_id: str | None = None) -> Plan[builtins.list[Thread]]:
        """Return the clones of this thread that have the same owner, oldest first. Two round trips, one more per further 1,000."""
        return plans.clones(self._core.state, thread_id, resource_id)

    aclones_of = twin(clones_of)

    @operation
    def lineage(self, thread_id: str, *, resource_id: str | None = None) -> Plan[builtins.list[Thread]]:
        """Return the sources of a clone, oldest first, and the thread itself last. One round trip per thread.

        The list begins after a source that is deleted or has another owner. Raises `ThreadNotFoundError`.
        """
        return plans.lineage(self._core.state, thread_id, resource_id)

    alineage = twin(lineage)
