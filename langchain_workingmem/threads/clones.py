"""The plan that copies a thread."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from langchain_workingmem._documents.media import digests_in
from langchain_workingmem._engine.effects import send
from langchain_workingmem._redis.access import check_owner, owner_tag, run_script
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.rooms import load, load_keeping
from langchain_workingmem._redis.scripts import in_steps
from langchain_workingmem.errors import RedisReplyError, ThreadExistsError, ThreadNotFoundError, WorkingMemError
from langchain_workingmem.history import READ, MessageSelection, media_of
from langchain_workingmem.models import ClonedThread
from langchain_workingmem.threads.operations import check_new_metadata, delete, read_existing_thread, thread_fields
from langchain_workingmem.threads.restoring import forgotten, forgotten_commands, gaps_in, restore_messages
from langchain_workingmem.working_memory import NOTHING, find_scope_key, read_working_memory, write_revision_into

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from langchain_workingmem._engine.effects import Argument, Plan
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem.models import Thread

CLONE_BATCH = 200  # messages of one step


@dataclass(slots=True, kw_only=True)
class Copy:
    """A copy of a thread: what is wanted of its source, and what it has been given so far.

    Source and copy may be in different slots of a cluster, so the messages pass through this process. A copy of one step is
    atomic. A larger one, or one to which more is copied than messages, grows as `unfinished`, and is deleted after an error.
    """

    core: Core
    source: str
    id: str
    resource_id: str | None  # who must own the source; None: anybody
    to: str | None  # the owner of the copy; None: that of the source
    title: str | None  # None: that of the source
    metadata: Mapping[str, Any] | None  # changes that of the source
    messages: MessageSelection
    message_ids: Collection[str] | None  # None: all of the selected ones
    owner: str = field(init=False)  # of the source
    new_owner: str = field(init=False)
    fields: list[Argument] = field(init=False)  # of the new thread
    new_ids: dict[str, str] = field(init=False, default_factory=dict)
    reserved: dict[str, str] = field(init=False, default_factory=dict)  # new ids of messages that the fields name
    token: str = field(init=False, default="")  # by which the steps of a copy know that it is theirs
    thread: Thread | None = field(init=False, default=None)  # the copy, once there is one

    def make(self) -> Plan[ClonedThread]:
        """Copy all that belongs to the thread."""
        state, keys = self.core.state, self.core.state.keys.of(check_id(self.source, "thread_id"))
        owner_tag(self.resource_id)
        (reply,) = yield from send(("HGETALL", keys.thread))
        row = as_dict(reply)
        check_owner(row.get(b"resource"), self.source, self.resource_id)
        origin = read_existing_thread(self.source, reply)
        changes = check_new_metadata(self.metadata)
        merged = {**origin.metadata, **changes}
        kept = {key: value for key, value in merged.items() if value is not None or key not in changes}
        self.fields = [*thread_fields(self.title, kept), "clone_of", encode(self.source), *state.ttl_fields]
        self.owner = origin.resource_id
        self.new_owner = self.owner if self.to is None else check_id(self.to, "to")
        yield from state.indexes.ready()
        try:
            has_log, values = b"covered" in row, row.get(b"kept", b"").decode()
            has_memory = state.working_memory is not None and state.working_memory.scope == "thread"
            is_all = not (has_log or values or has_memory)
            thread, log = yield from self._copy_messages(has_log=has_log, is_all=is_all)
            if log:
                yield from load("observations").copied(state, self.source, self.owner, log, thread, self.new_ids)
            if values:
                yield from load_keeping().copied(state, self.source, self.owner, thread, self.new_ids, values)
            if has_memory and "t" not in values:
                yield from self._copy_working_memory(thread)
            if thread.unfinished:
                thread = yield from self._write("end", [], at_most_once=True)
            return ClonedThread(thread=thread, message_ids=self.new_ids)
        except ThreadExistsError:  # so the copy under this id is not ours
            raise
        except WorkingMemError as error:
            if self.thread is not None:
                try:
                    yield from delete(state, self.id, self.new_owner)
                except WorkingMemError:
                    error.add_note(
                        f"an unfinished copy is left: threads.delete({self.id!r}) deletes it, threads.clone() with its id "
                        "replaces it"
                    )
            raise

    def _copy_messages(self, *, has_log: bool, is_all: bool) -> Plan[tuple[Thread, Any]]:
        """Copy the messages; return the copy, and what a room says of the log of the source, if it has one.

        With `is_all` the copy is finished with the last of them. One round trip to read 200 messages, and one to write each step.
        """
        state, keys, source = self.core.state, self.core.state.keys.of(self.source), self.source
        messages, log, is_last = self.messages, None, False
        while not is_last:
            is_first = messages.above is None
            (owned, *title), ids, others, reply, *logs = yield from run_script(
                source,
                self.resource_id,
                ("HMGET", keys.thread, "resource", "title", "title_from"),
                *forgotten_commands(keys.aliases),
                READ.call(keys.all, encode(self.owner), *messages.arguments(), "vectors", 1),
                *([load("observations").copying(state, source, self.owner)] if has_log and is_first else []),
            )
            rows = list(zip(*(reply[start::4] for start in range(1, 5)), strict=True))
            media = yield from media_of(state, zip(reply[1::4], reply[3::4], strict=True), source)
            if media is None:  # some were deleted meanwhile
                continue
            if owned is None:
                raise ThreadNotFoundError(source)
            log = logs[0] if logs else log
            if self.title is None and is_first:
                self._take_title(*title)
            is_last = messages.newest or len(rows) < CLONE_BATCH
            above = int(rows[-1][1]) if messages.newest and rows else messages.above
            gaps = [one for one in gaps_in(others) if above is None or one[0] > above]
            copies = self._copies(rows[::-1] if messages.newest else rows, media, gaps, ids if is_last else None)
            steps = list(in_steps(copies))
            self.token = self.token or next(iter(self.new_ids.values()), self.id)
            for step in steps:
                ends = is_last and is_all and step is steps[-1]
                mode = ("new" if ends else "begin") if self.thread is None else ("end" if ends else "more")
                thread = yield from self._write(mode, step, at_most_once=not rows)
            messages = replace(messages, above=int(rows[-1][1])) if rows else messages
        return thread, log

    def _write(self, mode: str, step: list[Argument], *, at_most_once: bool) -> Plan[Thread]:
        """Write a part of the copy, and return it."""
        thread = self.id, self.new_owner
        head = f"{mode}:{self.token}", self.fields if self.thread is None else ()
        reply = yield from restore_messages(
            self.core.state, *thread, *head, step, self.owner, at_most_once=at_most_once
        )
        self.thread = read_existing_thread(self.id, reply[-1])
        return self.thread

    def _take_title(self, title: bytes | None, title_from: bytes | None) -> None:
        """Give the copy the title of its source, and reserve the id of the message that a model made it from.

        If that message is not copied, the last step of the copy removes the title.
        """
        self.fields += [] if title is None else ["title", title]
        if title is not None and title_from is not None:
            words, _, id = title_from.decode().partition("/")
            self.reserved[id] = self.core.new_id()
            self.fields += ["title_from", f"{words}/{self.reserved[id]}"]

    def _copies(
        self,
        rows: Iterable[tuple[bytes, bytes, bytes, list[Any]]],
        media: Mapping[str, bytes],
        gaps: list[tuple[int, str]],
        forgotten_ids: list[bytes] | None,
    ) -> Iterator[list[Argument]]:
        """Yield messages with media and vectors as arguments of `restore.lua`, and note their new ids.

        Before a message come the `gaps` of those that were forgotten before it; behind the last message, where it is among these
        rows, the other gaps and the ids of all that is forgotten.
        """
        chosen = self.message_ids
        for id, seq, value, vectors in rows:
            before = [kind for at, kind in gaps if at < int(seq)]
            yield from forgotten(before)
            gaps = gaps[len(before) :]
            old = id.decode()
            if chosen is None or old in chosen:
                self.new_ids[old] = self.reserved.get(old) or self.core.new_id()
                copy: list[Argument] = [self.new_ids[old], 0, value]
                for digest in digests_in(value):
                    copy += [digest, media[digest]]
                for vector in vectors:
                    pairs = [part for pair in as_dict(vector).items() for part in pair]
                    copy += [len(pairs), *pairs]
                yield copy
        if forgotten_ids is not None:
            yield from forgotten((kind for _, kind in gaps), forgotten_ids)

    def _copy_working_memory(self, copy: Thread) -> Plan[None]:
        """Copy the working memory of the thread. Two round trips, one if it is empty.

        `write_revision_into` does not create the copy again if it was deleted meanwhile.
        """
        state = self.core.state
        current = yield from read_working_memory(state, self.source, self.owner)
        if current.text:
            scope_key = yield from find_scope_key(state, copy.id, copy.resource_id)
            yield from write_revision_into(state, scope_key, NOTHING, "clone", "write", current.text)


def clone(copy: Copy) -> Plan[ClonedThread]:
    """Copy a thread. One round trip, two per 200 messages or 64 MiB, and those of working memory, log and values."""
    try:
        return (yield from copy.make())
    except RedisReplyError as error:
        if error.code != "WMUNFINISHED":
            raise
    # the process that began a copy with this id has died
    yield from delete(copy.core.state, copy.id, copy.resource_id if copy.to is None else copy.to)
    return (yield from replace(copy).make())
