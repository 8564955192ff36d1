"""Items of LangGraph stores in the namespaces of a resource: found without an index, deleted, exported, imported."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from langgraph.store.base import PutOp, validate_op_namespace

from langchain_workingmem._engine.effects import Emit, Plan, Scan, scan, send
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import hash_tag
from langchain_workingmem.items import DELETE_ITEM, PUT_ITEM, fields_of, item_digest, parts_of, read_items

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


def check_paths(paths: Iterable[Namespace]) -> None:
    """Raise the error of LangGraph for a namespace that no store takes."""
    for path in paths:
        validate_op_namespace(PutOp(path, "", {}))


def move(
    state: MemoryState, paths: Iterable[tuple[Namespace, Namespace]], digest: str, tombstone: Command
) -> Plan[tuple[list[dict[str, Any]], bytes | None] | None]:
    """Move an item with its vectors and times from the first of two namespaces to the second; its TTL begins anew.

    Return the item if another one has its key there and stays, and what `tombstone` replies: with one the item stays where it is.
    None: it is gone already. Three round trips, one more for further vectors.
    """
    keys = state.keys.of_item(digest)
    (reply,) = yield from send(("HGETALL", keys[0]))
    row = as_dict(reply)
    if b"value" not in row:
        return None
    parts, further = parts_of(row), range(1, int(row[b"vectors"]))
    namespace = next(
        (*new, *parts["namespace"][len(old) :]) for old, new in paths if parts["namespace"][: len(old)] == old
    )
    op = PutOp(namespace, parts["key"], parts["value"])
    vectors: list[Any] = [row[b"vector"]] if b"vector" in row else []
    vectors += (yield from send(*(("HGET", f"{keys[1]}{number}", "vector") for number in further))) if further else []
    times = row.get(b"ttl", b""), row[b"created_at"], row[b"updated_at"]
    target = state.keys.of_item(item_digest(op))
    write = PUT_ITEM.call(target, *fields_of(op), *times, *([] if None in vectors else vectors))
    before, deleted = yield from send(("HGET", target[0], "value"), tombstone)
    if before is None and deleted is None:
        written, deleted = yield from send(write, tombstone, in_order=True)
        if deleted is not None:  # the deletion may have looked at this key already
            yield from send(DELETE_ITEM.call(target))
        before = None if written else b""
    if deleted is None:
        yield from send(DELETE_ITEM.call(keys))
    return ([] if before in {None, row[b"value"]} else [_record(parts)]), deleted


def _record(parts: dict[str, Any]) -> dict[str, Any]:
    times = {name: parts[name].isoformat() for name in ("created_at", "updated_at")}
    return {"kind": "item", **parts, "namespace": list(parts["namespace"]), **times}


def write_command(state: MemoryState, path: Namespace, key: str, value: Any, times: Sequence[int]) -> Command:
    """Check an item, and build the call that writes it without vectors, unless the stored one is as new."""
    op = PutOp(path, key, value)
    validate_op_namespace(op)
    return PUT_ITEM.call(state.keys.of_item(item_digest(op)), *fields_of(op), "", *times)
