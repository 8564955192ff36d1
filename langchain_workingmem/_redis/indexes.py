"""What a memory checks and creates on its server: settings and layout before its first command, and search indexes."""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from langchain_workingmem._engine.plan import ANSWER_WHEN_FULL, Plan, Send, Sleep, attempt, send, with_each
from langchain_workingmem._redis.codec import as_dict, search_version
from langchain_workingmem._redis.queries import (
    aggregate,
    build_filter,
    built_as,
    is_stale,
    rows_of,
    sorted_search,
    threads_schema,
    vectors_schema,
)
from langchain_workingmem._text.sending import SECRETS
from langchain_workingmem.errors import (
    EmbeddingError,
    EmbeddingSizeError,
    OptionError,
    RedisCapabilityError,
    RedisReplyError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from langchain_workingmem._engine.calls import Embedder
    from langchain_workingmem._engine.plan import Command, Effect
    from langchain_workingmem._redis.keys import Keys
    from langchain_workingmem.options import NumberType, RecallOptions

_log = logging.getLogger("langchain_workingmem")
T = TypeVar("T")

LAYOUT = "18"  # the version of the storage layout
WHEN_FULL: Command = ("CONFIG", "GET", "search-on-oom", "maxmemory")
LISTED = 10_000  # threads in a round trip
_INT8 = 80_000  # the first version of Search that has vectors of int8
# codes of a server that has the index, or only reads now
_LATER = frozenset({"SEARCH_INDEX_EXISTS", "OOM", "MISCONF", "NOREPLICAS", "READONLY"})
# what embedding and `vectors_ready` raise; the rest of a call may go on without vectors
EMBEDDING_ERRORS = (EmbeddingError, EmbeddingSizeError, OptionError, RedisCapabilityError)


# ---------------------------------------------------------------------- the server, and the layout of the database


class HasLayout(Protocol):
    """The state of a memory or of a store."""

    keys: Keys
    layout_known: bool
    secret: bytes | None


def with_layout(state: HasLayout, plan: Plan[T]) -> Plan[T]:
    """Return the plan with a check of the server before its first command, which an error of the check stands for."""

    def checked(effect: Effect[Any]) -> Plan[Any]:
        if isinstance(effect, Send) and not state.layout_known:
            yield from check_layout(state)
        return (yield effect)

    return with_each(plan, checked)


def check_layout(state: HasLayout) -> Plan[None]:
    """Check the server and the version in the database; write it into a new database. One round trip, there two."""
    read: Command = ("HMGET", state.keys.layout, "version", "secret")
    # A failed connection is not tried again here: the plan repeats its command, and this check with it. In a cluster
    # each command is sent alone: its pipelines take commands with a key only.
    stored, settings = yield from Send((read, WHEN_FULL), in_order=True)
    if isinstance(stored, RedisReplyError):
        raise stored
    # over RESP3, which replies with a dict, each answer says so itself; who may not read the settings is believed
    config = as_dict(settings) if isinstance(settings, list) else {}
    if config.get(b"search-on-oom") == b"return" and config.get(b"maxmemory", b"0") != b"0":  # of Search 8.4 and later
        problem = "search-on-oom is 'return' and maxmemory is set: when memory is full, searches would find nothing"
        raise RedisCapabilityError(problem, remedy=ANSWER_WHEN_FULL)
    if None in stored:
        # HSETNX: another process may have written them meanwhile
        new = {"version": LAYOUT, "secret": secrets.token_hex(32)}
        writing = (("HSETNX", state.keys.layout, name, value) for name, value in new.items())
        *_, stored = yield from attempt(*writing, read, in_order=True)
        if stored[0] is None:  # the server takes no writes, or not from this user: reading does no harm
            return
    compare_layout(state.keys, stored[0])
    state.layout_known, state.secret = True, stored[1]
    if state.secret:
        SECRETS[state.secret] = None


def compare_layout(keys: Keys, stored: bytes) -> None:
    """Raise `OptionError` for another version than ours."""
    if (version := stored.decode(errors="replace")) != LAYOUT:
        problem = f"the keys under {keys.prefix!r} have storage layout {version}, this version uses {LAYOUT}"
        remedy = "export with the version that wrote them, then import under another key_prefix or elsewhere"
        raise OptionError(problem, remedy=remedy)


# ---------------------------------------------------------------------- the indexes of a memory


class ListedThread(NamedTuple):
    """A thread as the index has it."""

    id: str
    message_count: int
    last_at: int  # time of its newest message; 0 without any


@dataclass(slots=True, kw_only=True)
class Indexes:
    """The indexes of threads and of vectors. What concerns vectors is called with recall on."""

    keys: Keys
    options: RecallOptions
    embedder: Embedder
    model: str  # its model by name; empty without recall
    create: bool  # False: never create an index
    threads_ready: bool = False
    dims: int | None = None  # of the vector index, once it is known to exist
    dtype: NumberType = "float16"  # of its numbers, likewise
    digest: str = ""  # of the settings of vectors, likewise
    learned_floor: float | None = None  # from which on a similarity tells something; None: not learned for this model

    def ready(self) -> Plan[None]:
        """Create the index of threads if needed: the round trips of `ensure_index` the first time, none later."""
        if self.threads_ready or not self.create:
            return
        yield from ensure_index(threads_schema(self.keys))
        self.threads_ready = True

    def missing(self) -> Plan[bool]:
        """Tell whether there is no index of threads: nothing was ever stored. One round trip."""
        (reply,) = yield from attempt(("FT.INFO", self.keys.threads_index))
        return isinstance(reply, RedisReplyError) and is_stale(reply)

    def search(self, *searches: Command) -> Plan[list[Any]]:
        """Search the index of threads, which is made or repaired if need be. One round trip."""
        yield from self.ready()
        return (yield from search_with_repair(lambda: send(*searches), self.refresh, create=self.create))

    def threads(self, user_id: str | None) -> Plan[list[ListedThread]]:
        """List the threads of a user, or all, the oldest first. A round trip per 10,000."""
        index, threads, last = self.keys.threads_index, list[ListedThread](), None
        while True:
            where = build_filter(user_id=user_id, since=last and last[0])
            fields = "count", "last_at"
            command = sorted_search(index, where, "created_at", limit=LISTED, after=last, fields=fields)
            rows = rows_of((yield from self.search(command))[0])
            for row in rows:
                count, last_at = int(row.get(b"count", 0)), int(row.get(b"last_at", 0))
                threads.append(ListedThread(self.keys.thread_of(row[b"__key"]), count, last_at))
            if len(rows) < LISTED:
                return threads
            last = int(rows[-1][b"created_at"]), rows[-1][b"__key"].decode()

    def refresh(self, dims: int | None = None) -> Plan[None]:
        """Check the index of threads again, with `dims` that of vectors, too; create what is missing."""
        self.threads_ready, self.dims = False, None
        yield from self.ready()
        if dims is not None:
            yield from self.vectors_ready(dims)

    def setup(self) -> Plan[None]:
        """Create all indexes; embeds a text if the dimensions are not stored yet."""
        yield from self.ready()
        if self.model and self.dims is None:
            (stored,) = yield from send(("GET", self.keys.vectors_settings))
            dims = json.loads(stored)["dims"] if stored else (yield from self.embedder.dimensions())
            yield from self.vectors_ready(dims)

    def vectors_ready(self, dims: int) -> Plan[None]:
        """Create or check the vector index, at the first time. `EMBEDDING_ERRORS` are the errors."""
        if self.dims == dims:
            return
        if self.create:
            yield from self._check_engine()
        key, wanted = self.keys.vectors_settings, self.index_settings(dims)
        beside = ("GET", self.keys.vectors_floor), ("EXISTS", key)
        stored, floor, existed = yield from register_index_settings(key, wanted, *beside, create=self.create)
        if stored is None:
            raise no_index(f"there is no index {self.keys.vectors_index!r}")
        self.check_index_settings(stored, dims)
        if stored["model"] != self.model:
            remedy = "run memory.recall.reindex(), until then recall finds little"
            _log.warning("the vectors were made by %s, the model is now %s: %s", stored["model"], self.model, remedy)
        if self.create:
            attributes = {name: value for name, value in stored.items() if name != "model"}
            yield from ensure_index(vectors_schema(self.keys, attributes))
            with_messages = ("LOAD", 1, "@count", "FILTER", "@count > 0", "LIMIT", 0, 1)
            command = aggregate(self.keys.threads_index, "*", *with_messages)
            if not existed and rows_of((yield from self.search(command))[0]):
                _log.warning("recall is new, and older messages have no vectors: memory.recall.reindex() adds them")
        if floor and (learned := json.loads(floor))["model"] == self.model:
            self.learned_floor = learned["floor"]
        self.digest, self.dims, self.dtype = self.digest_of(stored), dims, stored["datatype"]

    def _check_engine(self) -> Plan[None]:
        """Raise `RedisCapabilityError` if the index is to hold int8, and the engine has no such vectors."""
        if self.options.index.dtype == "int8":
            (hello,) = yield from attempt(("HELLO",))
            if (search_version(hello) or _INT8) < _INT8:  # a hosted server may hide it, and refuses the index then
                remedy = "use IndexOptions(dtype='float16'), or Redis 8"
                raise RedisCapabilityError("the Search of this server has no vectors of int8", remedy=remedy)

    def digest_of(self, stored: Mapping[str, Any]) -> str:
        """Return a digest of all settings that decide a message's vectors; `reindex` replaces others."""
        recall = self.options
        settings = [self.model, stored["dims"], stored["datatype"], recall.chunk_tokens]
        settings += [sorted(recall.roles), sorted(recall.filterable)]
        return hashlib.blake2s(json.dumps(settings).encode(), digest_size=6).hexdigest()

    def index_settings(self, dims: int, stored: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the model and options of the vector index, which keeps its number type unless one is passed."""
        kept = (stored["datatype"],) if stored else ()
        return {"model": self.model, **self.options.index.attributes(dims, *kept)}

    def check_index_settings(self, stored: dict[str, Any], dims: int) -> None:
        """Raise if an index of the stored settings does not fit the options; the model's name may differ."""
        wanted = self.index_settings(dims, stored)
        if stored["dims"] != dims:
            raise EmbeddingSizeError(
                f"the index {self.keys.vectors_index!r} holds vectors of {stored['dims']} dimensions, "
                f"the model {self.model} gives {dims}",
                remedy="use the model of the index, or embed everything again with memory.recall.reindex()",
                expected=stored["dims"],
                actual=dims,
            )
        changed = {name: value for name, value in stored.items() if name != "model" and wanted.get(name) != value}
        if changed:
            problem = f"the vector index was built with {changed}, these options differ"
            raise OptionError(problem, remedy="use those, or rebuild it with memory.recall.reindex()")

    def rebuild_index(self) -> Plan[None]:
        """Create the vector index for options and model; drop one with other settings, but not its documents."""
        dims = yield from self.embedder.dimensions()
        yield from self._check_engine()
        stored, info = yield from attempt(
            ("GET", self.keys.vectors_settings), ("FT.INFO", self.keys.vectors_index), in_order=True
        )
        settings = json.loads(stored) if stored else {}
        built = {} if isinstance(info, RedisReplyError) else built_as(info)  # otherwise after an interrupted rebuild
        wanted = self.index_settings(dims, settings | built)
        if (settings and settings != wanted) or not built.items() <= wanted.items():
            # the settings first: whoever searches meanwhile makes the index by them
            yield from send(("SET", self.keys.vectors_settings, json.dumps(wanted)))
            yield from attempt(("FT.DROPINDEX", self.keys.vectors_index))
        self.dims = None
        yield from self.vectors_ready(dims)


def register_index_settings(key: str, wanted: Mapping[str, Any], *beside: Command, create: bool) -> Plan[list[Any]]:
    """Return the stored settings of an index, else None or, with `create`, the wanted ones; and replies `beside`."""
    stored, *replies = yield from send(("GET", key), *beside)
    if stored is None and create:
        _, stored = yield from send(("SET", key, json.dumps(wanted), "NX"), ("GET", key), in_order=True)
    return [json.loads(stored) if stored else None, *replies]


def ensure_index(command: Command) -> Plan[None]:
    """Create an index, and wait until it holds all documents, whoever creates it. Two round trips, or more."""
    (reply,) = yield from attempt(command)
    if isinstance(reply, RedisReplyError) and reply.code not in _LATER:
        if reply.code == "NOTDB0":
            remedy = "leave the number out of the URL, and keep applications apart by key_prefix=..."
            raise RedisCapabilityError(f"{reply}, Search works in database 0 only", remedy=remedy)
        raise reply
    while True:  # the server indexes existing documents in the background
        (info,) = yield from attempt(("FT.INFO", command[1]))  # of an error, the next search says more
        if isinstance(info, RedisReplyError) or not float(as_dict(info)[b"indexing"]):
            return
        yield Sleep(0.02)


def search_with_repair(search: Callable[[], Plan[T]], heal: Callable[[], Plan[object]], *, create: bool) -> Plan[T]:
    """Search; if the index was dropped or rebuilt, call `heal` and search again."""
    try:
        return (yield from search())
    except RedisReplyError as error:
        if not is_stale(error):
            raise
    yield from heal()
    try:
        return (yield from search())
    except RedisReplyError as error:
        if create or not is_stale(error):
            raise
        raise no_index(error) from error


def no_index(problem: object) -> OptionError:
    """Return the error for an index that is missing and may not be created."""
    return OptionError(problem, remedy="create_index=False, so run setup() once with a user that may create it")
