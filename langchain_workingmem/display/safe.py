"""Text that anybody may have written, made fit to be shown: cut to size, and with nothing in it that acts."""

from __future__ import annotations

from unicodedata import category

# What holds words and emoji together, and soft hyphens: invisible by design, and harmless.
_INVISIBLE = "\u200c\u200d\u00ad"


def clean(text: str) -> str:
    """Show as signs what would steer a terminal, turn the direction of reading or hide.

    Control characters, overrides of direction, invisible tags, lone surrogates; line ends and tabs stay.
    """
    text = text.replace("\r\n", "\n")
    return text if text.isascii() and text.isprintable() else "".join(map(_sign, text))


def _sign(one: str) -> str:
    if one in "\n\t" or one in _INVISIBLE or category(one) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
        return one
    if one < " ":
        return chr(0x2400 + ord(one))  # Unicode's pictures of the control characters
    return f"\\x{ord(one):02x}" if one <= "\xff" else f"\\u{ord(one):04x}"


def cut(text: str, characters: int, lines: int = 1) -> str:
    """Cut a long text, between two words if there is a space near, and say how much is missing."""
    kept = "\n".join(text.split("\n", lines)[:lines])
    if len(kept) > characters:
        head, _, tail = kept[:characters].rpartition(" ")
        kept = head if len(tail) < characters / 5 else kept[:characters]
    missing = len(text) - len(kept)
    return f"{kept} … [{missing:,} more]" if missing else text
