"""One LangGraph store: its indexes, and the form in which its items are stored.

An item is one hash, named by a digest of its namespace and key; `docs/storage-layout.md` has its fields. Every string,
number and boolean of a value has a label in the index: a digest of its path and itself. So the server decides equality
without declared fields; the rest of a filter is checked on the values that it returns.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast

from langgraph.store.base import get_text_at_path

from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.indexes import ensure_index, no_index, register_index_settings
from langchain_workingmem._redis.queries import item_vectors_schema, items_schema, pack
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._text.clock import from_micros
from langchain_workingmem._text.nesting import shown
from langchain_workingmem._text.unicode import to_utf8
from langchain_workingmem.checks import as_tuple, at_least, one_of
from langchain_workingmem.errors import EmbeddingSizeError, OptionError
from langchain_workingmem.options import IndexOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langgraph.store.base import GetOp, IndexConfig, PutOp

    from langchain_workingmem._engine.calls import Embedder
    from langchain_workingmem._redis.filters import Names
    from langchain_workingmem._redis.keys import Keys

ITEM = Script("items/item")
Row: TypeAlias = "dict[bytes, bytes]"
FIELDS = ("namespace", "key", "value", "created_at", "updated_at", "ttl")  # in the order of item.lua
_DISTANCES = {"cosine": "cosine", "inner_product": "ip", "l2": "l2"}  # LangGraph's name -> Redis's
_INDEX_KEYS = ("dims", "embed", "fields", "text_fields", "distance_type")
_MOST_LABELLED = 128  # characters: longer values have no label, because filters hardly ever ask for them
_log = logging.getLogger("langchain_workingmem")
to_json = json.JSONEncoder(separators=(",", ":")).encode  # writes ASCII, which can hold every str, lone surrogates too


@dataclass(frozen=True, slots=True)
class Vectors:
    """Which texts of an item are embedded, and how the vectors are compared."""

    dims: int | None = None  # None: the size that the model gives
    paths: tuple[str, ...] = ("$",)
    options: IndexOptions = field(default_factory=lambda: IndexOptions(dtype="float32"))

    @classmethod
    def of(cls, index: IndexConfig) -> Self:
        """Check LangGraph's IndexConfig."""
        given = cast("Mapping[str, Any]", index)
        dims, distance = given.get("dims"), given.get("distance_type", "cosine")
        if dims is not None:
            at_least(dims, 1, "index['dims']")
        one_of(distance, _DISTANCES, "index['distance_type']")
        if unused := [name for name in given if name not in _INDEX_KEYS and not name.startswith("__")]:
            _log.warning("index: %s is for other stores and not used here", ", ".join(unused))
        # LangGraph's SqliteStore calls them "text_fields"
        paths = _check_paths(given.get("fields") or given.get("text_fields") or ["$"], "index['fields']")
        return cls(dims, paths, IndexOptions(distance=cast("Any", _DISTANCES[distance]), dtype="float32"))

    def texts(self, value: Mapping[str, Any], index: Sequence[str] | Literal[False] | None) -> list[str]:
        """Return the texts of a value to embed, without blank ones, whose vectors have no direction."""
        if index is False:
            return []
        paths = self.paths if index is None else _check_paths(index, "index")
        found = (to_utf8(text) for path in paths for text in get_text_at_path(value, path))
        return list(dict.fromkeys(text for text in found if text.strip()))


def _check_paths(paths: Sequence[str], name: str) -> tuple[str, ...]:
    found = as_tuple(paths, name, "paths")
    for path in found:
        if not isinstance(path, str) or not path:
            raise OptionError(f"{name} holds {shown(path)}", remedy="name fields, such as 'text' or 'notes[*]'")
    return found


@dataclass(slots=True)
class StoreState:
    """The keys and indexes of one store."""

    keys: Keys
    embedder: Embedder
    vectors: Vectors | None = None  # None: no vector search
    create: bool = True  # False: attach only, never create an index
    layout_known: bool = False  # the storage layout of the database has been checked
    secret: bytes | None = None  # of marks, which a store has no use for
    is_ready: bool = False
    dims: int | None = None  # of the vector index, once it is known

    def setup(self) -> Plan[None]:
        """Create or check the indexes: a few round trips the first time, none later."""
        if self.is_ready:
            return
        if self.create:
            yield from ensure_index(items_schema(self.keys))
        if self.vectors is not None:
            dims = self.vectors.dims or (yield from self.embedder.dimensions())
            wanted = self.vectors.options.attributes(dims)
            settings = self.keys.item_vectors_settings
            (stored,) = yield from register_index_settings(settings, wanted, create=self.create)
            if stored is None:
                raise no_index(f"there is no index {self.keys.item_vectors_index!r}")
            if stored["dims"] != dims:
                raise self._other_size(stored["dims"], dims)
            if stored != wanted:
                seen = f"the store's vectors were indexed with {stored}, index= asks for {wanted}"
                raise OptionError(seen, remedy="use the settings of the index")
            if self.create:
                yield from ensure_index(item_vectors_schema(self.keys, wanted))
            self.dims = dims
        self.is_ready = True

    def refresh(self) -> Plan[None]:
        """Check the indexes again, and create those that are gone."""
        self.is_ready = False
        yield from self.setup()

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Plan[list[bytes]]:
        """Embed texts, and drop zero vectors, which have no direction."""
        import numpy as np

        vectors = yield from self.embedder.embed(texts, query=query)
        if vectors.shape[1] != self.dims:
            raise self._other_size(self.dims or 0, vectors.shape[1])
        return pack(vectors[np.any(vectors, axis=1)], "float32", "")

    def _other_size(self, expected: int, actual: int) -> EmbeddingSizeError:
        name = self.keys.item_vectors_index
        seen = (
            f"index {name!r} holds vectors of {expected} dimensions, the model gives {actual}, index['dims'] must match"
        )
        remedy = "use the model that the store was made with, or another key_prefix"
        return EmbeddingSizeError(seen, remedy=remedy, expected=expected, actual=actual)


# ---------------------------------------------------------------------- items


def digest_of(parts: Sequence[str]) -> str:
    """Return a digest of 128 bits of a list of strings."""
    return hashlib.blake2b(to_json(list(parts)).encode(), digest_size=16).hexdigest()


def item_digest(op: GetOp | PutOp) -> str:
    """Return the digest that names the item of an operation."""
    return digest_of([*op.namespace, op.key])


def read_items(keys: Keys, digests: Sequence[str], *, refresh: bool = False) -> Plan[list[Row]]:
    """Read items, without "value" where there is none; `refresh` renews their TTLs. One round trip, none without digests."""
    calls = [ITEM.call(keys.of_item(digest), "refresh" if refresh else "get") for digest in digests]
    rows = []
    for digest, reply in zip(digests, (yield from send(*calls)) if calls else [], strict=True):
        row = {name.encode(): value for name, value in zip(FIELDS, reply, strict=False) if value is not None}
        rows.append(row | {b"__key": f"{{{digest}}}".encode()})
    return rows


def parts_of(row: Row) -> dict[str, Any]:
    """Read the arguments of LangGraph's `Item`."""
    return {
        "namespace": tuple(json.loads(row[b"namespace"])),
        "key": json.loads(row[b"key"]),
        "value": json.loads(row[b"value"]),
        "created_at": from_micros(row[b"created_at"]),
        "updated_at": from_micros(row[b"updated_at"]),
    }


def labels(value: Mapping[str, Any], names: Names = ()) -> Iterator[str]:
    """Return the labels of a value, those of nested objects included."""
    for key, part in value.items():
        if isinstance(part, Mapping):
            yield from labels(part, (*names, key))
        else:
            yield from labels_of((*names, key), part) or ()


def labels_of(names: Names, value: Any) -> list[str] | None:
    """Return the label of items that have this value at these names, equal ones alike; None for one without a label."""
    written = f'"{value}' if isinstance(value, str) else ""
    if isinstance(value, int | float) and abs(value) < 10**_MOST_LABELLED:  # a bool too; neither infinite nor NaN
        written = str(int(value) if value == int(value) else value)
    if not 0 < len(written) <= _MOST_LABELLED:
        return None
    return [hashlib.blake2b(to_json([*names, written]).encode(), digest_size=8).hexdigest()]
