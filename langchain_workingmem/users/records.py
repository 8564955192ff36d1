"""Checks the records of an import one by one, and turns each into the step that writes it.

An export may come from anywhere, so everything that a script, a message or a prompt cannot hold is refused here, before the
first write. A step holds only strings, bytes and numbers, because it waits in a file.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from langchain_core.messages import messages_from_dict

from langchain_workingmem._redis.codec import as_messages, decode_message, drafts, from_micros, is_storable, to_micros
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.scripts import MOST_BYTES, STEP_BYTES, Script, count_bytes
from langchain_workingmem._text.unicode import is_utf8, visible
from langchain_workingmem.errors import OptionError, Remedy
from langchain_workingmem.models import Observation
from langchain_workingmem.observations import Part
from langchain_workingmem.options import WorkingMemoryOptions
from langchain_workingmem.threads import thread_fields
from langchain_workingmem.users import store_items
from langchain_workingmem.users.format import FORMAT, KINDS, VERSION, paths_of

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.effects import Argument, Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.users.format import Namespace

RESTORE_MEMORY = Script("users/restore_memory")

# A double holds 2**53 exactly. Later times and revisions, which rise from here, must fit as well.
LATEST = to_micros(datetime.fromisoformat("2250-01-01T00:00:00+00:00"))
MOST_REVISION = 2**48
MOST_REVISIONS = 50_000  # Redis takes a million arguments, nine for each
MOST_ORIGIN = 64  # characters; ours have six
OLDER = 2  # the kind of an older version in `restore.lua`
MOST_LEVEL = 2**48
_NUMBER = re.compile(r"[1-9][0-9]{0,14}")  # of an observation
PRIORITIES = ("high", "normal", "low")
_KEEP_ORDER = "keep the order of the export"


class ThreadStep(NamedTuple):
    """A thread to create, unless it exists."""

    id: str
    title: list[Argument]  # its fields
    fields: list[Argument]  # the others


class MessageStep(NamedTuple):
    """A message of the thread before it."""

    id: str
    kind: int  # 0: on the current branch, 1: superseded, OLDER: an older version of the next message
    stored_at: int  # microseconds; 0: now
    size: str
    said: str
    state: str
    body: bytes
    role: str
    name: str
    labels: str
    chunks: list[str]
    index_digest: str  # of its vectors; empty: none
    vectors: list[bytes]

    def header(self, index_digest: str, chunks: int) -> bytes:
        """Return the header that scripts read, for that many vectors."""
        return (
            f'{{"stored_at":{self.stored_at},"vectors":"{index_digest}/{self.size}/{chunks}","said":"{self.said}",'
            f'"state":"{self.state}",'
        ).encode()


class MemoryStep(NamedTuple):
    """A working memory to write, unless there is one."""

    thread_id: str | None
    call: Command
    revisions: int


class ItemStep(NamedTuple):
    """An item of a store to write, unless the stored one is as new."""

    call: Command


class LogStep(NamedTuple):
    """A log of observations to write, unless there is one."""

    thread_id: str | None
    parts: list[Part]


Step: TypeAlias = "ThreadStep | MessageStep | MemoryStep | ItemStep | LogStep"


@dataclass(slots=True)
class Reader:
    """Reads records in order."""

    state: MemoryState
    resource_id: str | None  # the new owner; None: the resource in the header
    namespaces: Iterable[Sequence[str]]
    owner: str = ""
    paths: list[tuple[Namespace, Namespace]] = field(default_factory=list)  # of items: in the records, in the store
    thread: str | None = None  # of the next message
    threads: dict[str, int] = field(default_factory=dict)  # the number of the first record of each
    unfounded: dict[str, str] = field(default_factory=dict)  # `title_from` of threads, until the message is read
    number: int = 0  # of the last record
    has_logs: bool = False  # there are records of observations
    after_version: bool = False  # the last record is an older version of the next message

    def read(self, record: object) -> Step | None:
        """Check a record, and return the step that writes it; None for the header. An exception stands for a broken line."""
        self.number += 1
        if isinstance(record, Exception):
            remedy = "give json.loads one line of an export at a time"
            raise OptionError(f"the record cannot be read ({record})", remedy=remedy) from record
        if not isinstance(record, Mapping):
            remedy = "pass a dict, json.loads(line) of each line"
            raise OptionError(f"the record is of type {type(record).__name__}", remedy=remedy)
        if self.number == 1:
            self._read_header(record)
            return None
        kind = record.get("kind")
        if kind != "message":
            self.check_end()
        match kind:
            case "thread":
                return self._read_thread(record)
            case "message":
                return self._read_message(record)
            case "working_memory":
                return self._read_memory(record)
            case "observations":
                return self._read_log(record)
            case "item":
                return self._read_item(record)
        raise OptionError(f"kind {kind!r} is unknown", remedy=f"use one of {', '.join(KINDS)}")

    def check_end(self) -> None:
        """Raise `OptionError` when the messages of a thread must not end here."""
        if self.after_version:
            raise OptionError("the message of the older version before it is missing", remedy=_KEEP_ORDER)

    def _read_header(self, record: Mapping[str, Any]) -> None:
        if record.get("kind") != "header" or record.get("format") != FORMAT:
            remedy = "pass all records of export_resource() or of an importer, from the first"
            raise OptionError(f"this is not a header of {FORMAT!r}", remedy=remedy)
        if record.get("version") not in range(1, VERSION + 1):
            seen = f"the format has version {record.get('version')!r}, this package reads 1 to {VERSION}"
            raise OptionError(seen, remedy="use a newer package")
        named = record.get("resource_id")
        self.owner = check_id(self.resource_id or named, "resource_id")
        source = self.owner if named is None else check_id(named, "resource_id")
        old, new = (paths_of(self.namespaces, owner) for owner in (source, self.owner))
        self.paths = list(zip(old, new, strict=True))

    def _read_thread(self, record: Mapping[str, Any]) -> ThreadStep:
        id, clone_of = check_id(record["id"], "id"), record.get("clone_of")
        title: list[Argument] = [*thread_fields(record.get("title"), None)]
        if (source := record.get("title_from")) is not None:
            self.unfounded[id] = source  # the title is left out unless a record holds that message
            title += ["title_from", source]
        fields: list[Argument] = [*thread_fields(None, record.get("metadata")), *self.state.ttl_fields]
        for name in ("created_at", "updated_at"):
            if record.get(name) is not None:
                fields += [name, _micros(record[name])]
        if clone_of is not None:
            fields += ["clone_of", encode(check_id(clone_of, "clone_of"))]
        _check_size([*title, *fields], STEP_BYTES)
        self.thread = id
        self.threads.setdefault(id, self.number)
        return ThreadStep(id, title, fields)

    def _read_message(self, record: Mapping[str, Any]) -> MessageStep:
        thread_id = self._check_thread(record["thread_id"])
        flags = ("superseded", "version", "refused", "turn", "structured")
        superseded, version, refused, turn, structured = (_flag(record, name) for name in flags)
        (message,) = as_messages([_message(record["message"])])
        (draft,) = drafts([message], self.state.recall, str, {id(message)} if structured else ())
        kind = OLDER if version else int(superseded)
        self.after_version = version
        if not kind and not refused and self.unfounded.get(thread_id) == f"{draft.words}/{draft.id}":
            del self.unfounded[thread_id]
        index_digest, vectors = _vectors(record.get("vectors"))
        step = MessageStep(
            id=draft.id,
            kind=kind,
            stored_at=0 if record.get("stored_at") is None else _micros(record["stored_at"]),
            size=draft.size,
            said=f"{draft.words}/{draft.weight}/0{'!' * refused}",
            state="t" * turn,
            body=draft.body,
            role=draft.role,
            name=draft.name,
            labels=draft.labels,
            chunks=draft.chunks,
            index_digest="" if kind else index_digest,
            vectors=[] if kind else vectors,
        )
        decode_message(step.id.encode(), b"0", step.header("", 0) + step.body, thread_id)  # it can be read back
        _check_size([step.body, *step.chunks, *vectors], MOST_BYTES - STEP_BYTES)
        return step

    def _read_memory(self, record: Mapping[str, Any]) -> MemoryStep:
        thread_id = record.get("thread_id")
        if thread_id is not None:
            self._check_thread(thread_id)
        fields, newest = self._revision(record)
        revisions = record.get("revisions", [])
        if not isinstance(revisions, list | tuple) or len(revisions) > MOST_REVISIONS:
            remedy = f"use a list of at most {MOST_REVISIONS:,} revisions"
            raise OptionError(f"revisions is of type {type(revisions).__name__}", remedy=remedy)
        arguments: list[Argument] = [encode(self.owner), len(fields), *fields]
        last = 0
        for revision in revisions:
            state, number = self._revision(_mapping(revision, "a revision"))
            if not last < number <= newest:
                raise OptionError(f"revision {number} follows {last}, the newest is {newest}", remedy=_KEEP_ORDER)
            arguments += [number, *state]
            last = number
        keys = self.state.keys
        names = keys.of_resource(self.owner) if thread_id is None else keys.of(thread_id).all
        return MemoryStep(thread_id, RESTORE_MEMORY.call(names, *arguments), len(revisions))

    def _revision(self, state: Mapping[str, Any]) -> tuple[list[Argument], int]:
        """Return the fields of a revision, and its number."""
        document, revision, origin = state["document"], state["revision"], state["origin"]
        is_count = isinstance(revision, int) and not isinstance(revision, bool) and 1 <= revision <= MOST_REVISION
        if not is_utf8(document) or not is_utf8(origin) or not is_count:
            remedy = f"use valid Unicode for document and origin, and a revision from 1 to {MOST_REVISION:,}"
            raise OptionError("the working memory is not valid", remedy=remedy)
        if len(origin) > MOST_ORIGIN:
            remedy = f"use at most {MOST_ORIGIN}, such as 'update'"
            raise OptionError(f"origin has {len(origin):,} characters", remedy=remedy)
        limit = (self.state.working_memory or WorkingMemoryOptions).max_bytes
        if (size := len(document.encode())) > limit:
            remedy = Remedy("shorten it, or {max_bytes}")
            raise OptionError(f"document has {size:,} bytes, the limit is {limit:,}", remedy=remedy)
        at = _micros(state["updated_at"])
        return ["document", document, "revision", revision, "updated_at", at, "origin", origin], revision

    def _read_log(self, record: Mapping[str, Any]) -> LogStep:
        thread_id = record.get("thread_id")
        if thread_id is not None:
            self._check_thread(thread_id)
        seen: set[str] = set()
        parts = []
        for chunk in _list(record["chunks"], "chunks"):
            owner = check_id(_mapping(chunk, "a chunk")["thread_id"], "thread_id")
            if thread_id is not None and owner != thread_id:
                raise OptionError(f"a chunk of the log of thread {thread_id!r} names {owner!r}", remedy="leave it out")
            covered = [check_id(id, "message id") for id in _list(chunk["covered"], "covered")]
            found = [_observation(one, seen, self.threads) for one in _list(chunk["observations"], "observations")]
            if thread_id is not None and any(source != thread_id for one in found for source, _ in one.sources):
                raise OptionError(f"an observation of thread {thread_id!r} cites another one", remedy="leave it out")
            self.has_logs = True
            parts.append(Part(owner, covered if owner in self.threads else [], _level(chunk), found))
        _check_size([one.text for part in parts for one in part.observations], STEP_BYTES)
        return LogStep(thread_id, parts)

    def _read_item(self, record: Mapping[str, Any]) -> ItemStep:
        given = record["namespace"]
        if not isinstance(given, list | tuple) or not all(isinstance(label, str) for label in given):
            raise OptionError(f"namespace is of type {type(given).__name__}", remedy="use a list of str")
        path = tuple(given)
        for source, target in self.paths:
            if path[: len(source)] == source:
                item = {**record, "namespace": target + path[len(source) :]}
                times = [_micros(record[name]) for name in ("created_at", "updated_at")]
                return ItemStep(store_items.write_command(self.state, item, times))
        raise OptionError(
            f"namespaces= does not select the item in {path} for {self.owner!r}",
            remedy=Remedy("pass those of the export, such as {namespaces}, or leave items out"),
        )

    def _check_thread(self, thread_id: object) -> str:
        if self.thread is None or thread_id != self.thread:
            seen = f"thread_id is {thread_id!r}, the thread before it is {self.thread!r}"
            raise OptionError(seen, remedy=_KEEP_ORDER)
        return self.thread


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise OptionError(f"{name} is of type {type(value).__name__}", remedy="use a dict")
    return value


def _list(value: Any, name: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise OptionError(f"{name} is of type {type(value).__name__}", remedy="use a list")
    return value


def _level(record: Mapping[str, Any]) -> int:
    level = record["level"]
    if not isinstance(level, int) or isinstance(level, bool) or not 0 <= level <= MOST_LEVEL:
        raise OptionError(f"level {level!r}", remedy="use 0, or the number of times that it was condensed")
    return level


def _observation(given: Any, seen: set[str], threads: Collection[str]) -> Observation:
    """Check an observation; `seen` are the ids of those before it. A message of a thread that is not imported is missing: ""."""
    record = _mapping(given, "an observation")
    id, text, priority = record["id"], record["text"], record["priority"]
    if not isinstance(id, str) or not _NUMBER.fullmatch(id) or id in seen:
        remedy = "use the digits of a number, for one of them only"
        raise OptionError(f"the id of an observation is {id!r}", remedy=remedy)
    line = " ".join(visible(text).split()) if is_utf8(text) else ""
    if not line or priority not in PRIORITIES:
        remedy = f"use a line of valid Unicode, and one of {', '.join(PRIORITIES)}"
        raise OptionError(f"text or priority of observation {id} is not valid", remedy=remedy)
    sources, mentions = ([*_sources(record, name, threads)] for name in ("sources", "mentions"))
    if not sources:
        raise OptionError(f"observation {id} has no sources", remedy="leave it out")
    seen.add(id)
    return Observation(
        id=id,
        text=line,
        said_at=from_micros(_micros(record["said_at"])),
        priority=priority,
        sources=list(dict.fromkeys(sources)),
        level=_level(record),
        mentions=tuple((thread, message, 0) for thread, message in dict.fromkeys(mentions)),
    )


def _sources(record: Mapping[str, Any], name: str, threads: Collection[str]) -> Iterator[tuple[str, str]]:
    for source in _list(record.get(name, []) if name == "mentions" else record[name], name):
        thread, message = _list(source, "a source")
        known = check_id(thread, "thread_id") in threads
        yield thread, check_id(message, "message id") if known else ""


def _flag(record: Mapping[str, Any], name: str) -> bool:
    value = record.get(name)
    if value is not None and not isinstance(value, bool):
        raise OptionError(f"{name} is of type {type(value).__name__}", remedy="use true or false")
    return bool(value)


def _check_size(arguments: Sequence[Argument], most: int) -> None:
    if (size := count_bytes(arguments)) > most:
        raise OptionError(f"the record takes {size:,} bytes, {most:,} at most", remedy="leave something out")


def _vectors(given: Any) -> tuple[str, list[bytes]]:
    """Return index digest and vectors of a message; whether they can be used is checked when it is written."""
    if given is None:
        return "", []
    index_digest, data = _mapping(given, "vectors")["settings"], given["data"]
    if not isinstance(index_digest, str) or not isinstance(data, list | tuple):
        raise OptionError("vectors is not valid", remedy="use a str as settings and a list of base64 as data")
    return index_digest, [b64decode(vector, validate=True) for vector in data]


def _micros(time: Any) -> int:
    if not isinstance(time, str):
        raise OptionError(f"{time!r} is not a time", remedy="use ISO 8601")
    micros = to_micros(datetime.fromisoformat(time))
    if not 0 < micros < LATEST:
        raise OptionError(f"{time!r} cannot be stored", remedy="use a time from 1970 to 2249")
    return micros


def _message(given: Any) -> BaseMessage:
    if not isinstance(given, Mapping) or not isinstance(given.get("data"), Mapping):
        raise OptionError("message is not a dict with type and data", remedy="use message_to_dict of langchain_core")
    (message,) = messages_from_dict([dict(given)])
    if message.id is None:
        remedy = "give it one, so that a second import does not store it again"
        raise OptionError("the message has no id", remedy=remedy)
    if not is_storable(message):
        raise OptionError("it is a system or generated message, which history does not store", remedy="leave it out")
    return message


def is_same_body(body: bytes, value: bytes) -> bool:
    """Tell whether a stored message is the one of a record; in a copy of a thread its body keeps the id of its source."""
    stored = value[value.index(b'"type":') :]
    if stored == body:
        return True
    ours, theirs = (json.loads(b"{" + one) for one in (body, stored))
    for one in (ours, theirs):
        one["data"].pop("id", None)
    return bool(ours == theirs)
