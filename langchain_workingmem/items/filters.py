"""The labels of store items, by which the index decides filters.

Every string, number and boolean of a value, and every list of them, has a label in the index: a digest of its path and
its value. So the server decides equality without declared fields. The rest is checked on the values that it returns.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_workingmem._documents.filters import Names

MAX_LABELLED = 128  # characters: longer values have no label, because filters hardly ever ask for them
_json = json.JSONEncoder().encode
_HUGE = 10**MAX_LABELLED
Path: TypeAlias = tuple[Any, str]  # a hash object fed with the path so far, and the separator before the next name
_ROOT: Path = (hashlib.sha1(b"[[", usedforsecurity=False), "")


def labels(value: Mapping[str, Any], path: Path = _ROOT) -> Iterator[str]:
    """Return the labels of a value, those of nested objects included."""
    for key, part in value.items():
        if isinstance(part, Mapping):
            yield from labels(part, _below(path, key))
        elif (written := _written(part)) is not None:
            yield _label(_below(path, key), written)


def labels_of(names: Names, value: Any) -> list[str] | None:
    """Return the label of items that have this value at these names, None for a value without a label."""
    written = _written(value)
    return None if written is None else [_label(reduce(_below, names, _ROOT), written)]


def _written(value: Any) -> str | None:
    """Write a value, equal ones alike; None for a value without a label."""
    written = ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str):
        written = f'"{value}'
    elif isinstance(value, int):  # a bool too
        written = str(int(value)) if abs(value) < _HUGE else ""
    elif isinstance(value, float) and not math.isnan(value):  # NaN equals nothing
        written = str(value)
    elif isinstance(value, list | tuple):
        parts = ["" if part is None else _written(part) for part in value]
        written = "" if None in parts else _json(parts)
    return written if 0 < len(written) <= MAX_LABELLED else None


def _below(path: Path, key: str) -> Path:
    """Extend a path by a key; copying the hash object avoids hashing a long path again for each field."""
    digest, comma = path[0].copy(), path[1]
    digest.update(f"{comma}{_json(key)}".encode())
    return digest, ", "


def _label(path: Path, written: str) -> str:
    """Return the label, 64 bits of a digest of `[path, written]` as JSON."""
    digest = path[0].copy()
    digest.update(f"], {_json(written)}]".encode())
    found: str = digest.hexdigest()
    return found[:16]
