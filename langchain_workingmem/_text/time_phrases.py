"""Phrases of a question that name a time, found by the roles of their words."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from langchain_workingmem._text.telling import language_of
from langchain_workingmem._text.time_words import NAMING, ROLES, SAID, UNITS, VALUES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_WORD = re.compile(r"\w+")
# a year, a date in digits, or a character of the dates in _UNSPACED
_DIGITS = re.compile(r"(?:19|20)\d\d|\d[./-]\d|[年月天昨去周先前년월어난작전]")
_BEFORE_YEAR = re.compile(r"\b(\w++) (?:19|20)\d\d\b")
NUMERIC = re.compile(
    r"(?<![\w./-])(?:(?P<YMD>(?:19|20)\d\d([-/.])\d\d?\2\d\d?)|(?P<DMY>\d\d?\.\d\d?\.(?:19|20)\d\d)"
    r"|(?P<either>\d\d?([-/])\d\d?\5(?:19|20)\d\d))(?![\w/-])"
)
UNSPACED = re.compile(  # languages without spaces between words, or with suffixes
    r"(?P<y>(?:19|20)\d\d)[年년](?: ?(?P<m>\d\d?)[月월](?: ?(?P<d>\d\d?)[日号號일])?)?"
    r"|(?P<month>\d\d?)[月월] ?(?P<day>\d\d?)[日일]"
    rf"|(?P<n>\d\d?)(?P<unit>{'|'.join(UNITS)}) ?[前전]"
    rf"|(?P<said>{'|'.join(SAID)})"
)
_TOKEN = re.compile(
    r"(?P<y>(?:19|20)\d\d)(?![.,]?\w)|(?P<o>\d\d?(?:st|nd|rd|th|er|º|ª))(?!\w)|(?P<d>\d\d?)(?!\w|[.:]\d|,\d{1,3}(?!\d))|[^\W\d_]+|\w+"
)
_GAP = re.compile(r"[ ,'\u2019-]{0,2}")
_AHEAD = re.compile(r"\b(?:will|shall|going to|gonna|tomorrow|upcoming|next)\b|['\u2019]ll\b|\bwon['\u2019]t\b")
_BEHIND = re.compile(r"\b(?:did|was|were|had|[a-z]{3,}ed)\b")
_SENTENCE_END = re.compile(r"[!?;\n]|(?<!\d)\.\s")

# "y", "d" and "o" are a year, another number and an ordinal, "k" is a "may" or "march" in small letters, mostly a
# verb, and "x" any word without a role.
_G = "g{0,3}"
_DATE = (
    f"(?:(?:[do]{_G}[mk]|[mk]{_G}[do]){_G}y|[do]{_G}m|m{_G}[do]|(?:o{_G}|dg{{1,3}}|(?<=p)d|(?<=pg)d)k"
    f"|(?:(?<=p)|(?<=pg))k{_G}[do]|[mk]{_G}y)"
)
_PHRASE = re.compile(
    f"(?P<between>q{_G}(?:{_DATE}|[mk]|y)c{_G}(?:{_DATE}|[mk]|y))"
    f"|(?P<distant>(?:[nd]g?)?b?[ue]z{_G}{_DATE})"
    f"|(?P<date>{_DATE})"
    f"|(?P<lately>b{_G}[nd][ndg]{{0,2}}[uh])"
    f"|(?P<ago>[nd][ndg]{{0,2}}[uh]{_G}a|a{_G}[nd]{_G}[uh])"
    f"|(?P<unit>b{_G}u(?!{_G}[mkdoy])|u{_G}B)"
    f"|(?P<day>(?:uz)?t|bv)"
    f"|(?P<this>i[uv])"
    f"|(?P<month>[pqzbu]{_G}[mk](?!{_G}[doy])|m{_G}B)"
    f"|(?P<weekday>b{_G}w|w{_G}B|[pqz]{_G}w(?!{_G}[mkdo]))"
    f"|(?P<year>[pqz]{_G}(?:u{_G})?y)"
    f"|(?P<season>[bpqzi]{_G}s(?:{_G}y)?|s{_G}y)"
    f"|(?P<weekend>(?:b{_G}|pg)e)"
    f"|(?P<holiday>[bp]{_G}f(?:{_G}y)?|f{_G}y)"
)


class Word(NamedTuple):
    """A word of a question, or a break between two phrases."""

    text: str  # in lower case
    role: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words in an order that names a time."""

    kind: str
    language: str
    words: Sequence[Word]
    before: Sequence[Word]  # at most three
    question: str

    def word(self, roles: str) -> str:
        """Return the last word that has one of the roles, "" if there is none."""
        return next((word.text for word in reversed(self.words) if word.role in roles), "")

    def value(self, roles: str) -> int | None:
        """Return the number, or the place among the words of its role, of the last word that has one of the roles."""
        word = self.word(roles)
        digits = "".join(filter(str.isdecimal, word))
        return int(digits) if digits else VALUES[self.language].get(word)

    def has(self, *words: str) -> bool:
        """Tell whether it begins with one of the words, articles aside."""
        return next((word.text for word in self.words if word.role != "g"), "") in words

    def split(self, role: str) -> tuple[Phrase, Phrase]:
        """Cut it at the first word of a role."""
        at = next(at for at, word in enumerate(self.words) if word.role == role)
        return replace(self, words=self.words[:at]), replace(self, words=self.words[at + 1 :])

    def is_trailing(self) -> bool:
        """Tell "in the last week", which ends now, from "last week", which ended before this one."""
        return self.has("past") or [word.role for word in self.before[-2:]] == ["p", "g"]

    def is_since(self) -> bool:
        """Tell whether it is the beginning of a time that lasts until now."""
        around = (*self.words, *reversed(self.before))
        return next((word.text for word in around if word.role not in "gmkdoy"), "") == "since"

    def is_meant(self) -> bool:
        """Tell whether it speaks of a past time: without a year, English sentences of the future do not."""
        if self.language != "en" or self.word("y") or self.kind in ("ago", "lately", "day", "unit"):
            return True
        sentence = self._sentence()
        is_near = self.kind in ("weekday", "weekend") and not self.has("last", "past", "previous")
        if is_near or self.has("this"):  # more often a plan than a memory
            return bool(_BEHIND.search(sentence))
        return not _AHEAD.search(sentence)

    def is_open(self) -> bool:
        """Tell whether nothing in an English sentence says that a date or a month is past: it may be a plan."""
        is_told = self.word("y") or self.has("last", "past", "previous") or _BEHIND.search(self._sentence())
        return self.language == "en" and self.kind in ("date", "month") and not is_told

    def _sentence(self) -> str:
        start, end = self.words[0].start, self.words[-1].end
        before = _SENTENCE_END.split(self.question[max(0, start - 200) : start])[-1]
        after = _SENTENCE_END.search(self.question, end, end + 200)
        return f"{before}{self.question[start : after.start() if after else end + 200]}".lower()


def may_name_a_time(text: str) -> bool:
    """Tell whether a question has a word or digits of a time: a few microseconds, and mostly the end of it."""
    return bool(_DIGITS.search(text)) or not NAMING.keys().isdisjoint(_WORD.findall(text.lower()))


def phrases_of(text: str) -> Iterator[Phrase]:
    """Find the phrases that name a past time, in each language that has one of the words."""
    said = _WORD.findall(text.lower())
    found = set(chain.from_iterable(NAMING.get(word, ()) for word in said))
    before_year = set(_BEFORE_YEAR.findall(text.lower()))
    spoken = language_of(said)
    for language, roles in ROLES.items():
        if language in found or not before_year.isdisjoint(roles):
            words = [*_words(text, language, spoken)]
            for match in _PHRASE.finditer("".join(word.role for word in words)):
                start, end = match.span()
                before = words[max(0, start - 3) : start]
                phrase = Phrase(match.lastgroup or "", language, words[start:end], before, text)
                if phrase.is_meant():
                    yield phrase


def _words(text: str, language: str, spoken: str | None) -> Iterator[Word]:
    """Return the words that have a role; whatever lies between them is one "x"."""
    roles, end, last = ROLES[language], 0, "x"
    for match in _TOKEN.finditer(text):
        start, word = match.start(), match[0].lower()
        role = match.lastgroup or roles.get(word, "x")
        if language == "en" and match[0] in ("may", "march"):
            role = "k"
        elif spoken != "fr" and (word == "hier" or match[0] == "Mars" or (word == "mars" and spoken == "en")):
            role = "x"
        if last != "x":
            gap = text[end:start]
            is_abbreviation = gap == ". " and role in "dy" and text[max(0, end - 4) : end].strip().isalpha()
            is_near = _GAP.fullmatch(gap) or (gap in (". ", ".") and text[end - 1].isdecimal()) or is_abbreviation
            if role == "x" or not is_near:
                yield Word("", "x", end, start)
        if role != "x":
            yield Word(word, role, start, match.end())
        end, last = match.end(), role
