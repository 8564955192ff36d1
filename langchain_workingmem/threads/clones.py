"""The plan that copies a thread."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from langchain_workingmem._documents.media import digests_in
from langchain_workingmem._engine.plan import send
from langchain_workingmem._redis.access import check_owner, owner_tag, run_script
from langchain_workingmem._redis.codec import as_dict, said_words
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.scripts import in_steps
from langchain_workingmem.errors import ThreadExistsError, ThreadNotFoundError, WorkingMemError
from langchain_workingmem.history import READ, MessageSelection, media_of
from langchain_workingmem.models import ClonedThread
from langchain_workingmem.threads.operations import check_metadata, delete, read_existing_thread, thread_fields
from langchain_workingmem.threads.restoring import restore_messages, restore_title
from langchain_workingmem.working_memory import NOTHING, find_scope_key, read_working_memory, write_revision_into

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from langchain_workingmem._engine.plan import Argument, Plan
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem.models import Thread

CLONE_BATCH = 200  # messages of one step


@dataclass(slots=True, kw_only=True)
class Copy:
    """A copy of a thread: what is wanted of its source, and what it has been given so far.

    Source and copy may be in different slots of a cluster, so the messages pass through this process. A copy of one step is
    atomic; a larger one grows, and is deleted after an error.
    """

    core: Core
    source: str
    id: str
    user_id: str | None  # who must own the source; None: anybody
    title: str | None  # None: that of the source
    metadata: Mapping[str, Any] | None  # changes that of the source
    messages: MessageSelection
    message_ids: Collection[str] | None  # None: all of the selected ones
    owner: str = field(init=False)  # of the source, and of the copy
    fields: list[Argument] = field(init=False)  # of the new thread
    new_ids: dict[str, str] = field(init=False, default_factory=dict)
    titled: tuple[str, str, str] | None = field(init=False, default=None)  # title, new id of its message, words
    thread: Thread | None = field(init=False, default=None)  # the copy, once there is one

    def make(self) -> Plan[ClonedThread]:
        """Copy all that belongs to the thread."""
        state, keys = self.core.state, self.core.state.keys.of(check_id(self.source, "thread_id"))
        owner_tag(self.user_id)
        (reply,) = yield from send(("HGETALL", keys.thread))
        row = as_dict(reply)
        check_owner(row.get(b"user"), self.source, self.user_id)
        origin = read_existing_thread(self.source, reply)
        changes = check_metadata(self.metadata)
        merged = {**origin.metadata, **changes}
        kept = {key: value for key, value in merged.items() if value is not None or key not in changes}
        self.fields = [*thread_fields(self.title, kept), "source_id", encode(self.source), *state.ttl_fields]
        self.owner = origin.user_id
        yield from state.indexes.ready()
        try:
            thread = yield from self._copy_messages()
            has_memory = state.working_memory is not None and state.working_memory.scope == "thread"
            if has_memory:
                yield from self._copy_working_memory(thread)
            if self.titled is not None and (yield from restore_title(state, self.id, *self.titled)):
                thread = replace(thread, title=self.titled[0])
            return ClonedThread(thread=thread, message_ids=self.new_ids)
        except ThreadExistsError:  # so the copy under this id is not ours
            raise
        except WorkingMemError as error:
            if self.thread is not None:
                try:
                    yield from delete(state, self.id, self.owner)
                except WorkingMemError:
                    error.add_note(f"an unfinished copy is left: threads.delete({self.id!r}) deletes it")
            raise

    def _copy_messages(self) -> Plan[Thread]:
        """Copy the messages; return the copy.

        One round trip to read 200 messages, and one to write each step.
        """
        state, keys, source = self.core.state, self.core.state.keys.of(self.source), self.source
        messages, is_last = self.messages, False
        while not is_last:
            is_first = messages.above is None
            (owned, title, title_source), reply = yield from run_script(
                source,
                self.user_id,
                ("HMGET", keys.thread, "user", "title", "title_source"),
                READ.call(keys.all, encode(self.owner), *messages.arguments(), "vectors", 1),
            )
            rows = list(zip(*(reply[start::4] for start in range(1, 5)), strict=True))
            media = yield from media_of(state, zip(reply[1::4], reply[3::4], strict=True), source)
            if media is None:  # some were deleted meanwhile
                continue
            if owned is None:
                raise ThreadNotFoundError(source)
            model_title = title if self.title is None else None
            if model_title is not None and title_source is None and is_first:
                self.fields += ["title", model_title]
            is_last = messages.newest or len(rows) < CLONE_BATCH
            copies = self._copies(rows[::-1] if messages.newest else rows, media, model_title, title_source)
            for step in in_steps(copies):
                thread = yield from self._write(step, at_most_once=not rows)
            messages = replace(messages, above=int(rows[-1][1])) if rows else messages
        return thread

    def _write(self, step: list[Argument], *, at_most_once: bool) -> Plan[Thread]:
        """Write a part of the copy, and return it."""
        mode, fields = ("new", self.fields) if self.thread is None else ("more", ())
        state, thread = self.core.state, (self.id, self.owner)
        reply = yield from restore_messages(state, *thread, mode, fields, step, at_most_once=at_most_once)
        self.thread = read_existing_thread(self.id, reply[-1])
        return self.thread

    def _copies(
        self,
        rows: Iterable[tuple[bytes, bytes, bytes, list[Any]]],
        media: Mapping[str, bytes],
        title: bytes | None,
        title_source: bytes | None,
    ) -> Iterator[list[Argument]]:
        """Yield messages with media and vectors as arguments of `restore.lua`, and note their new ids.

        A title that a model has made is copied with the message that it was made from.
        """
        chosen = self.message_ids
        for id, seq, value, vectors in rows:
            old = id.decode()
            if chosen is not None and old not in chosen:
                continue
            self.new_ids[old] = self.core.new_id()
            if title is not None and seq == title_source:
                self.titled = title.decode(), self.new_ids[old], said_words(value)
            copy: list[Argument] = [self.new_ids[old], 0, value]
            for digest in digests_in(value):
                copy += [digest, media[digest]]
            for vector in vectors:
                pairs = [part for pair in as_dict(vector).items() for part in pair]
                copy += [len(pairs), *pairs]
            yield copy

    def _copy_working_memory(self, copy: Thread) -> Plan[None]:
        """Copy the working memory of the thread. Two round trips, one if it is empty.

        `write_revision_into` does not create the copy again if it was deleted meanwhile.
        """
        state = self.core.state
        current = yield from read_working_memory(state, self.source, self.owner)
        if current.text:
            scope_key = yield from find_scope_key(state, copy.id, copy.user_id)
            yield from write_revision_into(state, scope_key, NOTHING, "clone", "write", current.text)
