"""Cutting a long text into pieces that an embedding model can take whole."""

from __future__ import annotations

import math

# The rule of thumb of OpenAI and of langchain_core's `count_tokens_approximately` for English text.
CHARACTERS_PER_TOKEN = 4
# Where a cut reads best, from a paragraph's end to any space.
_SEAMS = ("\n\n", "\n", ". ", "? ", "! ", "; ", ", ", " ")


def count_tokens(text: str) -> int:
    """Estimate the tokens of a text."""
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)


def split(text: str, chunk_tokens: int) -> list[str]:
    """Cut a text into stripped pieces of at most `chunk_tokens` estimated tokens; none for blank text.

    Each cut falls behind the best seam in the second half of a piece, or, where there is none (a text without
    spaces), at the limit.
    """
    limit = chunk_tokens * CHARACTERS_PER_TOKEN
    pieces = []
    rest = text.strip()
    while len(rest) > limit:
        cut = limit
        for seam in _SEAMS:
            found = rest.rfind(seam, limit // 2, limit)
            if found > 0:
                cut = found + len(seam)
                break
        pieces.append(rest[:cut].strip())
        rest = rest[cut:].lstrip()
    return [*pieces, rest] if rest else pieces
