"""The plans that search the items of a LangGraph store.

The field `within` holds a digest of each prefix of an item's namespace, so a search below a namespace matches one tag.

An expired item stays in the indexes until the server removes it. So every search also asks for the time and for the
earliest expiry among its matches, and is repeated without the expired items if there are any: pages stay exact.
"""

from __future__ import annotations

import json
import math
from functools import partial
from itertools import compress, takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

from langgraph.store.base import ListNamespacesOp, SearchItem, SearchOp

from langchain_workingmem._engine.plan import Plan, compute, send
from langchain_workingmem._redis.keys import hash_tag
from langchain_workingmem._redis.queries import MAX_QUERY_CHARACTERS, aggregate, rows_of
from langchain_workingmem._text.unicode import keep_ends, to_utf8
from langchain_workingmem.checks import one_of
from langchain_workingmem.items.filters import labels_of
from langchain_workingmem.items.state import FIELDS, Row, StoreState, below, parts_of, read_items

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langgraph.store.base import MatchCondition
    from redisvl.query.filter import FilterExpression  # at run time imported where it is used, because it is slow

    from langchain_workingmem._documents.filters import Filter
    from langchain_workingmem._engine.plan import Argument, Command

    Unsure: TypeAlias = Filter | None  # what the index leaves to be checked of values

# The server allocates as many rows as are asked for, and crashes without memory for them. Larger pages are therefore
# first cut to the number of items, for one more round trip.
_LARGE = 100_000
LOAD: tuple[Argument, ...] = ("LOAD", len(FIELDS) + 1, "@__key", *(f"@{name}" for name in FIELDS))


def search(state: StoreState, op: SearchOp, wanted: Filter) -> Plan[list[SearchItem]]:
    """Find items below a namespace: the most similar first and those without vectors last, or the latest first.

    One round trip, more as `_nearest`, `_latest` and `_alive` say, and one more to renew the TTL of items found.
    """
    if op.limit == 0:
        return []
    from redisvl.query.filter import FilterExpression

    condition, is_decided = wanted.condition(labels_of)
    where = below(op.namespace_prefix) & FilterExpression(condition)
    unsure = None if is_decided else wanted
    text = to_utf8(keep_ends(op.query or "", MAX_QUERY_CHARACTERS))
    if text.strip() and state.vectors:
        scored = yield from _nearest(state, where, unsure, text, op.offset, op.limit)
    else:
        rows = yield from _latest(state, where, unsure, op.offset, op.limit)
        scored = [(row, None) for row in rows]
    if op.refresh_ttl:
        yield from read_items(state.keys, [hash_tag(row[b"__key"]) for row, _ in scored if b"ttl" in row], refresh=True)
    size = sum(len(row[b"value"]) for row, _ in scored)
    return (yield from compute(lambda: [SearchItem(**parts_of(row), score=score) for row, score in scored], size))


def _latest(state: StoreState, where: FilterExpression, unsure: Unsure, offset: int, limit: int) -> Plan[list[Row]]:
    """Read a page of items, the latest first.

    One round trip if the index decides the whole filter, else one per 10,000 items or fewer until the page is full.
    """
    index = state.keys.items_index
    if offset + limit > _LARGE:
        limit = min(limit, (yield from _count(index, where)) - offset)
        if limit <= 0:
            return []
    if unsure is None:
        reply = yield from _alive(index, where, partial(_page, index, offset, limit))
        return [row for row in rows_of(reply) if row]
    found: list[Row] = []
    start, size = 0, min(max(offset + limit, 100), 10_000)
    while True:
        reply = yield from _alive(index, where, partial(_page, index, start, size))
        rows = rows_of(reply)
        alive = [row for row in rows if row]
        found += compress(alive, (yield from _passing(unsure, alive)))
        if len(rows) < size or len(found) >= offset + limit:
            return found[offset : offset + limit]
        start, size = start + size, min(4 * size, 10_000)


def _passing(unsure: Filter, rows: Sequence[Row]) -> Plan[list[bool]]:
    """Tell which values pass; many are tested without blocking an event loop."""
    size = sum(len(row[b"value"]) + unsure.work for row in rows)
    return (yield from compute(lambda: [unsure.matches(json.loads(row[b"value"])) for row in rows], size))


def _page(index: str, start: int, size: int, where: FilterExpression) -> Command:
    return aggregate(index, where, "SORTBY", 2, "@updated_at", "DESC", "LIMIT", start, size, *LOAD)


def _nearest(
    state: StoreState, where: FilterExpression, unsure: Unsure, text: str, offset: int, limit: int
) -> Plan[list[tuple[Row, float | None]]]:
    """Read a page of items, the most similar first; the best vector of an item counts.

    One round trip; one more to read items of which only a further vector was found, one more when the page reaches
    items without vectors, and one or two each time that the vectors of a few items fill the list.
    """
    from redisvl.query.filter import Tag

    query = yield from state.embed([text], query=True)
    end, depth = offset + limit, 2 * (offset + limit)
    index = state.keys.item_vectors_index
    found: list[tuple[Row, float | None]] = []
    if depth > _LARGE:
        depth = min(depth, (yield from _count(index, where)) + 1)
    while query:
        reply = yield from _alive(index, where, partial(_neighbours, index, query[0], depth))
        rows = rows_of(reply)
        items = yield from _best(state, [row for row in rows if row])
        found = [*items]
        if unsure is not None:
            found = [*compress(items, (yield from _passing(unsure, [row for row, _ in items])))]
        if len(rows) < depth or len(found) >= end:
            break
        depth *= 4
    page = found[offset:end]
    if len(page) < limit:
        others = where & (Tag("vectors") == "0") if query else where
        rest = yield from _latest(state, others, unsure, max(0, offset - len(found)), limit - len(page))
        page += [(row, None) for row in rest]
    return page


def _count(index: str, where: FilterExpression) -> Plan[int]:
    (reply,) = yield from send(aggregate(index, where, "GROUPBY", 0, "REDUCE", "COUNT", 0, "AS", "total"))
    return sum(int(row[b"total"]) for row in rows_of(reply))


def _neighbours(index: str, vector: bytes, depth: int, where: FilterExpression) -> Command:
    query = f"({where})=>[KNN {depth} @vector $vector AS distance]"
    return aggregate(
        index, query, "PARAMS", 2, "vector", vector, "SORTBY", 2, "@distance", "ASC", "LIMIT", 0, depth, *LOAD
    )


def _best(state: StoreState, rows: Sequence[Row]) -> Plan[list[tuple[Row, float]]]:
    """Keep the best vector of each item, and read the items of which only a further vector was found."""
    best: dict[str, float] = {}
    items: dict[str, Row] = {}
    for row in rows:
        digest = hash_tag(row[b"__key"])
        best.setdefault(digest, float(row[b"distance"]))
        if b"value" in row:
            items[digest] = row
    missing = [digest for digest in best if digest not in items]
    items |= zip(missing, (yield from read_items(state.keys, missing)), strict=True)
    metric = state.vectors.options.distance if state.vectors else ""
    return [
        (items[digest], -math.sqrt(max(0.0, distance)) if metric == "l2" else 1 - distance)
        for digest, distance in best.items()
        if b"value" in items[digest]  # else deleted meanwhile
    ]


def namespaces(state: StoreState, op: ListNamespacesOp) -> Plan[list[tuple[str, ...]]]:
    """List the namespaces that hold items, in order. One round trip; the server reads the items below the prefix."""
    from redisvl.query.filter import FilterExpression

    conditions = op.match_conditions or ()
    where = FilterExpression("*")
    for condition in conditions:
        one_of(condition.match_type, ("prefix", "suffix"), "match_type")
        if condition.match_type == "prefix":
            where = where & below(list(takewhile(lambda part: part != "*", condition.path)))
    index = state.keys.items_index
    reply = yield from _alive(index, where, lambda where: aggregate(index, where, "GROUPBY", 1, "@namespace"))
    names = [tuple(json.loads(row[b"namespace"])) for row in rows_of(reply)]
    found = {name[: op.max_depth] for name in names if all(_fits(name, condition) for condition in conditions)}
    return sorted(found)[op.offset : op.offset + op.limit]


def _fits(name: tuple[str, ...], condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    part = name[: len(path)] if condition.match_type == "prefix" else name[max(0, len(name) - len(path)) :]
    return len(part) == len(path) and all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))


def _alive(index: str, where: FilterExpression, make: Callable[[FilterExpression], Command]) -> Plan[Any]:
    """Search the items that have not expired. One round trip, two while the server still holds expired ones."""
    from redisvl.query.filter import FilterExpression

    with_expiry = where & FilterExpression("@expires_at:[-inf +inf]")
    first = aggregate(index, with_expiry, "GROUPBY", 0, "REDUCE", "MIN", 1, "@expires_at", "AS", "first")
    time, earliest, reply = yield from send(("TIME",), first, make(where))
    now = int(time[0]) * 1000 + int(time[1]) // 1000
    if any(float(row[b"first"]) < now for row in rows_of(earliest)):
        (reply,) = yield from send(make(where & FilterExpression(f"(-@expires_at:[-inf ({now}])")))
    return reply
