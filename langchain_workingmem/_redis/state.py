"""The state of a `Memory`: its keys and options, what is known of its indexes, and what its parts keep in this process."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from langchain_workingmem._redis.indexes import RECALL_IS_OFF, TURN_ON_RECALL, Indexes
from langchain_workingmem._text.sending import Marks
from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem.checks import check_zone
from langchain_workingmem.errors import OptionError
from langchain_workingmem.options import Ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from zoneinfo import ZoneInfo

    from langchain_workingmem._engine.embedder import Embedder
    from langchain_workingmem._redis.keys import Keys
    from langchain_workingmem.options import FileOptions, RecallOptions, TimeZone, TitleOptions, WorkingMemoryOptions

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

MOST = 1000  # entries


class Recent(Generic[K, V]):
    """A mapping of at most `most` entries, safe between threads: the least recently used entry is dropped first."""

    __slots__ = ("_entries", "_lock", "_most")

    def __init__(self, most: int = MOST) -> None:
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()
        self._most = most

    def get(self, key: K) -> V | None:
        """Return an entry, or None."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        """Set an entry."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            if len(self._entries) > self._most:
                self._entries.popitem(last=False)

    def change(self, key: K, make: Callable[[V | None], V | None]) -> V | None:
        """Replace an entry by what `make` returns for it, and return that; None removes the entry. Atomic."""
        with self._lock:
            made = make(self._entries.pop(key, None))
            if made is not None:
                self._entries[key] = made
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
            return made

    def __len__(self) -> int:
        return len(self._entries)

    def pop(self, key: K) -> V | None:
        """Remove an entry, and return it."""
        with self._lock:
            return self._entries.pop(key, None)


@dataclass(slots=True, kw_only=True)
class MemoryState:
    """The state of one `Memory`."""

    keys: Keys
    embedder: Embedder
    recall: RecallOptions | None = None
    working_memory: WorkingMemoryOptions | None = None
    title: TitleOptions | None = None
    files: FileOptions | None = None
    thread_filters: tuple[str, ...] = ()  # keys of thread metadata that filters may name
    timezone: TimeZone = "UTC"
    ttl_ms: int | None = None  # from the last write to a thread to its expiry
    layout_known: bool = False  # the storage layout was checked
    secret: bytes | None = field(default=None, repr=False)  # of marks; None until the layout was checked
    model: InitVar[str] = ""
    create: InitVar[bool] = True
    indexes: Indexes = field(init=False)
    closers: set[object] = field(default_factory=set)  # the calls of `close` that wait for background plans
    parts: list[Any] = field(default_factory=list)  # each a `Part` of rooms.py, which registers itself
    _rooms: dict[type, object] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)  # what is done once in a process

    def __post_init__(self, model: str, create: bool) -> None:
        self.indexes = Indexes(keys=self.keys, recall=self.recall, model=model, create=create, embedder=self.embedder)

    def room(self, kind: type[R]) -> R:
        """Return what a part keeps in this process for this memory, made at the first use: `kind()`."""
        found = self._rooms.get(kind)
        return cast("R", self._rooms.setdefault(kind, kind()) if found is None else found)  # several threads may ask

    def is_first(self, what: str) -> bool:
        """Tell whether a process asks for something for the first time."""
        is_first = what not in self._done
        self._done.add(what)
        return is_first

    def forget_first(self, what: str) -> None:
        """Let the next time be the first one again."""
        self._done.discard(what)

    def marks(self, thread_id: str, user_id: str) -> Marks:
        """Return what signs and reads marks in messages of a thread."""
        return Marks(self.secret, thread_id, user_id)

    @property
    def shown_to_model(self) -> ShownToModel:
        """What models were shown last."""
        return self.room(ShownToModel)

    @property
    def closing(self) -> bool:
        """Tell whether the memory is being closed: a long background plan then ends after what it is doing."""
        return bool(self.closers)

    @contextmanager
    def while_closing(self) -> Iterator[None]:
        """Make `closing` true; several threads and event loops may close a memory at once."""
        closer = object()
        self.closers.add(closer)
        try:
            yield
        finally:
            self.closers.discard(closer)

    @property
    def recalling(self) -> RecallOptions:
        """Return the options of recall; `OptionError` if it is off."""
        if self.recall is None:
            raise OptionError(RECALL_IS_OFF, remedy=TURN_ON_RECALL)
        return self.recall

    @property
    def remembering(self) -> WorkingMemoryOptions:
        """Return the options of working memory; `OptionError` if it is off."""
        if self.working_memory is None:
            raise OptionError("working memory is off", remedy="pass working_memory=WorkingMemoryOptions() to Memory")
        return self.working_memory

    def zone(self, thread_id: str | None, user_id: str | None, named: str | None = None) -> ZoneInfo | None:
        """Return the time zone of a user, None: UTC. `named` is the one that a call names."""
        name = named or self.timezone
        if name == "UTC":
            return None
        if callable(name):
            try:
                found: object = name(Ids(thread_id, user_id))
            except Exception as error:
                raise OptionError(
                    f"the function passed as timezone raised {type(error).__name__}",
                    remedy="let it return a name for every user, 'UTC' where it knows none",
                ) from error
            return check_zone(found, "what the function passed as timezone returned")
        return check_zone(name, "timezone")


@dataclass(frozen=True, slots=True)
class ShownDocument:
    """A working memory as a model knows it.

    The tool calls of one answer know only the document of the prompt. The model learns what a tool returns at the next
    step of the graph.
    """

    text: str
    step: Any = None  # the step of the graph after which the model knows `later`
    later: str | None = None

    def at(self, step: Any) -> str:
        """Return what the model knew when it made the calls of a step."""
        return self.text if self.later is None or step == self.step else self.later


@dataclass(frozen=True, slots=True)
class ShownMessages:
    """The messages that a model was shown."""

    ids: frozenset[str]
    question: str  # the text that is being answered
    owner: str  # of the thread then: another user may send its id, or own a later thread of that id
    question_id: str | None = None  # of the message with that text, if it has an id


@dataclass(slots=True)
class ShownToModel:
    """What models were shown last, by thread; safe between threads."""

    _shown: Recent[tuple[str | None, str], ShownDocument] = field(default_factory=Recent)
    _messages: Recent[str | None, ShownMessages] = field(default_factory=Recent)

    def note_shown_document(self, thread_id: str | None, memory_key: str, text: str, step: Any = None) -> None:
        """Note the working memory that a model was shown: in its prompt, or by a tool in a step of its graph."""

        def make(before: ShownDocument | None) -> ShownDocument:
            if step is None:
                return ShownDocument(text)
            return ShownDocument(text if before is None else before.at(step), step, text)

        self._shown.change((thread_id, memory_key), make)

    def shown_document(self, thread_id: str | None, memory_key: str, step: Any = None) -> str | None:
        """Return the text of a working memory that a model was shown before this step, None if that is unknown."""
        found = self._shown.get((thread_id, memory_key))
        return None if found is None else found.at(step)

    def document_after_step(self, thread_id: str | None, memory_key: str) -> str | None:
        """Return the text that a model knows after the present step, None if that is unknown."""
        return self.shown_document(thread_id, memory_key, object())

    def note_shown_messages(
        self,
        thread_id: str,
        message_ids: Iterable[str | None],
        question_text: str,
        owner: str,
        question_id: str | None = None,
    ) -> None:
        """Note the messages that a model is shown, and the text and the id of the question that it answers."""
        shown = ShownMessages(_storable(message_ids), question_text.strip(), owner, question_id)
        self._messages.put(thread_id, shown)

    def shown_messages(self, thread_id: str | None) -> ShownMessages | None:
        """Return the messages that a model was shown, None if that is unknown."""
        return self._messages.get(thread_id)

    def forget_shown_messages(self, thread_id: str | None) -> None:
        """Forget which messages a model was shown."""
        self._messages.pop(thread_id)


def _storable(message_ids: Iterable[str | None]) -> frozenset[str]:
    return frozenset(id for id in message_ids if id and (id.isascii() or is_utf8(id)))
