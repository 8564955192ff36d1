"""The records that operations return: frozen, slotted, times in UTC. `str` of one is for reading, `repr` is short."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence  # noqa: TC003 - for pydantic
from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - likewise
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeAlias, TypeVar

import orjson
from langchain_core.messages import BaseMessage  # noqa: TC002 - likewise

from langchain_workingmem._text.messages import KINDS, STRIDE, conversations, line
from langchain_workingmem._text.unicode import visible
from langchain_workingmem._text.values import from_micros, to_minute
from langchain_workingmem.checks import check_zone
from langchain_workingmem.errors import OptionError
from langchain_workingmem.usage import ContextUsage as ContextUsage  # noqa: PLC0414 - likewise
from langchain_workingmem.usage import Counting, usage_of

if TYPE_CHECKING:
    from langchain_core.documents import Document

T = TypeVar("T")
Level: TypeAlias = Literal["ok", "unknown", "warning", "error"]
CheckpointsOutcome: TypeAlias = Literal["not asked", "deleted", "not implemented"]


class Pictured:
    """A record with a picture, for notebooks and, by rich, for terminals; what draws it is imported then."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self._drawn("html"))

    def __rich__(self) -> Any:
        return self._drawn("terminal")

    def _drawn(self, module: str) -> Any:
        records, drawing = (import_module(f"langchain_workingmem.display.{name}") for name in ("records", module))
        return drawing.draw(records.picture_of(self))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Thread:
    """A thread, without its messages."""

    id: str
    user_id: str
    title: str | None
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    message_count: int
    source_id: str | None = None  # of the thread that this one was cloned from

    def __repr__(self) -> str:
        return f"<Thread {self.id!r} of {self.user_id!r}: {self.message_count:,} messages>"

    def __str__(self) -> str:
        return f"{to_minute(self.updated_at)} {self.title or self.id}: {self.message_count:,} messages"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClonedThread:
    """A new thread, and the new ids of its messages."""

    thread: Thread
    message_ids: dict[str, str]  # id in the source -> id in the clone, in order


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Page(Pictured, Generic[T]):
    """A part of a listing. Iterating a page iterates its items."""

    items: list[T]
    total: int  # of the whole listing
    next_cursor: str | None = None  # pass it as `cursor` for the next page; None: this is the last page

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"<Page: {len(self.items):,} of {self.total:,}>"

    def __str__(self) -> str:
        return "\n".join(map(str, self.items))


@dataclass(kw_only=True, repr=False)  # frozen, each would take 3 us more, and a turn reads forty
class StoredMessage:
    """A message with what the store knows about it."""

    thread_id: str
    seq: int  # position in the thread: assigned by the server, rising, never reused
    superseded: bool = False  # no longer part of the thread's history: edited, regenerated, on another branch
    refused: bool = field(default=False, repr=False)  # a provider refused it, so models no longer receive it
    total_tokens: int = field(
        default=0, repr=False
    )  # estimated tokens of the thread up to this message; 0 for tool traffic
    record: dict[str, Any] = field(repr=False)  # what is stored: `type`, `kind`, `at`, `data`
    place: int = field(repr=False)  # its seq in keys and facts

    @classmethod
    def of(cls, body: bytes | None, thread_id: str, place: int, total_tokens: int = 0) -> Self:
        """Read a body; raises what is in `UNREADABLE`."""
        if not body:
            raise ValueError("its body is gone")
        sign, text = body[:1], body.lstrip(b"-!")
        try:
            record: dict[str, Any] = orjson.loads(text)
        except orjson.JSONDecodeError:  # an escaped lone surrogate
            record = json.loads(text)
        record["type"], record["kind"], record["data"]["content"], record["at"] + record["number"]
        row = cls(thread_id=thread_id, seq=record["number"], total_tokens=total_tokens, record=record, place=place)
        row.superseded, row.refused = sign == b"-", sign == b"!"
        return row

    @cached_property
    def message(self) -> BaseMessage:
        """Return the message. It is made now: most are only rendered, which is quicker."""
        return KINDS[self.record["type"]](**self.record["data"])

    @cached_property
    def stored_at(self) -> datetime:
        """Return when it was stored, strictly rising within a thread."""
        return from_micros(self.record["at"])

    @property
    def role(self) -> str:
        """Return the type of the message: human, ai, tool and so on."""
        return str(self.record["type"])

    def __repr__(self) -> str:
        return f"<StoredMessage {self.seq} of {self.thread_id!r}: {self.role}>"

    def __str__(self) -> str:
        return f"{to_minute(self.stored_at)} {line(self.message)}"


@dataclass(frozen=True, kw_only=True, repr=False)
class RecallHit:
    """A message that a search found, with its window."""

    thread_id: str
    # comparable within one result; hits are ranked by it, except with a reranker that gives no scores: its order counts
    score: float
    similarity: float  # of the vectors, 0 to 1; 0 when only its words matched
    words: float = 0.0  # its BM25 score, as a share of the best one that was found; 0 when only its meaning matched
    thread_title: str | None
    rows: list[StoredMessage] = field(repr=False)  # the window
    at: int = field(repr=False)  # where the message stands in it

    @cached_property
    def message(self) -> BaseMessage:
        """Return the message as it is stored, or, within a budget, a marked copy with an excerpt."""
        return self.rows[self.at].message

    @cached_property
    def before(self) -> list[BaseMessage]:
        """Return what was said before it in its thread, in order: no tool traffic."""
        return [row.message for row in self.rows[: self.at]]

    @cached_property
    def after(self) -> list[BaseMessage]:
        """Return what was said after it."""
        return [row.message for row in self.rows[self.at + 1 :]]

    @cached_property
    def stored_at(self) -> datetime:
        """Return when it was stored."""
        return self.rows[self.at].stored_at

    def __repr__(self) -> str:
        return f"<RecallHit {self.message.id!r} of {self.thread_id!r}: {self.similarity:.2f}>"

    def __str__(self) -> str:
        return "\n".join(map(line, (*self.before, self.message, *self.after)))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RecallResult(Pictured):
    """The hits of a search, the best first, and their windows as one list of messages."""

    hits: list[RecallHit] = field(default_factory=list)
    rows: list[StoredMessage] = field(default_factory=list)  # the merged windows, each message once, by time

    @property
    def messages(self) -> list[BaseMessage]:
        """Return the merged windows: each message once, in chronological order."""
        return [row.message for row in self.rows]

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[RecallHit]:
        return iter(self.hits)

    def __repr__(self) -> str:
        return f"<RecallResult: {len(self.hits)} hits, {len(self.rows)} messages>"

    def __str__(self) -> str:
        return self.as_text()

    def windows(self) -> dict[str, list[list[StoredMessage]]]:
        """Return the merged windows by thread, in order of time: a list for each run of messages without a gap."""
        neighbours = {(hit.thread_id, row.place, after.place) for hit in self.hits for row, after in pairwise(hit.rows)}
        windows: dict[str, list[list[StoredMessage]]] = {}
        for row in self.rows:
            runs = windows.setdefault(row.thread_id, [])
            last_place = runs[-1][-1].place if runs else 0
            is_next = row.place == last_place + STRIDE or (row.thread_id, last_place, row.place) in neighbours
            if runs and is_next:
                runs[-1].append(row)
            else:
                runs.append([row])
        return windows

    def to_documents(self) -> list[Document]:
        """Return one document per hit: its window with the speakers, and ids, similarity and time as metadata.

        A message is in one document only: a hit in its own, a neighbour in the document of the best hit.
        """
        from langchain_core.documents import Document

        used = {(hit.thread_id, hit.message.id) for hit in self.hits}
        documents = []
        for hit in self.hits:
            window = (*hit.before, hit.message, *hit.after)
            shown = [message for message in window if message is hit.message or (hit.thread_id, message.id) not in used]
            used |= {(hit.thread_id, message.id) for message in shown}
            metadata = {name: getattr(hit, name) for name in ("thread_id", "thread_title", "similarity", "score")}
            metadata |= {"message_id": hit.message.id, "role": hit.message.type, "stored_at": hit.stored_at.isoformat()}
            documents.append(Document(id=hit.message.id, page_content="\n".join(map(line, shown)), metadata=metadata))
        return documents

    def as_text(self, timezone: str = "UTC") -> str:
        """Render the windows for a model or a log: escaped, dated in a zone, labelled by thread, all visible."""
        return visible("\n".join(conversations(self, zone=check_zone(timezone, "timezone"))))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingMemoryValue:
    """One value of working memory, with the messages that it comes from."""

    path: str  # JSON Pointer: /city, /languages/Danish; in a template /Location; of free text a line
    value: Any  # None: from then on nothing was known
    since: datetime  # when it was said
    sources: list[tuple[str, str]]  # (thread_id, message_id); none where tool, program or person have set it


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WorkingMemoryState(Pictured):
    """Working memory at one revision."""

    value: Any  # text, or the document as the schema's type: a model, a dataclass, a dict; None while it is empty
    text: str  # as it is stored: Markdown, text or JSON
    revision: int  # 0: never written
    updated_at: datetime | None  # None: never written
    is_empty: bool  # no text, or the bare template
    origin: str | None = None  # the operation that wrote it: update, tool, seed, clear, revert, clone, merge, keeper
    key: str = field(default="", compare=False)  # of Redis
    kept: str | None = field(default=None, compare=False)  # what a keeper has noted beside the document
    # By path all that was said, what holds first; only `working_memory.get` reads it
    timeline: Mapping[str, Sequence[WorkingMemoryValue]] | None = field(default=None, compare=False)

    def sources(self, path: str) -> list[tuple[str, str]]:
        """Return (thread_id, message_id) of the sources of a value; none where tool, program or person have set it.

        `path` is a JSON Pointer: "/city", "/languages/Danish", or "/Location" for a field of a template, or a line of
        free text behind a slash. `OptionError` names the paths that exist, or says that a turn has not read them.
        """
        return list(self._at(path)[0].sources)

    def since(self, path: str) -> datetime:
        """Return when a value was said, not when it was recorded. See `sources`."""
        return self._at(path)[0].since

    def history(self, path: str) -> list[WorkingMemoryValue]:
        """Return what a value is and was, the present one first; None: nothing holds any more. See `sources`."""
        return list(self._at(path))

    def _at(self, path: str) -> Sequence[WorkingMemoryValue]:
        if self.timeline is None:
            remedy = "call working_memory.get() of a memory with WorkingMemoryOptions(keeper=...)"
            raise OptionError("time and sources of the values are not known here", remedy=remedy)
        if values := self.timeline.get(path if path.startswith("/") else f"/{path}"):
            return values
        raise unknown_path(path, self.timeline)

    def __repr__(self) -> str:
        return f"<WorkingMemoryState: revision {self.revision}{', empty' if self.is_empty else ''}>"

    def __str__(self) -> str:
        return self.text


def unknown_path(path: str, known: Iterable[str]) -> OptionError:
    """Return the error for a path that no value has or had."""
    paths = ", ".join(map(repr, sorted(known)[:12]))
    remedy = f"use one of {paths}" if paths else "nothing is known yet"
    return OptionError(f"working memory has no value at {path!r}", remedy=remedy)


class _Counted(Pictured):
    __slots__ = ("counting",)  # how tokens are counted: no field, because it cannot be stored with a graph's state


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MemoryContext(_Counted):
    """The input of the model for one turn."""

    messages: list[BaseMessage]  # the history and the new messages; memory may be in front of a copy of the question
    system: list[str]  # blocks to put after your own system prompt, in this order; empty with placement="question"
    recalled: RecallResult
    working_memory: WorkingMemoryState | None = None  # None: switched off
    omitted: int = 0  # messages that `HistoryOptions.max_tokens` left out
    observations: Any = None  # the `ObservationLog` that stands for older messages; None: switched off

    @property
    def usage(self) -> ContextUsage:
        """Count the tokens of `system` (a system message for each block) and `messages`, by part.

        Counted when it is asked, each time, by `HistoryOptions.token_counter`; a context that was stored meanwhile, as
        in a checkpoint, by "approximate". The program's own system prompt and tools are not counted.
        """
        return usage_of(self.system, self.messages, getattr(self, "counting", None) or Counting())

    def __repr__(self) -> str:
        return f"<MemoryContext: {len(self.messages)} messages, {len(self.system)} system blocks, {self.recalled!r}>"

    def __str__(self) -> str:
        return "\n\n".join([*(f"system: {text}" for text in self.system), *map(line, self.messages)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check of the doctor."""

    check: str  # connection, server, search, persistence, eviction, memory, vectors, model and so on
    level: Level  # "unknown": this Redis user lacks the right to read it
    message: str
    remedy: str | None = None  # None: nothing needs to be done


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(Pictured):
    """The findings of the doctor, in the order of its checks. Iterating a diagnosis iterates its findings."""

    findings: list[Finding]

    @property
    def level(self) -> Level:
        """Return the worst level; "unknown" does not count."""
        levels = {finding.level for finding in self.findings}
        return next((level for level in ("error", "warning") if level in levels), "ok")

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionReport:
    """Counts of what a deletion has deleted."""

    user_id: str
    threads: int = 0
    messages: int = 0
    vectors: int = 0
    working_memories: int = 0  # of the user and of its threads
    revisions: int = 0
    files: int = 0  # each with its revisions
    # "deleted": those of the threads; "not asked": no `checkpointer` was passed; "not implemented": it cannot
    checkpoints: CheckpointsOutcome = "not asked"
    verified: bool  # no key names the user any more; False: others wrote at the same time, call it again


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeReport:
    """What a merge has moved from one user to another one."""

    source: str
    into: str
    threads: int = 0
    messages: int = 0
    working_memories: int = 0  # 1: that of the source was merged
    files: int = 0  # each with its revisions; without those that both have alike
    # of the source, where the other user has another file: old path to new
    files_renamed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """Counts of what an import has added."""

    user_id: str
    threads: int = 0
    messages: int = 0
    skipped: int = 0  # messages that were stored already
    dropped: int = 0  # messages that an importer has left out, such as system prompts
    working_memories: int = 0
    revisions: int = 0
    files: int = 0
    # paths where another file is stored, or was deleted: it stays as it is
    files_left: list[str] = field(default_factory=list)
    # what an importer could not read, such as a conversation, by its name: why
    unread: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillReport:
    """Counts of what a backfill has added, and the threads that it has left as they are."""

    threads: int = 0  # that got messages
    messages: int = 0
    known: int = 0  # threads of which memory had all messages already
    skipped: int = 0  # threads without an owner, or without messages
    left: Mapping[str, str] = field(default_factory=dict)  # by thread id: why it was not stored, or not to its end


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperReport:
    """A working memory after its keeper has read a thread."""

    memory: WorkingMemoryState
    operations: int = 0  # that have changed a value
    left_out: int = 0  # operations of a path or value that the schema lacks, or without a source
    last_error: str | None = None  # why the model has failed; what it has not read waits


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSummary:
    """A user who owns threads."""

    user_id: str
    threads: int
    messages: int  # of these threads
    updated_at: datetime  # when the last of these threads changed
