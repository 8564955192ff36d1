"""The plans that list users, delete all data of one, and give all of it to another one."""

from __future__ import annotations

from collections import Counter
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from langchain_workingmem._engine.plan import Plan, Sleep, attempt, scan, send
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import check_id, decode, encode, merge_mark
from langchain_workingmem._redis.queries import aggregate, read_cursor, rows_of
from langchain_workingmem._redis.scripts import DELETE, SWEEP, Script, count_command, sweep
from langchain_workingmem._redis.state import wing
from langchain_workingmem._text.clock import from_micros
from langchain_workingmem.checks import at_least
from langchain_workingmem.errors import (
    IdError,
    OptionError,
    RedisCapabilityError,
    RedisReplyError,
    ThreadNotFoundError,
    ThreadOwnershipError,
    UserDeletedError,
    WorkingMemError,
)
from langchain_workingmem.models import CheckpointsOutcome, DeletionReport, MergeReport, Page, UserSummary
from langchain_workingmem.options import WorkingMemoryOptions
from langchain_workingmem.recall import Authors
from langchain_workingmem.threads import CURSOR, all_threads, transfer
from langchain_workingmem.working_memory.document import joined
from langchain_workingmem.working_memory.store import ScopeKey, change_document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.plan import Argument, Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.threads import Saver

TOMBSTONE = Script("tombstone")

MOST = 10_000  # users of a page
BATCH = 100  # threads that one round trip deletes
LOOKS = 100  # at all keys at most; without parallel writers the first or second finds nothing
PAUSE = 0.05  # seconds between looks


def list_users(state: MemoryState, limit: int, cursor: str | None) -> Plan[Page[UserSummary]]:
    """List the owners of threads, the one whose thread changed last first. One round trip.

    The cursor is the time and the id of the last user of a page, as that of `threads.list`.
    """
    at_least(limit, 1, "limit", MOST)
    # a thread that has just expired would be of no user
    steps: list[Argument] = ["LOAD", 3, "@__key", "@user", "@count", "FILTER", "exists(@__key)"]
    count = [*steps, "GROUPBY", 0, "REDUCE", "COUNT_DISTINCT", 1, "@user", "AS", "users"]
    steps += ["GROUPBY", 1, "@user", "REDUCE", "COUNT", 0, "AS", "threads"]
    steps += ["REDUCE", "SUM", 1, "@count", "AS", "messages", "REDUCE", "MAX", 1, "@updated_at", "AS", "updated"]
    if cursor is not None:
        time, last = read_cursor(cursor, CURSOR)
        edge = f"@updated < {int(time)} || (@updated == {int(time)} && @user > '{encode(decode(last))}')"
        steps += ["FILTER", edge]
    steps += ["SORTBY", 4, "@updated", "DESC", "@user", "ASC", "LIMIT", 0, limit + 1]
    asked = (aggregate(state.keys.threads_index, "*", *some) for some in (steps, count))
    rows, counted = map(rows_of, (yield from state.indexes.search(*asked)))
    users = [
        UserSummary(
            user_id=decode(row[b"user"]),
            threads=int(row[b"threads"]),
            messages=int(row[b"messages"]),
            updated_at=from_micros(row[b"updated"]),
        )
        for row in rows[:limit]
    ]
    next_cursor = None
    if len(rows) > limit:
        next_cursor = f"{int(rows[limit - 1][b'updated'])},{encode(users[-1].user_id)}"
    return Page(items=users, total=int(counted[0][b"users"]) if counted else 0, next_cursor=next_cursor)


# ---------------------------------------------------------------------- deletion


def _tombstone(state: MemoryState, user_id: str, *arguments: str) -> Command:
    return TOMBSTONE.call(state.keys.of_user(user_id)[:1], *arguments)


def delete(state: MemoryState, user_id: str, token: str, saver: Saver | None = None) -> Plan[DeletionReport]:
    """Delete what a user has, then look through all keys until a look finds nothing of it.

    A tombstone with `token` refuses writers until then. A deletion that is interrupted leaves it, and the next one
    takes over.
    """
    this = _Deletion(state, check_id(user_id, "user_id"), saver, "not asked" if saver is None else "deleted")
    earlier, verified = b"", False
    try:
        (earlier,) = yield from send(_tombstone(state, user_id, "claim", "", token))
        yield from this.delete_listed()
        for _ in range(LOOKS):
            verified = not (yield from this.look())
            if verified:
                yield from send(_tombstone(state, user_id, "lift", "", token))
                break
            yield Sleep(PAUSE)
    except Exception as error:
        if earlier is None and isinstance(error, RedisReplyError) and not this.has_begun:
            yield from attempt(_tombstone(state, user_id, "lift", "", token))
        else:
            error.add_note(
                f"the deletion of user {user_id!r} is not finished, and writes for it may be refused until it is: "
                "call users.delete() again"
            )
        raise
    state.room(Authors).pop(user_id)
    return DeletionReport(user_id=user_id, checkpoints=this.checkpoints, verified=verified, **this.counts)


@dataclass(slots=True)
class _Deletion:
    """The steps of a deletion, and what they have deleted so far."""

    state: MemoryState
    user_id: str
    saver: Saver | None  # of the checkpoints that go with the threads
    checkpoints: CheckpointsOutcome
    counts: Counter[str] = field(default_factory=Counter)  # fields of the report
    has_begun: bool = False  # something may be deleted

    def delete_listed(self) -> Plan[None]:
        """Delete the threads that the index lists."""
        try:
            threads = yield from all_threads(self.state, self.user_id)
        except (OptionError, RedisCapabilityError, RedisReplyError):  # no index, or no answer: `look` finds them
            return
        ids = [thread.id for thread in threads]
        for start in range(0, len(ids), BATCH):
            yield from self.delete_threads(ids[start : start + BATCH])

    def look(self) -> Plan[int]:
        """Delete what names the user, without an index; return how much it was. Two round trips per 1,000 keys."""
        keys, found, cursors = self.state.keys, 0, None
        thread, vector = keys.thread_prefix.encode(), keys.vector_prefix.encode()
        while cursors != {}:
            seen, cursors = yield from scan(f"{keys.prefix}:*:{{*", cursors)
            # prefixes are compared whole: the pattern also takes keys of a Memory whose `key_prefix` begins with ours
            named = yield from self.owned([key for key in seen if key.startswith((thread, vector))])
            yield from self.delete_threads(list({keys.thread_of(key): None for key in named}))
            left = [("DEL", key) for key in named if key.startswith(vector)]  # of threads that have expired
            self.counts["vectors"] += sum((yield from send(*left))) if left else 0
            found += len(named)
        return found + (yield from self.delete_beside_threads())

    def owned(self, keys: Sequence[bytes]) -> Plan[list[bytes]]:
        """Return those keys of threads and vectors that name the user. One round trip, none without keys."""
        owners = (yield from attempt(*(("HGET", key, "user") for key in keys))) if keys else []
        own = encode(self.user_id).encode()
        return [key for key, owner in zip(keys, owners, strict=True) if owner == own]

    def delete_threads(self, ids: Sequence[str]) -> Plan[None]:
        """Delete threads, each in one atomic step, unless they have another owner by now.

        One round trip, one more with checkpoints, and one for each further 500 vectors.
        """
        if not ids:
            return
        keys, owner = self.state.keys, encode(self.user_id)
        if self.saver is not None:  # first: a deletion that is called again still knows the threads
            try:
                for key in (yield from self.owned([keys.of(id).thread.encode() for id in ids])):
                    yield from self.saver.call("delete_thread", keys.thread_of(key))
            except NotImplementedError:
                self.checkpoints = "not implemented"
        self.has_begun = True
        most = max(1, SWEEP // len(ids))
        calls = [DELETE.on(keys.of(id), user=owner, what="thread", most=most, noted=True) for id in ids]
        unfinished = []
        for id, reply in zip(ids, (yield from send(*calls)), strict=True):
            found = orjson.loads(reply[0])
            if "deleted" in found:
                named = {"messages": "deleted", "working_memories": "memories", "revisions": "revisions"}
                self.counts.update(threads=1, **{name: found[reported] for name, reported in named.items()})
            self.counts["vectors"] += found.get("vectors", 0)
            if found.get("is_left"):
                unfinished.append(id)
        self.counts["vectors"] += yield from sweep(self.state, *unfinished)

    def delete_beside_threads(self) -> Plan[int]:
        """Delete the keys that are the user's own, also those of wings; return how many there were."""
        keys, self.has_begun = self.state.keys, True
        _, memory, revisions = keys.of_user(self.user_id)
        counting = ("EXISTS", memory), ("XLEN", revisions), ("ZCARD", keys.files_of_user(self.user_id)[1])
        deleting = ("UNLINK", *keys.all_of_user(self.user_id))
        *counted, number = yield from send(*counting, deleting, in_order=True)
        self.counts.update(dict(zip(("working_memories", "revisions", "files"), counted, strict=True)))
        return int(number)


# ---------------------------------------------------------------------- merges


def merge(state: MemoryState, source: str, into: str, token: str) -> Plan[MergeReport]:
    """Give the working memory, threads and files of a user to another one.

    Writers for the source are refused meanwhile. Each step can be repeated, so the next call goes on where one was
    interrupted.
    """
    if check_id(source, "source") == check_id(into, "into"):
        raise IdError(f"into is the user {source!r} itself", remedy="pass the user whom it becomes")
    keys, mark = state.keys, merge_mark(into)
    claiming = _tombstone(state, source, "claim", mark, token)
    earlier, deleting = yield from send(claiming, ("GET", keys.of_user(into)[0]), in_order=True)
    if earlier is not None and not earlier.startswith(mark.encode()):
        raise UserDeletedError(source)
    counts: Counter[str] = Counter()
    moved: dict[str, Any] = {}  # fields of the report
    try:
        if deleting is not None:
            raise UserDeletedError(into)
        yield from _merge_memory(state, source, into, counts)
        for thread in (yield from all_threads(state, source)):
            try:
                given = yield from transfer(state, thread.id, source, into, merging=True)
            except (ThreadOwnershipError, ThreadNotFoundError):  # it was given away or deleted meanwhile
                continue
            counts.update(threads=1, messages=given.message_count)
        (has_files,) = yield from send(("EXISTS", *keys.files_of_user(source)[1:]))
        if has_files:
            moved = yield from wing("files").merged_into(state, source, into)
    except WorkingMemError as error:
        yield from attempt(_tombstone(state, source, "lift", mark, token))
        if counts.total():
            error.add_note(f"a part is merged: call users.merge({source!r}, into={into!r}) again for the rest")
        raise
    yield from send(_tombstone(state, source, "lift", mark, token))
    for one in (source, into):
        state.room(Authors).pop(one)
    return MergeReport(source=source, into=into, **{**counts, **moved})


def _merge_memory(state: MemoryState, source: str, into: str, counts: Counter[str]) -> Plan[None]:
    """Merge the working memories; `WorkingMemoryValidationError` if the result may not be. Four round trips."""
    if state.working_memory is None:  # the stored one is merged all the same
        state = copy(state)
        state.working_memory = WorkingMemoryOptions(template="")
    _, memory, revisions = state.keys.of_user(source)
    usage = state.keys.usage_of_user(source)[1]
    (document, kept), taken = yield from send(("HMGET", memory, "document", "kept"), ("HGETALL", usage))
    if document and kept:  # values of rows come with these
        document = wing("keeping").without_rows(document.decode(), kept.decode()).encode()
    if document:
        where = ScopeKey(state.keys.of_user(into), None, into)

        def join(text: str) -> str:
            return joined(state.remembering.format, text, document.decode())

        yield from change_document(state, where, join, "merge", size=len(document))
        counts["working_memories"] += 1
    numbers = {name.decode(): int(number) for name, number in as_dict(taken).items()}
    counting = [count_command(state, into, numbers)] if numbers else []
    yield from send(*counting, ("DEL", memory, revisions, usage), at_most_once=bool(numbers))
