"""Text that anybody may have written, made fit to be shown: cut to size, and with nothing in it that acts."""

from __future__ import annotations

from langchain_workingmem._text.unicode import picture, signed


def clean(text: str) -> str:
    """Show as signs what would steer a terminal, turn the direction of reading or hide."""
    return signed(text.replace("\r\n", "\n"), _sign)


def _sign(one: str) -> str:
    return picture(one) if one <= "\xff" else f"\\u{ord(one):04x}"


def cut(text: str, characters: int, lines: int = 1) -> str:
    """Cut a long text, between two words if there is a space near, and say how much is missing."""
    kept = "\n".join(text.split("\n", lines)[:lines])
    if len(kept) > characters:
        head, _, tail = kept[:characters].rpartition(" ")
        kept = head if len(tail) < characters / 5 else kept[:characters]
    missing = len(text) - len(kept)
    return f"{kept} … [{missing:,} more]" if missing else text
