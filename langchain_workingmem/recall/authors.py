# ruff: noqa: RUF001 - words in Cyrillic letters
"""Authors that a question names: their messages speak of them in the first person.

In a chat between persons, "What is Caroline's dog called?" is answered by Caroline, who wrote "my dog". On LoCoMo's
development half (LocalEmbeddings, docs/recall.md) this finds .664 of the evidence at 500 tokens instead of .568, and
the bonus in `ranking` is .016 of that. Without names, as between a user and an assistant, it does nothing.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from langchain_workingmem._redis.keys import decode
from langchain_workingmem._redis.state import Recent
from langchain_workingmem._text.telling import language_of, telling_words
from langchain_workingmem._text.time_words import NAMING
from langchain_workingmem._text.unicode import MARKS, UNSPACED

if TYPE_CHECKING:
    from collections.abc import Collection

_WORD = re.compile(f"[\\w{MARKS}]+")
_RUN = re.compile(f"[{UNSPACED}]+")
_COUPLE = 2
_RESOURCES = 10_000  # whose authors are remembered
_LONGEST_INSIDE = 6  # characters of a name that is found in a text without spaces; one alone may be part of any word
_MOST_TITLES = 64  # words of a question that may be a part of a name
_SHORTEST = 3  # letters of a name that is given in part
_ENDING = 2  # letters that a case puts behind the stem of a name, at most
# How authors speak of themselves, by language: what stands where they are named, {}, and what they say there. Of several that fit,
# the first
# counts; the last one is "I".
_HER, _TITLE = "['\u2019]", "(?:さん|くん|君|ちゃん|様|先生| ?씨| ?님)?"
_FIRST_PERSON: dict[str, tuple[tuple[str, str], ...]] = {
    "en": ((rf"{{}}{_HER}(?:s\b|(?!\w))", "my"), ("{}", "I")),
    "de": (
        (rf"{{}}(?:s\b|{_HER}s?)", "mein"),
        (r"(?:der|die|das|den|dem) (\w+) von {}", r"mein \1"),
        ("(von|mit|bei|zu) {}", r"\1 mir"),
        ("{}", "ich"),
    ),
    "fr": (
        (rf"(?:le |la |les |l{_HER})(\w+) (?:de |d{_HER}){{}}", r"mon \1"),
        (rf"(?:de |d{_HER}){{}}", "de moi"),
        ("(à|avec|pour|chez) {}", r"\1 moi"),
        ("{}", "je"),
    ),
    "es": ((r"(?:el|la|los|las) (\w+) de {}", r"mi \1"), ("(de|a|para) {}", r"\1 mí"), ("{}", "yo")),
    "it": (
        (rf"(?:il |lo |la |i |gli |le |l{_HER})(\w+) di {{}}", r"mio \1"),
        ("(di|a|con|per|da) {}", r"\1 me"),
        ("{}", "io"),
    ),
    "pt": ((r"(?:o|a|os|as) (\w+) d[eao] {}", r"meu \1"), ("(?:de|da|do) {}", "de mim"), ("{}", "eu")),
    "nl": (
        (rf"{{}}{_HER}?s\b", "mijn"),
        (r"(?:de|het) (\w+) van {}", r"mijn \1"),
        ("(van|met|bij|aan|voor) {}", r"\1 mij"),
        ("{}", "ik"),
    ),
    "pl": (("u {}", "u mnie"), ("{}", "ja")),
    "ru": (("у {}", "у меня"), ("{}", "я")),
    "zh": (("{}的", "我的"), ("{}", "我")),
    "ja": (("{}" + _TITLE, "私"),),
    "ko": (
        ("{}" + _TITLE + "이?의", "내"),
        ("{}" + _TITLE + "이?가", "내가"),
        ("{}" + _TITLE + "이?(?=[은는를에와도한])", "나"),
        ("{}" + _TITLE, "나"),
    ),
    "th": (("ของ{}", "ของฉัน"), ("{}", "ฉัน")),
}
_MINE = {
    "de": "mein",
    "nl": "mijn",
    "pl": "mój",
    "ru": "мой",
}  # for a name in another case, which mostly says whose something is
_VOWELS = frozenset("aoeаяйьо")  # that cases replace
_SCRIPTS = (("ja", "[\u3041-\u30ff]"), ("ko", "[\uac00-\ud7a3]"), ("zh", "[\u3400-\u9fff]"), ("th", "[\u0e01-\u0e5b]"))
_BEFORE, _AFTER = (
    rf"(?<![^\W{UNSPACED}])",
    rf"(?![^\W{UNSPACED}])",
)  # `\b`, but for words that are written without spaces


class Authors(Recent[str, frozenset[str]]):
    """The authors of each resource, as tags, from the messages that searches have returned."""

    def __init__(self) -> None:
        super().__init__(_RESOURCES)

    def note(self, resource_id: str, seen: set[str]) -> frozenset[str]:
        """Remember authors of a resource, and return all that are known."""
        return self.change(resource_id, lambda known: frozenset(seen).union(known or ()) or None) or frozenset()


def named(question: str, authors: Collection[str]) -> frozenset[str]:
    """Return the authors, as tags, that a question names: by the whole or the first name, or a part of it that fits only one."""
    if not any(authors):  # the usual case of every recall
        return frozenset()
    return frozenset().union(*_spoken(question, authors).values())


def put_to(question: str, known: Collection[str]) -> tuple[frozenset[str], str]:
    """Return the authors whom a question names, and how it is embedded: in the first person, if at most two are known.

    Of several, the others say "I" as well: then the question as it was asked finds .07 more of the evidence.
    """
    meant = named(question, known)
    return meant, question if are_several(known) else in_first_person(question, meant)


def are_several(known: Collection[str]) -> bool:
    """Tell whether more than two authors have names, as in a chat of a team."""
    return sum(map(bool, known)) > _COUPLE


def in_first_person(question: str, authors: Collection[str]) -> str:
    """Write a question as its authors would, in its language: "my" for "Caroline's", "I" for "Caroline"."""
    language = _language_of(question) if authors else ""
    for name in _longest_first(question, authors):
        forms = _FIRST_PERSON[language]
        if isinstance(name, _Case):
            forms = (*forms[:-1], ("{}", _MINE[language]))
        for form, own in forms:
            pattern = f"{_BEFORE}{form.format(_pattern(name))}{_AFTER}"
            question = re.sub(pattern, own, question, flags=re.IGNORECASE)
    return question


def without(question: str, authors: Collection[str]) -> str:
    """Remove the authors' names, which are mostly in messages by others."""
    for name in _longest_first(question, authors):
        pattern = f"{_BEFORE}{_pattern(name)}(?:{_HER}s)?{_TITLE}{_AFTER}"
        question = re.sub(pattern, " ", question, flags=re.IGNORECASE)
    return question


class _Case(tuple[str, ...]):
    """A name in another case than that of the author's name."""

    __slots__ = ()


def _spoken(question: str, authors: Collection[str]) -> dict[tuple[str, ...], set[str]]:
    """Return the words by which a question names authors, in lower case, and whom each names."""
    divided = _RUN.sub(" ", question)
    words = [word.lower() for text in {question: 0, divided: 0} for word in _WORD.findall(text)]
    spoken = {tuple(words[at : at + size]) for size in (1, 2, 3) for at in range(len(words))}
    runs, sizes = _RUN.findall(question.lower()), range(2, _LONGEST_INSIDE + 1)
    inside = {run[at : at + size] for run in runs for size in sizes for at in range(len(run) - size + 1)}
    names = [(author, name) for author in authors if author for name in _names(author)]
    found: dict[tuple[str, ...], set[str]] = {}
    for author, name in names:
        if name in spoken or (inside and "".join(name) in inside):
            found.setdefault(name, set()).add(author)
    titles = {
        word.lower() for word in _WORD.findall(divided) if word[0].isupper() or word[0].lower() == word[0].upper()
    }
    if titles := titles.difference(*found).intersection(telling_words(question)).difference(NAMING):
        language, others = _language_of(question), {*authors}.difference(*found.values())
        first = [(author, name[0]) for author, name in names if author in others]
        for word in islice(titles, _MOST_TITLES):
            cases = {author for author, name in first if _is_case(word, name, language)}
            parts = {author for author, name in first if _is_part(word, name, may_be_longer=not found)}
            if len(cases or parts) == 1:
                found[_Case([word]) if cases else (word,)] = cases or parts
    return found


def _names(author: str) -> list[tuple[str, ...]]:
    """Return the whole and the first name, each as a tuple of words."""
    words = tuple(_WORD.findall(decode(author)))
    return [words, words[:1]] if words else []


def _is_case(word: str, name: str, language: str) -> bool:
    """Tell whether a word may be a name in another case, in a language that has cases."""
    if language in {"de", "nl"}:
        return word == f"{name}s"
    stem = name[:-1] if name[-1] in _VOWELS else name
    return language in _MINE and word.startswith(stem) and len(stem) > 1 and len(word) - len(stem) <= _ENDING


def _is_part(word: str, name: str, *, may_be_longer: bool) -> bool:
    """Tell whether a word is the beginning of a name, or, at need, the name that of the word: Mel and Melanie."""
    if len(word) < len(name):
        return len(word) >= _SHORTEST and name.startswith(word)
    return may_be_longer and len(name) >= _SHORTEST and word.startswith(name) and len(word) > len(name) + 1


def _longest_first(question: str, authors: Collection[str]) -> list[tuple[str, ...]]:
    return (
        sorted(_spoken(question, authors), key=lambda name: (len(name), len(name[0])), reverse=True) if authors else []
    )


def _pattern(name: tuple[str, ...]) -> str:
    return (r"\W*" if _RUN.search(name[0]) else r"\W+").join(map(re.escape, name))


def _language_of(question: str) -> str:
    """Return the language of a question: that of its plain words, or of its letters; English if neither tells."""
    known = language_of(_WORD.findall(_RUN.sub(" ", question.lower())))
    return known or next((language for language, script in _SCRIPTS if re.search(script, question)), "en")
