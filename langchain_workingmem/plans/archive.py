"""Plans that write everything of a resource as records, and read such records back.

A record is a dict of JSON values with a `kind`. The header comes first, then the working memory of the resource, then one
thread after the other: itself, its working memory, its messages in order. Times are ISO 8601.
"""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, messages_from_dict

from langchain_workingmem.errors import (
    EmbeddingError,
    EmbeddingSizeError,
    OptionError,
    ThreadNotFoundError,
    ThreadOwnershipError,
)
from langchain_workingmem.models import ImportReport
from langchain_workingmem.plans import belongings, scripts
from langchain_workingmem.plans.access import guarded, run_script
from langchain_workingmem.plans.clones import restore
from langchain_workingmem.plans.codec import (
    as_dict,
    as_messages,
    decode_message,
    drafts,
    from_micros,
    is_ours_to_keep,
    model_of,
    to_micros,
)
from langchain_workingmem.plans.effects import Emit, Plan, Pull, send
from langchain_workingmem.plans.keys import check_id, encode
from langchain_workingmem.plans.reindex import reindex
from langchain_workingmem.plans.rows import Wanted
from langchain_workingmem.plans.threads import fields_of, listed, read_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from langchain_workingmem.options import OnError
    from langchain_workingmem.plans.effects import Argument, Command
    from langchain_workingmem.plans.space import Space

_log = logging.getLogger("langchain_workingmem")

FORMAT, VERSION = "langchain-workingmem", 1
BATCH = 200  # messages of one round trip

Record = dict[str, Any]


def header(resource_id: str | None = None) -> Record:
    """Make the first record; without a resource, who imports names it."""
    return {"kind": "header", "format": FORMAT, "version": VERSION, "resource_id": resource_id}


# ---------------------------------------------------------------------- export


def export(space: Space, resource_id: str, namespaces: Sequence[tuple[str, ...]], *, vectors: bool) -> Plan[None]:
    """Emit everything of a resource. A round trip per 100 threads, one per thread and 200 messages of it, and those of its items."""
    _, memory, revisions = space.keys.of_resource(check_id(resource_id, "resource_id"))
    yield from space.ready()
    found = yield from send(*_reading(memory, revisions))
    yield Emit([header(resource_id), *_memory(None, *found)])
    cursor = None
    while True:
        page = yield from listed(space, resource_id, None, 100, cursor, "created_at", descending=False)
        for thread in page:
            try:
                yield from _thread(space, thread.id, resource_id, vectors=vectors)
            except ThreadOwnershipError:  # handed over since it was listed
                continue
        cursor = page.next_cursor
        if cursor is None:
            break
    yield from belongings.export(space, namespaces)


def _thread(space: Space, thread_id: str, resource_id: str, *, vectors: bool) -> Plan[None]:
    keys = space.keys.of(thread_id)
    wanted = Wanted(limit=BATCH)
    behind = scripts.READ.call(keys.all, encode(resource_id), "superseded", 1)
    beside: list[Command] = [behind, ("HGETALL", keys.thread), *_reading(keys.memory, keys.revisions)]
    left: list[tuple[float, Record]] = []  # what the conversation has left behind, by sequence number
    while True:
        extra = ("vectors", 1) if vectors else ()
        call = scripts.READ.call(keys.all, encode(resource_id), *wanted.arguments(), *extra)
        reply, *others = yield from run_script(thread_id, resource_id, call, *beside)
        records: list[Record] = []
        if others:
            left = [
                (float(seq), {**_message(thread_id, id, seq, value), **_behind(seq)})
                for id, seq, value in zip(*(others[0][start::3] for start in range(1, 4)), strict=True)
            ]
            thread = read_thread(thread_id, others[1])
            if thread is None:  # deleted since it was listed
                return
            records = [
                {
                    "kind": "thread",
                    "id": thread.id,
                    "title": thread.title,
                    "metadata": thread.metadata,
                    "created_at": thread.created_at.isoformat(),
                    "updated_at": thread.updated_at.isoformat(),
                    "clone_of": thread.clone_of,
                },
                *_memory(thread_id, *others[2:]),
            ]
            beside = []
        width = 4 if vectors else 3
        rows = list(zip(*(reply[start::width] for start in range(1, width + 1)), strict=True))
        is_last = len(rows) < BATCH
        present = [(float(row[1]), _message(thread_id, *row)) for row in rows]
        due = [one for one in left if is_last or one[0] <= present[-1][0]]
        left = left[len(due) :]
        yield Emit([*records, *(record for _, record in sorted([*present, *due], key=itemgetter(0)))])
        if is_last:
            return
        wanted = replace(wanted, above=int(rows[-1][1]))


def _behind(seq: bytes) -> Record:
    """Say of a superseded message whether it is only an older version of the message behind it."""
    return {"superseded": True, "version": True} if b"." in seq else {"superseded": True}


def _message(thread_id: str, id: bytes, seq: bytes, value: bytes, vectors: list[Any] | None = None) -> Record:
    row = decode_message(id, seq, value, thread_id)
    body = json.loads(value, parse_constant=lambda _: None)  # NaN is kept, but is no JSON to hand out
    body["data"]["id"] = row.message.id  # a copy keeps the body of its source
    record: Record = {
        "kind": "message",
        "thread_id": thread_id,
        "stored_at": row.stored_at.isoformat(),
        "message": {"type": body["type"], "data": body["data"]},
    }
    if body["state"]:
        record["turn"] = True  # a turn saved it, not some program: a client's list may leave it behind
    if row.refused:
        record["refused"] = True
    stored = [as_dict(vector) for vector in vectors or ()]
    if vectors is not None and model_of(value) and all(stored):
        data = [b64encode(vector[b"vector"]).decode() for vector in stored]
        record["vectors"] = {"settings": model_of(value).decode(), "data": data}
    return record


def _reading(memory: str, revisions: str) -> list[Command]:
    return [("HGETALL", memory), ("XRANGE", revisions, "-", "+")]


def _memory(thread_id: str | None, memory: Any, entries: list[Any]) -> list[Record]:
    row = as_dict(memory)
    if not row:
        return []
    revisions = [_state(as_dict(fields)) for _, fields in entries]
    return [{"kind": "working_memory", "thread_id": thread_id, **_state(row), "revisions": revisions}]


def _state(row: Mapping[bytes, bytes]) -> Record:
    return {
        "document": row[b"document"].decode(),
        "revision": int(row[b"revision"]),
        "updated_at": from_micros(row[b"updated_at"]).isoformat(),
        "origin": row[b"origin"].decode(),
    }


# ---------------------------------------------------------------------- import


def load(
    space: Space, source: Iterator[Any] | AsyncIterator[Any], resource_id: str | None, on_error: OnError
) -> Plan[ImportReport]:
    """Read records into the store, message by message what is not there yet.

    A round trip per thread and 200 messages of it, one per item, two per working memory at most.
    """
    if resource_id is not None:
        check_id(resource_id, "resource_id")
    with suppress(EmbeddingError, EmbeddingSizeError, OptionError):  # all can be stored, and embedded later
        yield from space.setup()
    intake: _Intake | None = None
    number = 0
    while taken := (yield Pull(source)):
        number += 1
        try:
            record = _mapping(taken[0])
            if intake is None:
                intake = _begun(space, record, resource_id)
                continue
            plan = intake.take(record)
        except (ValueError, KeyError, TypeError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else error
            msg = f"record {number}: {what}"
            raise OptionError(msg) from error
        yield from plan
    if intake is None:
        msg = "there is no record: an export begins with a header"
        raise OptionError(msg)
    yield from intake.flush()
    try:
        for thread_id in intake.bare if space.recall is not None else ():
            yield from _embedded(space, thread_id, intake.owner)
    except (EmbeddingError, EmbeddingSizeError, OptionError) as error:
        note = "everything is imported, some messages have no vectors yet: memory.recall.reindex() adds them"
        if on_error == "raise":
            error.add_note(note)
            raise
        _log.warning("%s; %s", error, note)
    return ImportReport(resource_id=intake.owner, **intake.counts)


def _embedded(space: Space, thread_id: str, resource_id: str) -> Plan[None]:
    try:
        yield from reindex(space, resource_id, thread_id)
    except (ThreadNotFoundError, ThreadOwnershipError):
        return  # deleted, or handed over, since it was imported


def _mapping(record: Any) -> Mapping[str, Any]:
    if not isinstance(record, Mapping):
        msg = f"is of type {type(record).__name__}: pass a dict, json.loads(line) of each line"
        raise TypeError(msg)
    return record


def _begun(space: Space, record: Mapping[str, Any], resource_id: str | None) -> _Intake:
    """Check the header, and begin."""
    if record.get("format") != FORMAT:
        msg = f"is no header of {FORMAT!r}: pass what export_resource() or an importer gives, from the beginning"
        raise ValueError(msg)
    if record.get("version") != VERSION:
        msg = f"has version {record.get('version')!r}, and this package reads {VERSION}: use a newer package"
        raise ValueError(msg)
    named = record.get("resource_id")
    return _Intake(space, check_id(resource_id or named, "resource_id"), named)


@dataclass(slots=True)
class _Intake:
    """What was read and not written yet: a part of one thread."""

    space: Space
    owner: str
    named: str | None  # the resource in the header
    thread: str | None = None
    begins: list[Argument] = field(default_factory=list)  # how each call for the thread begins
    messages: list[Argument] = field(default_factory=list)
    size: int = 0
    is_written: bool = True  # all that has come in
    bare: dict[str, None] = field(default_factory=dict)  # threads with messages that have no vectors
    counts: Counter[str] = field(default_factory=Counter)

    def take(self, record: Mapping[str, Any]) -> Plan[None]:
        """Check a record, and return what is to be done about it."""
        kind = record.get("kind")
        match kind:
            case "thread":
                return self._thread(record)
            case "message":
                return self._message(record)
            case "working_memory":
                return self._memory(record)
            case "item":
                return self._item(record)
        msg = f"kind {kind!r} is not known: thread, message, working_memory and item are"
        raise ValueError(msg)

    def _thread(self, record: Mapping[str, Any]) -> Plan[None]:
        id, clone_of = check_id(record["id"], "id"), record.get("clone_of")
        fields: list[Argument] = [*fields_of(record.get("title"), record.get("metadata")), *self.space.ttl_fields]
        for name in ("created_at", "updated_at"):
            if record.get(name) is not None:
                fields += [name, _micros(record[name])]
        if clone_of is not None:
            fields += ["clone_of", encode(check_id(clone_of, "clone_of"))]
        return self._begin(id, ["join", encode(self.owner), encode(id), len(fields), *fields])

    def _begin(self, thread_id: str, begins: list[Argument]) -> Plan[None]:
        yield from self.flush()
        self.thread, self.begins, self.is_written = thread_id, begins, False

    def _message(self, record: Mapping[str, Any]) -> Plan[None]:
        self._belongs(record["thread_id"])
        message = _decoded(record["message"])
        (draft,) = drafts(as_messages([message]), self.space.recall, str)
        at = 0 if record.get("stored_at") is None else _micros(record["stored_at"])
        settings, vectors = self._vectors(record.get("vectors"), len(draft.chunks))
        if record.get("superseded"):
            settings, vectors = "", []
        said, state = (
            f"{draft.words}/{draft.weight}/0{'!' * bool(record.get('refused'))}",
            "t" * bool(record.get("turn")),
        )
        head = (
            f'{{"stored_at":{at},"vectors":"{settings}/{draft.size}/{len(vectors)}","said":"{said}","state":"{state}",'
        )
        behind = 2 if record.get("version") else int(bool(record.get("superseded")))
        row: list[Argument] = [draft.id, behind, head.encode() + draft.body]
        for text, vector in zip(draft.chunks, vectors, strict=False):
            pairs: dict[str, Argument] = {
                "role": draft.role,
                "name": draft.name,
                "labels": draft.labels,
                "text": text,
                "vector": vector,
            }
            row += [2 * len(pairs), *(part for pair in pairs.items() for part in pair)]
        return self._add(row)

    def _add(self, row: list[Argument]) -> Plan[None]:
        self.messages += row
        self.size += 1
        self.is_written = False
        if self.size == BATCH:
            yield from self.flush()

    def _vectors(self, given: Any, chunks: int) -> tuple[str, list[bytes]]:
        """Return settings and vectors of a message, if the vectors are what this memory would make."""
        space = self.space
        if given is None or space.dims is None:
            return "", []
        import numpy as np

        mark, width = space.mark(space.dims), space.dims * np.dtype(space.index.dtype).itemsize
        vectors = [b64decode(data, validate=True) for data in given["data"]]
        if given["settings"] != mark or [len(vector) for vector in vectors] != [width] * chunks:
            return "", []
        return mark, vectors

    def _memory(self, record: Mapping[str, Any]) -> Plan[None]:
        thread_id = record.get("thread_id")
        arguments = _fields_of_memory(record)
        call: list[Argument] = [len(arguments), *arguments]
        last = 0
        for revision in record.get("revisions", ()):
            call += [revision["revision"], *_fields_of_memory(revision)]
            if revision["revision"] <= last:
                msg = f"holds revision {revision['revision']} behind {last}: keep the order of the export"
                raise ValueError(msg)
            last = revision["revision"]
        if thread_id is not None:
            self._belongs(thread_id)
        return self._remember(thread_id, call, len(record.get("revisions", ())))

    def _remember(self, thread_id: str | None, arguments: list[Argument], revisions: int) -> Plan[None]:
        yield from self.flush()
        keys = self.space.keys.of_resource(self.owner) if thread_id is None else self.space.keys.of(thread_id).all
        call = scripts.RESTORE_MEMORY.call(keys, encode(self.owner), *arguments)
        if thread_id is None:
            (written,) = yield from run_script("", self.owner, call)
        else:
            written = yield from guarded(self.space, thread_id, [self.owner], call)
        self.counts.update(working_memories=written, revisions=written * revisions)

    def _item(self, record: Mapping[str, Any]) -> Plan[None]:
        path = [self.owner if label == self.named else label for label in record["namespace"]]
        if self.owner not in path:
            msg = f"is an item of {path}, which does not name {self.owner!r}: leave it out"
            raise ValueError(msg)
        return self._stock(belongings.load(self.space, {**record, "namespace": path}, _micros))

    def _stock(self, writing: Plan[int]) -> Plan[None]:
        yield from self.flush()
        self.counts["items"] += yield from writing

    def _belongs(self, thread_id: Any) -> None:
        if thread_id != self.thread:
            msg = f"belongs to thread {thread_id!r}, and the thread before it is {self.thread!r}: keep the order of the export"
            raise ValueError(msg)

    def flush(self) -> Plan[None]:
        """Write what has come in."""
        if self.thread is None or self.is_written:
            return
        reply = yield from restore(self.space, self.thread, self.owner, [*self.begins, *self.messages])
        made, new, bare, _ = reply
        self.counts.update(threads=made, messages=new, skipped=self.size - new)
        if bare:
            self.bare[self.thread] = None
        self.messages, self.size, self.is_written = [], 0, True


def _micros(time: Any) -> int:
    if not isinstance(time, str):
        msg = f"{time!r} is no time: use ISO 8601"
        raise TypeError(msg)
    micros = to_micros(datetime.fromisoformat(time))
    if not 0 < micros < 2**53:  # what a double, hence Lua and Search, holds exactly
        msg = f"{time!r} is no time that can be stored: use one from 1970 to 2255"
        raise ValueError(msg)
    return micros


def _decoded(given: Any) -> BaseMessage:
    if not isinstance(given, Mapping) or not isinstance(given.get("data"), Mapping):
        msg = "holds no message: it is a dict with type and data, as langchain_core's message_to_dict gives it"
        raise TypeError(msg)
    (message,) = messages_from_dict([dict(given)])
    if message.id is None:
        msg = "its message has no id, so that a second import would double it: give it one"
        raise ValueError(msg)
    if not is_ours_to_keep(message):
        msg = f"history keeps no {message.type} message like this one: leave it out"
        raise ValueError(msg)
    return message


def _fields_of_memory(state: Mapping[str, Any]) -> list[Argument]:
    document, revision, origin = state["document"], state["revision"], state["origin"]
    if not isinstance(document, str) or not isinstance(origin, str) or not isinstance(revision, int) or revision < 1:
        msg = f"is no working memory: its document and origin are text, its revision counts from 1, not {revision!r}"
        raise TypeError(msg)
    return ["document", document, "revision", revision, "updated_at", _micros(state["updated_at"]), "origin", origin]
