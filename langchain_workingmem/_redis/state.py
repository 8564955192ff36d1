"""What every plan needs to know: names of keys, options, and what is known of the indexes so far."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.effects import Embed, Pause, Plan, T, attempt, send
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.process_cache import Recent, ShownToModel
from langchain_workingmem._redis.queries import is_stale, threads_schema, vectors_schema
from langchain_workingmem.errors import (
    EmbeddingSizeError,
    OptionError,
    RedisCapabilityError,
    RedisReplyError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from langchain_workingmem._engine.effects import Command
    from langchain_workingmem._redis.keys import Keys
    from langchain_workingmem.options import IndexOptions, RecallOptions, TitleOptions, WorkingMemoryOptions

_RESOURCES = 10_000  # whose authors are remembered; those of the one that was searched longest ago are forgotten
_log = logging.getLogger("langchain_workingmem")
MOST_DIMS = 32_768


@dataclass(slots=True, kw_only=True)
class MemoryState(ShownToModel):
    """The keys and indexes of one `Memory`."""

    keys: Keys
    recall: RecallOptions | None = None
    working_memory: WorkingMemoryOptions | None = None
    title: TitleOptions | None = None
    model: str = ""  # the embedding model by name
    ttl_ms: int | None = None  # after its last write a thread expires
    create: bool = True  # False: attach only, never create an index
    layout_known: bool = False  # the database has our storage layout
    threads_ready: bool = False
    dims: int | None = None  # of the vector index, once it is known to exist
    titling: set[str] = field(default_factory=set)  # threads whose titles are being made
    sweeping: set[str] = field(default_factory=set)  # threads whose vectors are being swept in the background
    title_warning_logged: bool = False  # the log has said that nobody can make titles
    # of the messages of a resource, as far as searches of this process have returned them
    authors: Recent[str, frozenset[str]] = field(default_factory=lambda: Recent(_RESOURCES))
    # how a caller's list differs from the thread, by thread and words of its question, until the turn is saved
    branches: Recent[tuple[str, str], Any] = field(default_factory=Recent)
    _digests: dict[int, str] = field(default_factory=dict)

    @property
    def recalling(self) -> RecallOptions:
        """Return the options of recall, or raise `OptionError` when it is off."""
        if self.recall is None:
            raise OptionError(
                "semantic recall is off", remedy="pass recall=RecallOptions() and embeddings=... to Memory"
            )
        return self.recall

    @property
    def remembering(self) -> WorkingMemoryOptions:
        """Return the options of working memory, or raise `OptionError` when it is off."""
        if self.working_memory is None:
            raise OptionError("working memory is off", remedy="pass working_memory=WorkingMemoryOptions() to Memory")
        return self.working_memory

    @property
    def index(self) -> IndexOptions:
        """Return the options of the vector index."""
        return self.recalling.index

    @property
    def ttl_fields(self) -> tuple[str | int, ...]:
        """Return the ttl as a field of a thread."""
        return () if self.ttl_ms is None else ("ttl", self.ttl_ms)

    def index_digest(self, dims: int) -> str:
        """Name all that decides what a message's vectors are; `reindex` renews those that carry another name."""
        if dims not in self._digests:
            recall = self.recalling
            settings = [
                self.model,
                dims,
                recall.index.dtype,
                recall.chunk_tokens,
                sorted(recall.roles),
                sorted(recall.filterable),
            ]
            digest = hashlib.blake2s(json.dumps(settings).encode(), digest_size=6).hexdigest()
            self._digests[dims] = digest
        return self._digests[dims]

    def note_authors(self, resource_id: str, seen: set[str]) -> frozenset[str]:
        """Remember who wrote messages of a resource, and return all that are known."""
        return self.authors.change(resource_id, lambda known: frozenset(seen).union(known or ()) or None) or frozenset()

    def forget(self) -> None:
        """Look at the server again before the next operation."""
        self.threads_ready = False
        self.dims = None

    # ------------------------------------------------------------------ plans

    def ready(self) -> Plan[None]:
        """Create the index of threads if needed: as many round trips as `created` the first time, none later."""
        if self.threads_ready or not self.create:
            return
        yield from ensure_index(threads_schema(self.keys))
        self.threads_ready = True

    def refresh(self, dims: int | None = None) -> Plan[None]:
        """Look at the server again, and make the index of threads if it is gone, and with `dims` that of vectors."""
        self.forget()
        yield from self.ready()
        if dims is not None:
            yield from self.vectors_ready(dims)

    def setup(self) -> Plan[None]:
        """Create all indexes; asks the model for one embedding where nothing tells its size yet."""
        yield from self.ready()
        if self.recall is not None and self.dims is None:
            (stored,) = yield from send(("GET", self.keys.vectors_settings))
            dims = json.loads(stored)["dims"] if stored else (yield from probe_dimensions())
            yield from self.vectors_ready(dims)

    def vectors_ready(self, dims: int) -> Plan[None]:
        """Create or check the vector index: the first time one round trip, and those of `created`; none later.

        Raises `EmbeddingSizeError` when the index holds vectors of another size, `OptionError` when it was built
        with other index options, or is not there and must not be made.
        """
        if self.dims is None:
            wanted = self.index_settings(dims)
            stored = yield from register_index_settings(self.keys.vectors_settings, wanted, create=self.create)
            if stored is None:
                raise no_index(f"there is no index {self.keys.vectors_index!r}")
            self.check_index_settings(stored, wanted)
            if stored["model"] != self.model:
                _log.warning(
                    "the vectors were made by %s, the model is now %s: recall finds little until "
                    "memory.recall.reindex() has run",
                    stored["model"],
                    self.model,
                )
            if self.create:
                yield from ensure_index(vectors_schema(self.keys, self.index, dims))
            self.dims = dims
        elif dims != self.dims:
            self._refuse(self.dims, dims)

    def index_settings(self, dims: int) -> dict[str, Any]:
        """Say what the vector index is built for."""
        return {"model": self.model, **self.index.attributes(dims)}

    def check_index_settings(self, stored: dict[str, Any], wanted: dict[str, Any]) -> None:
        """Raise when an index with these settings cannot serve those that are wanted; the model's name is no setting."""
        if stored["dims"] != wanted["dims"]:
            self._refuse(stored["dims"], wanted["dims"])
        changed = {name: value for name, value in stored.items() if name != "model" and wanted.get(name) != value}
        if changed:
            raise OptionError(
                f"the vector index was built with {changed}, these options differ",
                remedy="use those, or rebuild it with memory.recall.reindex()",
            )

    def _refuse(self, expected: int, actual: int) -> None:
        raise EmbeddingSizeError(
            f"the index {self.keys.vectors_index!r} holds vectors of {expected} dimensions, the model {self.model} "
            f"gives {actual}",
            remedy="use the model that the index was made with, or embed everything again with memory.recall.reindex()",
            expected=expected,
            actual=actual,
        )

    def rebuild_index(self) -> Plan[int]:
        """Make the vector index what the options and the model say, dropping one that was built otherwise."""
        dims = yield from probe_dimensions()
        wanted = self.index_settings(dims)
        (stored,) = yield from send(("GET", self.keys.vectors_settings))
        if stored and json.loads(stored) != wanted:
            # the documents stay: each is replaced when its message is embedded again
            yield from attempt(("FT.DROPINDEX", self.keys.vectors_index))
            yield from send(("SET", self.keys.vectors_settings, json.dumps(wanted)))
        self.dims = None
        yield from self.vectors_ready(dims)
        return dims


def probe_dimensions() -> Plan[int]:
    """Ask the model how large its vectors are."""
    vectors = yield Embed(["How large are the vectors?"], fresh=True)
    return int(vectors.shape[1])


def register_index_settings(key: str, wanted: Mapping[str, Any], *, create: bool) -> Plan[Any]:
    """Read what an index was built for; whoever comes first says it, if he may create. One round trip."""
    if (dims := wanted["dims"]) > MOST_DIMS:
        raise EmbeddingSizeError(
            f"vectors of {dims:,} dimensions",
            remedy=f"Search takes {MOST_DIMS:,} at most, use another model",
            expected=MOST_DIMS,
            actual=dims,
        )
    if create:
        # not SET ... GET: redis-py turns every reply of SET into a bool
        _, stored = yield from send(("SET", key, json.dumps(wanted), "NX"), ("GET", key))
    else:
        (stored,) = yield from send(("GET", key))
    return json.loads(stored) if stored else None


def ensure_index(command: Command) -> Plan[None]:
    """Create an index unless it is there, and wait until it holds the documents that are.

    One round trip where it is there; else two, and one every 20 ms while the server takes documents in.
    """
    (reply,) = yield from attempt(command)
    if isinstance(reply, RedisReplyError):
        if "already exists" in str(reply):
            return
        if "on db != 0" in str(reply):
            raise RedisCapabilityError(
                f"{reply}",
                remedy="Search knows database 0 only. Leave the number out of the URL, and pass key_prefix=... to keep "
                "applications apart",
            )
        raise reply
    # documents that were there before are taken in by the server in the background
    name = command[1]
    while True:
        (info,) = yield from send(("FT.INFO", name))
        if not int(as_dict(info)[b"indexing"]):
            return
        yield Pause(0.02)


def search_with_repair(search: Callable[[], Plan[T]], heal: Callable[[], Plan[object]], *, create: bool) -> Plan[T]:
    """Search, and when the index was dropped or rebuilt since we looked, heal what we know of it and search again.

    Without the right to `create` an index that is gone stays gone: `OptionError`.
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
    """Say who makes an index that is not there, and that we may not make."""
    return OptionError(f"{seen}, and create_index=False", remedy="run setup() once with a user that may create it")
