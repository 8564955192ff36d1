"""The plans that list users, and delete all data of one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import orjson

from langchain_workingmem._engine.plan import Plan, Sleep, attempt, scan, send
from langchain_workingmem._redis.access import SWEEP, sweep
from langchain_workingmem._redis.keys import check_id, decode, encode
from langchain_workingmem._redis.queries import aggregate, is_stale, read_cursor, rows_of
from langchain_workingmem._redis.scripts import DELETE, Script
from langchain_workingmem._redis.state import wing
from langchain_workingmem._text.clock import from_micros
from langchain_workingmem.checks import at_least, at_most
from langchain_workingmem.derived import ROW_KINDS
from langchain_workingmem.errors import OptionError, RedisCapabilityError, RedisReplyError, WorkingMemError
from langchain_workingmem.recall import Authors
from langchain_workingmem.reports import DeletionReport, UserPage, UserSummary
from langchain_workingmem.threads import CURSOR, list_threads, search_threads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.plan import Argument, Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.reports import CheckpointsOutcome
    from langchain_workingmem.threads import Saver

TOMBSTONE = Script("tombstone")

BATCH = 100  # threads of one round trip
MOST = 10_000  # users of a page
PASSES = 100  # passes over all keys at most; without parallel writers the first or second finds nothing
PAUSE = 0.05  # seconds between passes
Key = TypeVar("Key", bytes, str)


def list_users(state: MemoryState, limit: int, cursor: str | None) -> Plan[UserPage]:
    """List the owners of threads, the one whose thread changed last first. One round trip.

    The cursor is the time and the id of the last user of a page, as that of `threads.list`.
    """
    at_least(limit, 1, "limit")
    at_most(limit, MOST, "limit")
    steps: list[Argument] = ["LOAD", 3, "@__key", "@user", "@count"]
    steps += ["FILTER", "exists(@__key)"]  # a thread that has just expired would be of no user
    steps += ["GROUPBY", 1, "@user", "REDUCE", "COUNT", 0, "AS", "threads"]
    steps += ["REDUCE", "SUM", 1, "@count", "AS", "messages", "REDUCE", "MAX", 1, "@updated_at", "AS", "updated"]
    if cursor is not None:
        time, last = read_cursor(cursor, CURSOR)
        edge = f"@updated < {int(time)} || (@updated == {int(time)} && @user > '{encode(decode(last))}')"
        steps += ["FILTER", edge]
    steps += ["SORTBY", 4, "@updated", "DESC", "@user", "ASC", "LIMIT", 0, limit + 1]
    (reply,) = yield from search_threads(state, aggregate(state.keys.threads_index, "*", *steps))
    rows = rows_of(reply)
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
    return UserPage(users=users, next_cursor=next_cursor)


# ---------------------------------------------------------------------- deletion


def claim(state: MemoryState, user_id: str, start: str, token: str) -> Command:
    """Return the command that says that a user is being deleted (`start` is empty), or merged (`merge_mark`)."""
    return TOMBSTONE.call(state.keys.of_user(user_id)[:1], "claim", start, token)


def lift(state: MemoryState, user_id: str, start: str, token: str) -> Command:
    """Return the command that says it no more."""
    return TOMBSTONE.call(state.keys.of_user(user_id)[:1], "lift", start, token)


def delete(
    state: MemoryState,
    user_id: str,
    deletion_id: str,
    saver: Saver | None = None,
) -> Plan[DeletionReport]:
    """Delete threads, working memory and files of a user, then look through all keys for what still names it.

    A tombstone with `deletion_id` refuses writers until a pass over all keys finds nothing. A deletion that is
    interrupted
    leaves it, and the next one takes over. A deletion that Redis refuses before it has deleted anything removes its
    own.
    """
    check_id(user_id, "user_id")
    this = _Deletion(state, user_id, deletion_id, saver)
    if saver is not None:
        this.outcome = "deleted"
    verified = yield from this.run()
    return DeletionReport(user_id=user_id, checkpoints=this.outcome, verified=verified, **this.counts)


@dataclass(slots=True)
class _Deletion:
    """The steps of a deletion, and what they have deleted so far."""

    state: MemoryState
    user_id: str
    token: str  # what the tombstone holds
    saver: Saver | None  # of checkpoints that go with the threads
    outcome: CheckpointsOutcome = "not asked"  # of the checkpoints
    counts: Counter[str] = field(init=False, default_factory=Counter)

    @property
    def unfinished(self) -> str:
        """Return the note of an error."""
        return (
            f"the deletion of user {self.user_id!r} is not finished, and writes for it may be refused until it is: "
            "call users.delete() again"
        )

    def run(self) -> Plan[bool]:
        """Delete, then look through all keys until none names the user; return whether that came about."""
        earlier, verified, user_id = b"", False, self.user_id
        try:
            (earlier,) = yield from send(claim(self.state, user_id, "", self.token))
            yield from self.delete_listed()
            yield from self.delete_memory()
            for _ in range(PASSES):
                verified = not (yield from self.delete_found())
                if verified:
                    yield from send(lift(self.state, user_id, "", self.token))
                    break
                yield Sleep(PAUSE)
        except WorkingMemError as error:
            # where Redis refuses the first step, writers need not wait for another call
            if earlier is None and isinstance(error, RedisReplyError) and not self.counts.total():
                yield from attempt(lift(self.state, user_id, "", self.token))
            else:
                error.add_note(self.unfinished)
            raise
        self.state.room(Authors).pop(self.user_id)
        return verified

    def delete_listed(self) -> Plan[None]:
        """Delete the threads that the index lists. Without an index, or on a full server, the pass over all keys finds them."""
        owner, cursor = self.user_id, None
        try:
            while True:
                page = yield from list_threads(self.state, owner, None, BATCH, cursor, "created_at", descending=False)
                yield from self.delete_threads([thread.id for thread in page])
                cursor = page.next_cursor
                if cursor is None:
                    return
        except (OptionError, RedisCapabilityError):
            return
        except RedisReplyError as error:
            if not is_stale(error) and error.code != "OOM":
                raise

    def _owned(self, keys: Sequence[Key]) -> Plan[tuple[list[Key], list[Key]]]:
        """Return the keys of threads and vectors that name the user, and those that name nobody. One round trip, none without keys."""
        replies = (yield from attempt(*(("HGET", key, "user") for key in keys))) if keys else []
        owner = encode(self.user_id).encode()
        pairs = list(zip(keys, replies, strict=True))
        return [key for key, named in pairs if named == owner], [key for key, named in pairs if named is None]

    def delete_found(self) -> Plan[int]:
        """Look at every key that may name the user, delete what does, and return how much that was.

        Independent of the indexes. Two round trips per 1,000 keys of the node, and those that delete.
        """
        keys = self.state.keys
        thread, vector, dropped = (
            one.encode() for one in (keys.thread_prefix, keys.vector_prefix, keys.dropped_prefix)
        )
        own = {key.encode() for key in keys.all_of_user(self.user_id)}
        files, found = {key.encode() for key in keys.files_of_user(self.user_id)[1:]}, 0
        pattern, cursors = f"{keys.prefix}:*:{{*", None
        while cursors != {}:
            seen, cursors = yield from scan(pattern, cursors)
            ours, _ = yield from self._owned([key for key in seen if key.startswith((thread, vector))])
            yield from self.delete_threads(list({keys.thread_of(key) for key in ours}))
            # an expired thread leaves its vectors for a while
            orphans, _ = yield from self._owned([key for key in ours if key.startswith(vector)])
            if orphans:
                self.counts["vectors"] += sum((yield from send(*(("DEL", key) for key in orphans))))
            left = {keys.of(keys.thread_of(key)).thread: keys.thread_of(key) for key in seen if key.startswith(dropped)}
            _, gone = yield from self._owned([*left])
            yield from self.sweep([left[key] for key in gone])
            again = own.intersection(seen)
            if again - files:
                yield from self.delete_memory()
            if again & files:
                yield from self.delete_files()
            found += len(ours) + len(again)
        return found

    def delete_threads(self, ids: Sequence[str]) -> Plan[None]:
        """Delete threads, each in one atomic step, unless they have another owner by now.

        One round trip, one more with checkpoints, and one for each further 500 vectors.
        """
        if not ids:
            return
        keys, owner = self.state.keys, encode(self.user_id)
        if self.saver is not None:  # first: a deletion that is called again still knows the threads
            ours, _ = yield from self._owned([keys.of(id).thread for id in ids])
            yield from self._delete_checkpoints(self.saver, [id for id in ids if keys.of(id).thread in ours])
        most = max(1, SWEEP // len(ids))
        calls = [DELETE.on(keys.of(id), user=owner, what="thread", most=most, noted=True) for id in ids]
        unfinished, refused = [], None
        for id, reply in zip(ids, (yield from attempt(*calls)), strict=True):
            if isinstance(reply, RedisReplyError):
                refused = refused or reply
                continue
            found = orjson.loads(reply[0])
            if "deleted" in found:
                named = {"messages": "deleted", "working_memories": "memories", "revisions": "revisions"}
                self.counts.update(threads=1, **{name: found[field] for name, field in named.items()})
            self.counts["vectors"] += found.get("vectors", 0)
            if found.get("is_left"):
                unfinished.append(id)
        if refused is not None:
            raise refused
        yield from self.sweep(unfinished)

    def sweep(self, ids: Sequence[str]) -> Plan[None]:
        """Delete the vectors that are left of threads."""
        if ids:
            self.counts["vectors"] += yield from sweep(self.state, *ids)

    def _delete_checkpoints(self, saver: Saver, ids: Sequence[str]) -> Plan[None]:
        try:
            for id in ids:
                yield from saver.call("delete_thread", id)
        except NotImplementedError:
            self.outcome = "not implemented"
        except Exception as error:
            error.add_note(self.unfinished)
            raise

    def delete_memory(self) -> Plan[None]:
        """Delete all that the user has beside threads. One round trip, and those of the rooms that have something."""
        keys, owner = self.state.keys, self.user_id
        _, memory, revisions = keys.of_user(owner)
        own = [memory, revisions, keys.usage_of_user(owner)[1], *(keys.rows_of_user(owner, kind) for kind in ROW_KINDS)]
        found, entries, _, has_files = yield from send(
            ("EXISTS", memory),
            ("XLEN", revisions),
            ("DEL", *own),
            ("EXISTS", *keys.files_of_user(owner)[1:]),
            in_order=True,
        )
        self.counts.update(working_memories=found, revisions=entries)
        if has_files:
            yield from self.delete_files()

    def delete_files(self) -> Plan[None]:
        self.counts.update((yield from wing("files").erased(self.state, self.user_id)))
