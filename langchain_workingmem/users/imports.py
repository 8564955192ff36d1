"""The plan that imports records: it checks all of them before it writes the first.

An archive may come from anywhere, so what a script, a message or a prompt cannot hold is refused by the models of the
records.
"""

from __future__ import annotations

import logging
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.messages import messages_from_dict
from pydantic import AfterValidator, Field, PlainValidator, ValidationError, field_validator

from langchain_workingmem._documents.metadata import label
from langchain_workingmem._engine.plan import Plan, Sleep, send
from langchain_workingmem._redis.access import check_owner
from langchain_workingmem._redis.codec import as_messages, drafts, is_storable
from langchain_workingmem._redis.indexes import NO_VECTORS
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.scripts import MOST_BYTES, STEP_BYTES
from langchain_workingmem._redis.state import wing
from langchain_workingmem._text.sending import MARK
from langchain_workingmem.derived import ROW_KINDS, restore_rows
from langchain_workingmem.errors import OptionError, Remedy, ThreadNotFoundError, ThreadOwnershipError, WorkingMemError
from langchain_workingmem.models import StoredMessage
from langchain_workingmem.options import WorkingMemoryOptions
from langchain_workingmem.recall import reindex_messages
from langchain_workingmem.reports import ImportReport
from langchain_workingmem.threads import MOST_CHUNKS, Row, Writer, thread_fields
from langchain_workingmem.users.sections import (
    END,
    FORMAT,
    KEEP_ORDER,
    KINDS,
    UNREADABLE,
    VERSION,
    Id,
    Listed,
    Micros,
    Record,
    ThreadId,
    check_size,
    model_of,
)
from langchain_workingmem.working_memory import ScopeKey, run_memory

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

    from langchain_workingmem._redis.codec import Draft
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem._redis.state import MemoryState

_log = logging.getLogger("langchain_workingmem")

PAUSES = 200  # records between two
THREADS = 1000  # threads whose owners are read in one round trip
MOST_REVISION = 2**48  # later revisions rise from here, and a double holds 2**53 exactly
MOST_REVISIONS = 50_000  # of one step
MOST_ORIGIN = 64  # characters; ours have six
_END = object()
_LONGEST = 500  # characters of an error of a library


def load(core: Core, source: Iterable[Any], user_id: str | None) -> Plan[ImportReport]:
    """Check all records, then write what is not stored yet.

    A round trip per 1,000 threads, one per thread and 200 messages or 64 MiB of it, one per working memory; then those
    of `reindex`.
    """
    state = core.state
    if isinstance(source, str | bytes | Mapping) or not isinstance(source, Iterable):
        seen = f"records is of type {type(source).__name__}"
        raise OptionError(seen, remedy="pass dicts, such as map(json.loads, file)")
    this = Import(state, None if user_id is None else check_id(user_id, "user_id"))
    records: list[Record] = []
    lines = iter(source)
    while (record := _next(lines, this.number + 1)) is not _END:
        try:
            records += this.read(record)
        except (*UNREADABLE, WorkingMemError) as error:
            raise _refusal(this.number, error) from error
        if this.number % PAUSES == 0:
            yield Sleep(0)  # others run while a large file is checked
    this.check_end()
    yield from _check_owners(this)
    for model in {type(record): None for record in records}:
        yield from model.check(this)
    with suppress(*NO_VECTORS):  # messages can be embedded later
        yield from state.indexes.setup()
    for record in records:
        yield from record.write(this)
    yield from this.begin(None)
    try:
        for thread_id in this.threads if state.recall is not None else ():
            with suppress(ThreadNotFoundError, ThreadOwnershipError):  # deleted or transferred meanwhile
                yield from reindex_messages(state, this.owner, thread_id)
    except NO_VECTORS as error:
        note = Remedy("everything is imported, some messages have no vectors yet: {reindex} adds them")
        if core.on_error == "raise":
            error.add_note(note)
            raise
        _log.warning("%s; %s", error, note)
    return ImportReport(user_id=this.owner, files_left=this.files_left, **this.counts)


def _next(lines: Iterator[Any], number: int) -> Any:
    """Return the next record; `OptionError` for what is no JSON, where the caller's `json.loads` reads it."""
    try:
        return next(lines, _END)
    except WorkingMemError:
        raise
    except (ValueError, RecursionError) as error:
        remedy = "give json.loads one line of an export at a time"
        raise _refusal(number, OptionError(f"the record cannot be read ({error})", remedy=remedy)) from error


def _refusal(number: int, error: Exception) -> OptionError:
    """Return the error that names a record, and the field of its model."""
    where = ""
    while isinstance(error, ValidationError):  # also that of a message, within that of its record
        first = error.errors(include_url=False)[0]
        where += "".join(f"{part}." for part in first["loc"])
        inner = first.get("ctx", {}).get("error")
        error = inner if isinstance(inner, Exception) else ValueError(first["msg"])
    what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    what = " ".join(f"{where[:-1]}: {what}".removeprefix(": ").split())[:_LONGEST]
    remedy: str = getattr(error, "remedy", None) or "correct the record"
    what = what if remedy in what else f"{what}: {remedy}"
    return OptionError(f"record {number}: {what}; nothing was imported", remedy=remedy)


def _check_owners(this: Import) -> Plan[None]:
    """Raise `ThreadOwnershipError` when a thread has another owner. A round trip per 1,000 threads."""
    names = list(this.threads)
    for start in range(0, len(names), THREADS):
        some = names[start : start + THREADS]
        owners = yield from send(*(("HGET", this.state.keys.of(name).thread, "user") for name in some))
        for name, owner in zip(some, owners, strict=True):
            try:
                check_owner(owner, name, this.owner)
            except ThreadOwnershipError as error:
                error.add_note(f"record {this.threads[name]} names it; nothing was imported")
                raise


@dataclass(slots=True)
class Import:
    """Checks records one by one, and has what they need to be written; it is the context of their models."""

    state: MemoryState
    user_id: str | None  # the new owner; None: the user in the header
    owner: str = ""
    number: int = 0  # of the last record
    thread: str | None = None  # of the next message
    threads: dict[str, int] = field(default_factory=dict)  # the number of the first record of each
    files: dict[str, tuple[bool, int]] = field(
        default_factory=dict
    )  # by path: it is not deleted, bytes of all revisions
    files_left: list[str] = field(default_factory=list)  # paths where another file is stored
    counts: Counter[str] = field(default_factory=Counter)  # fields of the report
    ends: bool = False  # the archive has a last record
    kinds: Counter[str] = field(default_factory=Counter)  # the records by kind
    told: Any = None  # that, as the last record has it
    writer: Writer | None = None  # of the present thread

    def begin(self, writer: Writer | None) -> Plan[None]:
        """Finish the present thread, and begin another one."""
        if (done := self.writer) is not None:
            yield from done.finish()
            self.counts.update(threads=int(done.is_new), messages=done.written, skipped=done.skipped)
        self.writer = writer

    def read(self, record: object) -> list[Record]:
        """Check a record, and return it; nothing for the header and the last one."""
        self.number += 1
        if not isinstance(record, Mapping):
            remedy = "pass a dict, json.loads(line) of each line"
            raise OptionError(f"the record is of type {type(record).__name__}", remedy=remedy)
        kind = record.get("kind")
        if self.number == 1:
            self._read_header(record)
        elif self.told is not None:
            raise OptionError("it stands behind the last record", remedy=KEEP_ORDER)
        elif self.ends and kind == END:
            self.told = record.get("records") or {}
        elif kind not in KINDS:
            raise OptionError(f"kind {kind!r} is unknown", remedy=f"use one of {', '.join(KINDS)}")
        else:
            self.kinds[kind] += 1
            return [model_of(kind).model_validate(dict(record), context=self)]
        return []

    def _read_header(self, record: Mapping[str, Any]) -> None:
        if record.get("kind") != "header" or record.get("format") != FORMAT or record.get("version") != VERSION:
            remedy = "pass all records of users.export() or of an importer, from the first; of `workingmem import`, name --from"
            raise OptionError(f"this is not a header of {FORMAT!r} in version {VERSION}", remedy=remedy)
        self.ends = bool(record.get("ends"))
        named = record.get("user_id")
        self.owner = check_id(self.user_id or named, "user_id")
        if named is not None:
            check_id(named, "user_id")

    def check_end(self) -> None:
        """Raise `OptionError` if the archive is not whole."""
        if not self.number:
            raise OptionError("there is no record", remedy="an export begins with a header")
        if self.ends and self.told != self.kinds:
            lacks = "its last record is missing"
            seen = lacks if self.told is None else f"it had {self.told}, there are {dict(self.kinds)}"
            raise OptionError(f"the archive is not whole: {seen}; nothing was imported", remedy="export again")


# ---------------------------------------------------------------------- records


class ThreadRecord(Record, kind="thread"):
    """A thread to create, unless it exists."""

    id: Id
    title: Any = None
    metadata: Any = None
    created_at: Micros | None = None
    updated_at: Micros | None = None
    source_id: Annotated[Id, AfterValidator(encode)] | None = None
    deleted: Listed[Id] = Field(default=[])  # ids of messages, which the thread does not take again

    def model_post_init(self, load: Any, /) -> None:
        """Make it the thread of the records that follow."""
        check_size([*self._fields().values(), *self.deleted], STEP_BYTES)
        load.thread = self.id
        load.threads.setdefault(self.id, load.number)

    def _fields(self) -> dict[str, str]:
        named = self.model_dump(include={"created_at", "updated_at", "source_id"}, exclude_none=True)
        labels = ",".join(label(key, value) for key, value in (self.metadata or {}).items())
        return {
            **thread_fields(self.title, self.metadata),
            "labels": labels,
            **{name: str(one) for name, one in named.items()},
        }

    def write(self, load: Any) -> Plan[None]:
        """Begin it."""
        writer = Writer(
            state=load.state, thread_id=self.id, owner=load.owner, fields=self._fields(), deleted=self.deleted
        )
        yield from load.begin(writer)


class Vectors(Record):
    """The vectors of a message; whether they can be used is known when it is written."""

    settings: str  # the index digest
    data: Listed[Annotated[bytes, PlainValidator(partial(b64decode, validate=True))]]


class MessageRecord(Record, kind="message"):
    """A message of the thread before it."""

    thread_id: ThreadId
    stored_at: Micros | None = None  # None: now
    superseded: bool | None = None
    refused: bool | None = None
    writer: Annotated[str, Field(pattern="^(l|b|s[0-9]{1,16})?$")] = ""  # see `Facts.writer`
    structured: bool | None = None
    title: str | None = None  # that a model has made from it
    vectors: Vectors | None = None
    message: Any  # becomes a draft

    @field_validator("message", mode="plain")
    @classmethod
    def _draft(cls, given: Any, info: Any) -> Draft:
        (message,) = as_messages([_read_message(given)])
        structured = {id(message)} if info.data.get("structured") else ()
        (draft,) = drafts([message], info.context.state.recall, str, structured)
        return draft

    def model_post_init(self, _: Any, /) -> None:
        """Check that it can be read back, and written in one step."""
        draft, vectors = self.message, self.vectors.data if self.vectors else []
        thread_fields(self.title, None)
        StoredMessage.of(b'{"at":1,"number":0,' + draft.body, "", 0, make=True)
        media = [one.encode("utf-8", "surrogatepass") for one in draft.media]
        check_size([draft.body, *media, *draft.chunks, *vectors, self.title or ""], MOST_BYTES - STEP_BYTES)
        draft.writer, draft.at, draft.is_superseded = self.writer, self.stored_at, bool(self.superseded)
        draft.words += "!" * bool(self.refused)

    def write(self, load: Any) -> Plan[None]:
        """Add it to the next step."""
        found = self.vectors if self.vectors and self._are_usable(self.vectors, load.state) else None
        settings, data = (found.settings, found.data) if found else ("", [])
        yield from load.writer.add(Row.of(self.message, settings, data))
        if self.title is not None:
            load.writer.title = self.title, self.message.id

    def _are_usable(self, vectors: Vectors, state: MemoryState) -> bool:
        """Tell whether the vectors are those that this memory would make."""
        if self.superseded or state.recall is None or state.indexes.dims is None:
            return False
        if vectors.settings != state.indexes.digest:
            return False
        import numpy as np

        dtype = np.dtype(state.indexes.dtype)
        size = state.indexes.dims * dtype.itemsize
        return len(vectors.data) == len(self.message.chunks) <= MOST_CHUNKS and all(
            len(one) == size and np.isfinite(np.frombuffer(one, dtype)).all() for one in vectors.data
        )


class Revision(Record):
    """A revision of working memory."""

    document: str
    revision: Annotated[int, Field(ge=1, le=MOST_REVISION)]
    updated_at: Micros
    origin: Annotated[str, Field(max_length=MOST_ORIGIN)]

    @field_validator("document")
    @classmethod
    def _check_document(cls, document: str, info: Any) -> str:
        limit = (info.context.state.working_memory or WorkingMemoryOptions).max_bytes
        if (size := len(document.encode())) > limit:
            remedy = Remedy("shorten it, or {import_bytes}")
            raise OptionError(f"document has {size:,} bytes, the limit is {limit:,}", remedy=remedy)
        return document

    def fields(self) -> list[str]:
        """Return names and values."""
        return [part for name in Revision.model_fields for part in (name, str(getattr(self, name)))]


def _check_kept(text: str) -> str:
    checked: str = wing("keeping").checked(text)
    return checked


class MemoryRecord(Revision, kind="working_memory"):
    """A working memory to write, unless there is one."""

    thread_id: ThreadId | None = None
    revisions: Annotated[Listed[Revision], Field(max_length=MOST_REVISIONS)] = Field(default=[])
    kept: Annotated[str, AfterValidator(_check_kept)] | None = None  # what a keeper has noted beside it

    def model_post_init(self, _: Any, /) -> None:
        """Check that the revisions rise, and that one call can hold them."""
        for last, number in pairwise([0, *(one.revision for one in self.revisions)]):
            if not last < number <= self.revision:
                seen = f"revision {number} follows {last}, the newest is {self.revision}"
                raise OptionError(seen, remedy=KEEP_ORDER)
        check_size([part for one in (self, *self.revisions) for part in one.fields()], STEP_BYTES)

    def write(self, load: Any) -> Plan[None]:
        """Write it with its revisions."""
        keys, user = load.state.keys, self.thread_id is None
        names = keys.of_user(load.owner) if user else keys.of(self.thread_id)
        if load.writer is not None:
            yield from load.writer.flush()  # the thread has to be there
        revisions = [[str(one.revision), one.fields()] for one in self.revisions]
        scope_key = ScopeKey(names, self.thread_id, load.owner)
        fields = [*self.fields(), *(("kept", self.kept) if self.kept else ())]
        status, _ = yield from run_memory(load.state, scope_key, fields=fields, revisions=revisions)
        if status == "written":
            load.counts.update(working_memories=1, revisions=len(revisions))


class RowRecord(Record):
    """What a model has made of messages."""

    id: int
    row: str  # which wing it belongs to
    cites: Listed[str]
    covers: Listed[str]
    replaces: Listed[int]
    waits: bool
    body: dict[str, Any]

    def model_post_init(self, _: Any, /) -> None:
        """Let the wing check the body."""
        if self.row not in ROW_KINDS:
            raise OptionError(f"row {self.row!r} is unknown", remedy=f"use one of {', '.join(ROW_KINDS)}")
        wing(self.row).Body.model_validate(self.body)


class RowsRecord(Record, kind="rows"):
    """The rows of the thread before it, unless it has some."""

    thread_id: ThreadId
    rows: Listed[RowRecord]

    def write(self, load: Any) -> Plan[None]:
        """Make them behind the messages."""
        yield from load.writer.flush()
        rows = [row.model_dump() for row in self.rows]
        with suppress(ThreadNotFoundError, ThreadOwnershipError):  # deleted or transferred meanwhile
            yield from restore_rows(load.state, self.thread_id, load.owner, rows)


def _read_message(given: Any) -> BaseMessage:
    if not isinstance(given, Mapping) or not isinstance(given.get("data"), Mapping):
        raise OptionError("message is not a dict with type and data", remedy="use message_to_dict of langchain_core")
    (message,) = messages_from_dict([dict(given)])
    for mark in (
        MARK,
        "lc_source",
    ):  # whoever has written the archive may have written it: it is a message as any other
        message.additional_kwargs.pop(mark, None)
    if message.id is None:
        remedy = "give it one, so that a second import does not store it again"
        raise OptionError("the message has no id", remedy=remedy)
    if not is_storable(message):
        raise OptionError("it is a system message, which history does not store", remedy="leave it out")
    return message
