"""The plans of a LangGraph store: a batch of operations, and each of its reads, writes and searches."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate, chain, pairwise, takewhile
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from langgraph.store.base import GetOp, Item, ListNamespacesOp, PutOp, SearchItem, SearchOp, validate_op_namespace

from langchain_workingmem._engine.calls import Texts
from langchain_workingmem._engine.plan import Call, Effect, Plan, Send, compute, persist, send
from langchain_workingmem._redis.codec import dump
from langchain_workingmem._redis.filters import Filter
from langchain_workingmem._redis.indexes import search_with_repair
from langchain_workingmem._redis.keys import hash_tag
from langchain_workingmem._redis.queries import MAX_QUERY_CHARACTERS, aggregate, rows_of
from langchain_workingmem._text.nesting import check_nesting, shown
from langchain_workingmem._text.unicode import keep_ends, to_utf8
from langchain_workingmem.checks import LARGEST, at_least, one_of
from langchain_workingmem.errors import OptionError
from langchain_workingmem.items.state import (
    FIELDS,
    ITEM,
    Row,
    StoreState,
    digest_of,
    item_digest,
    labels,
    labels_of,
    parts_of,
    read_items,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langgraph.store.base import MatchCondition

    from langchain_workingmem._engine.plan import Argument, Command

T = TypeVar("T")
Scored: TypeAlias = tuple[Row, float | None]
Op: TypeAlias = "GetOp | SearchOp | PutOp | ListNamespacesOp"

_MOST_MINUTES = 2**40  # two million years; the server counts milliseconds in 64 bits
_DEEPEST = 1_000_000  # offset that Search takes
_STEP = 10_000  # rows of a reply: the server allocates as many as are asked for, and crashes without memory for them
_LOAD: tuple[Argument, ...] = ("LOAD", len(FIELDS) + 1, "@__key", *(f"@{name}" for name in FIELDS))


# ---------------------------------------------------------------------- batches


def run_operations(state: StoreState, ops: Iterable[Op]) -> Plan[list[Any]]:
    """Do all reads, then the last write to each item.

    One round trip for all gets, one for all writes, and for all searches those of the longest; one call of the model
    for all puts and one for all searches.
    """
    ops = list(ops)
    reads: dict[int, Callable[[], Plan[Any]]] = {}
    writes: dict[tuple[tuple[str, ...], str], Callable[[], Plan[Any]]] = {}
    for number, op in enumerate(ops):
        _check(op)
        if isinstance(op, PutOp):
            writes[tuple(op.namespace), op.key] = _put(state, op)
        else:
            reads[number] = partial(_READS[type(op)], state, op)
    if not all(isinstance(op, GetOp) for op in ops):
        yield from state.setup()
    replies = yield from search_with_repair(
        lambda: together(make() for make in reads.values()), state.refresh, create=state.create
    )
    yield from together(make() for make in writes.values())
    found = dict(zip(reads, replies, strict=True))
    return [found.get(number) for number in range(len(ops))]


def _check(op: Op) -> None:
    if type(op) not in (*_READS, PutOp):
        remedy = "pass GetOp, SearchOp, PutOp or ListNamespacesOp"
        raise OptionError(f"unknown operation {type(op).__name__}", remedy=remedy)
    validate_op_namespace(op)
    if isinstance(op, GetOp | PutOp) and not isinstance(op.key, str):
        raise OptionError(f"key={shown(op.key)}", remedy="use a str")
    if isinstance(op, SearchOp | ListNamespacesOp):
        at_least(op.limit, 0, "limit")
        at_least(op.offset, 0, "offset", _DEEPEST if isinstance(op, SearchOp) else LARGEST)
    if isinstance(op, SearchOp) and not isinstance(op.query, str | None):
        raise OptionError(f"query={shown(op.query)}", remedy="use a str, or None to list items")
    if isinstance(op, ListNamespacesOp) and op.max_depth is not None:
        at_least(op.max_depth, 1, "max_depth")


def together(plans: Iterable[Plan[T]]) -> Plan[list[T]]:
    """Run plans side by side: simultaneous commands share one round trip, simultaneous texts one call of the model.

    Embedding goes first, so that when the model fails, a plan that embeds before it writes has written nothing. The
    first error ends all plans.
    """
    running = list(plans)
    results: list[Any] = [None] * len(running)
    waiting: dict[int, Effect[object]] = {}

    def resume(number: int, outcome: Any) -> None:
        try:
            waiting[number] = running[number].send(outcome)
        except StopIteration as done:
            waiting.pop(number, None)
            results[number] = done.value

    try:
        for number in range(len(running)):
            resume(number, None)
        while waiting:
            merged, parts = _merge(waiting)
            reply: Any = (yield from persist(merged)) if isinstance(merged, Send) else (yield merged)
            for number, part in parts.items():
                resume(number, reply if part is None else reply[part])
    finally:
        for plan in running:
            plan.close()
    return results


def _merge(waiting: Mapping[int, Effect[object]]) -> tuple[Effect[object], dict[int, slice | None]]:
    """Join effects of one kind; return also which part of the reply belongs to which plan, None for all of it."""
    asked = {at: each.about for at, each in waiting.items() if isinstance(each, Call) and isinstance(each.about, Texts)}
    for query in (False, True):
        texts = {at: about.texts for at, about in asked.items() if about.query is query}
        if texts:
            embedder = asked[min(texts)].embedder
            return embedder.embed(list(chain(*texts.values())), query=query), _slices(texts)
    sends = {number: effect for number, effect in waiting.items() if isinstance(effect, Send) and not effect.node}
    if sends:
        commands = {number: effect.commands for number, effect in sends.items()}
        at_most_once = any(effect.at_most_once for effect in sends.values())
        in_order = any(effect.in_order for effect in sends.values())
        return Send(list(chain(*commands.values())), at_most_once, in_order), _slices(commands)
    number, effect = next(iter(waiting.items()))
    return effect, {number: None}


def _slices(shares: Mapping[int, Sequence[Any]]) -> dict[int, slice | None]:
    ends = accumulate(map(len, shares.values()), initial=0)
    return {number: slice(*span) for number, span in zip(shares, pairwise(ends), strict=True)}


# ---------------------------------------------------------------------- one item


def _get(state: StoreState, op: GetOp) -> Plan[Item | None]:
    """Read an item. One round trip."""
    (row,) = yield from read_items(state.keys, [item_digest(op)], refresh=bool(op.refresh_ttl))
    return Item(**parts_of(row)) if b"value" in row else None


def _put(state: StoreState, op: PutOp) -> Callable[[], Plan[object]]:
    """Check a put or a deletion, and return its plan. One round trip, after a call of the model."""
    keys = state.keys.of_item(item_digest(op))
    if op.value is None:
        return partial(send, ITEM.call(keys, "delete"))
    arguments: list[Argument] = [
        "" if op.ttl is None else millis(op.ttl, "ttl"),
        to_json(list(op.namespace)),
        to_json(op.key),
        _json_of(op),  # checks the value, before texts are read from it
        ",".join(digest_of(op.namespace[:depth]) for depth in range(1, len(op.namespace) + 1)),
        ",".join(dict.fromkeys(labels(op.value))),
    ]
    texts = state.vectors.texts(op.value, op.index) if state.vectors else []

    def put() -> Plan[object]:
        vectors = (yield from state.embed(texts)) if texts else []
        return (yield from send(ITEM.call(keys, "put", *arguments, *vectors)))

    return put


def _json_of(op: PutOp) -> bytes:
    where = f"the value of {shown(op.key)} in {shown(tuple(op.namespace))}"
    if not isinstance(op.value, Mapping):
        raise OptionError(f"{where} is a {type(op.value).__name__}", remedy="use a dict, or None to delete")
    try:
        check_nesting(op.value)
        return dump(dict(op.value)).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise OptionError(
            f"{where} is not JSON ({error})",
            remedy="use strings, numbers, booleans, None, lists and dicts with str keys",
        ) from error


def millis(minutes: object, name: str) -> int:
    """Convert a TTL of LangGraph, in minutes and fractions of them, to milliseconds."""
    if not isinstance(minutes, int | float) or isinstance(minutes, bool) or not 0 < minutes < _MOST_MINUTES:
        raise OptionError(f"{name}={shown(minutes)}", remedy="use a positive number of minutes, or None for no expiry")
    return max(1, round(minutes * 60_000))


# ---------------------------------------------------------------------- searches
# The field `within` holds a digest of each prefix of an item's namespace, so a search below a namespace matches one tag.
# An expired item stays in the indexes until the server removes it. So every search also asks for the time and for the
# earliest expiry among its matches, and is repeated without the expired items if there are any: pages stay exact.


def search(state: StoreState, op: SearchOp) -> Plan[list[SearchItem]]:
    """Find items below a namespace: the most similar first and those without vectors last, or the latest first.

    One round trip, more as `_nearest`, `_latest` and `_alive` say, and one more to renew the TTL of items found.
    """
    wanted = Filter.of(op.filter)
    condition, is_decided = wanted.condition(labels_of)
    where, unsure = _all(_below(op.namespace_prefix), condition), None if is_decided else wanted
    if op.limit == 0:
        return []
    text = to_utf8(keep_ends(op.query or "", MAX_QUERY_CHARACTERS))
    find = partial(_nearest, text=text) if text.strip() and state.vectors else _latest
    found = yield from find(state, where, unsure, op.offset, op.limit)
    if op.refresh_ttl:
        digests = [hash_tag(row[b"__key"]) for row, _ in found if b"ttl" in row]
        yield from read_items(state.keys, digests, refresh=True)
    size = sum(len(row[b"value"]) for row, _ in found)
    return (yield from compute(lambda: [SearchItem(**parts_of(row), score=score) for row, score in found], size))


def _latest(state: StoreState, where: str, unsure: Filter | None, offset: int, limit: int) -> Plan[list[Scored]]:
    """Read a page of items, the latest first. One round trip, and one for each further 10,000 items that are read."""
    index, found = state.keys.items_index, list[Scored]()
    start, end, size = (offset, limit, limit) if unsure is None else (0, offset + limit, max(offset + limit, 100))
    begin, size = start, min(size, _STEP)
    while True:
        rows = yield from _alive(index, where, ("SORTBY", 2, "@updated_at", "DESC", "LIMIT", start, size, *_LOAD))
        found += yield from _passing(unsure, [(row, None) for row in rows if row])
        if len(rows) < size or len(found) >= end:
            return found[offset - begin :][:limit]
        start, size = start + size, min(4 * size, _STEP)


def _nearest(
    state: StoreState, where: str, unsure: Filter | None, offset: int, limit: int, *, text: str
) -> Plan[list[Scored]]:
    """Read a page of items, the most similar first; the best vector of an item counts.

    One round trip; one more to read items of which only a further vector was found, one more when the page reaches
    items without vectors, and one or two each time that the candidates hold too few items.
    """
    index, end = state.keys.item_vectors_index, offset + limit
    found, depth = list[Scored](), min(2 * end, _STEP)
    query = yield from state.embed([text], query=True)
    while query:
        steps = "PARAMS", 2, "vector", query[0], "SORTBY", 2, "@distance", "ASC", "LIMIT", 0, depth, *_LOAD
        rows = yield from _alive(index, where, steps, f"=>[KNN {depth} @vector $vector AS distance]")
        found = yield from _passing(unsure, (yield from _best(state, [row for row in rows if row])))
        if len(rows) < depth or len(found) >= end:
            break
        depth *= 4
    page = found[offset:end]
    if len(page) < limit:
        others = _all(where, "@vectors:{0}") if query else where
        page += yield from _latest(state, others, unsure, max(0, offset - len(found)), limit - len(page))
    return page


def _passing(unsure: Filter | None, found: list[Scored]) -> Plan[list[Scored]]:
    """Keep the items whose values pass; many are tested without blocking an event loop."""
    if unsure is None:
        return found
    size = sum(len(row[b"value"]) + unsure.work for row, _ in found)
    return (yield from compute(lambda: [one for one in found if unsure.matches(json.loads(one[0][b"value"]))], size))


def _best(state: StoreState, rows: Sequence[Row]) -> Plan[list[Scored]]:
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


def _namespaces(state: StoreState, op: ListNamespacesOp) -> Plan[list[tuple[str, ...]]]:
    """List the namespaces that hold items, in order. One round trip; the server reads the items below the prefix."""
    conditions, where = op.match_conditions or (), "*"
    for condition in conditions:
        one_of(condition.match_type, ("prefix", "suffix"), "match_type")
        if condition.match_type == "prefix":
            where = _all(where, _below(list(takewhile(lambda part: part != "*", condition.path))))
    rows = yield from _alive(state.keys.items_index, where, ("GROUPBY", 1, "@namespace"))
    names = [tuple(json.loads(row[b"namespace"])) for row in rows]
    found = {name[: op.max_depth] for name in names if all(_fits(name, condition) for condition in conditions)}
    return sorted(found)[op.offset : op.offset + op.limit]


def _fits(name: tuple[str, ...], condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    part = name[: len(path)] if condition.match_type == "prefix" else name[max(0, len(name) - len(path)) :]
    return len(part) == len(path) and all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))


def _below(namespace: Sequence[str]) -> str:
    """Write the condition of the items of a namespace and of those below it."""
    from redisvl.query.filter import Tag  # here, because it is slow to import

    return str(Tag("within") == digest_of(namespace)) if namespace else "*"


def _all(*conditions: str) -> str:
    return " ".join(dict.fromkeys(one for one in conditions if one != "*")) or "*"


def _alive(index: str, where: str, steps: Sequence[Argument], nearest: str = "") -> Plan[list[Row]]:
    """Search the items that have not expired. One round trip, two while the server still holds expired ones."""

    def command(*conditions: str) -> Command:
        return aggregate(index, f"({_all(where, *conditions)}){nearest}", *steps)

    expiring = _all(where, "@expires_at:[-inf +inf]")
    first = aggregate(index, expiring, "GROUPBY", 0, "REDUCE", "MIN", 1, "@expires_at", "AS", "first")
    time, earliest, reply = yield from send(("TIME",), first, command())
    now = int(time[0]) * 1000 + int(time[1]) // 1000
    if any(float(row[b"first"]) < now for row in rows_of(earliest)):
        (reply,) = yield from send(command(f"(-@expires_at:[-inf ({now}])"))
    return rows_of(reply)


_READS: dict[type[Any], Callable[..., Plan[Any]]] = {GetOp: _get, SearchOp: search, ListNamespacesOp: _namespaces}
