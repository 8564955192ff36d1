"""Text from users and models, made safe to show: shortened, and without control characters."""

from __future__ import annotations

from langchain_workingmem._text.unicode import picture, replace_hidden


def clean(text: str) -> str:
    """Show visible signs for characters that control a terminal, change the reading direction or are invisible."""
    return replace_hidden(text.replace("\r\n", "\n"), _sign)


def _sign(one: str) -> str:
    return picture(one) if one <= "\xff" else f"\\u{ord(one):04x}"


def cut(text: str, characters: int, lines: int = 1) -> str:
    """Cut a long text, between two words if a space is near, and state how many characters are missing."""
    kept = "\n".join(text.split("\n", lines)[:lines])
    if len(kept) > characters:
        head, _, tail = kept[:characters].rpartition(" ")
        kept = head if len(tail) < characters / 5 else kept[:characters]
    missing = len(text) - len(kept)
    return f"{kept} … [{missing:,} more]" if missing else text
