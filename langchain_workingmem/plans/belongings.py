"""The items of LangGraph stores that belong to a resource: found without an index, deleted, exported, imported."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from langgraph.store.base import PutOp, validate_op_namespace

from langchain_workingmem.errors import OptionError
from langchain_workingmem.options import as_tuple
from langchain_workingmem.plans import scripts
from langchain_workingmem.plans.effects import Emit, Plan, Scan, send
from langchain_workingmem.plans.items import fields_of
from langchain_workingmem.plans.keys import tag_of
from langchain_workingmem.plans.shelf import item_digest, parts_of, row_of

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from langchain_workingmem.plans.effects import Command
    from langchain_workingmem.plans.space import Space

HOLDERS = ("{resource_id}", "{user_id}")  # labels that stand for the resource; langmem's templates have the latter


def of_resource(namespaces: Iterable[Sequence[str]], resource_id: str) -> list[tuple[str, ...]]:
    """Put the resource into templates of namespaces; `OptionError` for one that would mean everybody."""
    found = []
    for template in as_tuple(namespaces, "namespaces", "namespaces"):
        path = as_tuple(template, "namespaces", "labels")
        if not set(path) & set(HOLDERS):
            msg = f"namespaces holds {path}, which is everybody's: name the resource in it, as in ('memories', '{{user_id}}')"
            raise OptionError(msg)
        found.append(tuple(resource_id if label in HOLDERS else label for label in path))
    return found


def walk(space: Space, namespaces: Sequence[tuple[str, ...]], visit: Callable[[list[str]], Plan[None]]) -> Plan[int]:
    """Visit the items below namespaces, by digest, and count them. Two round trips per 1,000 keys of the node."""
    found = 0
    step: Scan | None = Scan(f"{space.keys.item_prefix}*") if namespaces else None
    while step is not None:
        seen, step = yield step
        names = (yield from send(*(("HGET", key, "namespace") for key in seen))) if seen else []
        places = [tuple(json.loads(name)) if name else () for name in names]
        ours = [
            tag_of(key)
            for key, place in zip(seen, places, strict=True)
            if any(place[: len(below)] == below for below in namespaces)
        ]
        if ours:
            yield from visit(ours)
        found += len(ours)
    return found


def delete(space: Space, counts: Counter[str], digests: Sequence[str]) -> Plan[None]:
    """Delete items, and count them. One round trip."""
    gone = yield from send(*(scripts.DELETE_ITEM.call(space.keys.of_item(digest)) for digest in digests))
    counts.update(items=sum(gone))


def export(space: Space, namespaces: Sequence[tuple[str, ...]]) -> Plan[None]:
    """Emit the items below namespaces as records, without their vectors."""
    yield from walk(space, namespaces, partial(_emit, space))


def _emit(space: Space, digests: Sequence[str]) -> Plan[None]:
    replies = yield from send(*(scripts.GET_ITEM.call(space.keys.of_item(digest), 0) for digest in digests))
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


def load(space: Space, record: Mapping[str, Any], micros: Callable[[Any], int]) -> Plan[int]:
    """Check a record, and plan to write its item with its times, unless one that is as new is there.

    One round trip; its vectors are not made.
    """
    op = PutOp(tuple(record["namespace"]), record["key"], record["value"])
    validate_op_namespace(op)
    keys = space.keys.of_item(item_digest(op))
    times = [micros(record[name]) for name in ("created_at", "updated_at")]
    return _write(scripts.PUT_ITEM.call(keys, *fields_of(op), "", *times))


def _write(call: Command) -> Plan[int]:
    (written,) = yield from send(call)
    return int(written)
