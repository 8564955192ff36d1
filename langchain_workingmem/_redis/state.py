"""The state of a `Memory`: keys and options, what its parts keep in this process, and the two ways to run a plan."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property, partial, wraps
from threading import Lock
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, cast

from langchain_workingmem._engine import calls
from langchain_workingmem._redis.indexes import Indexes, with_layout
from langchain_workingmem.checks import check_zone
from langchain_workingmem.errors import OptionError, RedisConnectionError, RedisReplyError
from langchain_workingmem.options import Ids, RecallOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
    from zoneinfo import ZoneInfo

    from langchain_workingmem._engine.calls import Embedder
    from langchain_workingmem._engine.plan import Command, Plan
    from langchain_workingmem._engine.run import AsyncRunner, Runner
    from langchain_workingmem._redis.keys import Keys
    from langchain_workingmem.options import FileOptions, OnError, TimeZone, TitleOptions, WorkingMemoryOptions

_log = logging.getLogger("langchain_workingmem")
T = TypeVar("T")
P = ParamSpec("P")
K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

MOST_ENTRIES = 1000  # of a `Recent`
MOST_USERS = 10_000  # whose authors are remembered


class Recent(Generic[K, V]):
    """A mapping of at most `most` entries, safe between threads: the least recently used entry is dropped first."""

    def __init__(self, most: int = MOST_ENTRIES) -> None:
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
            value = make(self._entries.pop(key, None))
            if value is not None:
                self._entries[key] = value
            if len(self._entries) > self._most:
                self._entries.popitem(last=False)
            return value

    def pop(self, key: K) -> V | None:
        """Remove an entry, and return it."""
        with self._lock:
            return self._entries.pop(key, None)


class Part:
    """What takes part in a turn (`Turn`) beside history, recall and working memory; it adds itself to `parts`."""

    follows = False  # works on the messages of a running agent: they are saved before each call of the model
    covers: str | None = None  # the kind of rows that stand for messages: the history leaves these out

    def commands(self, state: MemoryState, thread_id: str, user_id: str) -> list[Command]:
        """Return what is read beside the history, in the same round trip."""
        return []

    def gathered(self, state: MemoryState, turn: Any, asked: Sequence[Command], replies: list[Any]) -> Plan[bool]:
        """Add the replies to the turn; return True if `turn.head` was changed, so that the history is read again."""
        yield from ()
        return False

    def renewed(self, state: MemoryState, turn: Any, *, waits: bool) -> Plan[None]:
        """Bring the turn up to date before the next model call of an agent's run; with `waits` this may take long."""
        yield from ()

    def overflowed(self, state: MemoryState, turn: Any) -> Plan[bool]:
        """Make room after a model has refused a prompt as too long; tell whether it is worth another try."""
        yield from ()
        return False

    def blocks(self, state: MemoryState, turn: Any, name: str | None) -> list[tuple[str, str]]:
        """Return blocks of a prompt, each with its place: "question", "system", or "first", before the conversation."""
        return []

    def written(self, state: MemoryState, thread_id: str, user_id: str | None, tokens: int) -> Plan[None]:
        """Take notice of messages that were written."""
        yield from ()


@dataclass(frozen=True, slots=True)
class ShownMessages:
    """The messages that a model was shown."""

    ids: frozenset[str]
    question: str  # the text that is being answered


@dataclass(frozen=True, slots=True)
class ShownDocument:
    """A working memory as a model knows it; what a tool returns the model learns at the next step of the graph."""

    text: str  # what the model knew before `step`
    step: Any = None  # the step of the graph after which the model knows `later`
    later: str = ""

    def at(self, step: Any) -> str:
        """Return what the model knew when it made the calls of a step; None: what it knows now."""
        return self.text if self.step is None or step == self.step else self.later


class ShownDocuments(Recent[tuple[str | None, str], ShownDocument]):
    """What models know of working memory, by thread and the key of the memory."""

    def note(self, thread_id: str | None, memory_key: str, text: str, step: Any = None) -> None:
        """Note what a model was shown: in its prompt, or by a tool in a step of its graph."""
        key = thread_id, memory_key
        if step is None:
            self.put(key, ShownDocument(text))
        else:
            self.change(key, lambda before: ShownDocument(before.at(step) if before else text, step, text))

    def text(self, thread_id: str | None, memory_key: str, step: Any = None) -> str | None:
        """Return what a model knew before this step, None if that is unknown."""
        document = self.get((thread_id, memory_key))
        return None if document is None else document.at(step)


@dataclass(kw_only=True)
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
    model: str = ""  # of embeddings, by name
    create: bool = True  # False: never create an index
    layout_known: bool = False  # the storage layout was checked
    secret: bytes | None = field(default=None, repr=False)  # of marks; None until the layout was checked
    closed: bool = False  # then calls raise, and a long background plan ends after what it is doing
    parts: list[Part] = field(default_factory=list)
    claims: dict[str, object] = field(default_factory=dict)  # what is done once in a process, or by one at a time
    authors: Recent[str, frozenset[str]] = field(default_factory=partial(Recent, MOST_USERS))  # of each user, as tags
    shown_documents: ShownDocuments = field(default_factory=ShownDocuments)
    shown_messages: Recent[str | None, ShownMessages] = field(default_factory=Recent)  # by thread, the last ones
    _local: dict[type, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        options = self.recall or RecallOptions()
        shared: Any = {"keys": self.keys, "embedder": self.embedder, "model": self.model, "create": self.create}
        self.indexes = Indexes(options=options, **shared)

    def local(self, kind: type[R]) -> R:
        """Return what a part keeps in this process for this memory, made at the first use: `kind()`."""
        kept = self._local.get(kind)
        return cast("R", self._local.setdefault(kind, kind()) if kept is None else kept)  # several threads may ask

    def claim(self, what: str) -> bool:
        """Claim what is done once in a process, or until its `release`; False if somebody has claimed it."""
        token = object()
        return self.claims.setdefault(what, token) is token  # in one step, as several threads may ask

    def release(self, what: str) -> None:
        """Let others claim it."""
        self.claims.pop(what, None)

    @cached_property
    def recalling(self) -> RecallOptions:
        """Return the options of recall; `OptionError` if it is off."""
        if self.recall is None:
            remedy = "pass recall=RecallOptions() and embeddings=... to Memory"
            raise OptionError("semantic recall is off", remedy=remedy)
        return self.recall

    @cached_property
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
            return check_zone(name(Ids(thread_id, user_id)), "what the function passed as timezone returned")
        return check_zone(name, "timezone")


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The state, runners and options that the parts and faces of a `Memory` share."""

    state: MemoryState
    runner: Runner
    async_runner: AsyncRunner
    new_id: Callable[[], str]
    on_error: OnError

    def run(self, plan: Plan[T], name: str = "") -> T:
        """Run a plan now; telemetry calls it by `name`, else by the name of its function."""
        return self.runner.run(self.ready(plan, name))

    async def arun(self, plan: Plan[T], name: str = "") -> T:
        """Run a plan in the running event loop."""
        return await self.async_runner.run(self.ready(plan, name))

    def ready(self, plan: Plan[T], name: str) -> Plan[T]:
        """Let telemetry see a plan by `name`, and check the layout first where that was not done."""
        if calls.plan_wrapper is not None:
            plan = calls.plan_wrapper(plan, name, self.state.keys.prefix)
        return plan if self.state.layout_known else with_layout(self.state, plan)

    def stream(self, plans: Iterable[Plan[list[T]]], name: str) -> Iterator[T]:
        """Run the steps of a long operation, each when the caller has taken what the one before gives."""
        for plan in plans:
            yield from self.run(plan, name)

    async def astream(self, plans: Iterable[Plan[list[T]]], name: str) -> AsyncIterator[T]:
        """Async twin of `stream`."""
        for plan in plans:
            for item in await self.arun(plan, name):
                yield item

    def with_breaker(self, plan: Plan[T]) -> Plan[T]:
        """Run a plan behind the circuit breaker, which raises at once while open; with on_error="raise" without it."""
        return plan if self.on_error == "raise" else self.runner.link.guard(plan)

    def with_fallback(self, plan: Plan[T], fallback: T, note: str) -> Plan[T]:
        """Run a plan with the breaker; with on_error="log", log an error of Redis, and return the fallback."""
        try:
            return (yield from self.with_breaker(plan))
        except (RedisConnectionError, RedisReplyError) as error:
            if self.on_error == "raise":
                raise
            _log.warning("%s: %s", note, error)
            return fallback


class HasCore(Protocol):
    """A memory, or a part of one."""

    _core: Core


class Operations:
    """The operations of one part of a memory."""

    def __init__(self, core: Core) -> None:
        self._core = core


S = TypeVar("S", bound=HasCore)


def operation(plan: Callable[Concatenate[S, P], Plan[T]]) -> Callable[Concatenate[S, P], T]:
    """Make a method of a memory from one that returns a plan: it runs the plan, and returns its result."""
    returned: str = plan.__annotations__["return"]
    plan.__annotations__["return"] = returned.removeprefix("Plan[").removesuffix("]")  # for `help`
    name = plan.__qualname__

    @wraps(plan)
    def run(self: S, /, *args: P.args, **options: P.kwargs) -> T:
        return self._core.run(plan(self, *args, **options), name)

    return run


def plan_of(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Plan[T]]:
    """Return what makes the plan of a method that `operation` has made, for a plan that has it as a part."""
    plan: Callable[Concatenate[S, P], Plan[T]] = method.__wrapped__  # type: ignore[attr-defined]
    return plan


def twin(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[object, None, T]]:
    """Make the async twin of a method that `operation` has made."""
    plan = plan_of(method)
    name = plan.__qualname__

    @wraps(plan)
    async def run(self: S, /, *args: P.args, **options: P.kwargs) -> T:
        return await self._core.arun(plan(self, *args, **options), name)

    run.__name__, run.__doc__ = f"a{plan.__name__}", f"Async twin of `{plan.__name__}`."
    run.__qualname__ = plan.__qualname__.removesuffix(plan.__name__) + run.__name__
    return run


class SetUpOnEntry:
    """A context manager that sets up on entry, and closes on exit or if setting up fails."""

    setup: Any  # methods, and their async twins
    asetup: Any
    close: Any
    aclose: Any

    def __enter__(self) -> Self:
        try:
            self.setup()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        try:
            await self.asetup()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
