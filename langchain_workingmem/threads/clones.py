"""The plan that copies a thread."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from langchain_workingmem._documents.messages import UNREADABLE
from langchain_workingmem._engine.plan import send
from langchain_workingmem._redis.access import change_thread, check_owner, owner_tag
from langchain_workingmem._redis.codec import as_dict, tell_damage
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.state import wing
from langchain_workingmem.derived import export_rows, restore_rows
from langchain_workingmem.errors import ThreadNotFoundError, WorkingMemError
from langchain_workingmem.history import read_page
from langchain_workingmem.models import ClonedThread, StoredMessage
from langchain_workingmem.threads.operations import delete, get_existing_thread, in_pairs, read_thread, thread_fields
from langchain_workingmem.threads.restoring import BATCH, Row, Writer
from langchain_workingmem.working_memory.store import NOTHING, find_scope_key, read_working_memory, write_revision

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from langchain_workingmem._engine.plan import Argument, Plan
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem._redis.keys import Facts
    from langchain_workingmem.history import PageOfThread


@dataclass(slots=True, kw_only=True)
class Copy:
    """A copy of a thread: what is wanted of its source, and what it has been given so far.

    Source and copy may be in different slots of a cluster, so the messages pass through this process.
    """

    core: Core
    source: str
    id: str
    is_named: bool  # the caller has chosen the id
    user_id: str | None  # who must own the source; None: anybody
    title: str | None  # None: that of the source
    metadata: Mapping[str, Any]  # changes that of the source
    last: int | None  # messages; None: all
    within: Mapping[str, Any]  # times, for the head of `page.lua`
    message_ids: Collection[str] | None  # None: all of the selected ones
    ids: dict[str, str] = field(init=False, default_factory=dict)  # id in the source -> id in the copy

    def make(self) -> Plan[ClonedThread]:
        """Copy all that belongs to the thread; a part of a copy is deleted after an error."""
        state = self.core.state
        owner_tag(self.user_id)
        keys = state.keys.of(check_id(self.source, "thread_id"))
        reply, has_rows = yield from send(("HGETALL", keys.thread), ("EXISTS", keys.rows))
        row = as_dict(reply)
        check_owner(row.get(b"user"), self.source, self.user_id)
        origin = read_thread(self.source, row)
        if origin is None:
            raise ThreadNotFoundError(self.source)
        merged = {**origin.metadata, **self.metadata}
        kept = {key: value for key, value in merged.items() if value is not None or key not in self.metadata}
        is_made = self.title is None and b"title_source" in row  # by a model
        title = self.title if is_made or self.title is not None else origin.title
        fields = {**thread_fields(title, kept), "source_id": encode(self.source)}
        own = {} if self.is_named else {"is_own": True}  # a new id: the call may be repeated
        made = yield from change_thread(state, self.id, origin.user_id, "create", set=in_pairs(fields), **own)
        writer = Writer(state=state, thread_id=self.id, owner=origin.user_id, created_at=made["created_at"].decode())
        try:
            yield from self._copy_messages(writer, int(row[b"title_source"]) if is_made else None, origin.title)
            if has_rows:
                rows = yield from export_rows(state, self.source)
                yield from restore_rows(state, self.id, origin.user_id, rows, self.ids)
            if state.working_memory is not None and state.working_memory.scope == "thread":
                yield from self._copy_working_memory(origin.user_id)
        except WorkingMemError as error:
            try:
                yield from delete(state, self.id, origin.user_id)
            except WorkingMemError:
                error.add_note(f"an unfinished copy is left: threads.delete({self.id!r}) deletes it")
            raise
        return ClonedThread(thread=(yield from get_existing_thread(state, self.id, None)), message_ids=self.ids)

    def _copy_messages(self, writer: Writer, title_source: int | None, title: str | None) -> Plan[None]:
        """Copy the messages; a title that a model has made follows the message that it was made from. Two round trips per 200."""
        wanted: dict[str, Any] = {**self.within, "limit": BATCH, "vectors": True}
        if self.last is not None:
            wanted |= {"limit": self.last, "newest": True}
        while self.last != 0:
            page, _ = yield from read_page(self.core.state, self.source, writer.owner, wanted)
            if page.owner is None:
                raise ThreadNotFoundError(self.source)
            for facts, copied in (yield from self._rows(page)):
                yield from writer.add(copied)
                if facts.seq == title_source:
                    writer.title = title or "", copied.head["id"]
            if self.last is not None or len(page.facts) < BATCH:
                break
            wanted["above"] = page.facts[-1].seq
        yield from writer.finish()

    def _rows(self, page: PageOfThread) -> Plan[list[tuple[Facts, Row]]]:
        """Return copies of the chosen messages of a page, without those that cannot be read. A round trip if some have media."""
        found: list[tuple[Facts, dict[str, Any], list[dict[bytes, Any]]]] = []
        for facts, body, vectors in zip(page.facts, page.bodies, page.vectors, strict=True):
            if self.message_ids is None or facts.id in self.message_ids:
                try:
                    found.append(
                        (
                            facts,
                            StoredMessage.of(body, self.source, facts.seq).record,
                            [as_dict(one) for one in vectors],
                        )
                    )
                except UNREADABLE as error:
                    tell_damage(self.source, facts.seq, error)
        key = self.core.state.keys.of(self.source).media
        named = [
            (facts.seq, f"{facts.seq}:{at}") for facts, record, _ in found for at in range(len(record.get("media", ())))
        ]
        texts: dict[int, list[bytes]] = {}
        if named:
            (values,) = yield from send(("HMGET", key, *(name for _, name in named)))
            for (seq, _), value in zip(named, values, strict=True):
                texts.setdefault(seq, []).append(value or b"")
        return [
            (facts, self._row(facts, record, vectors, texts.get(facts.seq, ()))) for facts, record, vectors in found
        ]

    def _row(
        self, facts: Facts, record: dict[str, Any], vectors: list[dict[bytes, Any]], media: Sequence[bytes]
    ) -> Row:
        """Return the copy of a message, with a new id."""
        id = self.ids[facts.id] = self.core.new_id()
        at, _ = record.pop("at"), record.pop("number")
        record["data"]["id"] = id
        try:
            body = orjson.dumps(record)[1:]
        except TypeError:  # a lone surrogate
            body = json.dumps(record, separators=(",", ":")).encode()[1:]
        settings, _, rest = facts.vectors.partition("/")
        size = rest.rpartition("/")[0]
        if not all(vectors):  # some are evicted
            settings, vectors = "", []
        about = vectors[0] if vectors else {}
        names = ("role", "name", "labels", "metadata")
        head: dict[str, Any] = {name: about.get(name.encode(), b"").decode() for name in names}
        head |= {"id": id, "words": facts.words, "tokens": facts.tokens, "writer": facts.writer, "at": at}
        head |= {"size": size or "0", "chunks": len(vectors), "media": len(media)}
        parts: list[Argument] = [body]
        for one in vectors:
            parts += (one[b"text"], one[b"vector"])
        return Row(
            {name: value for name, value in head.items() if value != "" or name != "metadata"},
            [*parts, *media],
            settings,
        )

    def _copy_working_memory(self, owner: str) -> Plan[None]:
        """Copy the working memory of the thread. Two round trips, one if it is empty.

        `write_revision` does not create the copy again if it was deleted meanwhile.
        """
        state = self.core.state
        current = yield from read_working_memory(state, self.source, owner)
        if current.text:
            scope_key = yield from find_scope_key(state, self.id, owner)
            kept = current.kept and wing("keeping").moved(current.kept, self.source, self.id)
            beside = ["kept", kept] if kept else None
            yield from write_revision(
                state, scope_key, NOTHING, "clone", current.text, beside=beside, makes_thread=False
            )
