"""The methods of `memory.users`."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, Any

from langchain_workingmem._redis.core import Operations, operation, twin
from langchain_workingmem._redis.scripts import read_usage
from langchain_workingmem.threads import Saver
from langchain_workingmem.users import archive, operations

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from langgraph.checkpoint.base import BaseCheckpointSaver

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.models import DeletionReport, ImportReport, MergeReport, Page, UserSummary
    from langchain_workingmem.usage import UserUsage


class Users(Operations):
    """All data of a user: listed, deleted, merged into another one, exported, imported; as `memory.users`.

    Items of a LangGraph store have no owner: delete and copy them through the store.
    """

    @operation
    def list(self, *, limit: int = 20, cursor: str | None = None) -> Plan[Page[UserSummary]]:
        """List the users who own threads, the one whose thread changed last first. One round trip per page.

        A user who has only working memory or files is not listed: nothing indexes these, and `users.delete`,
        `users.export` and `threads.list` take any id. A user whose thread changes while you page moves to the front.
        For each page the server groups all threads, 0.15 s for 100,000.
        """
        return operations.list_users(self._core.state, limit, cursor)

    alist = twin(list)  # noqa: A003 - the method

    def delete(self, user_id: str, *, checkpointer: BaseCheckpointSaver[Any] | None = None) -> DeletionReport:
        """Delete the threads, messages, vectors, working memory and revisions of a user, and its files.

        Each thread disappears in one atomic step. At the end memory looks through all keys, on every node and without
        the indexes, until no key names the user: `verified`. The counts are of this call. During a deletion, every
        write for the user raises `UserDeletedError`, in all processes. If it is interrupted, writes stay refused
        until you call it again; a note on the error says so.

        `checkpointer`, that of your graphs: its checkpoints of the user's threads go first, each thread before its
        memory. `report.checkpoints` says "not implemented" if it cannot delete threads. One round trip per 100
        threads, two with `checkpointer`, and one per 500 vectors; for each look, two per 1,000 keys of the database.
        """
        return self._core.run(self._deletion(user_id, checkpointer, is_async=False))

    async def adelete(self, user_id: str, *, checkpointer: BaseCheckpointSaver[Any] | None = None) -> DeletionReport:
        """Async twin of `delete`."""
        return await self._core.arun(self._deletion(user_id, checkpointer, is_async=True))

    def _deletion(self, user_id: str, checkpointer: Any, *, is_async: bool) -> Plan[DeletionReport]:
        callers = "users.delete()", "users.adelete()"
        saver = None
        if checkpointer is not None:
            saver = Saver(checkpointer, "delete_thread", callers, is_async=is_async)
        return operations.delete(self._core.state, user_id, self._core.new_id(), saver)

    @operation
    def merge(self, source: str, *, into: str) -> Plan[MergeReport]:
        """Give all that a user has to another one: a guest has logged in, and is a user now.

        Threads change their owner as in `threads.transfer`, with messages, vectors, their own working memory. Of the
        two working memories, what the user has stays, and the guest's fills what is missing: fields of a schema,
        labels of a template; free text is added, a list stays. Items of stores stay where they are.

        Meanwhile every write for the source raises `UserDeletedError`, in all processes. It can be repeated, also
        after an interruption: it moves what is left. A deletion of one of the two wins.
        `WorkingMemoryValidationError`, and nothing is changed, if the schema or `max_bytes` refuses the merged
        working memory. `IdError` for a user into itself. One or two round trips per thread, about nine for working
        memory.
        """
        return operations.merge(self._core.state, source, into, self._core.new_id())

    amerge = twin(merge)

    @operation
    def usage(self, user_id: str) -> Plan[UserUsage]:
        """Return what models have done for a user in the background, such as titles, with calls and tokens.

        They are counted with what the models have made, for the owner of the thread at that time, and stay when
        threads are deleted; `delete` takes them, `merge` adds them up, an export leaves them out. With a `ttl` they
        expire that long after the last such work. A call whose reply of Redis is lost may count twice; one for a
        thread that is deleted meanwhile does not count. All are 0 for a user who has none. One round trip.
        """
        return read_usage(self._core.state, user_id)

    ausage = twin(usage)

    def export(self, user_id: str, *, vectors: bool = False) -> Iterator[dict[str, Any]]:
        """Yield all data of a user as dicts of JSON values, one per line of a file. It is read while you iterate.

        First a header with format and version, then working memory with its revisions, then each thread with its
        working memory and its messages, oldest first, and at last a record that counts the others by kind. A thread
        has the state of the moment when the export reaches it. Options and ttl are not exported. `vectors=True` adds
        the vectors of messages: an import with the same model and options then embeds nothing. One round trip per
        1,000 threads, one per thread and 200 messages.
        """
        return self._core.stream(archive.export(self._core.state, user_id, vectors=vectors))

    def aexport(self, user_id: str, *, vectors: bool = False) -> AsyncIterator[dict[str, Any]]:
        """Async twin of `export`."""
        return self._core.astream(archive.export(self._core.state, user_id, vectors=vectors))

    def load(self, records: Iterable[Mapping[str, Any]], *, user_id: str | None = None) -> ImportReport:
        """Import the records of `export` or of an importer, for `user_id` or for the user in their header.

        Memory reads all records and checks them before the first write: a record that cannot be imported raises
        `OptionError` with its number, so does an export that was cut, a thread of another owner raises
        `ThreadOwnershipError`, and nothing is written.

        Ids, order and times stay, and stored data is not changed, so you can repeat an import: it adds what is
        missing, but no message that the thread has forgotten. A message that is older than the end of its thread is
        stored after it, with a time just after it. Vectors are used if this memory would make the same; other
        messages are embedded at the end, if recall is on. One round trip per 200 threads, one per thread and 200
        messages, up to two per working memory.
        """
        return self._core.run(archive.load(self._core.state, records, user_id))

    async def aload(
        self,
        records: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]],
        *,
        user_id: str | None = None,
    ) -> ImportReport:
        """Async twin of `load`."""
        source = [record async for record in records] if isinstance(records, AsyncIterable) else records
        return await self._core.arun(archive.load(self._core.state, source, user_id))
