"""The records that operations return: frozen, slotted, times in UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - a pydantic state with a MemoryContext resolves the annotations
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from langchain_core.messages import BaseMessage  # noqa: TC002 - likewise

from langchain_workingmem._documents.diffs import changes
from langchain_workingmem._text.rendering import conversations, line
from langchain_workingmem._text.unicode import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.documents import Document

T = TypeVar("T")
Level: TypeAlias = Literal["ok", "unknown", "warning", "error"]


class _Shown:
    """Shows itself in notebooks, and in terminals through rich."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from langchain_workingmem.display.html import html

        return html(self)

    def __rich__(self) -> Any:
        from langchain_workingmem.display.terminal import rich

        return rich(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread(_Shown):
    """One conversation."""

    id: str
    resource_id: str
    title: str | None
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    message_count: int
    clone_of: str | None = None
    unfinished: bool = (
        False  # a clone that is being written, or whose writer died: clone with its id again, or delete it
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClonedThread:
    """A new thread, and where each message of the source went."""

    thread: Thread
    message_ids: dict[str, str]  # id in the source -> id in the clone, in order


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(_Shown, Generic[T]):
    """A part of a listing. Iterating a page iterates its items."""

    items: list[T]
    total: int  # of the whole listing
    next_cursor: str | None = None  # pass it as `cursor` for the next page; None: this was the last

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """A message with what the store knows about it."""

    message: BaseMessage
    thread_id: str
    seq: int  # position in the thread, given by the server: rising, never reused
    stored_at: datetime  # strictly rising within a thread
    superseded: bool = False  # the conversation has left it behind: edited, regenerated, on another branch
    refused: bool = False  # a provider refused it, so no model is shown it again
    upto: int = 0  # estimated tokens of all that was said in the thread up to it; 0 for tool traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallHit:
    """A message that was recalled, with its window."""

    message: BaseMessage  # as it is stored, or within a budget a marked copy with an excerpt
    thread_id: str
    score: float  # what hits are ranked by, comparable within one result
    similarity: float  # of the vectors, 0 to 1; 0 when only its words matched
    before: list[BaseMessage]  # messages in front of it in its thread, in order
    after: list[BaseMessage]
    stored_at: datetime
    thread_title: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallResult(_Shown):
    """What recall brings back: hits with the best first, and their windows as one list of messages."""

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

    @property
    def titles(self) -> dict[str, str | None]:
        """Return the titles of the threads of the hits, by thread id."""
        return {hit.thread_id: hit.thread_title for hit in self.hits}

    def windows(self) -> dict[str, list[list[tuple[datetime, BaseMessage]]]]:
        """Return the merged windows by thread, in chronological order: a list for each run of messages without a gap."""
        found: dict[str, list[list[tuple[datetime, BaseMessage]]]] = {}
        last: dict[str, StoredMessage] = {}
        joined: set[tuple[str, str | None, str | None]] | None = None
        for row in self.rows:
            id, before = row.thread_id, last.get(row.thread_id)
            last[id] = row
            if before is None:
                found[id] = [[(row.stored_at, row.message)]]
                continue
            is_next = row.seq == before.seq + 1
            if not is_next:  # numbers of deleted messages are missing: a window says that nothing is in between
                joined = self._joined() if joined is None else joined
                is_next = (id, before.message.id, row.message.id) in joined
            if not is_next:
                found[id].append([])
            found[id][-1].append((row.stored_at, row.message))
        return found

    def _joined(self) -> set[tuple[str, str | None, str | None]]:
        return {
            (hit.thread_id, one.id, other.id)
            for hit in self.hits
            for one, other in pairwise([*hit.before, hit.message, *hit.after])
        }

    def to_documents(self) -> list[Document]:
        """Give one document per hit: its window with the speakers, and ids, similarity and time as metadata.

        A message stands in one document only: a hit in its own, its neighbours in that of the best hit.
        """
        from langchain_core.documents import Document

        taken = {(hit.thread_id, hit.message.id) for hit in self.hits}
        documents = []
        for hit in self.hits:
            window = []
            for message in (*hit.before, hit.message, *hit.after):
                place = hit.thread_id, message.id
                if message is hit.message or place not in taken:
                    taken.add(place)
                    window.append(message)
            metadata = {
                "thread_id": hit.thread_id,
                "thread_title": hit.thread_title,
                "message_id": hit.message.id,
                "role": hit.message.type,
                "similarity": hit.similarity,
                "score": hit.score,
                "stored_at": hit.stored_at.isoformat(),
            }
            documents.append(Document(id=hit.message.id, page_content="\n".join(map(line, window)), metadata=metadata))
        return documents

    def as_text(self) -> str:
        """Render the windows for a model or a log: escaped, dated, labelled by conversation, with nothing in it that hides."""
        return visible("\n".join(conversations(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingMemoryState(_Shown):
    """Working memory at one revision."""

    value: Any  # text, or the document as the schema's type: a model, a dataclass, a dict; None while it is empty
    text: str  # as it is stored: Markdown, text or JSON
    revision: int  # 0: never written
    updated_at: datetime | None  # None: never written
    is_empty: bool  # nothing, or the bare template
    origin: str | None = None  # what wrote it: update, tool, clear, revert, seed, clone
    template: str | None = (
        None  # along which it is kept, that of the user if each has one; None: a schema, or free text
    )
    # for the prompt; not a part of what is known
    instructions: str | None = field(default=None, repr=False, compare=False)
    key: str = field(default="", repr=False, compare=False)  # under which it is stored

    def diff(self, earlier: WorkingMemoryState | None) -> WorkingMemoryDiff:
        """Compare with an earlier revision, line by line; None stands for nothing at all. No round trip."""
        return WorkingMemoryDiff(
            earlier=earlier.revision if earlier else 0,
            later=self.revision,
            lines=changes(earlier.text if earlier else "", self.text),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingMemoryDiff(_Shown):
    """What changed between two revisions of working memory. `str()` gives a unified diff, "" where nothing did.

    JSON is compared with a line for each value, and neither the order of keys nor commas count.
    """

    earlier: int  # revision; 0: nothing was written yet
    later: int
    lines: list[str]  # of the unified diff, behind its header

    @property
    def added(self) -> list[str]:
        """Return the lines that are new."""
        return [line[1:] for line in self.lines if line.startswith("+")]

    @property
    def removed(self) -> list[str]:
        """Return the lines that are gone."""
        return [line[1:] for line in self.lines if line.startswith("-")]

    def __str__(self) -> str:
        head = [f"--- revision {self.earlier}", f"+++ revision {self.later}"] if self.lines else []
        return "\n".join([*head, *self.lines])


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryContext(_Shown):
    """What a model is shown at one turn."""

    messages: list[BaseMessage]  # the history, and what is new; with memory in front of the user's words, in a copy
    system: list[str]  # blocks to put behind your own system prompt, in this order; empty with placement="question"
    recalled: RecallResult
    working_memory: WorkingMemoryState | None = None  # None: switched off
    omitted: int = 0  # messages that `HistoryOptions.max_tokens` left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that the doctor looked at."""

    # connection, server, search, persistence, eviction, memory, threads index, vectors index, vectors, model or circuit breaker
    check: str
    level: Level  # "unknown": this user may not see it
    message: str
    remedy: str | None = None  # None where nothing needs to be done


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(_Shown):
    """What the doctor found, in the order in which it looked. Iterating a diagnosis iterates its findings."""

    findings: list[Finding]

    @property
    def level(self) -> Level:
        """Return the worst level; what is unknown is neither good nor bad."""
        levels = {finding.level for finding in self.findings}
        return next((level for level in ("error", "warning") if level in levels), "ok")

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionReport:
    """What a deletion has deleted."""

    resource_id: str
    threads: int = 0
    messages: int = 0
    vectors: int = 0
    working_memories: int = 0  # of the resource and of its threads
    revisions: int = 0
    items: int = 0  # of LangGraph stores, where namespaces were named
    verified: bool  # no key names the resource any more; False: writers were in the way, call it again


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an import has added."""

    resource_id: str
    threads: int = 0
    messages: int = 0
    skipped: int = 0  # messages that were there already
    working_memories: int = 0
    revisions: int = 0
    items: int = 0  # of LangGraph stores; without their vectors
