"""The limit of nesting in JSON: low enough that Python can read it back at any depth of its own stack."""

from __future__ import annotations

import json
import re
import reprlib
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH = 100  # levels; deeper ones are a mistake or an attack
WIDEST = 200  # characters of a value that an error shows
TOO_DEEP = f"it is nested deeper than {MAX_DEPTH} levels"
_ENDLESS = "it holds itself"
# The possessive ++ and *+ keep the time linear where a string has no end.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


def check_depth(text: str) -> str:
    """Return a JSON text, or raise `ValueError` when it is nested too deep."""
    if text.count("[") + text.count("{") > MAX_DEPTH:  # a cheap first check
        level = 0
        for token in _TOKEN.finditer(text):
            sign = text[token.start()]
            if sign in "[{":
                level += 1
                if level > MAX_DEPTH:
                    raise ValueError(TOO_DEEP)
            elif sign != '"':
                level -= 1
    return text


def parse_json(text: str) -> Any:
    """Return what a JSON text holds; None when it is not JSON, or nested too deep."""
    try:
        return json.loads(check_depth(text))
    except ValueError:
        return None


def json_leaves(value: object) -> Iterator[object]:
    """Yield the values in nested dicts and lists; their types are not checked.

    Raises `ValueError` for nesting that is too deep or endless, and for keys that are not str.
    """
    levels: list[Iterator[object]] = [iter((value,))]
    inside: list[int] = []  # the ids of the containers around the present one
    while levels:
        for one in levels[-1]:
            if isinstance(one, Mapping):
                for key in one:
                    if not isinstance(key, str):
                        msg = f"key {shown(key)} is no str"
                        raise ValueError(msg)  # noqa: TRY004 - as json.dumps does
                below = iter(one.values())
            elif isinstance(one, list | tuple):
                below = iter(one)
            else:
                yield one
                continue
            if len(levels) > MAX_DEPTH or id(one) in inside:
                raise ValueError(_ENDLESS if id(one) in inside else TOO_DEEP)
            levels.append(below)
            inside.append(id(one))
            break
        else:
            levels.pop()
            del inside[max(0, len(levels) - 1) :]


def check_nesting(value: object) -> None:
    """Raise `ValueError` where `json_leaves` does."""
    deque(json_leaves(value), maxlen=0)


def shown(value: object) -> str:
    """Write any value into an error: cut to WIDEST characters, or by its type if it has no repr."""
    try:
        text = repr(value[: WIDEST + 1] if isinstance(value, str) else value)  # a long text costs no more
    except (ValueError, RecursionError):  # such as an int with more digits than Python prints
        text = f"of type {type(value).__name__}"
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 4]} ..."


def as_json(value: Any) -> str:
    """Write a JSON value. Values that JSON cannot hold, or that are nested too deeply, are written as Python does."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return reprlib.repr(value)
