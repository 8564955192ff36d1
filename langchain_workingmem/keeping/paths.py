"""Paths of values: JSON Pointers that a person can read. Pure functions."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WIDEST = 120  # characters of a value in a path; a longer one is cut to them, and a digest tells it from others


def join(path: str, name: str) -> str:
    """Return the path of what has this name below a path."""
    return f"{path}/{name.replace('~', '~0').replace('/', '~1')}"


def names_of(path: str) -> list[str]:
    """Return the names in a path."""
    return [name.replace("~1", "/").replace("~0", "~") for name in path.split("/")[1:]]


def name_of(value: Any) -> str:
    """Return the name of an item of a list, by its value."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 16]} ...{digest(text)}"


def digest(path: str) -> str:
    """Return a short text that stands for a path and holds no word of it."""
    return hashlib.sha1(path.encode(), usedforsecurity=False).hexdigest()[:12]


def above(path: str) -> Iterator[str]:
    """Yield the paths that a path is below, the nearest first."""
    while path:
        path = path[: path.rindex("/")]
        yield path


def with_above(paths: Iterable[str]) -> set[str]:
    """Return paths, and all that they are below."""
    found: set[str] = set()
    for path in paths:
        found.add(path)
        for one in above(path):
            if one in found:
                break
            found.add(one)
    return found


def label(path: str) -> str:
    """Write a path for a reader."""
    return "/".join(filter(None, names_of(path)))
