"""Names of speakers, as providers accept them."""

from __future__ import annotations

import re
import unicodedata
from itertools import islice

_LONGEST = 64
_ACCEPTED = re.compile(rf"[a-zA-Z0-9_-]{{1,{_LONGEST}}}")
_OTHERS = re.compile(r"[^a-zA-Z0-9_-]")


def acceptable_name(name: str) -> str | None:
    """Write a name in letters, digits, _ and -, at most 64 of them, which is what OpenAI accepts; None if nothing is left.

    Accents go ("José" is "Jose"), every other character becomes _. What is acceptable stays as it is.
    """
    if _ACCEPTED.fullmatch(name):
        return name
    # one by one: to normalise a run of accents puts them in order, which takes a square of its length
    parts = (part for one in name for part in unicodedata.normalize("NFKD", one) if not unicodedata.combining(part))
    found = _OTHERS.sub("_", "".join(islice(parts, _LONGEST)))
    return found if found.strip("_-") else None
