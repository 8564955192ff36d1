"""Authors that a question names: their messages speak of them in the first person.

In a chat between persons, "What is Caroline's dog called?" is answered by Caroline, who wrote "my dog". So a name that stands
in the question as it does in messages is left out of the words and of the vector, and the messages of its author get a bonus.
Without names, as between a user and an assistant, this does nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from langchain_workingmem._redis.keys import decode
from langchain_workingmem._redis.state import Recent
from langchain_workingmem._text.unicode import UNSPACED, WORD

if TYPE_CHECKING:
    from collections.abc import Collection

_RUN = re.compile(f"[{UNSPACED}]{{2,}}")  # one character may be part of any word
# `\b`, but for words that are written without spaces; and "'s" belongs to a name
_NAME = rf"(?<![^\W{UNSPACED}])({{}})(?:['\u2019]s)?(?![^\W{UNSPACED}])"
_COUPLE, _MOST = 2, 200  # authors of a user; among more, as in a public channel, names tell nothing
_USERS = 10_000  # whose authors are remembered


class Authors(Recent[str, frozenset[str]]):
    """The authors of each user, as tags, from the messages that searches have returned; "" is a user without a name."""

    def __init__(self) -> None:
        super().__init__(_USERS)

    def note(self, user_id: str, seen: set[str]) -> frozenset[str]:
        """Remember authors of a user, and return all that are known."""
        return self.change(user_id, lambda known: frozenset(seen).union(known or ()) or None) or frozenset()


def apart(question: str, authors: Collection[str]) -> tuple[frozenset[str], str, str]:
    """Return the authors, as tags, that a question names by the whole or the first name, and the question without the names.

    And what is embedded of it: that, too, but among more than two authors the question as it was asked, which finds .05 more there.
    """
    names = frozenset(filter(None, authors))
    if not names or len(names) > _MOST:
        return frozenset(), question, question
    pattern, bearers = _known(names)
    meant = frozenset[str]().union(*(bearers[_key(found[1])] for found in pattern.finditer(question)))
    text = pattern.sub(" ", question)
    text = text if WORD.search(text) else question
    return meant, text, question if len(names) > _COUPLE else text


def _key(name: str) -> str:
    return "".join(WORD.findall(name.lower()))


@lru_cache(1024)
def _known(authors: frozenset[str]) -> tuple[re.Pattern[str], dict[str, set[str]]]:
    """Return what finds the names of authors in a text, whole names before first ones, and who bears each."""
    bearers: dict[str, set[str]] = {}
    patterns: dict[str, None] = {}
    for author in authors:
        words = WORD.findall(decode(author))
        for name in (words, words[:1]) if words else ():
            bearers.setdefault(_key(" ".join(name)), set()).add(author)
            patterns[(r"\W*" if _RUN.search(name[0]) else r"\W+").join(map(re.escape, name))] = None
    either = "|".join(sorted(patterns, key=len, reverse=True)) or r"(?!)"
    return re.compile(_NAME.format(either), re.IGNORECASE), bearers
