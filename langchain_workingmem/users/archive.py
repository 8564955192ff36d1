"""Archives: all data of a user as records, dicts of JSON values with a `kind`, one for each line of a file.

They may come from anywhere, so the models of records refuse what a script, a message or a prompt cannot hold.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

from langchain_core.messages import message_to_dict, messages_from_dict
from pydantic import AfterValidator, BaseModel, Field, PlainValidator, ValidationError, field_validator

from langchain_workingmem._engine.plan import Plan, Sleep, compute, send
from langchain_workingmem._redis.codec import UNREADABLE, as_dict, count_characters, drafts, is_storable
from langchain_workingmem._redis.indexes import EMBEDDING_ERRORS, check_layout
from langchain_workingmem._redis.keys import Facts, check_id, decode, encode
from langchain_workingmem._text.sending import MARK
from langchain_workingmem._text.values import LATEST, from_micros, shown, to_micros
from langchain_workingmem.checks import check_list
from langchain_workingmem.derived import export_rows, restore_rows
from langchain_workingmem.errors import OptionError, ThreadNotFoundError, ThreadOwnershipError
from langchain_workingmem.models import ImportReport, StoredMessage
from langchain_workingmem.options import WorkingMemoryOptions
from langchain_workingmem.threads import read_thread, thread_fields
from langchain_workingmem.threads.copies import Copy, Writer, name_thread, read_held
from langchain_workingmem.working_memory.store import ScopeKey, run_memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langchain_workingmem._redis.codec import Draft
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.threads.copies import Held


FORMAT, VERSION = "langchain-workingmem", 1
END = "end"  # kind of the last record, which says how many there are of each other one
KEEP_ORDER, CUT = "keep the order of the export", "the archive is not whole"
BATCH = 200  # messages of one round trip


def header(user_id: str | None = None) -> dict[str, Any]:
    """Return the first record; without a user, the caller of the import names it."""
    return {"kind": "header", "format": FORMAT, "version": VERSION, "user_id": user_id}


def export(state: MemoryState, user_id: str, *, vectors: bool) -> Iterator[Plan[list[dict[str, Any]]]]:
    """Yield the steps that read all data of a user, one after the other; what was deleted meanwhile is left out."""
    reader = Export(state, check_id(user_id, "user_id"), vectors)
    yield from map(reader.counted, reader.steps())


@dataclass(slots=True)
class Export:
    """What an export has read so far of a user."""

    state: MemoryState
    user_id: str
    vectors: bool
    threads: list[str] = field(default_factory=list)
    has_files: bool = False
    facts: list[Facts] = field(default_factory=list)  # of the messages of the thread that is being read
    counts: Counter[str] = field(default_factory=Counter)  # of records, by kind

    def counted(self, step: Plan[list[dict[str, Any]]]) -> Plan[list[dict[str, Any]]]:
        """Count the records of a step."""
        with suppress(ThreadNotFoundError, ThreadOwnershipError):
            records = yield from step
            self.counts.update(record["kind"] for record in records)
            return records
        return []

    def steps(self) -> Iterator[Plan[list[dict[str, Any]]]]:
        """Yield the steps in the order of the archive."""
        yield self.user()
        for id in self.threads:
            yield self.thread(id)
            for start in range(0, len(self.facts), BATCH):
                yield self.messages(id, self.facts[start : start + BATCH])
            yield self.rows(id)
        if self.has_files:
            from langchain_workingmem.files.archive import export as export_files

            yield from export_files(self.state, self.user_id)
        yield self.end()

    def user(self) -> Plan[list[dict[str, Any]]]:
        """Return the header and the user's working memory; note which threads there are, by a search that finds all."""
        yield from check_layout(self.state)
        yield from self.state.indexes.ready()
        keys = self.state.keys.of_user(self.user_id)
        exists = ("EXISTS", *keys.files[1:])
        *replies, file_count = yield from send(("HGETALL", keys.memory), ("XRANGE", keys.revisions, "-", "+"), exists)
        self.threads = [thread.id for thread in (yield from self.state.indexes.threads(self.user_id))]
        self.has_files = bool(file_count)
        # without its last record the archive is not whole
        return [{**header(self.user_id), "ends": True}, *(yield from self.memory(None, keys.of_memory, *replies))]

    def memory(self, thread_id: str | None, keys: Sequence[str], row: Any, stream: Any) -> Plan[list[dict[str, Any]]]:
        """Return the record of a working memory, without what a keeper has made of messages that are gone."""
        if b"kept" in (row := as_dict(row)) and self.state.working_memory is not None:
            from langchain_workingmem import keeping

            scope_key = ScopeKey(keys, thread_id, self.user_id)
            yield from keeping.renew(self.state, scope_key, only_cuts=True)
            row, stream = yield from send(("HGETALL", scope_key.key), ("XRANGE", keys[-1], "-", "+"))
            row = as_dict(row)
        revisions = [_state(as_dict(fields)) for _, fields in stream]
        record = {"kind": "working_memory", "thread_id": thread_id, "revisions": revisions} | (row and _state(row))
        return [record | ({"kept": row[b"kept"].decode()} if b"kept" in row else {})] if row else []

    def thread(self, id: str) -> Plan[list[dict[str, Any]]]:
        """Read a thread with its working memory, and which messages it has, the superseded ones where they were."""
        keys, self.facts = self.state.keys.of(id), []
        hashes = (("HGETALL", key) for key in (keys.thread, keys.ids, keys.memory))
        sets = (("ZRANGE", key, 0, -1) for key in (keys.order, keys.superseded))
        replies = yield from send(*hashes, *sets, ("XRANGE", keys.revisions, "-", "+"))
        fields, ids, memory, order, superseded, revisions = replies
        thread = read_thread(id, fields)
        if thread is None or thread.user_id != self.user_id:
            return []
        facts = [Facts.read(text.decode()) for text in order]
        self.facts = facts = sorted([*facts, *(Facts.read(text.decode(), is_current=False) for text in superseded)])
        record: dict[str, Any] = {"kind": "thread", "id": id, "title": thread.title}
        record |= {"metadata": thread.metadata, "source_id": thread.source_id}
        record |= {"created_at": thread.created_at.isoformat(), "updated_at": thread.updated_at.isoformat()}
        if source := as_dict(fields).get(b"title_source"):  # the seq of the message that a model has made it from
            record["title_source"] = next((fact.id for fact in facts if fact.seq == int(source)), None)
        if deleted := sorted(id.decode() for id, value in as_dict(ids).items() if value.startswith(b"x")):
            record["deleted"] = deleted
        return [record, *(yield from self.memory(id, keys, memory, revisions))]

    def messages(self, id: str, facts: Sequence[Facts]) -> Plan[list[dict[str, Any]]]:
        """Read some messages of a thread."""
        entries = yield from read_held(self.state, id, self.user_id, facts, vectors=self.vectors)
        size = count_characters(entry.row.message for entry in entries)
        return (yield from compute(partial(_messages, entries, vectors=self.vectors), size))

    def rows(self, id: str) -> Plan[list[dict[str, Any]]]:
        """Read what models have made of the messages of a thread."""
        rows = yield from export_rows(self.state, id, self.user_id)
        return [{"kind": "rows", "thread_id": id, "rows": rows}] if rows else []

    def end(self) -> Plan[list[dict[str, Any]]]:
        """Return the last record."""
        yield from ()
        return [{"kind": END, "records": {kind: count for kind, count in self.counts.items() if kind != "header"}}]


def _messages(entries: Iterable[Held], *, vectors: bool) -> list[dict[str, Any]]:
    records = []
    for facts, row, packed in entries:
        # stored messages may hold NaN, which is not JSON
        message = json.loads(json.dumps(message_to_dict(row.message)), parse_constant=lambda _: None)
        record: dict[str, Any] = {"kind": "message", "thread_id": row.thread_id, "stored_at": row.stored_at.isoformat()}
        optional: dict[str, Any] = {"superseded": not facts.is_current, "refused": facts.is_refused}
        optional |= {"structured": facts.is_structured, "writer": facts.writer}
        record |= {"message": message, **{name: value for name, value in optional.items() if value}}
        if vectors and facts.settings and packed is not None:
            record["vectors"] = {"settings": facts.settings, "data": [b64encode(vector).decode() for vector in packed]}
        records.append(record)
    return records


def _state(row: Mapping[bytes, bytes]) -> dict[str, Any]:
    return {
        "document": row[b"document"].decode(),
        "revision": int(row[b"revision"]),
        "updated_at": from_micros(row[b"updated_at"]).isoformat(),
        "origin": row[b"origin"].decode(),
    }


# ---------------------------------------------------------------------- import


def load(state: MemoryState, source: Iterable[Any], user_id: str | None) -> Plan[ImportReport]:
    """Check all records, then write what is not stored yet."""
    check_list(source, "records", "dicts, such as map(json.loads, file)")
    context = Import(state, Writer(state), "" if user_id is None else check_id(user_id, "user_id"))
    records = yield from context.read_all(source)
    commands = [("HGET", state.keys.of(id).thread, "user") for id in context.threads]
    for id, owner in zip(context.threads, (yield from send(*commands)) if commands else [], strict=True):
        if owner is not None and decode(owner) != context.owner:
            error = ThreadOwnershipError(id, context.owner)
            error.add_note(f"record {context.threads[id]} names it; nothing was imported")
            raise error
    if context.files:
        yield from _file_record().check(context)
    with suppress(*EMBEDDING_ERRORS):  # messages can be embedded later
        yield from state.indexes.setup()
    for record in records:
        yield from record.write(context)
    context.writer.end()
    return ImportReport(user_id=context.owner, files_left=context.files_left, unread=context.unread, **context.counts)


@dataclass(slots=True)
class Import:
    """Checks records one by one, and has what they need to be written; it is the context of their models."""

    state: MemoryState
    writer: Writer
    owner: str  # empty: the user whom the header names
    ends: bool | None = False  # there is a last record; None: it has come
    number: int = 0  # of the record that was read last
    kinds: Counter[str] = field(default_factory=Counter)  # how many there are of each
    thread: str | None = None  # the thread that the next records belong to
    parts: list[Any] = field(default_factory=list)  # its records
    threads: dict[str, int] = field(default_factory=dict)  # the number of the first record of each
    files: dict[str, tuple[bool, int]] = field(default_factory=dict)  # by path: it is there, bytes of all revisions
    counts: Counter[str] = field(default_factory=Counter)  # fields of the report
    files_left: list[str] = field(default_factory=list)  # paths where another file is stored
    unread: dict[str, str] = field(default_factory=dict)  # why an importer has left something out, by its name

    def read_all(self, source: Iterable[Any]) -> Plan[list[Any]]:
        """Check all records, and return them."""
        records, lines = list[Any](), iter(source)
        while True:
            self.number += 1
            try:
                records += self.read(next(lines))
            except StopIteration:
                break
            except UNREADABLE as error:  # also of the caller's json.loads
                raise _refusal(self.number, error) from error
            if self.number % 20 == 0:
                yield Sleep(0)  # others in the event loop run after 4 ms
        if self.number == 1:
            raise OptionError("there is no record", remedy="an export begins with a header")
        if self.ends:
            raise OptionError(f"{CUT}: its last record is missing; nothing was imported", remedy="export again")
        return records

    def read(self, raw: object) -> list[Any]:
        """Check a record, and return it; nothing for the header and the last one."""
        if not isinstance(raw, Mapping):
            remedy = "pass a dict, json.loads(line) of each line; `workingmem import` reads other formats by --from"
            raise OptionError(f"the record is of type {type(raw).__name__}", remedy=remedy)
        kind: Any = raw.get("kind")
        if self.number == 1:
            if kind != "header" or raw.get("format") != FORMAT or raw.get("version") != VERSION:
                remedy = "pass all records of users.export() or an importer; `workingmem import` names it by --from"
                raise OptionError(f"this is not a header of {FORMAT!r} in version {VERSION}", remedy=remedy)
            self.owner = check_id(self.owner or raw.get("user_id"), "user_id")
            self.ends = bool(raw.get("ends"))
        elif self.ends is None:
            raise OptionError("it stands behind the last record", remedy=KEEP_ORDER)
        elif self.ends and kind == END:
            if (promised := raw.get("records")) != self.kinds:
                raise OptionError(f"{CUT}: it had {promised}, there are {dict(self.kinds)}", remedy="export again")
            self.ends = None
        elif kind == "unread":  # what an importer could not read
            self.unread[str(raw.get("name"))] = str(raw.get("problem"))
        elif kind not in KINDS:
            raise OptionError(f"kind {shown(kind)} is unknown", remedy=f"use one of {', '.join(KINDS)}")
        else:
            self.kinds[kind] += 1
            record = (KINDS[kind] or _file_record()).model_validate(dict(raw), context=self)
            thread_id = getattr(record, "thread_id", None)
            if thread_id is None:
                return [record]
            if thread_id != self.thread:
                raise OptionError(f"thread_id is {shown(thread_id)}, behind thread {self.thread!r}", remedy=KEEP_ORDER)
            self.parts.append(record)
        return []


def _refusal(number: int, error: Any) -> OptionError:
    """Return the error that names a record, and the field of its model."""
    location = ""
    while isinstance(error, ValidationError):  # also that of a message, within that of its record
        detail = error.errors(include_url=False)[0]
        location += "".join(f"{part}." for part in detail["loc"])
        error = detail.get("ctx", {}).get("error", detail["msg"])
    problem = " ".join(f"{location[:-1]}: {error}".removeprefix(": ").split())[:500]
    return OptionError(f"record {number}: {problem}; nothing was imported", remedy=getattr(error, "remedy", None))


# ---------------------------------------------------------------------- records


class Record(BaseModel):
    """A record, or a part of one: validation in the context of an `Import` checks it, `write` stores it."""

    model_config = {"strict": True, "defer_build": True}


def _micros(time: Any) -> int:
    micros = to_micros(datetime.fromisoformat(str(time)))
    if not 0 < micros < LATEST:
        raise OptionError(f"{time!r} cannot be stored", remedy="use a time from 1970 to 2249")
    return micros


Id = Annotated[str, PlainValidator(partial(check_id, name="id"))]
Micros = Annotated[int, PlainValidator(_micros)]  # from a time in ISO 8601


class _Thread(Record):
    """A thread to create, unless it exists."""

    id: Id
    title: Any = None
    title_source: Id | None = None  # the message that a model has made it from
    metadata: Any = None
    created_at: Micros | None = None
    updated_at: Micros | None = None
    source_id: Annotated[Id, AfterValidator(encode)] | None = None
    deleted: list[Id] = Field(default=[])  # ids of messages, which the thread does not take again
    dropped: Annotated[int, Field(ge=0)] = 0  # messages that an importer has left out
    _fields: dict[str, str]
    _parts: list[Any]  # the records that follow

    def model_post_init(self, context: Import, /) -> None:
        self._fields = thread_fields(self.title, self.metadata)
        context.thread, context.parts = self.id, []
        self._parts = context.parts
        context.threads.setdefault(self.id, context.number)

    def write(self, context: Import) -> Plan[None]:
        state, fields = context.state, self._fields
        made_title = fields.pop("title", None) if self.title_source else None
        columns = self.model_dump(include={"created_at", "updated_at", "source_id"}, exclude_none=True)
        fields |= {name: str(value) for name, value in columns.items()}
        copies = [record.to_copy(state) for record in self._parts if isinstance(record, _Message)]
        saved = yield from context.writer.add(self.id, context.owner, copies, fields=fields, deleted=self.deleted)
        context.counts.update(threads=int(saved.is_new), dropped=self.dropped)
        context.counts.update(messages=saved.messages, skipped=len(copies) - saved.messages)
        if made_title and (seq := saved.seqs.get(self.title_source or "")) is not None:
            yield from name_thread(state, self.id, context.owner, made_title, seq)
        for record in self._parts:
            if not isinstance(record, _Message):
                yield from record.write(context)


class _Vectors(Record):
    settings: str  # the index digest
    data: list[Annotated[bytes, PlainValidator(partial(b64decode, validate=True))]]


class _Message(Record):
    """A message of the thread before it."""

    thread_id: str
    stored_at: Micros | None = None  # None: now
    superseded: bool | None = None
    refused: bool | None = None
    writer: Annotated[str, Field(pattern="^(l|b|s[0-9]{1,16})?$")] = ""  # see `Facts.writer`
    structured: bool | None = None
    vectors: _Vectors | None = None
    message: Any  # becomes a draft

    @field_validator("message", mode="plain")
    @classmethod
    def _draft(cls, raw: Any, info: Any) -> Draft:
        if not isinstance(raw, Mapping) or not isinstance(raw.get("data"), Mapping):
            remedy = "use message_to_dict of langchain_core"
            raise OptionError("message is not a dict with type and data", remedy=remedy)
        (message,) = messages_from_dict([dict(raw)])
        for key in (MARK, "lc_source"):  # whoever wrote the archive may have written it: it is a message as any other
            message.additional_kwargs.pop(key, None)
        if message.id is None:
            raise OptionError("the message has no id", remedy="give it one, so that a second import stores it once")
        if not is_storable(message):
            raise OptionError("it is a system message, which history does not store", remedy="leave it out")
        structured = {id(message)} if info.data.get("structured") else ()
        (draft,) = drafts([message], info.context.state.recall, str, structured)
        StoredMessage.of(b'{"at":1,"number":0,' + draft.body, "", 0).message  # noqa: B018 - it can be read back
        return draft

    def model_post_init(self, _: Any, /) -> None:
        draft = self.message
        draft.writer, draft.at, draft.is_superseded = self.writer, self.stored_at, bool(self.superseded)
        if self.refused:
            draft.refuse()

    def to_copy(self, state: MemoryState) -> Copy:
        """Return it for the writer, with its vectors if they are those that this memory would make."""
        vectors = self.vectors
        if vectors is None or self.superseded or vectors.settings != state.indexes.digest:
            return Copy(self.message)
        return Copy.of(self.message, vectors.settings, vectors.data)


class _Revision(Record):
    document: str
    revision: Annotated[int, Field(ge=1, le=2**48)]  # later ones rise from here, and a double holds 2**53 exactly
    updated_at: Micros
    origin: Annotated[str, Field(max_length=64)]  # ours have six characters

    @field_validator("document")
    @classmethod
    def _check_document(cls, document: str, info: Any) -> str:
        limit = (info.context.state.working_memory or WorkingMemoryOptions).max_bytes
        if (size := len(document.encode())) > limit:
            remedy = "shorten it, or import with WorkingMemoryOptions(max_bytes=...)"
            raise OptionError(f"document has {size:,} bytes, the limit is {limit:,}", remedy=remedy)
        return document

    def fields(self) -> list[str]:
        """Return names and values."""
        return [part for name in _Revision.model_fields for part in (name, str(getattr(self, name)))]


def _checked_notes(text: str) -> str:
    from langchain_workingmem import keeping

    return keeping.notes_from_archive(text)


class _Memory(_Revision):
    """A working memory to write, unless there is one."""

    thread_id: str | None = None
    revisions: Annotated[list[_Revision], Field(max_length=50_000)] = Field(default=[])  # which one step takes
    # what a keeper has noted beside it
    kept: Annotated[str, AfterValidator(_checked_notes)] | None = None

    def model_post_init(self, _: Any, /) -> None:
        for last, number in pairwise([0, *(revision.revision for revision in self.revisions)]):
            if not last < number <= self.revision:
                raise OptionError(f"revision {number} follows {last} before {self.revision}", remedy=KEEP_ORDER)

    def write(self, context: Import) -> Plan[None]:
        keys: tuple[str, ...] = context.state.keys.of_user(context.owner).of_memory
        if self.thread_id is not None:
            keys = context.state.keys.of(self.thread_id)
        revisions = [[str(revision.revision), revision.fields()] for revision in self.revisions]
        fields = [*self.fields(), *(("kept", self.kept) if self.kept else ())]
        scope_key = ScopeKey(keys, self.thread_id, context.owner)
        status, _ = yield from run_memory(context.state, scope_key, fields=fields, revisions=revisions)
        if status == "written":
            context.counts.update(working_memories=1, revisions=len(revisions))


class _Row(Record):
    """What a model has made of messages."""

    id: int
    row: Literal["observations", "keeping"]  # which wing it belongs to
    cites: list[Id]
    covers: list[Id]
    replaces: list[int]
    waits: bool
    body: dict[str, Any]

    def model_post_init(self, _: Any, /) -> None:
        from langchain_workingmem import keeping
        from langchain_workingmem.observations import log

        (keeping if self.row == "keeping" else log).Body.model_validate(self.body)


class _Rows(Record):
    """The rows of the thread before it, unless it has some."""

    thread_id: str
    rows: list[_Row]

    def write(self, context: Import) -> Plan[None]:
        rows = [row.model_dump() for row in self.rows]
        with suppress(ThreadNotFoundError, ThreadOwnershipError):  # deleted or transferred meanwhile
            yield from restore_rows(context.state, self.thread_id, context.owner, rows)


def _file_record() -> Any:
    from langchain_workingmem.files.archive import FileRecord

    return FileRecord


# Of the records between header and end; files have their own.
KINDS: dict[Any, Any] = {"thread": _Thread, "message": _Message, "rows": _Rows, "working_memory": _Memory, "file": None}
