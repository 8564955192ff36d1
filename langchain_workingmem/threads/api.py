"""The methods of `memory.threads`."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.plan import send
from langchain_workingmem._redis.core import Operations, operation, twin
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem.checks import LARGEST, at_least
from langchain_workingmem.derived.rows import export_rows, restore_rows
from langchain_workingmem.display import progress_bar
from langchain_workingmem.errors import IdError, OptionError, RedisConnectionError, WorkingMemError
from langchain_workingmem.history.read import read_page, selection
from langchain_workingmem.models import ClonedThread
from langchain_workingmem.threads import operations as plans
from langchain_workingmem.threads.copies import Saver, copy_messages, copy_working_memory, name_thread
from langchain_workingmem.threads.copies import backfill as plan_backfill
from langchain_workingmem.threads.operations import changed, check_metadata, in_pairs, thread_fields
from langchain_workingmem.working_memory.store import NOTHING, find_scope_key, make_document, size_of, write_revision

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Collection, Iterable, Mapping
    from datetime import datetime

    from langgraph.checkpoint.base import BaseCheckpointSaver

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.models import BackfillReport, Page, Thread
    from langchain_workingmem.threads.operations import OrderBy


_BACKFILLS = "backfill()", "abackfill()"


class Threads(Operations):
    """The threads of a memory and their owners, as `memory.threads`.

    A method that takes `user_id` next to a thread raises `ThreadOwnershipError` when another user owns the thread, and
    changes nothing. Without `user_id` it accepts any owner.
    """

    @operation
    def create(
        self,
        *,
        user_id: str,
        thread_id: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        working_memory: Any = None,
    ) -> Plan[Thread]:
        """Create a thread; without `thread_id` it gets a random id. One round trip, two with `working_memory`.

        `metadata` is a dict of JSON values. `working_memory` is the first content of the working memory of the thread
        or of its user (see `scope`); existing content stays. Raises `ThreadExistsError` if any user has a thread with
        this id.
        """
        state, thread_id = self._core.state, self._core.new_id() if thread_id is None else thread_id
        check_id(user_id, "user_id")
        fields = in_pairs(thread_fields(title, metadata))
        if working_memory is None:
            return (yield from changed(state, thread_id, user_id, "create", set=fields))
        make = partial(state.remembering.format.apply, "", working_memory, "replace")
        document = yield from make_document(state, make, size_of(working_memory))
        scope_key = yield from find_scope_key(state, thread_id, user_id)
        try:
            thread = yield from changed(state, thread_id, user_id, "create", set=fields)
            yield from write_revision(state, scope_key, NOTHING, "seed", document, makes_thread=False)
        except RedisConnectionError as error:
            error.add_note("the thread may exist without its working memory: working_memory.update() sets it")
            raise
        return thread

    acreate = twin(create)

    @operation
    def get(self, thread_id: str, *, user_id: str | None = None) -> Plan[Thread | None]:
        """Return a thread, or None if it does not exist. One round trip."""
        return plans.get_thread(self._core.state, thread_id, user_id)

    aget = twin(get)

    @operation
    def list(
        self,
        *,
        user_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        limit: int = 100,
        cursor: str | None = None,
        order_by: OrderBy = "updated_at",
        descending: bool = True,
    ) -> Plan[Page[Thread]]:
        """List the threads of one user or of all, newest first. One round trip per page.

        `metadata` is a filter as in `recall.search`: equality with any key, operators for keys that
        `Memory(thread_filters=...)` names. Where labels do not decide it (`$gt`, `$exists`, lists, dicts, None), each
        page reads title and metadata of all these threads; more than 500,000 are an `OptionError`. A
        thread that changes while you page by `updated_at` moves to the newest end. By `created_at` you see each thread
        exactly once.
        """
        return plans.list_threads(self._core.state, user_id, metadata, limit, cursor, order_by, descending=descending)

    alist = twin(list)  # noqa: A003 - the method

    @operation
    def update(
        self,
        thread_id: str,
        *,
        user_id: str | None = None,
        title: str | EllipsisType | None = ...,
        metadata: Mapping[str, Any] | EllipsisType | None = ...,
    ) -> Plan[Thread]:
        """Change the title (None removes it), and metadata key by key (None deletes a key).

        One round trip, atomic: parallel updates of different keys keep both. Raises `ThreadNotFoundError`.
        """
        changes = {} if isinstance(metadata, EllipsisType) else check_metadata(metadata)
        unset = [f"metadata:{key}" for key, value in changes.items() if value is None]
        if title is None:
            unset.append("title")
        if not isinstance(title, EllipsisType):
            unset.append("title_source")  # the caller's title stays, whatever becomes of messages
        kept = {key: value for key, value in changes.items() if value is not None}
        fields = thread_fields(None if isinstance(title, EllipsisType) else title, kept)
        return changed(self._core.state, thread_id, user_id, "update", set=in_pairs(fields), unset=unset)

    aupdate = twin(update)

    @operation
    def delete(self, thread_id: str, *, user_id: str | None = None) -> Plan[bool]:
        """Delete a thread with its messages, vectors and working memory; return whether it existed.

        Atomic: the thread disappears at once. One round trip, four if it has a log or values of a keeper, and one
        for each further 500 vectors. After an error, call it again: it deletes the remaining vectors.
        """
        return plans.delete(self._core.state, thread_id, user_id)

    adelete = twin(delete)

    @operation
    def transfer(self, thread_id: str, *, user_id: str, to: str) -> Plan[Thread]:
        """Give a thread from `user_id` to another user.

        Atomic: the owner changes at once. One round trip, and one for each further 500 messages; recall of the new
        owner finds them after that. After an error, call it again, with the new owner as `user_id` too if the thread
        is his. Raises `ThreadNotFoundError`, `ThreadOwnershipError` if `user_id` is not the owner, and
        `UserDeletedError` while one of the two is being deleted: then the thread goes back, or is deleted with its
        owner.
        """
        return plans.transfer(self._core.state, thread_id, user_id, to)

    atransfer = twin(transfer)

    @operation
    def clone(
        self,
        thread_id: str,
        *,
        new_thread_id: str | None = None,
        user_id: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        last_messages: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        message_ids: Collection[str] | None = None,
    ) -> Plan[ClonedThread]:
        """Copy a thread, for its owner; `transfer` gives the copy to another one.

        Messages get new ids and keep order, times and vectors, so nothing is embedded again. The copy has the title,
        metadata and thread-scoped working memory of the source; `title` replaces, `metadata` changes it key by key. It
        has a title that a model made only together with the message that it was made from. A message is copied if
        `last_messages`, `since`, `until` and `message_ids` all select it; superseded ones are not. Four round trips, one
        more with `last_messages`, two per 200 messages, and up to two for thread-scoped working memory. It is not atomic: if
        the process dies, a part of the copy is left, to be deleted. Raises `ThreadNotFoundError`, `ThreadExistsError`
        if a thread `new_thread_id` exists, and `UserDeletedError` while the owner is being deleted.
        """
        if isinstance(message_ids, str):
            raise OptionError(f"message_ids={message_ids!r}", remedy="pass a list of ids")
        if new_thread_id is not None and new_thread_id == thread_id:
            raise IdError("new_thread_id is the thread itself", remedy="pass another one, or none")
        if last_messages is not None:
            at_least(last_messages, 0, "last_messages")
        core, state = self._core, self._core.state
        id = core.new_id() if new_thread_id is None else check_id(new_thread_id, "new_thread_id")
        changes, wanted = check_metadata(metadata), selection(since=since, until=until)
        origin = yield from plans.get_existing_thread(state, thread_id, user_id)
        owner, keys = origin.user_id, state.keys.of(thread_id)
        # the seq of the message that a model has made the title from
        made_from, has_rows = yield from send(("HGET", keys.thread, "title_source"), ("EXISTS", keys.rows))
        if last_messages is not None and last_messages < origin.message_count:
            newest = {**wanted, "limit": last_messages, "newest": True, "times": True}
            page, _ = yield from read_page(state, thread_id, owner, newest)
            wanted["above"] = page.facts[0].seq - 1 if page.facts else LARGEST
        merged = {**origin.metadata, **changes}
        kept = {key: value for key, value in merged.items() if value is not None or key not in changes}
        fields = thread_fields(origin.title if title is None and made_from is None else title, kept)
        own = {} if new_thread_id is not None else {"is_own": True}  # a new id: the call may be repeated
        pairs = in_pairs({**fields, "source_id": encode(thread_id)})
        copy = yield from changed(state, id, owner, "create", set=pairs, **own)
        try:
            copied = yield from copy_messages(core, thread_id, copy, wanted, message_ids)
            ids = {facts.id: new for facts, new, _ in copied}
            for facts, _, seq in copied if title is None and made_from is not None else ():
                if facts.seq == int(made_from):
                    yield from name_thread(state, id, owner, origin.title or "", seq)
            if has_rows:
                rows = yield from export_rows(state, thread_id)
                yield from restore_rows(state, id, owner, rows, ids)
            if state.working_memory is not None and state.working_memory.scope == "thread":
                yield from copy_working_memory(state, thread_id, id, owner)
        except WorkingMemError as error:
            with suppress(WorkingMemError):
                yield from plans.delete(state, id, owner)
            error.add_note(f"if a part of the copy is left, threads.delete({id!r}) deletes it")
            raise
        return ClonedThread(thread=(yield from plans.get_existing_thread(state, id, None)), message_ids=ids)

    aclone = twin(clone)

    @operation
    def lineage(self, thread_id: str, *, user_id: str | None = None) -> Plan[builtins.list[Thread]]:
        """Return the sources of a clone, oldest first, and the thread itself last. One round trip per thread.

        The list begins after a source that is deleted or has another owner. Raises `ThreadNotFoundError`.
        """
        found = [(yield from plans.get_existing_thread(self._core.state, thread_id, user_id))]
        while (source_id := found[0].source_id) is not None:
            source = yield from plans.get_thread(self._core.state, source_id, None)
            # one of a later time is another thread, which has got the id since
            if source is None or source.user_id != found[0].user_id or source.created_at >= found[0].created_at:
                break
            found.insert(0, source)
        return found

    alineage = twin(lineage)

    def backfill(
        self,
        checkpointer: BaseCheckpointSaver[Any],
        *,
        user_id: str | Callable[[Mapping[str, Any]], str | None],
        thread_ids: Iterable[str] | None = None,
        progress: bool = True,
    ) -> BackfillReport:
        """Store the conversations of a LangGraph checkpointer: for threads that memory does not know.

        `user_id` is the owner of all of them, or a function of the metadata of a thread's checkpoints, where
        `thread_id` is added; it returns the owner, or None to leave the thread out. Messages are those of the newest
        state, in its order, and those that were trimmed from its front. They get the times of the first checkpoints
        that hold them, and no message gets a new id. Subgraphs are left out.

        It is idempotent by message id: call it again after an interruption, or when threads have grown in the
        checkpointer. `left` of the report names threads of another owner, and those of which memory lacks messages that
        do not belong at their end. End the runs of a thread before: what an agent stores meanwhile may stand between
        older messages.

        Reads all checkpoints twice, those of the `thread_ids` once. `progress` shows a bar. Up to two round trips
        per thread and one per 200 messages, with one call of the embedding model. If the model fails, the rest is stored without
        vectors, then `EmbeddingError` is raised, or logged with on_error="log".
        """
        saver = Saver(checkpointer, "list", _BACKFILLS, is_async=False)
        with progress_bar("backfill", "threads", shown=progress) as advance:
            return self._core.run(plan_backfill(self._core, saver, thread_ids, user_id, advance))

    async def abackfill(
        self,
        checkpointer: BaseCheckpointSaver[Any],
        *,
        user_id: str | Callable[[Mapping[str, Any]], str | None],
        thread_ids: Iterable[str] | None = None,
        progress: bool = True,
    ) -> BackfillReport:
        """Async twin of `backfill`."""
        saver = Saver(checkpointer, "list", _BACKFILLS, is_async=True)
        with progress_bar("backfill", "threads", shown=progress) as advance:
            return await self._core.arun(plan_backfill(self._core, saver, thread_ids, user_id, advance))
