"""Writes messages that were stored before, with their times: for copies of threads, backfills and imports."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.plan import send
from langchain_workingmem._redis.access import change_thread, guarded_write, undone
from langchain_workingmem._redis.keys import encode
from langchain_workingmem._redis.scripts import STEP_BYTES, WRITE, count_bytes
from langchain_workingmem._text.unicode import as_searched
from langchain_workingmem.errors import ThreadExistsError, ThreadNotFoundError
from langchain_workingmem.threads.operations import in_pairs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_workingmem._engine.plan import Argument, Plan
    from langchain_workingmem._redis.codec import Draft
    from langchain_workingmem._redis.state import MemoryState

BATCH = 200  # messages of one step
MOST_CHUNKS = 50_000  # of a step: Redis takes a million arguments


@dataclass(frozen=True, slots=True)
class Row:
    """A message as `write.lua` takes it."""

    head: dict[str, Any]
    parts: Sequence[Argument]  # its body, text and vector of each chunk, and its media
    settings: str  # digest of the embedding settings; empty without vectors

    @classmethod
    def of(cls, draft: Draft, settings: str, vectors: Sequence[bytes]) -> Row:
        """Make a row of a draft, with the vectors of its chunks."""
        pairs = list(zip(draft.chunks, vectors, strict=False))
        parts: list[Argument] = [draft.body]
        for text, vector in pairs:
            parts += (as_searched(text), vector)
        parts += [one.encode("utf-8", "surrogatepass") for one in draft.media]
        return cls({**draft.head(), "chunks": len(pairs)}, parts, settings)


@dataclass(slots=True, kw_only=True)
class Writer:
    """Adds messages to a thread, in steps. What the thread has, or has deleted, stays as it is."""

    state: MemoryState
    thread_id: str
    owner: str
    fields: Mapping[str, str] = field(default_factory=dict)  # of the thread, if it is new
    deleted: Sequence[str] = ()  # ids that it does not take
    created_at: str | None = None  # of the thread, which must exist then
    seqs: dict[str, int] = field(default_factory=dict)  # of the messages that were new, by id
    written: int = 0
    skipped: int = 0
    is_new: bool = False
    title: tuple[str, str] | None = None  # that a model has made from a message, and the id of that
    _rows: list[Row] = field(default_factory=list)
    _again: dict[str, str] = field(default_factory=dict)  # seqs of the other words of edited questions, by id
    _ids: dict[str, bool] = field(default_factory=dict)  # of what was added; whether a current one was
    _size: int = 0
    _steps: int = 0
    _has_written: bool = False

    def add(self, row: Row) -> Plan[None]:
        """Add a message to the next step."""
        id, is_current = row.head["id"], "is_superseded" not in row.head
        if id in self._ids:
            yield from self.flush()
            if id not in self.seqs or (is_current and self._ids[id]):
                self.skipped += 1
                return
            self._again[id] = f"{self.seqs[id]} {self._again.get(id, '')}".strip()
        self._ids[id] = is_current or self._ids.get(id, False)
        more, chunks = count_bytes(row.parts), sum(one.head["chunks"] for one in self._rows)
        is_full = (
            len(self._rows) >= BATCH or self._size + more > STEP_BYTES or chunks + row.head["chunks"] > MOST_CHUNKS
        )
        if self._rows and (is_full or row.settings != self._rows[0].settings):
            yield from self._write()
        self._rows.append(row)
        self._size += more

    def flush(self) -> Plan[None]:
        """Write what waits. The thread is created, if need be, even without messages."""
        if self._rows:
            yield from self._write()
        elif not self._steps and self.created_at is None:
            yield from self._create()

    def finish(self) -> Plan[None]:
        """Write what waits; then its title, if it has none, and the time of a new thread."""
        yield from self.flush()
        if self.title is not None and self.title[1] in self.seqs:
            yield from self._write_title(*self.title)
        if self.is_new and (self._steps > 1 or self.title) and (at := self.fields.get("updated_at")):
            yield from change_thread(self.state, self.thread_id, self.owner, "update", set=["updated_at", at])

    def _write_title(self, title: str, id: str) -> Plan[None]:
        keys, seq = self.state.keys.of(self.thread_id), self.seqs[id]
        (found,) = yield from send(("ZRANGE", keys.order, seq, seq, "BYSCORE"))
        if found:  # else the message is gone
            named = {"title": title, "facts": found[0].decode()}
            yield from change_thread(self.state, self.thread_id, self.owner, "title", **named)

    def _create(self) -> Plan[None]:
        """Create the thread, unless there is one."""
        self._steps += 1
        with suppress(ThreadExistsError):
            pairs = in_pairs(self.fields)
            yield from change_thread(self.state, self.thread_id, self.owner, "create", set=pairs)
            self.is_new = True

    def _write(self) -> Plan[None]:
        rows, self._rows, self._size = self._rows, [], 0
        head: dict[str, Any] = {"created_at": self.created_at, "exists": self.created_at is not None or None}
        if not self._has_written:
            head |= {"fields": self.fields, "deleted": self.deleted or None}
        self._steps, self._has_written = self._steps + 1, True
        found: dict[str, Any] = {}
        while rows:
            call = WRITE.on(
                self.state.keys.of(self.thread_id),
                *(part for row in rows for part in row.parts),
                user=encode(self.owner),
                thread=encode(self.thread_id),
                ttl=self.state.ttl_ms,
                settings=rows[0].settings,
                messages=[row.head for row in rows],
                again={row.head["id"]: again for row in rows if (again := self._again.get(row.head["id"]))} or None,
                **head,
            )
            (found, *_), deleted = yield from guarded_write(self.state, self.thread_id, [self.owner], call)
            if deleted is not None:
                if found.get("new"):  # else nothing was written
                    version, ids = found["version"] if found.get("is_new") else None, [row.head["id"] for row in rows]
                    yield from undone(self.state, self.thread_id, self.owner, version, ids)
                raise deleted
            if found.get("gone"):
                raise ThreadNotFoundError(self.thread_id)
            if "known" not in found:
                break
            known = {at for at, *_ in found.pop("known")}
            self.skipped += len(known)
            rows = [row for at, row in enumerate(rows) if at not in known]
        self.written += len(rows)
        self.is_new |= bool(found.get("is_new"))
        self.seqs.update(zip((row.head["id"] for row in rows), found.get("seqs", ()), strict=True))
