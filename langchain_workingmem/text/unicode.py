"""Lone surrogates, which a Python str can hold and UTF-8 cannot carry."""

from __future__ import annotations

from typing import Any


def to_utf8(text: str) -> str:
    """Put a question mark where UTF-8 cannot carry a text."""
    return text.encode(errors="replace").decode()


def without_surrogates(value: Any) -> Any:
    """Do so in all of a JSON value."""
    if isinstance(value, str):
        return to_utf8(value)
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    return [without_surrogates(item) for item in value] if isinstance(value, list) else value


def is_utf8(text: object) -> bool:
    """Tell whether something is a str that UTF-8 can carry."""
    return isinstance(text, str) and to_utf8(text) == text
