"""The records of an archive as models: they check what an import is given, and write it.

An archive may come from anywhere, so everything that a script, a message or a prompt cannot hold is refused here, before the
first write.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.messages import messages_from_dict
from pydantic import AfterValidator, Field, PlainValidator, field_validator

from langchain_workingmem._documents.metadata import label
from langchain_workingmem._redis.codec import as_messages, drafts, is_storable, message_in, record_of
from langchain_workingmem._redis.keys import encode
from langchain_workingmem._redis.scripts import MOST_BYTES, STEP_BYTES
from langchain_workingmem._text.marks import MARK
from langchain_workingmem.errors import OptionError, Remedy
from langchain_workingmem.options import WorkingMemoryOptions
from langchain_workingmem.threads import thread_fields
from langchain_workingmem.threads.restoring import MOST_CHUNKS, Row, Writer
from langchain_workingmem.users.sections import KEEP_ORDER, Id, Listed, Micros, Record, ThreadId, check_size
from langchain_workingmem.working_memory import ScopeKey, run_memory

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.codec import Draft
    from langchain_workingmem._redis.state import MemoryState

MOST_REVISION = 2**48  # later revisions rise from here, and a double holds 2**53 exactly
MOST_REVISIONS = 50_000  # of one step
MOST_ORIGIN = 64  # characters; ours have six


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
        message_in(record_of(b'{"at":1,"number":0,' + draft.body), draft.id)
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
        if vectors.settings != state.indexes.index_digest(state.indexes.dims):
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


class MemoryRecord(Revision, kind="working_memory"):
    """A working memory to write, unless there is one."""

    thread_id: ThreadId | None = None
    revisions: Annotated[Listed[Revision], Field(max_length=MOST_REVISIONS)] = Field(default=[])

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
        status, _ = yield from run_memory(load.state, scope_key, fields=self.fields(), revisions=revisions)
        if status == "written":
            load.counts.update(working_memories=1, revisions=len(revisions))


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
