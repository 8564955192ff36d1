"""The plans that get, put and delete items of a LangGraph store: each is one hash, named by a digest."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from langgraph.store.base import GetOp, Item, ListNamespacesOp, PutOp, SearchOp, validate_op_namespace

from langchain_workingmem._documents.filters import Filter
from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.codec import dump
from langchain_workingmem._redis.indexes import search_with_repair
from langchain_workingmem._text.nesting import check_nesting, shown
from langchain_workingmem.checks import at_least
from langchain_workingmem.errors import OptionError
from langchain_workingmem.items.filters import labels
from langchain_workingmem.items.searches import namespaces, search
from langchain_workingmem.items.state import (
    DELETE_ITEM,
    PUT_ITEM,
    digest_of,
    item_digest,
    parts_of,
    read_items,
    to_json,
)
from langchain_workingmem.items.together import together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from langchain_workingmem._engine.plan import Argument
    from langchain_workingmem.items.state import StoreState

Op: TypeAlias = "GetOp | SearchOp | PutOp | ListNamespacesOp"
_MOST_MINUTES = 2**40  # two million years; the server counts milliseconds in 64 bits


def run_operations(state: StoreState, ops: Iterable[Op]) -> Plan[list[Any]]:
    """Do all reads, then the last write to each item.

    One round trip for all gets, one for all writes, and for all searches those of the longest; one call of the model
    for all puts and one for all searches.
    """
    ops = list(ops)
    reads: dict[int, Callable[[], Plan[Any]]] = {}
    writes: dict[tuple[tuple[str, ...], str], Callable[[], Plan[object]]] = {}
    for number, op in enumerate(ops):
        _check(op)
        match op:
            case GetOp():
                reads[number] = partial(_get, state, op)
            case SearchOp():
                reads[number] = partial(search, state, op, Filter.of(op.filter))
            case ListNamespacesOp():
                reads[number] = partial(namespaces, state, op)
            case PutOp():
                writes[tuple(op.namespace), op.key] = _write(state, op)
            case _:
                remedy = "pass GetOp, SearchOp, PutOp or ListNamespacesOp"
                raise OptionError(f"unknown operation {type(op).__name__}", remedy=remedy)
    if not all(isinstance(op, GetOp) for op in ops):
        yield from state.setup()
    replies = yield from search_with_repair(
        lambda: together(make() for make in reads.values()), state.refresh, create=state.create
    )
    yield from together(make() for make in writes.values())
    found = dict(zip(reads, replies, strict=True))
    return [found.get(number) for number in range(len(ops))]


def _check(op: Op) -> None:
    validate_op_namespace(op)
    if isinstance(op, GetOp | PutOp) and not isinstance(op.key, str):
        raise OptionError(f"key={shown(op.key)}", remedy="use a str")
    if isinstance(op, SearchOp | ListNamespacesOp):
        at_least(op.limit, 0, "limit")
        at_least(op.offset, 0, "offset")
    if isinstance(op, SearchOp) and not isinstance(op.query, str | None):
        raise OptionError(f"query={shown(op.query)}", remedy="use a str, or None to list items")
    if isinstance(op, ListNamespacesOp) and op.max_depth is not None:
        at_least(op.max_depth, 1, "max_depth")


def _get(state: StoreState, op: GetOp) -> Plan[Item | None]:
    """Read an item. One round trip."""
    (row,) = yield from read_items(state.keys, [item_digest(op)], refresh=bool(op.refresh_ttl))
    return Item(**parts_of(row)) if b"value" in row else None


def _write(state: StoreState, op: PutOp) -> Callable[[], Plan[object]]:
    """Check a put or a deletion, and return its plan."""
    keys = state.keys.of_item(item_digest(op))
    if op.value is None:
        return partial(send, DELETE_ITEM.call(keys))
    ttl = "" if op.ttl is None else millis(op.ttl, "ttl")
    fields: list[Argument] = [
        to_json(list(op.namespace)),
        to_json(op.key),
        _written(op),  # checks the value, before texts are read from it
        ",".join(digest_of(op.namespace[:depth]) for depth in range(1, len(op.namespace) + 1)),
        ",".join(dict.fromkeys(labels(op.value))),
        ttl,
    ]
    texts = state.vectors.texts(op.value, op.index) if state.vectors else []
    return partial(_put, state, keys, fields, texts)


def _put(state: StoreState, keys: tuple[str, str], arguments: Sequence[Any], texts: Sequence[str]) -> Plan[None]:
    """Write or replace an item. One round trip, after a call of the model."""
    vectors = (yield from state.embed(texts)) if texts else []
    yield from send(PUT_ITEM.call(keys, *arguments, *vectors))


def _written(op: PutOp) -> bytes:
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
