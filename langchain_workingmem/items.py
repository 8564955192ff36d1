"""One LangGraph store: its indexes, the form in which its items are stored, and the plans of its operations.

An item is one hash, named by a digest of its namespace and key; `docs/storage-layout.md` has its fields. Every string,
number and boolean of a value has a label in the index: a digest of its path and itself. So the server decides equality
without declared fields; the rest of a filter is checked on the values that it returns.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast

from langgraph.store import base

from langchain_workingmem._engine.plan import Plan, compute, send
from langchain_workingmem._redis import queries
from langchain_workingmem._redis.codec import dump
from langchain_workingmem._redis.filters import Filter
from langchain_workingmem._redis.indexes import ensure_index, no_index, register_index_settings, search_with_repair
from langchain_workingmem._redis.keys import hash_tag
from langchain_workingmem._redis.queries import MAX_QUERY_CHARACTERS, aggregate, pack, rows_of
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._text.unicode import keep_ends, to_utf8
from langchain_workingmem._text.values import check_nesting, from_micros, shown, to_micros
from langchain_workingmem.checks import LARGEST, as_tuple, at_least, one_of
from langchain_workingmem.errors import EmbeddingSizeError, OptionError
from langchain_workingmem.options import IndexOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from langchain_workingmem._engine.calls import Embedder
    from langchain_workingmem._engine.plan import Argument, Command
    from langchain_workingmem._redis.filters import Names
    from langchain_workingmem._redis.keys import Keys

ITEM = Script("item")
Row: TypeAlias = "dict[bytes, bytes]"
FIELDS = ("namespace", "key", "value", "created_at", "updated_at", "ttl")  # in the order of item.lua
Scored: TypeAlias = tuple[Row, float | None]
_DISTANCES = {"cosine": "cosine", "inner_product": "ip", "l2": "l2"}  # LangGraph's name -> Redis's
_INDEX_KEYS = ("dims", "embed", "fields", "text_fields", "distance_type")
_MOST_LABELLED = 128  # characters: longer values have no label, because filters hardly ever ask for them
_log = logging.getLogger("langchain_workingmem")
to_json = json.JSONEncoder(separators=(",", ":")).encode  # writes ASCII, which can hold every str, lone surrogates too
_MOST_MINUTES = 2**40  # two million years; the server counts milliseconds in 64 bits
_DEEPEST = 1_000_000  # offset that Search takes
_STEP = 10_000  # rows of a reply: the server allocates as many as are asked for, and crashes without memory for them
_DEPTHS = (100, 400, 1_600, 6_400, 25_600, 102_400)  # candidates of a search by vector
_LOAD: tuple[Argument, ...] = ("LOAD", len(FIELDS) + 1, "@__key", *(f"@{name}" for name in FIELDS))


@dataclass(frozen=True, slots=True)
class Vectors:
    """Which texts of an item are embedded, and how the vectors are compared."""

    dims: int | None = None  # None: the size that the model gives
    paths: tuple[str, ...] = ("$",)
    options: IndexOptions = field(default_factory=lambda: IndexOptions(dtype="float32"))

    @classmethod
    def of(cls, index: base.IndexConfig) -> Self:
        """Check LangGraph's IndexConfig."""
        config = cast("Mapping[str, Any]", index)
        dims, distance = config.get("dims"), config.get("distance_type", "cosine")
        if dims is not None:
            at_least(dims, 1, "index['dims']")
        one_of(distance, _DISTANCES, "index['distance_type']")
        if unused := [name for name in config if name not in _INDEX_KEYS and not name.startswith("__")]:
            _log.warning("index: %s is for other stores and not used here", ", ".join(unused))
        # LangGraph's SqliteStore calls them "text_fields"
        paths = _check_paths(config.get("fields") or config.get("text_fields") or ["$"], "index['fields']")
        return cls(dims, paths, IndexOptions(distance=cast("Any", _DISTANCES[distance]), dtype="float32"))

    def texts(self, value: Mapping[str, Any], index: Sequence[str] | Literal[False] | None) -> list[str]:
        """Return the texts of a value to embed, without blank ones, whose vectors have no direction."""
        if index is False:
            return []
        paths = self.paths if index is None else _check_paths(index, "index")
        texts = (to_utf8(text) for path in paths for text in base.get_text_at_path(value, path))
        return list(dict.fromkeys(text for text in texts if text.strip()))


def _check_paths(paths: Sequence[str], name: str) -> tuple[str, ...]:
    checked = as_tuple(paths, name, "paths")
    for path in checked:
        if not isinstance(path, str) or not path:
            raise OptionError(f"{name} holds {shown(path)}", remedy="name fields, such as 'text' or 'notes[*]'")
    return checked


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
            yield from ensure_index(queries.items_schema(self.keys))
        if self.vectors is not None:
            dims = self.vectors.dims or (yield from self.embedder.dimensions())
            expected = self.vectors.options.attributes(dims)
            settings = self.keys.item_vectors_settings
            (stored,) = yield from register_index_settings(settings, expected, create=self.create)
            if stored is None:
                raise no_index(f"there is no index {self.keys.item_vectors_index!r}")
            if stored["dims"] != dims:
                raise self._other_size(stored["dims"], dims)
            if stored != expected:
                problem = f"the store's vectors were indexed with {stored}, index= asks for {expected}"
                raise OptionError(problem, remedy="use the settings of the index")
            if self.create:
                yield from ensure_index(queries.item_vectors_schema(self.keys, expected))
            self.dims = dims
        self.is_ready = True

    def refresh(self) -> Plan[None]:
        """Check the indexes again, and create those that are gone."""
        self.is_ready = False
        yield from self.setup()

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Plan[list[bytes | None]]:
        """Embed texts; None for zero vectors, which have no direction."""
        if not texts:
            return []
        vectors = yield from self.embedder.embed(texts, query=query)
        if vectors.shape[1] != self.dims:
            raise self._other_size(self.dims or 0, vectors.shape[1])
        packed = pack(vectors, "float32", "")
        return [blob if vector.any() else None for blob, vector in zip(packed, vectors, strict=True)]

    def _other_size(self, expected: int, actual: int) -> EmbeddingSizeError:
        name = self.keys.item_vectors_index
        problem = (
            f"index {name!r} holds vectors of {expected} dimensions, the model gives {actual}, index['dims'] must fit"
        )
        remedy = "leave 'dims' out, use the model that the store was made with, or another key_prefix"
        return EmbeddingSizeError(problem, remedy=remedy, expected=expected, actual=actual)


def digest_of(parts: Sequence[str]) -> str:
    """Return a digest of 128 bits of a list of strings."""
    return hashlib.blake2b(to_json(list(parts)).encode(), digest_size=16).hexdigest()


def item_digest(op: base.GetOp | base.PutOp) -> str:
    """Return the digest that names the item of an operation."""
    return digest_of([*op.namespace, op.key])


def read_items(keys: Keys, digests: Mapping[str, bool]) -> Plan[dict[str, Row]]:
    """Read items by digest; a missing one has no "value"; True renews a TTL. One round trip, none without digests."""
    calls = [ITEM.call(keys.of_item(digest), "refresh" if renews else "get") for digest, renews in digests.items()]
    rows = {}
    for digest, reply in zip(digests, (yield from send(*calls)) if calls else [], strict=True):
        row = {name.encode(): value for name, value in zip(FIELDS, reply, strict=False) if value is not None}
        rows[digest] = row | {b"__key": f"{{{digest}}}".encode()}
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


def run_operations(state: StoreState, ops: Iterable[base.Op]) -> Plan[list[Any]]:
    """Do all reads, then the last write to each item. A round trip for all gets, those of searches, one for writes."""
    ops = [*ops]
    for op in ops:
        _check(op)
    gets = [op for op in ops if isinstance(op, base.GetOp)]
    writes = [*{(tuple(op.namespace), op.key): _write(state, op) for op in ops if isinstance(op, base.PutOp)}.values()]
    if len(gets) < len(ops):
        yield from state.setup()
    items = yield from read_items(state.keys, {item_digest(op): bool(op.refresh_ttl) for op in gets})
    results: list[Any] = []
    for op in ops:
        if isinstance(op, base.GetOp):
            row = items[item_digest(op)]
            results.append(base.Item(**parts_of(row)) if b"value" in row else None)
        elif isinstance(op, base.PutOp):
            results.append(None)
        else:
            reading: Any = search if isinstance(op, base.SearchOp) else _namespaces
            read = partial(reading, state, op)
            results.append((yield from search_with_repair(read, state.refresh, create=state.create)))
    vectors = iter((yield from state.embed([text for _, texts in writes for text in texts])))
    calls = [make(*[vector for vector in islice(vectors, len(texts)) if vector is not None]) for make, texts in writes]
    if calls:
        yield from send(*calls)
    return results


def _check(op: base.Op) -> None:
    if type(op) not in (base.GetOp, base.SearchOp, base.ListNamespacesOp, base.PutOp):
        remedy = "pass GetOp, SearchOp, PutOp or ListNamespacesOp"
        raise OptionError(f"unknown operation {type(op).__name__}", remedy=remedy)
    base.validate_op_namespace(op)
    if isinstance(op, base.GetOp | base.PutOp) and not isinstance(op.key, str):
        raise OptionError(f"key={shown(op.key)}", remedy="use a str")
    if isinstance(op, base.SearchOp | base.ListNamespacesOp):
        at_least(op.limit, 0, "limit")
        at_least(op.offset, 0, "offset", _DEEPEST if isinstance(op, base.SearchOp) else LARGEST)
    if isinstance(op, base.SearchOp) and not isinstance(op.query, str | None):
        raise OptionError(f"query={shown(op.query)}", remedy="use a str, or None to list items")
    if isinstance(op, base.ListNamespacesOp) and op.max_depth is not None:
        at_least(op.max_depth, 1, "max_depth")


def _write(state: StoreState, op: base.PutOp) -> tuple[Callable[..., Command], list[str]]:
    """Check a put or a deletion; return what makes its call of its vectors, and the texts of these."""
    keys, subject = state.keys.of_item(item_digest(op)), f"the value of {shown(op.key)} in {shown(tuple(op.namespace))}"
    if op.value is None:
        return partial(ITEM.call, keys, "delete"), []
    if not isinstance(op.value, Mapping):
        raise OptionError(f"{subject} is a {type(op.value).__name__}", remedy="use a dict, or None to delete")
    try:  # before texts are read from it
        check_nesting(op.value)
        value = dump(dict(op.value)).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        remedy = "use strings, numbers, booleans, None, lists and dicts with str keys"
        raise OptionError(f"{subject} is not JSON ({error})", remedy=remedy) from error
    arguments: list[Argument] = [
        "" if op.ttl is None else millis(op.ttl, "ttl"),
        to_json(list(op.namespace)),
        to_json(op.key),
        value,
        ",".join(digest_of(op.namespace[:depth]) for depth in range(1, len(op.namespace) + 1)),
        ",".join(dict.fromkeys(labels(op.value))),
    ]
    texts = state.vectors.texts(op.value, op.index) if state.vectors else []
    return partial(ITEM.call, keys, "put", *arguments), texts


def millis(minutes: object, name: str) -> int:
    """Convert a TTL of LangGraph, in minutes and fractions of them, to milliseconds."""
    if not isinstance(minutes, int | float) or isinstance(minutes, bool) or not 0 < minutes < _MOST_MINUTES:
        raise OptionError(f"{name}={shown(minutes)}", remedy="use a positive number of minutes, or None for no expiry")
    return max(1, round(minutes * 60_000))


# ---------------------------------------------------------------------- searches
# The field `within` holds a digest of each prefix of a namespace, so a search below a namespace matches one tag. An
# expired item stays in the indexes until the server removes it, so searches leave it out by its time: pages stay exact.


def search(state: StoreState, op: base.SearchOp) -> Plan[list[base.SearchItem]]:
    """Find items below a namespace: the most similar first and those without vectors last, or the latest first.

    One round trip, more as `_nearest` and `_latest` say, and one more to renew the TTL of items found.
    """
    parsed = Filter.of(op.filter, finite=False)  # LangGraph compares with infinity, too
    condition, is_decided = parsed.condition(labels_of)
    query, rest = _all_of(_below(op.namespace_prefix), condition, _alive()), None if is_decided else parsed
    if op.limit == 0:
        return []
    text = to_utf8(keep_ends(op.query or "", MAX_QUERY_CHARACTERS))
    find = partial(_nearest, text=text) if text.strip() and state.vectors else _latest
    hits = yield from find(state, query, rest, op.offset, op.limit)
    if op.refresh_ttl:
        yield from read_items(state.keys, {hash_tag(row[b"__key"]): True for row, _ in hits if b"ttl" in row})
    size = sum(len(row[b"value"]) for row, _ in hits)
    return (yield from compute(lambda: [base.SearchItem(**parts_of(row), score=score) for row, score in hits], size))


def _latest(state: StoreState, query: str, rest: Filter | None, offset: int, limit: int) -> Plan[list[Scored]]:
    """Read a page of items, the latest first. One round trip, and one for each further 10,000 items that are read."""
    hits, skipped = list[Scored](), 0 if rest is None else offset  # of what passes the filter
    start, size = offset - skipped, min(limit if rest is None else max(offset + limit, 1_000), _STEP)
    while len(hits) < skipped + limit:
        order = "SORTBY", 2, "@updated_at", "DESC", "LIMIT", start, size, *_LOAD
        rows = rows_of((yield from send(aggregate(state.keys.items_index, query, *order)))[0])
        hits += yield from _filtered(rest, [(row, None) for row in rows if row])
        start += size
        if len(rows) < size:
            break
    return hits[skipped:][:limit]


def _nearest(
    state: StoreState, query: str, rest: Filter | None, offset: int, limit: int, *, text: str
) -> Plan[list[Scored]]:
    """Read a page of items, the most similar first; the best vector of an item counts.

    One round trip; more for items found by a further vector, items without vectors, and where candidates are too few.
    """
    index, end, hits = state.keys.item_vectors_index, offset + limit, list[Scored]()
    (vector,) = yield from state.embed([text], query=True)
    # pages see the same candidates, so that equal scores do not change places
    for depth in () if vector is None else [depth for depth in _DEPTHS if depth >= min(2 * end, _STEP)]:
        knn_query = f"({query})=>[KNN {depth} @vector $vector AS distance]"
        steps = "PARAMS", 2, "vector", vector or b"", "SORTBY", 2, "@distance", "ASC", "LIMIT", 0, depth, *_LOAD
        rows = rows_of((yield from send(aggregate(index, knn_query, *steps)))[0])
        hits = yield from _filtered(rest, (yield from _best(state, [row for row in rows if row])))
        if len(rows) < depth or len(hits) >= end:
            break
        if depth == _DEPTHS[-1]:
            problem = f"of the {depth:,} nearest items, {len(hits):,} pass the filter"
            raise OptionError(problem, remedy="search in a narrower namespace, or by a filter without comparisons")
    page = hits[offset:end]
    if len(page) < limit:
        unscored = query if vector is None else _all_of(query, "@vectors:{0}")
        page += yield from _latest(state, unscored, rest, max(0, offset - len(hits)), limit - len(page))
    return page


def _filtered(rest: Filter | None, hits: list[Scored]) -> Plan[list[Scored]]:
    """Keep the items whose values pass; many are tested without blocking an event loop."""
    if rest is None:
        return hits
    size = sum(len(row[b"value"]) + rest.work for row, _ in hits)
    return (yield from compute(lambda: [hit for hit in hits if rest.matches(json.loads(hit[0][b"value"]))], size))


def _best(state: StoreState, rows: Sequence[Row]) -> Plan[list[Scored]]:
    """Keep the best vector of each item, and read the items of which only a further vector was found."""
    best: dict[str, float] = {}
    items: dict[str, Row] = {}
    for row in rows:
        digest = hash_tag(row[b"__key"])
        best.setdefault(digest, float(row[b"distance"]))
        if b"value" in row:
            items[digest] = row
    items |= yield from read_items(state.keys, {digest: False for digest in best if digest not in items})
    metric = state.vectors.options.distance if state.vectors else ""
    return [
        (items[digest], -math.sqrt(max(0.0, distance)) if metric == "l2" else 1 - distance)
        for digest, distance in best.items()
        if b"value" in items[digest]  # else deleted meanwhile
    ]


def _namespaces(state: StoreState, op: base.ListNamespacesOp) -> Plan[list[tuple[str, ...]]]:
    """List the namespaces that hold items, in order. One round trip; the server reads the items below the prefix."""
    conditions, query = op.match_conditions or (), "*"
    for condition in conditions:
        one_of(condition.match_type, ("prefix", "suffix"), "match_type")
        if condition.match_type == "prefix":
            query = _all_of(query, _below(list(takewhile(lambda part: part != "*", condition.path))))
    grouped = aggregate(state.keys.items_index, _all_of(query, _alive()), "GROUPBY", 1, "@namespace")
    stored = [tuple(json.loads(row[b"namespace"])) for row in rows_of((yield from send(grouped))[0])]
    namespaces = {name[: op.max_depth] for name in stored if all(_fits(name, condition) for condition in conditions)}
    return sorted(namespaces)[op.offset : op.offset + op.limit]


def _fits(name: tuple[str, ...], condition: base.MatchCondition) -> bool:
    path = tuple(condition.path)
    part = name[: len(path)] if condition.match_type == "prefix" else name[max(0, len(name) - len(path)) :]
    return len(part) == len(path) and all(pattern in ("*", label) for pattern, label in zip(path, part, strict=True))


def _below(namespace: Sequence[str]) -> str:
    from redisvl.query.filter import Tag  # here, because it is slow to import

    return str(Tag("within") == digest_of(namespace)) if namespace else "*"


def _all_of(*conditions: str) -> str:
    return " ".join(dict.fromkeys(condition for condition in conditions if condition != "*")) or "*"


def _alive() -> str:
    return f"(-@expires_at:[-inf ({to_micros(datetime.now(UTC)) // 1000}])"
