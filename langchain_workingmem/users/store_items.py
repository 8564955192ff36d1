"""Items of LangGraph stores in the namespaces of a user: found without an index, deleted, exported, imported."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from langgraph.store.base import PutOp, validate_op_namespace

from langchain_workingmem._engine.effects import Emit, Plan, Scan, scan, send
from langchain_workingmem._redis.keys import hash_tag
from langchain_workingmem.items import PUT_ITEM, fields_of, item_digest, parts_of, read_items

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_workingmem._engine.effects import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.users.sections import Namespace


def items_below(state: MemoryState, paths: Sequence[Namespace], keys: Iterable[bytes]) -> Plan[list[str]]:
    """Return the digests of the keys that are items in these namespaces or below. One round trip, none without items."""
    prefix = state.keys.item_prefix.encode()
    items = [key for key in keys if key.startswith(prefix)] if paths else []
    names = (yield from send(*(("HGET", key, "namespace") for key in items))) if items else []
    namespaces = [tuple(json.loads(name)) if name else () for name in names]
    return [
        hash_tag(key)
        for key, namespace in zip(items, namespaces, strict=True)
        if any(namespace[: len(path)] == path for path in paths)
    ]


def export(state: MemoryState, paths: Sequence[Namespace]) -> Plan[None]:
    """Emit the items in these namespaces and below, without vectors. Three round trips per 1,000 keys of the node."""
    step: Scan | None = Scan(f"{state.keys.item_prefix}*") if paths else None
    while step is not None:
        seen, step = yield from scan(step)
        digests = yield from items_below(state, paths, seen)
        rows = yield from read_items(state.keys, digests)
        yield Emit([_record(parts_of(row)) for row in rows if b"value" in row])


def _record(parts: dict[str, Any]) -> dict[str, Any]:
    times = {name: parts[name].isoformat() for name in ("created_at", "updated_at")}
    return {"kind": "item", **parts, "namespace": list(parts["namespace"]), **times}


def write_command(state: MemoryState, path: Namespace, key: str, value: Any, times: Sequence[int]) -> Command:
    """Check an item, and build the call that writes it without vectors, unless the stored one is as new."""
    op = PutOp(path, key, value)
    validate_op_namespace(op)
    return PUT_ITEM.call(state.keys.of_item(item_digest(op)), *fields_of(op), "", *times)
