"""Authors that a question names: their messages speak of them in the first person.

In a chat between persons, "What is Caroline's dog called?" is answered by Caroline, who wrote "my dog". So a name that stands
in the question as it does in messages is left out of the words and of the vector, and the messages of its author get a bonus.
Without names, as between a user and an assistant, this does nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langchain_workingmem._redis.keys import decode
from langchain_workingmem._redis.state import Recent
from langchain_workingmem._text.unicode import MARKS, UNSPACED

if TYPE_CHECKING:
    from collections.abc import Collection

_WORD = re.compile(f"[\\w{MARKS}]+")
_RUN = re.compile(f"[{UNSPACED}]{{2,}}")  # one character may be part of any word
_COUPLE = 2
_USERS = 10_000  # whose authors are remembered
# `\b`, but for words that are written without spaces; and "'s" belongs to a name
_NAME = rf"(?<![^\W{UNSPACED}]){{}}(?:['\u2019]s)?(?![^\W{UNSPACED}])"


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
    meant, text, lower = set[str](), question, question.lower()
    for author in sorted(filter(None, authors), key=len, reverse=True):
        words = _WORD.findall(decode(author))
        for name in (words, words[:1]) if words and words[0] in lower else ():
            pattern = (r"\W*" if _RUN.search(name[0]) else r"\W+").join(map(re.escape, name))
            if re.search(found := _NAME.format(pattern), question, re.IGNORECASE):
                meant.add(author)
                text = re.sub(found, " ", text, flags=re.IGNORECASE)
                break
    text = text if _WORD.search(text) else question
    return frozenset(meant), text, question if sum(map(bool, authors)) > _COUPLE else text
