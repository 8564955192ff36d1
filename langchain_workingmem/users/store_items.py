"""The items of LangGraph stores that belong to a resource: found without an index, deleted, exported, imported."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from langgraph.store.base import PutOp, validate_op_namespace

from langchain_workingmem._engine.effects import Emit, Plan, Scan, scan, send
from langchain_workingmem._redis.keys import hash_tag
from langchain_workingmem.errors import OptionError
from langchain_workingmem.items import DELETE_ITEM, GET_ITEM, PUT_ITEM, fields_of, item_digest, parts_of, row_of
from langchain_workingmem.options import as_tuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from langchain_workingmem._engine.effects import Command
    from langchain_workingmem._redis.state import MemoryState

HOLDERS = ("{resource_id}", "{user_id}")  # labels that stand for the resource; langmem's templates have the latter


def templates(namespaces: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    """Check templates of namespaces; `OptionError` for one that would mean everybody."""
    found = []
    for template in as_tuple(namespaces, "namespaces", "namespaces"):
        path = as_tuple(template, "namespaces", "labels")
        if not any(label in HOLDERS for label in path):
            raise OptionError(
                f"namespaces holds {path}, which is everybody's",
                remedy="name the resource in it, as in ('memories', '{user_id}')",
            )
        found.append(path)
    return found


def of_resource(namespaces: Iterable[Sequence[str]], resource_id: str) -> list[tuple[str, ...]]:
    """Put the resource into templates of namespaces."""
    return [tuple(resource_id if label in HOLDERS else label for label in path) for path in templates(namespaces)]


def among(state: MemoryState, namespaces: Sequence[tuple[str, ...]], keys: Iterable[bytes]) -> Plan[list[str]]:
    """Tell which keys are those of items below namespaces, by digest. One round trip, none where there are no items."""
    prefix = state.keys.item_prefix.encode()
    items = [key for key in keys if key.startswith(prefix)] if namespaces else []
    names = (yield from send(*(("HGET", key, "namespace") for key in items))) if items else []
    places = [tuple(json.loads(name)) if name else () for name in names]
    return [
        hash_tag(key)
        for key, place in zip(items, places, strict=True)
        if any(place[: len(below)] == below for below in namespaces)
    ]


def delete(state: MemoryState, digests: Sequence[str]) -> Plan[int]:
    """Delete items, and tell how many there were. One round trip."""
    gone = yield from send(*(DELETE_ITEM.call(state.keys.of_item(digest)) for digest in digests))
    return sum(gone)


def export(state: MemoryState, namespaces: Sequence[tuple[str, ...]]) -> Plan[None]:
    """Emit the items below namespaces as records, without their vectors. Three round trips per 1,000 keys of the node."""
    step: Scan | None = Scan(f"{state.keys.item_prefix}*") if namespaces else None
    while step is not None:
        seen, step = yield from scan(step)
        digests = yield from among(state, namespaces, seen)
        calls = [GET_ITEM.call(state.keys.of_item(digest), 0) for digest in digests]
        replies = (yield from send(*calls)) if calls else []
        rows = [row_of(reply, digest) for reply, digest in zip(replies, digests, strict=True)]
        yield Emit([_record(parts_of(row)) for row in rows if b"value" in row])


def _record(parts: dict[str, Any]) -> dict[str, Any]:
    times: dict[str, datetime] = {name: parts[name] for name in ("created_at", "updated_at")}
    return {
        "kind": "item",
        "namespace": list(parts["namespace"]),
        "key": parts["key"],
        "value": parts["value"],
        **{name: time.isoformat() for name, time in times.items()},
    }


def restoring(state: MemoryState, record: Mapping[str, Any], micros: Callable[[Any], int]) -> Command:
    """Check a record, and build the call that writes its item with its times, unless one that is as new is there.

    Its vectors are not made.
    """
    key = record["key"]
    if not isinstance(key, str):
        msg = f"its key is of type {type(key).__name__}: use a str"
        raise TypeError(msg)
    op = PutOp(tuple(record["namespace"]), key, record["value"])
    validate_op_namespace(op)
    keys = state.keys.of_item(item_digest(op))
    times = [micros(record[name]) for name in ("created_at", "updated_at")]
    return PUT_ITEM.call(keys, *fields_of(op), "", *times)
