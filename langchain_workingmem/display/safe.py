"""Text that anybody may have written, made fit to be shown: cut to size, and with nothing in it that acts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from unicodedata import category

if TYPE_CHECKING:
    from collections.abc import Callable

# What holds words and emoji together, and soft hyphens: invisible by design, and harmless.
_INVISIBLE = "\u200c\u200d\u00ad"
_NOT_PLAIN = re.compile(r"[^ -~\n\t]")


def clean(text: str) -> str:
    """Show as signs what would steer a terminal, turn the direction of reading or hide."""
    return signed(text.replace("\r\n", "\n"), _sign)


def signed(text: str, sign: Callable[[str], str]) -> str:
    """Put signs in the place of what would steer a terminal, turn the direction of reading or hide.

    Control characters, overrides of direction, invisible tags, lone surrogates; line ends and tabs stay.
    """
    return _NOT_PLAIN.sub(lambda found: sign(found[0]) if _acts(found[0]) else found[0], text)


def _acts(one: str) -> bool:
    return category(one) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and one not in _INVISIBLE


def _sign(one: str) -> str:
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
