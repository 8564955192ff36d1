"""The records of an export, checked one by one: what each of them is going to write.

Nobody knows where an export comes from, so whatever a script, a message or a prompt could stumble over is refused here, before
anything is written. A step holds nothing but strings, bytes and numbers, so that it can wait in a file.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from langchain_core.messages import messages_from_dict

from langchain_workingmem._redis.codec import as_messages, decode_message, drafts, is_storable, to_micros
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.scripts import MOST_BYTES, STEP_BYTES, Script, count_bytes
from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem.options import WorkingMemoryOptions
from langchain_workingmem.threads import thread_fields
from langchain_workingmem.users import store_items as belongings
from langchain_workingmem.users.format import FORMAT, VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.effects import Argument, Command
    from langchain_workingmem._redis.state import MemoryState

RESTORE_MEMORY = Script("users/restore_memory")

# A double holds 2**53 exactly. What follows must fit as well: later messages rise above the times of a thread, revisions are counted on.
LATEST = to_micros(datetime.fromisoformat("2250-01-01T00:00:00+00:00"))
MOST_REVISION = 2**48
MOST_REVISIONS = 50_000  # Redis takes a million arguments, nine for each
MOST_ORIGIN = 64  # characters; ours have six
OLDER = 2  # how `restore.lua` is told of an older version of the message behind it


class ThreadStep(NamedTuple):
    """A thread to make, unless it is there."""

    id: str
    fields: list[Argument]


class MessageStep(NamedTuple):
    """A message of the thread that came last."""

    id: str
    behind: int  # 1: superseded, OLDER: as an older version of the message behind it
    stored_at: int  # microseconds; 0: now
    size: str
    said: str
    state: str
    body: bytes
    role: str
    name: str
    labels: str
    chunks: list[str]
    settings: str  # that its vectors were made under
    vectors: list[bytes]

    def head(self, settings: str, chunks: int) -> bytes:
        """Write the header that scripts read, for so many vectors under these settings."""
        return (
            f'{{"stored_at":{self.stored_at},"vectors":"{settings}/{self.size}/{chunks}","said":"{self.said}",'
            f'"state":"{self.state}",'
        ).encode()


class MemoryStep(NamedTuple):
    """A working memory to write, unless there is one."""

    thread_id: str | None
    call: Command
    revisions: int


class ItemStep(NamedTuple):
    """An item of a store to write, unless one as new is there."""

    call: Command


Step: TypeAlias = "ThreadStep | MessageStep | MemoryStep | ItemStep"


def begun(
    state: MemoryState, record: Mapping[str, Any], resource_id: str | None, namespaces: Sequence[Sequence[str]]
) -> Reader:
    """Check the header, and return what reads the records behind it."""
    if record.get("kind") != "header" or record.get("format") != FORMAT:
        msg = f"is no header of {FORMAT!r}: pass what export_resource() or an importer gives, from the beginning"
        raise ValueError(msg)
    if record.get("version") != VERSION:
        msg = f"has version {record.get('version')!r}, and this package reads {VERSION}: use a newer package"
        raise ValueError(msg)
    named = record.get("resource_id")
    owner = check_id(resource_id or named, "resource_id")
    source = owner if named is None else check_id(named, "resource_id")
    places = zip(belongings.of_resource(namespaces, source), belongings.of_resource(namespaces, owner), strict=True)
    return Reader(state, owner, list(places))


@dataclass(slots=True)
class Reader:
    """Reads records, and knows what came before each."""

    state: MemoryState
    owner: str
    places: list[tuple[tuple[str, ...], tuple[str, ...]]]  # namespaces of items, as they are named and as they will be
    thread: str | None = None
    threads: dict[str, int] = field(default_factory=dict)  # the number of the record that named them first
    number: int = 1
    has_version: bool = False  # and the message that it is of has not come yet

    def read(self, record: Mapping[str, Any]) -> Step:
        """Check a record, and return what it is going to write."""
        self.number += 1
        kind = record.get("kind")
        if kind != "message":
            self.check_end()
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

    def _thread(self, record: Mapping[str, Any]) -> ThreadStep:
        id, clone_of = check_id(record["id"], "id"), record.get("clone_of")
        fields: list[Argument] = [*thread_fields(record.get("title"), record.get("metadata")), *self.state.ttl_fields]
        for name in ("created_at", "updated_at"):
            if record.get(name) is not None:
                fields += [name, _micros(record[name])]
        if clone_of is not None:
            fields += ["clone_of", encode(check_id(clone_of, "clone_of"))]
        _check_size(fields, STEP_BYTES)
        self.thread = id
        self.threads.setdefault(id, self.number)
        return ThreadStep(id, fields)

    def _message(self, record: Mapping[str, Any]) -> MessageStep:
        thread_id = self._belongs(record["thread_id"])
        superseded, version, refused, turn = (
            _flag(record, name) for name in ("superseded", "version", "refused", "turn")
        )
        (draft,) = drafts(as_messages([_decoded(record["message"])]), self.state.recall, str)
        behind = OLDER if version else int(superseded)
        self.has_version = version
        settings, vectors = _vectors(record.get("vectors"))
        step = MessageStep(
            id=draft.id,
            behind=behind,
            stored_at=0 if record.get("stored_at") is None else _micros(record["stored_at"]),
            size=draft.size,
            said=f"{draft.words}/{draft.weight}/0{'!' * refused}",
            state="t" * turn,
            body=draft.body,
            role=draft.role,
            name=draft.name,
            labels=draft.labels,
            chunks=draft.chunks,
            settings="" if behind else settings,
            vectors=[] if behind else vectors,
        )
        decode_message(step.id.encode(), b"0", step.head("", 0) + step.body, thread_id)  # it can be read back
        _check_size([step.body, *step.chunks, *vectors], MOST_BYTES - STEP_BYTES)
        return step

    def check_end(self) -> None:
        """Raise `ValueError` when the messages of a thread may not end here."""
        if self.has_version:
            msg = "an older version of a message comes before it, and that message does not follow: keep the order of the export"
            raise ValueError(msg)

    def _memory(self, record: Mapping[str, Any]) -> MemoryStep:
        thread_id = record.get("thread_id")
        if thread_id is not None:
            self._belongs(thread_id)
        fields, newest = self._state(record)
        revisions = record.get("revisions", [])
        if not isinstance(revisions, list | tuple) or len(revisions) > MOST_REVISIONS:
            msg = f"its revisions are of type {type(revisions).__name__}: use a list, of {MOST_REVISIONS:,} at most"
            raise TypeError(msg)
        arguments: list[Argument] = [encode(self.owner), len(fields), *fields]
        last = 0
        for revision in revisions:
            state, number = self._state(_mapping(revision, "a revision"))
            if not last < number <= newest:
                msg = f"holds revision {number} behind {last}, and is at {newest}: keep the order of the export"
                raise ValueError(msg)
            arguments += [number, *state]
            last = number
        keys = self.state.keys
        names = keys.of_resource(self.owner) if thread_id is None else keys.of(thread_id).all
        return MemoryStep(thread_id, RESTORE_MEMORY.call(names, *arguments), len(revisions))

    def _state(self, state: Mapping[str, Any]) -> tuple[list[Argument], int]:
        document, revision, origin = state["document"], state["revision"], state["origin"]
        if not is_utf8(document) or not is_utf8(origin) or not _is_count(revision):
            msg = (
                "is no working memory: its document and origin are text of valid Unicode, its revision counts from 1 to "
                f"{MOST_REVISION:,}"
            )
            raise TypeError(msg)
        if len(origin) > MOST_ORIGIN:
            msg = f"its origin has {len(origin):,} characters, {MOST_ORIGIN} at most: use 'update', for example"
            raise ValueError(msg)
        limit = (self.state.working_memory or WorkingMemoryOptions).max_bytes
        if (size := len(document.encode())) > limit:
            msg = (
                f"its document has {size:,} bytes, the limit is {limit:,}: shorten it, or import with "
                "WorkingMemoryOptions(max_bytes=...)"
            )
            raise ValueError(msg)
        at = _micros(state["updated_at"])
        return ["document", document, "revision", revision, "updated_at", at, "origin", origin], revision

    def _item(self, record: Mapping[str, Any]) -> ItemStep:
        given = record["namespace"]
        if not isinstance(given, list | tuple) or not all(isinstance(label, str) for label in given):
            msg = f"its namespace is of type {type(given).__name__}: use a list of str"
            raise TypeError(msg)
        path = tuple(given)
        for source, target in self.places:
            if path[: len(source)] == source:
                path = target + path[len(source) :]
                return ItemStep(belongings.restoring(self.state, {**record, "namespace": path}, _micros))
        msg = (
            f"is an item of {path}, and namespaces= names no place of {self.owner!r} that it is in: pass those of the export, such as "
            "namespaces=[('memories', '{user_id}')], or leave items out"
        )
        raise ValueError(msg)

    def _belongs(self, thread_id: Any) -> str:
        if self.thread is None or thread_id != self.thread:
            msg = f"belongs to thread {thread_id!r}, and the thread before it is {self.thread!r}: keep the order of the export"
            raise ValueError(msg)
        return self.thread


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        msg = f"{what} is of type {type(value).__name__}: use a dict"
        raise TypeError(msg)
    return value


def _flag(record: Mapping[str, Any], name: str) -> bool:
    value = record.get(name)
    if value is not None and not isinstance(value, bool):
        msg = f"its {name} is of type {type(value).__name__}: use true or false"
        raise TypeError(msg)
    return bool(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_REVISION


def _check_size(arguments: Sequence[Argument], most: int) -> None:
    if (size := count_bytes(arguments)) > most:
        msg = f"takes {size:,} bytes, {most:,} at most: leave something out"
        raise ValueError(msg)


def _vectors(given: Any) -> tuple[str, list[bytes]]:
    """Read settings and vectors of a message; whether they can be used is known when it is written."""
    if given is None:
        return "", []
    settings, data = _mapping(given, "vectors")["settings"], given["data"]
    if not isinstance(settings, str) or not isinstance(data, list | tuple):
        msg = "its vectors are none: settings is a str, data a list of base64"
        raise TypeError(msg)
    return settings, [b64decode(vector, validate=True) for vector in data]


def _micros(time: Any) -> int:
    if not isinstance(time, str):
        msg = f"{time!r} is no time: use ISO 8601"
        raise TypeError(msg)
    micros = to_micros(datetime.fromisoformat(time))
    if not 0 < micros < LATEST:
        msg = f"{time!r} is no time that can be stored: use one from 1970 to 2249"
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
    if not is_storable(message):
        msg = f"history keeps no {message.type} message like this one: leave it out"
        raise ValueError(msg)
    return message
