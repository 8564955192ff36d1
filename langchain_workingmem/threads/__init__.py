"""The methods of `memory.threads`, and the plans that read, list, change, delete and transfer threads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import filterfalse
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal

from langchain_workingmem import errors
from langchain_workingmem._engine.plan import Plan, compute, send
from langchain_workingmem._redis import filters, queries, scripts
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import check_id, decode, encode
from langchain_workingmem._redis.state import Operations, operation, twin
from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem._text.values import from_micros, shown
from langchain_workingmem.checks import as_tuple, at_least, one_of
from langchain_workingmem.derived import ROW_KINDS, export_rows, note_given, restore_rows
from langchain_workingmem.display import progress_bar
from langchain_workingmem.history.read import read_page, selection
from langchain_workingmem.models import BackfillReport, ClonedThread, Page, Thread
from langchain_workingmem.threads import copies
from langchain_workingmem.working_memory import store

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Collection, Iterable, Sequence
    from datetime import datetime

    from langgraph.checkpoint.base import BaseCheckpointSaver

    from langchain_workingmem._redis.state import MemoryState

OrderBy = Literal["updated_at", "created_at"]
MOST_ROWS = 500_000  # threads of a page, and threads whose metadata is compared: Search returns no more than a million
MOST_METADATA = 1_000  # keys of a thread: a script passes them on one by one
CURSOR = re.compile(r"(\d{1,16}),([\w.~%-]{1,1536})", re.ASCII)  # of a time and an id


class Threads(Operations):
    """The threads of a memory and their owners, as `memory.threads`.

    Methods with the `user_id` of another user than the thread's raise `ThreadOwnershipError`; None accepts any.
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
        or of its user (see `scope`); existing content stays. After a lost connection the thread may exist without it:
        `working_memory.update` sets it. `ThreadExistsError` if any user has a thread with this id.
        """
        state, thread_id = self._core.state, self._core.new_id() if thread_id is None else thread_id
        check_id(user_id, "user_id")
        fields = thread_fields(title, metadata)
        if working_memory is None:
            return (yield from change(state, thread_id, user_id, "create", set=fields))
        document = state.remembering.format.apply("", working_memory, "replace")
        scope_key = store.ScopeKey.of(state, thread_id, user_id)
        thread = yield from change(state, thread_id, user_id, "create", set=fields)
        head = {"expected": store.NOTHING, "keep": state.remembering.revisions, "origin": "seed"}
        yield from store.run_memory(state, scope_key, **head, document=document)
        return thread

    acreate = twin(create)

    @operation
    def get(self, thread_id: str, *, user_id: str | None = None) -> Plan[Thread | None]:
        """Return a thread, or None if it does not exist. One round trip."""
        return get_thread(self._core.state, thread_id, user_id)

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
        page reads title and metadata of all these threads; more than 500,000 are an `OptionError`. A thread that
        changes while you page by `updated_at` moves to the newest end. By `created_at` each comes exactly once.
        """
        state, index = self._core.state, self._core.state.keys.threads_index
        at_least(limit, 1, "limit", MOST_ROWS)
        time = one_of(order_by, ("updated_at", "created_at"), "order_by").encode()
        criteria = filters.Filter.of(metadata, "metadata")
        # equality with any key needs no declaration
        filters.check_declared(criteria.keys_beyond_equality, state.thread_filters, "Memory(thread_filters=...)")
        after = None
        if cursor is not None:  # of a time, not a number of rows: so a thread whose time stays is listed exactly once
            micros, tag = queries.read_cursor(cursor, CURSOR)
            after = int(micros), state.keys.of(decode(tag)).thread
        condition, is_decided = criteria.condition(filters.labels_of)
        if is_decided:
            where = partial(queries.build_filter, user_id=user_id, metadata=condition)
            edge: dict[str, Any] = {"until" if descending else "since": after and after[0], "time": order_by}
            order: Any = {"descending": descending, "after": after, "limit": limit + 1}
            page = queries.sorted_search(index, where(**edge), order_by, **order)
            reply, count = yield from state.indexes.search(page, queries.count_search(index, where()))
            rows, total = queries.rows_of(reply), queries.total_of(count)
        else:
            rows = yield from _matching(state, user_id, criteria, order_by, descending=descending)
            total, sign = len(rows), -1 if descending else 1
            if after is not None:
                start = sign * after[0], after[1].encode()
                rows = [row for row in rows if (sign * int(row[time]), row[b"__key"]) > start]
        threads = [_read(state.keys.thread_of(row[b"__key"]), row) for row in rows[:limit] if b"user" in row]
        next_cursor = None
        if len(rows) > limit:
            row = rows[limit - 1]
            next_cursor = f"{int(row[time])},{encode(state.keys.thread_of(row[b'__key']))}"
        return Page(items=threads, total=total, next_cursor=next_cursor)

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
        return change(self._core.state, thread_id, user_id, "update", set=fields, unset=unset)

    aupdate = twin(update)

    @operation
    def delete(self, thread_id: str, *, user_id: str | None = None) -> Plan[bool]:
        """Delete a thread with its messages, vectors and working memory; return whether it existed.

        Atomic: the thread disappears at once. One round trip, two without `user_id`, and one for each further 500
        vectors. After an error, call it again: it deletes the remaining vectors.
        """
        return delete(self._core.state, thread_id, user_id)

    adelete = twin(delete)

    @operation
    def transfer(self, thread_id: str, *, user_id: str, to: str) -> Plan[Thread]:
        """Give a thread from `user_id` to another user.

        Atomic: the owner changes at once. One round trip, and one for each further 500 messages; recall of the new
        owner finds them after that. After an error, call it again, with the new owner as `user_id` too if the thread is
        his. Raises `ThreadNotFoundError`, `ThreadOwnershipError` if `user_id` is not the owner, and `UserDeletedError`
        while one of the two is being deleted: then the thread goes back, or with its owner.
        """
        return transfer(self._core.state, thread_id, user_id, to)

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
        `last_messages`, `since`, `until` and `message_ids` all select it; superseded ones are not. Four round trips,
        two per 200 messages, and up to two for thread-scoped working memory. It is not atomic: if
        the process dies, a part of the copy is left, to be deleted. Raises `ThreadNotFoundError`, `ThreadExistsError`
        if a thread `new_thread_id` exists, and `UserDeletedError` while the owner is being deleted.
        """
        chosen = None if message_ids is None else as_tuple(message_ids, "message_ids", "ids")
        if new_thread_id is not None and new_thread_id == thread_id:
            raise errors.IdError("new_thread_id is the thread itself", remedy="pass another one, or none")
        if last_messages is not None:
            at_least(last_messages, 0, "last_messages")
        core, state = self._core, self._core.state
        id = core.new_id() if new_thread_id is None else check_id(new_thread_id, "new_thread_id")
        changes, keys = check_metadata(metadata), state.keys.of(check_id(thread_id, "thread_id"))
        limits: dict[str, Any] = {} if last_messages is None else {"limit": last_messages, "newest": True}
        bounds = selection(since=since, until=until, times=True, **limits)
        fields, has_rows = yield from send(("HGETALL", keys.thread), ("EXISTS", keys.rows))
        page = yield from read_page(state, thread_id, user_id, bounds)
        origin = read_thread(thread_id, fields)
        if origin is None:
            raise errors.ThreadNotFoundError(thread_id)
        selected = [facts for facts in page.facts if chosen is None or facts.id in chosen]
        # the seq of the message that a model has made the title from
        made_from = as_dict(fields).get(b"title_source") if title is None else None
        owner, merged = origin.user_id, {**origin.metadata, **changes}
        kept = {key: value for key, value in merged.items() if value is not None or key not in changes}
        new_title = origin.title if title is None and made_from is None else title
        created = {**thread_fields(new_title, kept), "source_id": encode(thread_id)}
        is_own = True if new_thread_id is None else None  # a new id: the call may be repeated
        copy = yield from change(state, id, owner, "create", set=created, is_own=is_own)
        try:
            ids, seqs = yield from copies.copy_messages(core, thread_id, copy, selected)
            for facts in selected if made_from is not None else ():
                if facts.seq == int(made_from or 0) and ids.get(facts.id) in seqs:
                    yield from copies.name_thread(state, id, owner, origin.title or "", seqs[ids[facts.id]])
            if has_rows:
                yield from restore_rows(state, id, owner, (yield from export_rows(state, thread_id, user_id)), ids)
            if state.working_memory is not None and state.working_memory.scope == "thread":
                yield from _copy_working_memory(state, thread_id, id, owner)
        except errors.WorkingMemError as error:
            with suppress(errors.WorkingMemError):
                yield from delete(state, id, owner)
            error.add_note(f"if a part of the copy is left, threads.delete({id!r}) deletes it")
            raise
        return ClonedThread(thread=(yield from get_existing_thread(state, id, None)), message_ids=ids)

    aclone = twin(clone)

    @operation
    def lineage(self, thread_id: str, *, user_id: str | None = None) -> Plan[builtins.list[Thread]]:
        """Return the sources of a clone, oldest first, and the thread itself last. One round trip per thread.

        The list begins after a source that is deleted or has another owner. Raises `ThreadNotFoundError`.
        """
        threads = [(yield from get_existing_thread(self._core.state, thread_id, user_id))]
        while (source_id := threads[0].source_id) is not None:
            source = yield from get_thread(self._core.state, source_id, None)
            # one of a later time is another thread, which has got the id since
            if source is None or source.user_id != threads[0].user_id or source.created_at >= threads[0].created_at:
                break
            threads.insert(0, source)
        return threads

    alineage = twin(lineage)

    @operation
    def backfill(
        self,
        checkpointer: BaseCheckpointSaver[Any],
        *,
        user_id: str | Callable[[Mapping[str, Any]], str | None],
        thread_ids: Iterable[str] | None = None,
        progress: bool = True,
    ) -> Plan[BackfillReport]:
        """Store the conversations of a LangGraph checkpointer: for threads that memory does not know.

        `user_id` is the owner of all of them, or a function of the metadata of a thread's checkpoints, where
        `thread_id` is added; it returns the owner, or None to leave the thread out. Messages are those of the newest
        state, in its order, and those that were trimmed from its front. They get the times of the first checkpoints
        that hold them, and no message gets a new id. Subgraphs are left out.

        It is idempotent by message id: call it again after an interruption, or when threads have grown in the
        checkpointer. `left` of the report names threads of another owner, and those of which memory lacks messages that
        do not belong at their end. End the runs of a thread before: what agents store may stand between older ones.

        Reads all checkpoints twice, those of the `thread_ids` once. `progress` shows a bar. Up to two round trips per
        thread and one per 200 messages, with one call of the model. If it fails, the rest is stored before the error.
        """
        yield from copies.check_saver(checkpointer, "list")
        if not callable(user_id):
            check_id(user_id, "user_id")
        chosen_ids = None if thread_ids is None else as_tuple(thread_ids, "thread_ids", "ids")
        ids = [*chosen_ids] if chosen_ids is not None else (yield from copies.threads_in(checkpointer))
        counts, reasons, writer = Counter[str](), dict[str, str](), copies.Writer(self._core.state)
        with progress_bar("backfill", "threads", shown=progress) as advance:
            for number, id in enumerate(ids):
                advance(number, len(ids))
                conversation = copies.Conversation(str(id))
                config = {"configurable": {"thread_id": id, "checkpoint_ns": ""}}
                try:
                    yield from copies.each_checkpoint(checkpointer, conversation.add, config)
                    metadata = {**conversation.metadata, "thread_id": conversation.thread_id}
                    owner = user_id(metadata) if callable(user_id) and conversation.messages else user_id
                    if owner is None or not conversation.messages:
                        counts["skipped"] += 1
                        continue
                    added = yield from copies.store_conversation(writer, conversation, check_id(owner, "user_id"))
                except (errors.RedisConnectionError, errors.RedisReplyError):
                    raise
                except errors.WorkingMemError as error:
                    reasons[conversation.thread_id] = str(error)
                else:
                    counts.update({"threads" if added else "known": 1, "messages": added})
            advance(len(ids), len(ids))
        writer.end()
        return BackfillReport(left=reasons, **counts)

    abackfill = twin(backfill)


def read_thread(thread_id: str, reply: Any) -> Thread | None:
    """Convert a reply of HGETALL; None if there is no thread."""
    row = as_dict(reply)
    return _read(thread_id, row) if b"user" in row else None


def _read(thread_id: str, row: Mapping[bytes, Any]) -> Thread:
    title, source = row.get(b"title"), row.get(b"source_id")
    return Thread(
        id=thread_id,
        user_id=decode(row[b"user"]),
        title=title.decode() if title is not None else None,
        metadata=filters.metadata_in(row),
        created_at=from_micros(row[b"created_at"]),
        updated_at=from_micros(row[b"updated_at"]),
        message_count=int(row[b"count"]),
        source_id=decode(source) if source is not None else None,
    )


def get_thread(state: MemoryState, thread_id: str, user_id: str | None) -> Plan[Thread | None]:
    """Read a thread, None if it does not exist. One round trip."""
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    scripts.owner_tag(user_id)  # refuses what is no id
    (reply,) = yield from send(("HGETALL", keys.thread))
    scripts.check_owner(as_dict(reply).get(b"user"), thread_id, user_id)
    return read_thread(thread_id, reply)


def get_existing_thread(state: MemoryState, thread_id: str, user_id: str | None) -> Plan[Thread]:
    """Read a thread; `ThreadNotFoundError` if it does not exist. One round trip."""
    thread = yield from get_thread(state, thread_id, user_id)
    if thread is None:
        raise errors.ThreadNotFoundError(thread_id)
    return thread


def change(state: MemoryState, thread_id: str, user_id: str | None, what: str, **head: Any) -> Plan[Thread]:
    """Change a thread as `change_thread` does, and return it. One round trip."""
    return _read(thread_id, (yield from scripts.change_thread(state, thread_id, user_id, what, **head)))


def thread_fields(title: str | None, metadata: Mapping[str, Any] | None) -> dict[str, str]:
    """Return title and metadata as fields of the thread hash."""
    if title is not None and not is_utf8(title):
        raise errors.OptionError(f"title={shown(title)}", remedy="use a str of valid Unicode, or None")
    values = check_metadata(metadata).items()
    fields = {f"metadata:{key}": filters.canonical_json(value, key) for key, value in values}
    return fields if title is None else {"title": title, **fields}


def check_metadata(metadata: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return metadata with valid keys; None becomes empty."""
    if metadata is not None and not isinstance(metadata, Mapping):
        raise errors.OptionError(f"metadata={shown(metadata)}", remedy="use a dict")
    if (key := next(filterfalse(is_utf8, metadata or ()), None)) is not None:
        raise errors.OptionError(f"metadata key {shown(key)}", remedy="use a str of valid Unicode")
    if len(metadata or ()) > MOST_METADATA:
        raise errors.OptionError(f"metadata has {len(metadata or ()):,} keys", remedy=f"use at most {MOST_METADATA:,}")
    return metadata or {}


def _copy_working_memory(state: MemoryState, source: str, id: str, owner: str) -> Plan[None]:
    """Copy the working memory of a thread, unless the copy was deleted meanwhile. Two round trips."""
    current = yield from store.read_working_memory(state, source, owner)
    if current.text:
        from langchain_workingmem import keeping

        beside = ["kept", keeping.notes_for_copy(current.kept)] if current.kept else None
        scope_key = store.ScopeKey.of(state, id, owner)
        head = {"expected": store.NOTHING, "keep": state.remembering.revisions, "origin": "clone"}
        yield from store.run_memory(state, scope_key, **head, document=current.text, beside=beside)


def delete(state: MemoryState, thread_id: str, user_id: str | None) -> Plan[bool]:
    """Delete a thread and all of its data. One round trip, two without a user, one for each further 500 vectors."""
    _, owner = yield from scripts.owner_of(state, thread_id, user_id)
    # the user's document may hold what was made of its rows; what is listed and missing would only have expired
    beside = [("ZREM", state.keys.rows_of_user(owner, kind), encode(thread_id)) for kind in ROW_KINDS]
    return "deleted" in (yield from scripts.delete_from(state, thread_id, user_id, what="thread", beside=beside))


def transfer(state: MemoryState, thread_id: str, user_id: str, to: str, *, merging: bool = False) -> Plan[Thread]:
    """Give a thread to another user; `merging`: the tombstone of the present owner is that of the merge."""
    check_id(thread_id, "thread_id"), check_id(user_id, "user_id"), check_id(to, "to")
    row, has_rows, deleted = yield from _give(state, thread_id, user_id, to, [to] if merging else [user_id, to])
    if deleted is not None:
        with suppress(errors.ThreadNotFoundError, errors.ThreadOwnershipError):  # it is gone with its new owner
            if deleted.user_id == user_id:  # whose deletion does not find the thread under the new owner
                yield from delete(state, thread_id, to)
            else:
                yield from _give(state, thread_id, to, user_id, [])
        raise deleted
    thread = read_thread(thread_id, row)
    if thread is None:
        raise errors.ThreadNotFoundError(thread_id)
    if has_rows:
        yield from note_given(state, thread_id, user_id, to)
    return thread


def _give(
    state: MemoryState, thread_id: str, owner: str, to: str, alive: Sequence[str]
) -> Plan[tuple[Any, bool, errors.UserDeletedError | None]]:
    """Change the owner of a thread in the first step, and that of 500 messages' vectors in each, while `alive` are.

    Return its fields, whether it has rows, and the error of a deletion of one of `alive`.
    """
    keys, after = state.keys.of(thread_id), 0
    while True:
        user = encode(to if after else owner)
        head: Any = {"what": "transfer", "to": encode(to), "after": after, "most": scripts.SWEEP, "ttl": state.ttl_ms}
        call = scripts.THREAD.on(keys, user=user, **head)
        (reply, row), deleted = yield from scripts.guarded_write(state, thread_id, alive, call, at_most_once=not after)
        after = reply.get("next")
        if deleted is not None or not after:
            return row, bool(reply.get("has_rows")), deleted


def find_threads(state: MemoryState, user_id: str, criteria: filters.Filter) -> Plan[list[str]]:
    """Find the threads of a user that pass a filter. One round trip, correct immediately after metadata changes."""
    rows = yield from _matching(state, user_id, criteria, "created_at")
    return [state.keys.thread_of(row[b"__key"]) for row in rows]


def _matching(
    state: MemoryState, user_id: str | None, criteria: filters.Filter, order_by: OrderBy, *, descending: bool = False
) -> Plan[list[dict[bytes, bytes]]]:
    """Return the threads that pass a filter, tested in Python; only keys and times if labels decide. One round trip."""
    condition, is_decided = criteria.condition(filters.labels_of)
    index, where = state.keys.threads_index, queries.build_filter(user_id=user_id, metadata=condition)
    fields = [order_by] if is_decided else []
    search = queries.sorted_search(index, where, order_by, descending=descending, limit=MOST_ROWS, fields=fields)
    (reply,) = yield from state.indexes.search(search)
    rows = queries.rows_of(reply)
    if len(rows) == MOST_ROWS:
        reason = f"the filter has to be compared with more than {MOST_ROWS:,} threads"
        raise errors.OptionError(reason, remedy="name a user_id")
    if is_decided:
        return rows
    size = sum(criteria.work + sum(map(len, row.values())) for row in rows)
    return (yield from compute(lambda: [row for row in rows if criteria.matches(filters.metadata_in(row))], size))
