"""The indexes of a `Memory`: what is known of them, and the plans that create, check and repair them."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.plan import Plan, Sleep, T, attempt, send
from langchain_workingmem._redis.codec import as_dict, search_version
from langchain_workingmem._redis.queries import built_as, is_stale, pack, threads_schema, vectors_schema
from langchain_workingmem.errors import (
    EmbeddingError,
    EmbeddingSizeError,
    OptionError,
    RedisCapabilityError,
    RedisReplyError,
    Remedy,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from langchain_workingmem._engine.calls import Embedder
    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.keys import Keys
    from langchain_workingmem.options import NumberType, RecallOptions

_log = logging.getLogger("langchain_workingmem")
RECALL_IS_OFF, TURN_ON_RECALL = "semantic recall is off", "pass recall=RecallOptions() and embeddings=... to Memory"
MOST_DIMS = 32_768
_INT8 = 80_000  # the first version of Search that has vectors of int8
_NO_WRITES = frozenset({"OOM", "MISCONF", "NOREPLICAS", "READONLY"})  # codes of servers that only read now
# what embedding and `vectors_ready` raise; the rest of a call may go on without vectors
NO_VECTORS = (EmbeddingError, EmbeddingSizeError, OptionError, RedisCapabilityError)


@dataclass(slots=True, kw_only=True)
class Indexes:
    """The indexes of threads and of vectors."""

    keys: Keys
    recall: RecallOptions | None
    embedder: Embedder
    model: str  # its model by name
    create: bool  # False: never create an index
    threads_ready: bool = False
    dims: int | None = None  # of the vector index, once it is known to exist
    dtype: NumberType = "float16"  # of its numbers, likewise
    scale: float | None = None  # from which on a similarity tells something, where that was learned for this model
    _digests: dict[tuple[int, str], str] = field(default_factory=dict)

    @property
    def options(self) -> RecallOptions:
        """Return the options of recall; `OptionError` if it is off."""
        if self.recall is None:
            raise OptionError(RECALL_IS_OFF, remedy=TURN_ON_RECALL)
        return self.recall

    def index_digest(self, dims: int, dtype: NumberType | None = None) -> str:
        """Return a digest of all settings that decide a message's vectors; `reindex` replaces others."""
        key = (dims, dtype or self.dtype)
        if key not in self._digests:
            recall = self.options
            settings = [self.model, *key, recall.chunk_tokens, sorted(recall.roles), sorted(recall.filterable)]
            self._digests[key] = hashlib.blake2s(json.dumps(settings).encode(), digest_size=6).hexdigest()
        return self._digests[key]

    def pack(self, vectors: np.ndarray[Any, Any]) -> list[bytes]:
        """Convert vectors to the number type of the index, which `vectors_ready` has found out."""
        return pack(vectors, self.dtype, self.options.index.distance)

    def ready(self) -> Plan[None]:
        """Create the index of threads if needed: the round trips of `ensure_index` the first time, none later."""
        if self.threads_ready or not self.create:
            return
        yield from ensure_index(threads_schema(self.keys))
        self.threads_ready = True

    def refresh(self, dims: int | None = None) -> Plan[None]:
        """Check the index of threads again, with `dims` that of vectors, too; create what is missing."""
        self.threads_ready, self.dims = False, None
        yield from self.ready()
        if dims is not None:
            yield from self.vectors_ready(dims)

    def setup(self) -> Plan[None]:
        """Create all indexes; embeds a text if the dimensions are not stored yet."""
        yield from self.ready()
        if self.recall is not None and self.dims is None:
            (stored,) = yield from send(("GET", self.keys.vectors_settings))
            dims = json.loads(stored)["dims"] if stored else (yield from self.embedder.dimensions())
            yield from self.vectors_ready(dims)

    def vectors_ready(self, dims: int) -> Plan[None]:
        """Create or check the vector index: the first time one round trip and those of `ensure_index`, none later.

        Raises `EmbeddingSizeError` if the index holds vectors of another size, `OptionError` if it was built with
        other options, or is missing and may not be created.
        """
        if self.dims is None:
            if self.create and self.options.index.dtype == "int8":
                yield from _require_int8()
            wanted = self.index_settings(dims)
            key = self.keys.vectors_settings
            read = ("GET", self.keys.vectors_scale)
            stored, is_new, scale = yield from register_index_settings(key, wanted, read, create=self.create)
            if scale and (learned := json.loads(scale))["model"] == self.model:
                self.scale = learned["floor"]
            if stored is None:
                raise no_index(f"there is no index {self.keys.vectors_index!r}")
            self.check_index_settings(stored, dims)
            if stored["model"] != self.model:
                _log.warning(
                    "the vectors were made by %s, the model is now %s: run memory.recall.reindex(), until then recall "
                    "finds little",
                    stored["model"],
                    self.model,
                )
            if self.create:
                attributes = {name: value for name, value in stored.items() if name != "model"}
                existed = yield from ensure_index(vectors_schema(self.keys, attributes))
                if existed and is_new:  # its settings were lost
                    stored |= yield from self._built()
                    yield from send(("SET", key, json.dumps(stored)))
                    self.check_index_settings(stored, dims)
            self.dims, self.dtype = dims, stored["datatype"]
        elif dims != self.dims:
            self._refuse(self.dims, dims)

    def _built(self) -> Plan[dict[str, Any]]:
        """Return how the vector index was really built, as far as the server says it; empty without one."""
        (info,) = yield from attempt(("FT.INFO", self.keys.vectors_index))
        return {} if isinstance(info, RedisReplyError) else built_as(info)

    def index_settings(self, dims: int, stored: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the model and options of the vector index, which keeps its number type unless one is passed."""
        kept = (stored["datatype"],) if stored else ()
        return {"model": self.model, **self.options.index.attributes(dims, *kept)}

    def check_index_settings(self, stored: dict[str, Any], dims: int) -> None:
        """Raise if an index of the stored settings does not fit the options; the model's name may differ."""
        wanted = self.index_settings(dims, stored)
        if stored["dims"] != dims:
            self._refuse(stored["dims"], dims)
        changed = {name: value for name, value in stored.items() if name != "model" and wanted.get(name) != value}
        if changed:
            raise OptionError(
                f"the vector index was built with {changed}, these options differ",
                remedy=Remedy("use those, or rebuild it with {reindex}"),
            )

    def _refuse(self, expected: int, actual: int) -> None:
        raise EmbeddingSizeError(
            f"the index {self.keys.vectors_index!r} holds vectors of {expected} dimensions, the model {self.model} "
            f"gives {actual}",
            remedy=Remedy("use the model that the index was made with, or embed everything again with {reindex}"),
            expected=expected,
            actual=actual,
        )

    def rebuild_index(self) -> Plan[int]:
        """Create the vector index for the options and the model; drop one with other settings."""
        dims = yield from self.embedder.dimensions()
        if self.options.index.dtype == "int8":
            yield from _require_int8()
        (stored,) = yield from send(("GET", self.keys.vectors_settings))
        before = json.loads(stored) if stored else {}
        built = yield from self._built()  # as other settings say, if a rebuild was interrupted
        wanted = self.index_settings(dims, before | built)
        if (before and before != wanted) or not built.items() <= wanted.items():
            # the settings first: whoever searches meanwhile makes the index by them. The documents stay until their
            # messages are embedded again.
            yield from send(("SET", self.keys.vectors_settings, json.dumps(wanted)))
            yield from attempt(("FT.DROPINDEX", self.keys.vectors_index))
        self.dims = None
        yield from self.vectors_ready(dims)
        return dims


def _require_int8() -> Plan[None]:
    """Raise `RedisCapabilityError` if the engine has no vectors of int8. One round trip."""
    (about,) = yield from attempt(("HELLO",))
    version = search_version(about)
    if version is not None and version < _INT8:  # a hosted server may hide it, and refuses the index then
        raise RedisCapabilityError(
            "the Search of this server has no vectors of int8", remedy="use IndexOptions(dtype='float16'), or Redis 8"
        )


def register_index_settings(
    key: str, wanted: Mapping[str, Any], *beside: Command, create: bool
) -> Plan[tuple[Any, bool, *tuple[Any, ...]]]:
    """Return the stored settings of an index, None without any; with `create`, first store these if there are none.

    The second value tells whether this call has stored them; then come the replies to the commands `beside`. One round trip.
    """
    if (dims := wanted["dims"]) > MOST_DIMS:
        raise EmbeddingSizeError(
            f"vectors of {dims:,} dimensions",
            remedy=f"Search takes {MOST_DIMS:,} at most, use another model",
            expected=MOST_DIMS,
            actual=dims,
        )
    # not SET ... GET: redis-py converts each reply of SET to a bool
    storing: tuple[Command, ...] = (("SET", key, json.dumps(wanted), "NX"),) if create else ()
    replies = yield from attempt(*storing, ("GET", key), *beside)
    made, stored = replies[: len(storing)], replies[len(storing)]
    for reply in replies:
        if isinstance(reply, RedisReplyError) and not (reply.code in _NO_WRITES and stored):
            raise reply
    return json.loads(stored) if stored else None, made == [True], *replies[len(storing) + 1 :]


def ensure_index(command: Command) -> Plan[bool]:
    """Create an index unless it exists, and wait until it holds all documents; tell whether it existed.

    One round trip if it exists; else two, and one every 20 ms while the server indexes documents. A server that takes no
    writes now does not say whether it exists: the next search does.
    """
    (reply,) = yield from attempt(command)
    if isinstance(reply, RedisReplyError):
        if reply.code == "SEARCH_INDEX_EXISTS" or reply.code in _NO_WRITES:
            return True
        if reply.code == "NOTDB0":
            raise RedisCapabilityError(
                str(reply),
                remedy="Search works in database 0 only: leave the number out of the URL, and keep applications apart "
                "by key_prefix=...",
            )
        raise reply
    while True:  # the server indexes existing documents in the background
        (info,) = yield from send(("FT.INFO", command[1]))
        if not int(as_dict(info)[b"indexing"]):
            return False
        yield Sleep(0.02)


def search_with_repair(search: Callable[[], Plan[T]], heal: Callable[[], Plan[object]], *, create: bool) -> Plan[T]:
    """Search; if the index was dropped or rebuilt, call `heal` and search again.

    Raises `OptionError` if the index is missing and may not be created.
    """
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


def no_index(seen: object) -> OptionError:
    """Return the error for an index that is missing and may not be created."""
    return OptionError(seen, remedy=Remedy("{index}"))
