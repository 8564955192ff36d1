"""How deep JSON may be nested: less than Python can read back, however deep in its stack the reader stands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH = 100  # levels; deeper ones are a mistake or an attack
WIDEST = 200  # characters of a value that an error shows
_TOO_DEEP = f"it is nested deeper than {MAX_DEPTH} levels"
_ENDLESS = "it holds itself"
# A string is taken in one go, and kept however the text goes on: to look for its end again would take a square of the time.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


def check_depth(text: str) -> str:
    """Return a JSON text, or raise `ValueError` when it is nested too deep."""
    if text.count("[") + text.count("{") > MAX_DEPTH:  # else it cannot be, and that is cheap to see
        level = 0
        for token in _TOKEN.finditer(text):
            sign = text[token.start()]
            if sign in "[{":
                level += 1
                if level > MAX_DEPTH:
                    raise ValueError(_TOO_DEEP)
            elif sign != '"':
                level -= 1
    return text


def json_leaves(value: object) -> Iterator[object]:
    """Give what stands in objects and arrays, as Python holds JSON; `ValueError` for what no JSON text can say.

    That is what is nested too deep, what holds itself, and keys that are not str, which JSON turns into some without a word.
    What kind of value each leaf is, is the caller's to judge.
    """
    levels: list[Iterator[object]] = [iter((value,))]
    inside: list[int] = []  # the objects and arrays around what is looked at, by identity
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
                raise ValueError(_ENDLESS if id(one) in inside else _TOO_DEEP)
            levels.append(below)
            inside.append(id(one))
            break
        else:
            levels.pop()
            del inside[max(0, len(levels) - 1) :]


def check_nesting(value: object) -> None:
    """Raise `ValueError` for what `leaves` cannot walk through."""
    for _ in json_leaves(value):
        pass


def shown(value: object) -> str:
    """Show a value in an error, whatever it is: cut, and by its type where it cannot be written."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of more digits than Python prints, say
        text = f"of type {type(value).__name__}"
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 4]} ..."
