"""The records that operations return: frozen, slotted, times in UTC."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import datetime  # noqa: TC003 - pydantic resolves the annotations of a state with a MemoryContext
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import orjson
from langchain_core.messages import BaseMessage  # noqa: TC002 - likewise

from langchain_workingmem._text.clock import from_micros, to_micros
from langchain_workingmem._text.rendering import conversations, line
from langchain_workingmem._text.said import KINDS
from langchain_workingmem._text.unicode import visible
from langchain_workingmem.checks import check_zone
from langchain_workingmem.remembered import Shown
from langchain_workingmem.remembered import WorkingMemoryState as WorkingMemoryState  # noqa: PLC0414 - likewise
from langchain_workingmem.remembered import WorkingMemoryValue as WorkingMemoryValue  # noqa: PLC0414 - likewise
from langchain_workingmem.usage import ContextUsage as ContextUsage  # noqa: PLC0414 - likewise
from langchain_workingmem.usage import Counting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_core.documents import Document

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClonedThread:
    """A new thread, and the new ids of its messages."""

    thread: Thread
    message_ids: dict[str, str]  # id in the source -> id in the clone, in order


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Shown, Generic[T]):
    """A part of a listing. Iterating a page iterates its items."""

    items: list[T]
    total: int  # of the whole listing
    next_cursor: str | None = None  # pass it as `cursor` for the next page; None: this is the last page

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class _Kept:
    """Makes the message of a row when somebody looks at it: most are only rendered, and a message takes longer than that."""

    __slots__ = ("place", "record")  # its seq in keys and facts; what is stored: `at`, `type`, `data`

    def __getattr__(self, name: str) -> Any:  # only for what is not set yet
        if name == "stored_at":
            made: Any = from_micros(self.record["at"])
        elif name == "message":
            made = KINDS[self.record["type"]](**self.record["data"])
        elif name == "place":  # a row of a program's own, or one that was pickled
            made = self.seq
        elif name == "record":  # of a row that a program has made
            data = {"content": self.message.content, "tool_calls": getattr(self.message, "tool_calls", None)}
            made = {
                "type": self.message.type,
                "at": to_micros(self.stored_at),
                "data": {**data, "name": self.message.name},
            }
        else:
            raise AttributeError(name)
        object.__setattr__(self, name, made)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage(_Kept):
    """A message with what the store knows about it."""

    message: BaseMessage
    thread_id: str
    seq: int  # position in the thread: assigned by the server, rising, never reused
    stored_at: datetime  # strictly rising within a thread
    superseded: bool = False  # no longer part of the thread's history: edited, regenerated, on another branch
    refused: bool = field(default=False, repr=False)  # a provider refused it, so models no longer receive it
    upto: int = field(default=0, repr=False)  # estimated tokens of the thread up to this message; 0 for tool traffic

    @classmethod
    def of(cls, body: bytes | None, thread_id: str, place: int, upto: int = 0, *, make: bool = False) -> Self:
        """Read a body; `place` is its seq in keys and facts. With `make`, make the message. Raises what is in `UNREADABLE`."""
        if not body:
            raise ValueError("its body is gone")
        sign, text = body[:1], body if body[:1] == b"{" else body[1:]
        try:
            record: dict[str, Any] = orjson.loads(text)
        except orjson.JSONDecodeError:  # an escaped lone surrogate
            record = json.loads(text)
        record["type"], record["kind"], record["data"]["content"], record["at"] + record["number"]
        row, put = object.__new__(cls), object.__setattr__
        put(row, "record", record)
        put(row, "place", place)
        put(row, "thread_id", thread_id)
        put(row, "seq", record["number"])
        put(row, "superseded", sign == b"-")
        put(row, "refused", sign == b"!")
        put(row, "upto", upto)
        if make:
            put(row, "message", KINDS[record["type"]](**record["data"]))
        return row

    def with_message(self, message: BaseMessage) -> Self:
        """Return the row with another message, such as an excerpt."""
        row = replace(self, message=message, stored_at=self.stored_at)
        object.__setattr__(row, "place", self.place)
        return row

    @property
    def role(self) -> str:
        """Return the type of the message: human, ai, tool and so on."""
        return str(self.record["type"])


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallHit:
    """A message that a search found, with its window."""

    message: BaseMessage  # as it is stored, or, within a budget, a marked copy with an excerpt
    thread_id: str
    # Comparable within one result. Hits are ranked by it, except with a reranker that gives no scores: its order counts.
    score: float
    similarity: float  # of the vectors, 0 to 1; 0 when only its words matched
    before: list[BaseMessage]  # what was said before it in its thread, in order: no tool traffic
    after: list[BaseMessage]
    stored_at: datetime
    thread_title: str | None


class _Made(Shown):
    """Makes the hits when somebody looks at them: a prompt needs only the words of the rows."""

    # thread, seq and next seq of rows between which nothing was said; what makes the hits; titles by thread
    __slots__ = ("adjacent", "make", "titles")

    def __getattr__(self, name: str) -> Any:  # only for what is not set yet
        made: Any
        if name == "hits":
            made = self.make()
        elif name == "adjacent":
            made = frozenset()
        elif name == "titles":
            made = {hit.thread_id: hit.thread_title for hit in self.hits}
        else:
            raise AttributeError(name)
        object.__setattr__(self, name, made)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallResult(_Made):
    """The hits of a search, the best first, and their windows as one list of messages."""

    hits: list[RecallHit] = field(default_factory=list)
    rows: list[StoredMessage] = field(default_factory=list)  # the merged windows, each message once, by time
    # why a turn shows nothing though messages were found: none is near enough ("far"), or all are about as near ("ordinary")
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
        for name, value in (
            ("rows", rows),
            ("titles", titles),
            ("adjacent", adjacent),
            ("make", make),
            ("silent", None),
        ):
            put(found, name, value)
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

    def windows(self) -> dict[str, list[list[StoredMessage]]]:
        """Return the merged windows by thread, in chronological order: a list for each run of messages without a gap."""
        found: dict[str, list[list[StoredMessage]]] = {}
        last: dict[str, StoredMessage] = {}
        for row in self.rows:
            id, before = row.thread_id, last.get(row.thread_id)
            last[id] = row
            runs = found.setdefault(id, [])
            if before is None or (id, before.place, row.place) not in self.adjacent:
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
            lines = map(line, window)
            documents.append(Document(id=hit.message.id, page_content="\n".join(lines), metadata=metadata))
        return documents

    def as_text(self, timezone: str = "UTC") -> str:
        """Render the windows for a model or a log: escaped, dated in an IANA zone, labelled by thread, all characters visible."""
        return visible("\n".join(conversations(self, zone=check_zone(timezone, "timezone"))))


class _Counted(Shown):
    """Has a place for how tokens are counted, which is no field: it cannot be stored with a graph's state."""

    __slots__ = ("counting",)


@dataclass(frozen=True, slots=True, kw_only=True)
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

        Counted when it is asked, each time, by `HistoryOptions.token_counter`; a context that was stored meanwhile, as in a
        checkpoint, by "approximate". A context that middleware has made counts what the request has more than the program's own system
        prompt and tools.
        """
        from langchain_workingmem.usage.parts import usage_of

        return usage_of(self.system, self.messages, getattr(self, "counting", None) or Counting())
