"""Lone surrogates, which a Python str can hold and UTF-8 cannot carry."""

from __future__ import annotations


def to_utf8(text: str) -> str:
    """Put a question mark where UTF-8 cannot carry a text."""
    return text.encode(errors="replace").decode()


def is_utf8(text: object) -> bool:
    """Tell whether something is a str that UTF-8 can carry."""
    return isinstance(text, str) and to_utf8(text) == text
