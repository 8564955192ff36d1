"""Metadata of threads and messages: its JSON, the labels by which an index finds it, and filters of it."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from langchain_workingmem._documents.filters import Filter
from langchain_workingmem._text.nesting import check_nesting, shown
from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_workingmem._documents.filters import Names

# where keys are declared that filters may name
DECLARED = (
    "RecallOptions(filterable=...), then run memory.recall.reindex(), or those of threads in Memory(thread_filters=...)"
)
_FIELD = b"metadata:"  # in the hash of a thread, before a key
_sorted_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def metadata_in(row: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Return the metadata among the fields of a thread."""
    start = len(_FIELD)
    return {name[start:].decode(): json.loads(value) for name, value in row.items() if name.startswith(_FIELD)}


def canonical_json(value: object, key: str) -> str:
    """Write a value of metadata as JSON with sorted keys, so that equal values are equal texts."""
    try:
        if isinstance(value, dict | list | tuple):
            check_nesting(value)
        return _sorted_json(value)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"metadata {shown(key)} is not JSON ({error})",
            remedy="use strings, numbers, booleans, None, lists and dicts with str keys",
        ) from error


def check_key(key: object) -> None:
    """Raise `OptionError` for what cannot be a key of metadata."""
    if not is_utf8(key):
        raise OptionError(f"metadata key {shown(key)}", remedy="use a str of valid Unicode")


def label(key: str, value: object) -> str:
    """Return the label of a pair of metadata; `refresh_labels` in Lua makes the same one."""
    return hashlib.sha1(f"{key}={canonical_json(value, key)}".encode(), usedforsecurity=False).hexdigest()


def labels_of(names: Names, value: object) -> list[str] | None:
    """Return the labels of metadata that equals a value, None where labels do not tell, as inside of a dict."""
    if len(names) > 1 or isinstance(value, list | tuple | dict):
        return None
    try:
        return [label(names[0], one) for one in _equals(value)]
    except OptionError:  # it is no JSON
        return None


def _equals(value: Any) -> list[Any]:
    """Return a value and its equals of other types: 1, 1.0 and true are different JSON."""
    if not isinstance(value, int | float):
        return [value]
    with suppress(OverflowError, ValueError):  # an int may be too large for a float; infinity and NaN are no int
        return [kind(value) for kind in (int, float, bool) if kind(value) == value] + [-0.0] * (not value)
    return [value]


def metadata_filter(metadata: Any) -> Filter:
    """Return a checked filter of metadata, None as one that passes everything; `OptionError` for one that cannot match."""
    wanted = Filter.of(metadata, "metadata")
    for key in wanted.keys:
        check_key(key)
    for key, value in (metadata or {}).items():
        canonical_json(value, key)
    return wanted
