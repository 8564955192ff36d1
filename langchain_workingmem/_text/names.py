"""Names of speakers, as providers accept them, and of memory's own tools."""

from __future__ import annotations

import re
import unicodedata
from itertools import islice

_LONGEST = 64
_ACCEPTED = re.compile(rf"[a-zA-Z0-9_-]{{1,{_LONGEST}}}")
_OTHERS = re.compile(r"[^a-zA-Z0-9_-]")
# an agent with several memories adds their names: `search_memory_team`
_MEMORY_TOOL = re.compile(r"(?:search_memory|(?:get|update|clear)_working_memory)(?:_[A-Za-z0-9_-]{1,40})?")


def is_memory_tool(name: str | None) -> bool:
    """Tell whether a tool is one of `Memory.tools`, of this memory or of another one."""
    return name is not None and _MEMORY_TOOL.fullmatch(name) is not None


def acceptable_name(name: str) -> str | None:
    """Return a name that OpenAI accepts: 1 to 64 letters, digits, _ and -; None if no letter or digit is left.

    Accents are dropped ("José" becomes "Jose"), every other character becomes _.
    """
    if _ACCEPTED.fullmatch(name):
        return name
    # one by one: normalising a run of accents sorts them in quadratic time
    parts = (part for one in name for part in unicodedata.normalize("NFKD", one) if not unicodedata.combining(part))
    found = _OTHERS.sub("_", "".join(islice(parts, _LONGEST)))
    return found if found.strip("_-") else None
