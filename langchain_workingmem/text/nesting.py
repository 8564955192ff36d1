"""How deep JSON may be nested: less than Python can read back, however deep in its stack the reader stands."""

from __future__ import annotations

import re

MAX_DEPTH = 100  # levels; deeper ones are a mistake or an attack
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKET = re.compile(r"[\[\]{}]")


def check_depth(text: str) -> str:
    """Return a JSON text, or raise `ValueError` when it is nested too deep."""
    if text.count("[") + text.count("{") > MAX_DEPTH:  # else it cannot be, and that is cheap to see
        level = 0
        for bracket in _BRACKET.findall(_STRING.sub("", text)):
            level += 1 if bracket in "[{" else -1
            if level > MAX_DEPTH:
                msg = f"it is nested deeper than {MAX_DEPTH} levels"
                raise ValueError(msg)
    return text
