"""The records that operations return: frozen, slotted, times in UTC. `str` of one is for reading, `repr` is short."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence  # noqa: TC003 - for pydantic
from dataclasses import dataclass, field, replace
from datetime import datetime  # noqa: TC003 - likewise
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import orjson
from langchain_core.messages import BaseMessage  # noqa: TC002 - likewise

from langchain_workingmem._text.clock import from_micros, to_micros, to_minute
from langchain_workingmem._text.rendering import conversations, line
from langchain_workingmem._text.said import KINDS
from langchain_workingmem._text.unicode import visible
from langchain_workingmem.checks import check_zone
from langchain_workingmem.errors import OptionError
from langchain_workingmem.usage import ContextUsage as ContextUsage  # noqa: PLC0414 - likewise
from langchain_workingmem.usage import Counting, usage_of

if TYPE_CHECKING:
    from langchain_core.documents import Document

T = TypeVar("T")


class Shown:
    """A record with a picture, for notebooks and, by rich, for terminals; what draws it is imported when it is drawn."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self._drawn("html"))

    def __rich__(self) -> Any:
        return self._drawn("terminal")

    def _drawn(self, module: str) -> Any:
        records, drawing = (import_module(f"langchain_workingmem.display.{name}") for name in ("records", module))
        return drawing.draw(records.picture_of(self))


class _Lazy:
    """Makes what a slot holds at its first use: most messages and hits are only rendered, which is quicker."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:  # only for what is not set yet
        make = getattr(type(self), f"_make_{name}", None)
        if make is None:
            raise AttributeError(name)
        object.__setattr__(self, name, made := make(self))
        return made


# ---------------------------------------------------------------------- threads and messages


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
class Page(Shown, Generic[T]):
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


class _Stored(_Lazy):
    __slots__ = ("place", "record")  # its seq in keys and facts; what is stored: `at`, `type`, `data`

    def _make_stored_at(self) -> datetime:
        return from_micros(self.record["at"])

    def _make_message(self) -> BaseMessage:
        return KINDS[self.record["type"]](**self.record["data"])

    def _make_place(self) -> int:  # of a row that a program has made, or that was pickled
        return int(self.seq)

    def _make_record(self) -> dict[str, Any]:  # likewise
        message = self.message
        calls = getattr(message, "tool_calls", None)
        data = {"content": message.content, "tool_calls": calls, "name": message.name}
        return {"type": message.type, "at": to_micros(self.stored_at), "data": data}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StoredMessage(_Stored):
    """A message with what the store knows about it."""

    message: BaseMessage
    thread_id: str
    seq: int  # position in the thread: assigned by the server, rising, never reused
    stored_at: datetime  # strictly rising within a thread
    superseded: bool = False  # no longer part of the thread's history: edited, regenerated, on another branch
    refused: bool = False  # a provider refused it, so models no longer receive it
    upto: int = 0  # estimated tokens of the thread up to this message; 0 for tool traffic

    @classmethod
    def of(cls, body: bytes | None, thread_id: str, place: int, upto: int = 0, *, make: bool = False) -> Self:
        """Read a body; `place` is its seq in keys and facts. `make`: with its message. Raises what is in `UNREADABLE`."""
        return cls.each([(place, upto, body)], thread_id, make=make)[0]

    @classmethod
    def each(
        cls,
        found: Iterable[tuple[int, int, bytes | None]],
        thread_id: str,
        *,
        make: bool = False,
        unreadable: tuple[type[Exception], ...] = (),
        tell: Callable[[str, int, Exception], None] = lambda *_: None,
    ) -> list[Self]:
        """Read bodies, each with its place and tokens, as `of` does; leave out what is `unreadable`, and `tell` of it.

        One call for all, and no message is made before somebody looks at it: a turn reads dozens.
        """
        rows, new, put = list["Self"](), object.__new__, object.__setattr__
        for place, upto, body in found:
            try:
                if not body:
                    raise ValueError("its body is gone")
                sign, text = body[:1], body if body[:1] == b"{" else body[1:]
                try:
                    record: dict[str, Any] = orjson.loads(text)
                except orjson.JSONDecodeError:  # an escaped lone surrogate
                    record = json.loads(text)
                record["type"], record["kind"], record["data"]["content"], record["at"] + record["number"]
                row = new(cls)
                put(row, "record", record)
                put(row, "place", place)
                put(row, "thread_id", thread_id)
                put(row, "seq", record["number"])
                put(row, "superseded", sign == b"-")
                put(row, "refused", sign == b"!")
                put(row, "upto", upto)
                if make:
                    put(row, "message", KINDS[record["type"]](**record["data"]))
                rows.append(row)
            except unreadable as error:
                tell(thread_id, place, error)
        return rows

    def with_message(self, message: BaseMessage) -> Self:
        """Return the row with another message, such as an excerpt."""
        row = replace(self, message=message, stored_at=self.stored_at)
        object.__setattr__(row, "place", self.place)
        return row

    @property
    def role(self) -> str:
        """Return the type of the message: human, ai, tool and so on."""
        return str(self.record["type"])

    def __repr__(self) -> str:
        return f"<StoredMessage {self.seq} of {self.thread_id!r}: {self.role}>"

    def __str__(self) -> str:
        return f"{to_minute(self.stored_at)} {line(self.message)}"


# ---------------------------------------------------------------------- recall


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RecallHit:
    """A message that a search found, with its window."""

    message: BaseMessage  # as it is stored, or, within a budget, a marked copy with an excerpt
    thread_id: str
    # comparable within one result; hits are ranked by it, except with a reranker that gives no scores: its order counts
    score: float
    similarity: float  # of the vectors, 0 to 1; 0 when only its words matched
    before: list[BaseMessage]  # what was said before it in its thread, in order: no tool traffic
    after: list[BaseMessage]
    stored_at: datetime
    thread_title: str | None

    def __repr__(self) -> str:
        return f"<RecallHit {self.message.id!r} of {self.thread_id!r}: {self.similarity:.2f}>"

    def __str__(self) -> str:
        return "\n".join(map(line, (*self.before, self.message, *self.after)))


class _Found(Shown, _Lazy):
    # thread, seq and next seq of rows between which nothing was said; what makes the hits; titles by thread
    __slots__ = ("adjacent", "make", "titles")

    def _make_hits(self) -> list[RecallHit]:
        return list(self.make())

    def _make_adjacent(
        self,
    ) -> frozenset[tuple[str, int, int]]:  # of a result that a program has made, or that was pickled
        return frozenset()

    def _make_titles(self) -> dict[str, str | None]:  # likewise
        return {hit.thread_id: hit.thread_title for hit in self.hits}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RecallResult(_Found):
    """The hits of a search, the best first, and their windows as one list of messages."""

    hits: list[RecallHit] = field(default_factory=list)
    rows: list[StoredMessage] = field(default_factory=list)  # the merged windows, each message once, by time
    # why a turn shows nothing of what was found: none is near enough ("far"), or all are about as near ("ordinary")
    silent: str | None = None

    @classmethod
    def of(
        cls,
        rows: list[StoredMessage],
        titles: dict[str, str | None],
        adjacent: frozenset[tuple[str, int, int]],
        make: Callable[[], list[RecallHit]],
    ) -> Self:
        """Return a result whose hits are made when somebody looks at them."""
        found, put = object.__new__(cls), object.__setattr__
        put(found, "rows", rows)
        put(found, "titles", titles)
        put(found, "adjacent", adjacent)
        put(found, "make", make)
        put(found, "silent", None)
        return found

    def with_rows(self, rows: list[StoredMessage]) -> Self:
        """Return the result with some of its rows."""
        return self if len(rows) == len(self.rows) else self.of(rows, self.titles, self.adjacent, lambda: self.hits)

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
        found: dict[str, list[list[StoredMessage]]] = {}
        for row in self.rows:
            runs = found.setdefault(row.thread_id, [])
            if not runs or (row.thread_id, runs[-1][-1].place, row.place) not in self.adjacent:
                runs.append([])
            runs[-1].append(row)
        return found

    def to_documents(self) -> list[Document]:
        """Return one document per hit: its window with the speakers, and ids, similarity and time as metadata.

        A message is in one document only: a hit in its own, a neighbour in the document of the best hit.
        """
        from langchain_core.documents import Document

        used = {(hit.thread_id, hit.message.id) for hit in self.hits}
        documents = []
        for hit in self.hits:
            whole = (*hit.before, hit.message, *hit.after)
            window = [one for one in whole if one is hit.message or (hit.thread_id, one.id) not in used]
            used |= {(hit.thread_id, message.id) for message in window}
            metadata = {name: getattr(hit, name) for name in ("thread_id", "thread_title", "similarity", "score")}
            metadata |= {"message_id": hit.message.id, "role": hit.message.type, "stored_at": hit.stored_at.isoformat()}
            documents.append(Document(id=hit.message.id, page_content="\n".join(map(line, window)), metadata=metadata))
        return documents

    def as_text(self, timezone: str = "UTC") -> str:
        """Render the windows for a model or a log: escaped, dated in a zone, labelled by thread, all characters visible."""
        return visible("\n".join(conversations(self, zone=check_zone(timezone, "timezone"))))


# ---------------------------------------------------------------------- working memory


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingMemoryValue:
    """One value of working memory, with the messages that it comes from."""

    path: str  # JSON Pointer: /city, /languages/Danish; in a template /Location; of free text a line
    value: Any  # None: from then on nothing was known
    since: datetime  # when it was said
    sources: list[tuple[str, str]]  # (thread_id, message_id); none where tool, program or person have set it


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WorkingMemoryState(Shown):
    """Working memory at one revision."""

    value: Any  # text, or the document as the schema's type: a model, a dataclass, a dict; None while it is empty
    text: str  # as it is stored: Markdown, text or JSON
    revision: int  # 0: never written
    updated_at: datetime | None  # None: never written
    is_empty: bool  # no text, or the bare template
    origin: str | None = None  # the operation that wrote it: update, tool, clear, revert, seed, clone
    key: str = field(default="", compare=False)  # of Redis
    kept: str | None = field(default=None, compare=False)  # what a keeper has noted beside the document
    # By path all that was said, what holds first; only `working_memory.get` reads it
    timeline: Mapping[str, Sequence[WorkingMemoryValue]] | None = field(default=None, compare=False)

    def sources(self, path: str) -> list[tuple[str, str]]:
        """Return (thread_id, message_id) of the sources of a value; none where tool, program or person have set it.

        `path` is a JSON Pointer: "/city", "/languages/Danish", or "/Location" for a field of a template, or a line of
        free text behind a slash. `OptionError` names the paths that exist, or says that the state comes from a turn,
        which does not read this.
        """
        return list(self._at(path)[0].sources)

    def since(self, path: str) -> datetime:
        """Return when a value was said, not when it was recorded. See `sources`."""
        return self._at(path)[0].since

    def history(self, path: str) -> list[WorkingMemoryValue]:
        """Return what a value is and was, the present one first; None as value: nothing holds any more. See `sources`."""
        return list(self._at(path))

    def _at(self, path: str) -> Sequence[WorkingMemoryValue]:
        if self.timeline is None:
            remedy = "call working_memory.get() of a memory with WorkingMemoryOptions(keeper=...)"
            raise OptionError("time and sources of the values are not known here", remedy=remedy)
        if found := self.timeline.get(path if path.startswith("/") else f"/{path}"):
            return found
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


# ---------------------------------------------------------------------- a turn


class _Counted(Shown):
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
        in a checkpoint, by "approximate". A context that middleware has made counts what the request has more than the
        program's own system prompt and tools.
        """
        return usage_of(self.system, self.messages, getattr(self, "counting", None) or Counting())

    def __repr__(self) -> str:
        return f"<MemoryContext: {len(self.messages)} messages, {len(self.system)} system blocks, {self.recalled!r}>"

    def __str__(self) -> str:
        return "\n\n".join([*(f"system: {text}" for text in self.system), *map(line, self.messages)])
