"""The methods of `memory.users`, and the plans that delete all data of a user or give it to another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_workingmem import errors
from langchain_workingmem._engine.plan import Call, Plan, Sleep, attempt, scan, send
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.indexes import check_layout
from langchain_workingmem._redis.keys import check_id, decode, encode, merge_tombstone
from langchain_workingmem._redis.queries import aggregate, read_cursor, rows_of
from langchain_workingmem._redis.scripts import Script, delete_from
from langchain_workingmem._redis.state import Operations, operation, twin
from langchain_workingmem._text.values import from_micros
from langchain_workingmem.checks import at_least
from langchain_workingmem.models import CheckpointsOutcome, DeletionReport, MergeReport, Page, UserSummary
from langchain_workingmem.threads import CURSOR, transfer
from langchain_workingmem.threads.copies import check_saver, own_method
from langchain_workingmem.usage.counting import count_command, read_usage
from langchain_workingmem.users import archive
from langchain_workingmem.working_memory.store import ScopeKey, change_document

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from langgraph.checkpoint.base import BaseCheckpointSaver

    from langchain_workingmem._engine.plan import Argument, Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import ImportReport
    from langchain_workingmem.usage import UserUsage

TOMBSTONE = Script("tombstone")

MOST_USERS = 10_000  # users of a page
LOOKS = 100  # at all keys at most; without parallel writers the first or second finds nothing
PAUSE = 0.05  # seconds between looks


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
        at_least(limit, 1, "limit", MOST_USERS)
        state = self._core.state
        # a thread that has just expired would be of no user
        load = ("LOAD", 3, "@__key", "@user", "@count")
        steps: builtins.list[Argument] = [*load, "FILTER", "exists(@__key) && exists(@user)"]
        count = [*steps, "GROUPBY", 0, "REDUCE", "COUNT_DISTINCT", 1, "@user", "AS", "users"]
        steps += ["GROUPBY", 1, "@user", "REDUCE", "COUNT", 0, "AS", "threads"]
        steps += ["REDUCE", "SUM", 1, "@count", "AS", "messages", "REDUCE", "MAX", 1, "@updated_at", "AS", "updated"]
        if cursor is not None:  # the time and the id of the last user of a page
            time, last_user = read_cursor(cursor, CURSOR)
            edge = f"@updated < {int(time)} || (@updated == {int(time)} && @user > '{encode(decode(last_user))}')"
            steps += ["FILTER", edge]
        steps += ["SORTBY", 4, "@updated", "DESC", "@user", "ASC", "LIMIT", 0, limit + 1]
        commands = (aggregate(state.keys.threads_index, "*", *pipeline) for pipeline in (steps, count))
        rows, count_rows = map(rows_of, (yield from state.indexes.search(*commands)))
        users = [
            UserSummary(
                user_id=decode(row[b"user"]),
                threads=int(row[b"threads"]),
                messages=int(row[b"messages"]),
                updated_at=from_micros(row[b"updated"]),
            )
            for row in rows[:limit]
        ]
        is_last = len(rows) <= limit
        next_cursor = None if is_last else f"{int(rows[limit - 1][b'updated'])},{encode(users[-1].user_id)}"
        return Page(items=users, total=int(count_rows[0][b"users"]) if count_rows else 0, next_cursor=next_cursor)

    alist = twin(list)  # noqa: A003 - the method

    @operation
    def delete(self, user_id: str, *, checkpointer: BaseCheckpointSaver[Any] | None = None) -> Plan[DeletionReport]:
        """Delete the threads, messages, vectors, working memory and revisions of a user, and its files.

        Memory looks through all keys, on every node and without the indexes, until no key names the user: `verified`.
        Each thread disappears in one atomic step. The counts are of this call. Meanwhile every write for the user
        raises `UserDeletedError`, in all processes; after an interruption, until you call it again.

        `checkpointer`, that of your graphs: its checkpoints of the user's threads go first, each thread before its
        memory. `report.checkpoints` says "not implemented" if it cannot delete threads. For each look, two round trips
        per 1,000 keys of the database; one per thread, two with `checkpointer`, and one per 500 vectors.
        """
        return delete(self._core.state, user_id, self._core.new_id(), checkpointer)

    adelete = twin(delete)

    @operation
    def merge(self, source: str, *, into: str) -> Plan[MergeReport]:
        """Give all that a user has to another one: a guest has logged in, and is a user now.

        Threads change their owner as in `threads.transfer`, with messages, vectors, their own working memory. Of the
        two working memories, what the user has stays, and the guest's fills what is missing: fields of a schema,
        labels of a template; free text is added, a list stays. Items of stores stay where they are.

        Meanwhile every write for the source raises `UserDeletedError`, in all processes. It can be repeated, also after
        an interruption: it moves what is left. Deletions win. `WorkingMemoryValidationError`, and nothing is changed,
        if the schema or `max_bytes` refuses the merged working memory; `OptionError` if the guest has one, and this
        memory none. `IdError` for a user into itself. Up to two round trips per thread, nine for working memory.
        """
        return merge(self._core.state, source, into, self._core.new_id())

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
        return self._core.stream(archive.export(self._core.state, user_id, vectors=vectors), "Users.export")

    def aexport(self, user_id: str, *, vectors: bool = False) -> AsyncIterator[dict[str, Any]]:
        """Async twin of `export`."""
        return self._core.astream(archive.export(self._core.state, user_id, vectors=vectors), "Users.export")

    def load(self, records: Iterable[Mapping[str, Any]], *, user_id: str | None = None) -> ImportReport:
        """Import the records of `export` or of an importer, for `user_id` or for the user in their header.

        Memory reads and checks all records before the first write. One that cannot be imported raises `OptionError`
        with its number, so does an export that was cut; `ThreadOwnershipError` for a thread of another owner.

        Ids, order and times stay, and stored data is not changed, so you can repeat an import: it adds what is missing,
        but no message that the thread has forgotten. A message that is older than the end of its thread is stored after
        it, with a time just after it. Vectors are used if this memory would make the same; others are embedded, if
        recall is on; if the model fails, the rest is stored without vectors, then `EmbeddingError` is raised. One round
        trip, up to two per thread, one per 200 messages, up to two per working memory.
        """
        return self._core.run(archive.load(self._core.state, records, user_id))

    async def aload(
        self, records: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]], *, user_id: str | None = None
    ) -> ImportReport:
        """Async twin of `load`."""
        source = [record async for record in records] if isinstance(records, AsyncIterable) else records
        return await self._core.arun(archive.load(self._core.state, source, user_id))


# ---------------------------------------------------------------------- deletion


def _tombstone(state: MemoryState, user_id: str, *arguments: str) -> Command:
    return TOMBSTONE.call([state.keys.of_user(user_id).tombstone], *arguments)


def delete(state: MemoryState, user_id: str, token: str, saver: Any = None) -> Plan[DeletionReport]:
    """Look through all keys, and delete what a user has, until nothing is found; a tombstone refuses writers."""
    deletion = _Deletion(state, check_id(user_id, "user_id"), saver, "not asked" if saver is None else "deleted")
    if saver is not None:
        yield from check_saver(saver, "delete_thread")
    verified = False
    try:
        yield from send(_tombstone(state, user_id, "claim", "", token))
        for _ in range(LOOKS):
            verified = not (yield from deletion.look())
            if verified:
                yield from send(_tombstone(state, user_id, "lift", "", token))
                break
            yield Sleep(PAUSE)
    except Exception as error:
        error.add_note(
            f"the deletion of user {user_id!r} is not finished, and writes for it may be refused until it is: "
            "call users.delete() again"
        )
        raise
    state.authors.pop(user_id)
    return DeletionReport(user_id=user_id, checkpoints=deletion.checkpoints, verified=verified, **deletion.counts)


@dataclass(slots=True)
class _Deletion:
    """The steps of a deletion, and what they have deleted so far."""

    state: MemoryState
    user_id: str
    saver: Any  # of the checkpoints that go with the threads
    checkpoints: CheckpointsOutcome
    counts: Counter[str] = field(default_factory=Counter)  # fields of the report

    def look(self) -> Plan[int]:
        """Delete what names the user, without an index; return how much it was."""
        keys, total, cursors = self.state.keys, 0, None
        user, prefixes = encode(self.user_id).encode(), (keys.thread_prefix.encode(), keys.vector_prefix.encode())
        while cursors != {}:
            scanned, cursors = yield from scan(f"{keys.prefix}:*:{{*", cursors)
            # prefixes are compared whole: the pattern also takes keys of a Memory whose `key_prefix` begins with ours
            candidates = [key for key in scanned if key.startswith(prefixes)]
            owners = (yield from attempt(*(("HGET", key, "user") for key in candidates))) if candidates else []
            owned = [key for key, owner in zip(candidates, owners, strict=True) if owner == user]
            for id in dict.fromkeys(map(keys.thread_of, owned)):
                yield from self.delete_thread(id, user)
            orphans = [("DEL", key) for key in owned if key.startswith(prefixes[1])]  # of threads that have expired
            self.counts["vectors"] += sum((yield from send(*orphans))) if orphans else 0
            total += len(owned)
        user_keys = keys.of_user(self.user_id)
        count_commands = ("EXISTS", user_keys.memory), ("XLEN", user_keys.revisions), ("ZCARD", user_keys.paths)
        *counts, unlinked = yield from send(*count_commands, ("UNLINK", *user_keys[1:]), in_order=True)
        self.counts.update(dict(zip(("working_memories", "revisions", "files"), counts, strict=True)))
        return total + int(unlinked)

    def delete_thread(self, id: str, user: bytes) -> Plan[None]:
        """Delete a thread in one atomic step, and before that its checkpoints, unless it has another owner by now."""
        thread = self.state.keys.of(id).thread
        if self.saver is not None and (yield from send(("HGET", thread, "user"))) == [user]:
            method, amethod = (own_method(self.saver, name) for name in ("delete_thread", "adelete_thread"))
            try:
                yield from Call(partial(method or self.saver.delete_thread, id), amethod and partial(amethod, id))
            except NotImplementedError:
                self.checkpoints = "not implemented"
        deletion = partial(delete_from, self.state, id, what="thread", repeats=True)
        with suppress(errors.ThreadOwnershipError):
            try:
                reply = yield from deletion(user_id=self.user_id)
            except errors.ThreadDamagedError:  # its vectors say whose it is
                reply = yield from deletion(user_id=None)
            self.counts.update(threads=int("deleted" in reply), messages=reply.get("deleted", 0))
            self.counts.update({name: reply.get(name, 0) for name in ("vectors", "working_memories", "revisions")})


# ---------------------------------------------------------------------- merges


def merge(state: MemoryState, source: str, into: str, token: str) -> Plan[MergeReport]:
    """Give the working memory, threads and files of a user to another one; each step can be repeated."""
    if check_id(source, "source") == check_id(into, "into"):
        raise errors.IdError(f"into is the user {source!r} itself", remedy="pass the user whom it becomes")
    keys, mark = state.keys, merge_tombstone(into)
    claiming = _tombstone(state, source, "claim", mark, token)
    earlier, deleting = yield from send(claiming, ("GET", keys.of_user(into).tombstone), in_order=True)
    if earlier is not None and not earlier.startswith(mark.encode()):
        raise errors.UserDeletedError(source)
    counts: Counter[str] = Counter()
    moved: dict[str, Any] = {}  # fields of the report
    try:
        if deleting is not None:
            raise errors.UserDeletedError(into)
        yield from check_layout(state)  # memory may be full by now, and a search would not find all threads
        yield from _merge_memory(state, source, into, counts)
        for row in (yield from state.indexes.threads(source)):
            try:
                transferred = yield from transfer(state, row.id, source, into, merging=True)
            except (errors.ThreadOwnershipError, errors.ThreadNotFoundError):  # it was given away or deleted meanwhile
                continue
            counts.update(threads=1, messages=transferred.message_count)
        (has_files,) = yield from send(("EXISTS", *keys.of_user(source).files[1:]))
        if has_files:
            from langchain_workingmem.files.archive import merge as merge_files

            moved = yield from merge_files(state, source, into)
    except errors.WorkingMemError as error:
        yield from attempt(_tombstone(state, source, "lift", mark, token))
        if counts.total():
            error.add_note(f"a part is merged: call users.merge({source!r}, into={into!r}) again for the rest")
        raise
    yield from send(_tombstone(state, source, "lift", mark, token))
    for user_id in (source, into):
        state.authors.pop(user_id)
    return MergeReport(source=source, into=into, **{**counts, **moved})


def _merge_memory(state: MemoryState, source: str, into: str, counts: Counter[str]) -> Plan[None]:
    """Merge the working memories; `WorkingMemoryValidationError` if the result may not be. Four round trips."""
    own = state.keys.of_user(source)
    (document, notes), usage_fields = yield from send(("HMGET", own.memory, "document", "kept"), ("HGETALL", own.usage))
    if document and notes:  # values of rows come with these
        from langchain_workingmem import keeping

        document = keeping.without_rows(document.decode(), notes.decode()).encode()
    if document:
        guest, form = document.decode(), state.remembering.format
        scope_key = ScopeKey(state.keys.of_user(into).of_memory, None, into)

        def join(text: str) -> str:
            if form.is_empty(guest) or form.is_empty(text):
                return guest if form.is_empty(text) else text
            return text if form.is_foreign(text) or form.is_foreign(guest) else form.joined(text, guest)

        yield from change_document(state, scope_key, join, "merge")
        counts["working_memories"] += 1
    counters = {name.decode(): int(number) for name, number in as_dict(usage_fields).items()}
    commands = [count_command(state, into, counters)] if counters else []
    yield from send(*commands, ("DEL", own.memory, own.revisions, own.usage), at_most_once=bool(counters))
