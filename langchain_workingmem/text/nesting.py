"""How deep JSON may be nested: less than Python can read back, however deep in its stack the reader stands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH = 100  # levels; deeper ones are a mistake or an attack
_TOO_DEEP = f"it is nested deeper than {MAX_DEPTH} levels"
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


def leaves(value: object) -> Iterator[object]:
    """Give what stands in objects and arrays, as Python holds JSON; `ValueError` for what no JSON text can say.

    That is what is nested too deep, so what holds itself too, and keys that are not str, which JSON turns into some without a
    word. What kind of value each leaf is, is the caller's to judge.
    """
    level: list[object] = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[object] = []
        for one in level:
            if isinstance(one, Mapping):
                for key in one:
                    if not isinstance(key, str):
                        msg = f"key {shown(key)} is not a str"
                        raise ValueError(msg)  # noqa: TRY004 - as json.dumps does
                below += one.values()
            elif isinstance(one, list | tuple):
                below += one
            else:
                yield one
        if not below:
            return
        level = below
    raise ValueError(_TOO_DEEP)


def check_nesting(value: object) -> None:
    """Raise `ValueError` for what `leaves` cannot walk through."""
    for _ in leaves(value):
        pass


def shown(value: object) -> str:
    """Show a value in an error, whatever it is: cut, and by its type where it cannot be written."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of more digits than Python prints, say
        text = f"of type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:76]} ..."
