"""Authors that a question names: their messages speak of them in the first person.

In a chat between persons, "What is Caroline's dog called?" is answered by Caroline, who wrote "my dog". On LoCoMo's
development half (LocalEmbeddings, docs/recall.md) this finds .664 of the evidence at 500 tokens instead of .568, and
the bonus in `ranking` is .016 of that. Without names, as between a user and an assistant, it does nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langchain_workingmem._redis.keys import decode
from langchain_workingmem._redis.state import Recent

if TYPE_CHECKING:
    from collections.abc import Collection

_WORD = re.compile(r"\w+")
_APOSTROPHE = "['\u2019]"
_COUPLE = 2
_RESOURCES = 10_000  # whose authors are remembered


class Authors(Recent[str, frozenset[str]]):
    """The authors of each resource, as tags, from the messages that searches have returned."""

    def __init__(self) -> None:
        super().__init__(_RESOURCES)

    def note(self, resource_id: str, seen: set[str]) -> frozenset[str]:
        """Remember authors of a resource, and return all that are known."""
        return self.change(resource_id, lambda known: frozenset(seen).union(known or ()) or None) or frozenset()


def named(question: str, authors: Collection[str]) -> frozenset[str]:
    """Return the authors, as tags, that a question names by their whole or their first name."""
    if not any(authors):  # the usual case of every recall
        return frozenset()
    words = _WORD.findall(question.lower())
    spoken = {tuple(words[at : at + size]) for size in (1, 2, 3) for at in range(len(words))}
    return frozenset(author for author in authors if author and not spoken.isdisjoint(_names(author)))


def put_to(question: str, known: Collection[str]) -> tuple[frozenset[str], str]:
    """Return the authors whom a question names, and how it is embedded: in the first person, if at most two are known.

    Of several, the others say "I" as well: then the question as it was asked finds .07 more of the evidence.
    """
    meant = named(question, known)
    return meant, in_first_person(question, meant) if sum(map(bool, known)) <= _COUPLE else question


def in_first_person(question: str, authors: Collection[str]) -> str:
    """Write a question as its authors would: "my" for "Caroline's", "I" for "Caroline"."""
    for pattern in _patterns(authors):
        question = re.sub(rf"\b{pattern}{_APOSTROPHE}(?:s\b|(?!\w))", "my", question, flags=re.IGNORECASE)
        question = re.sub(rf"\b{pattern}\b", "I", question, flags=re.IGNORECASE)
    return question


def without(question: str, authors: Collection[str]) -> str:
    """Remove the authors' names, which are mostly in messages by others."""
    for pattern in _patterns(authors):
        question = re.sub(rf"\b{pattern}(?:{_APOSTROPHE}s)?\b", " ", question, flags=re.IGNORECASE)
    return question


def _names(author: str) -> list[tuple[str, ...]]:
    """Return the whole and the first name, each as a tuple of words."""
    words = tuple(_WORD.findall(decode(author)))
    return [words, words[:1]] if words else []


def _patterns(authors: Collection[str]) -> list[str]:
    names = {name for author in authors for name in _names(author)}
    return [r"\W+".join(map(re.escape, name)) for name in sorted(names, key=len, reverse=True)]
