"""The plan that imports records: it checks all of them before it writes the first."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from langchain_workingmem._engine.plan import Plan, Sleep, send
from langchain_workingmem._redis.access import check_owner
from langchain_workingmem._redis.indexes import NO_VECTORS
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem.errors import OptionError, Remedy, ThreadNotFoundError, ThreadOwnershipError, WorkingMemError
from langchain_workingmem.recall.reindex import reindex_messages
from langchain_workingmem.reports import ImportReport
from langchain_workingmem.users.sections import END, FORMAT, KEEP_ORDER, KINDS, UNREADABLE, VERSION, model_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_workingmem._redis.core import Core
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.threads.restoring import Writer
    from langchain_workingmem.users.sections import Record

_log = logging.getLogger("langchain_workingmem")

PAUSES = 200  # records between two
THREADS = 1000  # threads whose owners are read in one round trip
_END = object()
_LONGEST = 500  # characters of an error of a library


def load(core: Core, source: Iterable[Any], user_id: str | None) -> Plan[ImportReport]:
    """Check all records, then write what is not stored yet.

    A round trip per 1,000 threads, one per thread and 200 messages or 64 MiB of it, one per working memory; then those of `reindex`.
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
            self.counts.update(threads=int(done.is_new), messages=len(done.seqs), skipped=done.skipped)
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
