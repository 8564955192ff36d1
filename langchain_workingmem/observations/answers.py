"""Read what observer and reflector answer, and say what is wrong with it: pure functions.

What does no harm is accepted: thoughts, headings, code fences, other bullets, words before the first line. What would lose
something, or put something into the log that nobody said, is a `BadAnswer`.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from langchain_workingmem._text.chunks import count_tokens, excerpt
from langchain_workingmem._text.rendering import unescape
from langchain_workingmem._text.unicode import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langchain_core.messages import BaseMessage

    from langchain_workingmem.models import Priority


class Line(NamedTuple):
    """An observation as a model wrote it."""

    text: str  # without line ends, control characters and hidden text
    priority: Priority
    numbers: tuple[int, ...]  # of the messages or observations that it comes from: sorted, each at most one time


class BadAnswer(Exception):  # noqa: N818 - it is caught and told to the model, never shown to a user
    """An answer that cannot be used; `objection` tells the model why, in one or two sentences.

    `problem` says the same without words of the answer: these may be words of a user, and logs and counters outlive messages.
    """

    def __init__(self, objection: str, problem: str | None = None) -> None:
        super().__init__(objection)
        self.objection = objection
        self.problem = problem or objection


_FORM = "`- [3,4] text`"
_UNREADABLE = f"The answer holds no line that can be read. Answer with lines such as {_FORM} and nothing else."
_UNCITED = f"A line does not say which numbers it comes from: {{}}. Begin each line with !, - or ~ and the numbers, as in {_FORM}."
_UNKNOWN = "A line cites {}, but the numbers go from 1 to {}. Cite only numbers that you were given."
_WORDLESS = "A line has numbers but no words. Write what was observed after the numbers."
_CUT_OFF = "The answer was cut off before its end. Write fewer and shorter lines, about {} words in all."
_STOPPED = "The answer was stopped by a filter of the provider. Use neutral words of your own, without quotes."
_LONG = (
    "The lines have about {} words, and {} are allowed. Join what belongs together, and leave out what matters least."
)
_MANY = "A line cites more than {} messages. Write several lines, each about a part of them."
_LOOP = "The answer says the same again and again. Write each thing in one line, with all numbers that it comes from."

# Where providers say why an answer ended, and parts of the words for an end before its time.
_ENDS = ("finish_reason", "stop_reason", "stopReason", "done_reason", "incomplete_details", "status")
_CUT = re.compile(r"length|max_?(?:output_?)?token|token_limit|context_window|incomplete")
_FILTERED = re.compile(r"filter|safety|refus|recitation|block|prohibited|guardrail|spii|toxic|sensitive")

_SIGNS = r"[-!~*+>#\u2022\u2013\u2014 \t]"
_ITEM = re.compile(rf"((?:\d{{1,3}}[.)])?{_SIGNS}*)\[")
_BULLET = re.compile(rf"(?:\d{{1,3}}[.)]|{_SIGNS})*\s")
_NEXT = re.compile(r"(?:,[ \t]*)?\[")
_RANGE = re.compile(r" ?(?:-|\u2013|\u2014|\.\.+|\bto\b) ?")
_NUMBER = re.compile(r"(?:#|n=)?\"?(\d{1,18})\"?(?:-(\d{1,18}))?")
_BETWEEN = re.compile(r"[\s,;&]+")
_SKIPPED = {"", "and", "n", "message", "messages", "observation", "observations", "line", "lines"}
_FILLED = re.compile(r"[^\W_]")
_HEADING = re.compile(r"#|```|~~~|</?[a-z][^<>]*>$|(\*\*|__).*\1$", re.IGNORECASE)
_COLONS = (":", "\uff1a")
_YEAR = re.compile(r"(?<!\d)\d{4}(?!\d)")
_DIGIT = re.compile(r"\d")
_THOUGHTS = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_END_OF_THOUGHTS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)

_LOOPING = 1000  # bytes from which on texts that compress to a twentieth are a loop


@dataclass(slots=True)
class _Item:
    """A line while it is read."""

    priority: Priority
    numbers: set[int]
    indent: int
    words: list[str] = field(default_factory=list)

    def line(self) -> Line:
        self.words[0] = self.words[0].lstrip("*").lstrip(": \t")  # what stands between the numbers and the text
        text = visible(" ".join(unescape(" ".join(self.words)).split()))
        if not _FILLED.search(text):
            raise BadAnswer(_WORDLESS)
        return Line(text, self.priority, tuple(sorted(self.numbers)))


def read_answer(
    answer: BaseMessage, count: int, most_tokens: int, most_cited: int | None = None, *, is_last: bool = False
) -> list[Line]:
    """Read the lines of an answer about `count` numbered messages or observations.

    `most_tokens` is the limit of all texts together, `most_cited` that of the numbers of a line. A line that is there twice comes back one time, with the numbers of both.
    With `is_last`, when the model is not asked again, lines that cite nothing are left out unless they are most of them, and
    so is what stands without a sign behind the last line.
    Raises `BadAnswer` for an answer that was cut off or filtered, holds nothing readable, does not cite or cites what is not
    there, is too long, or repeats itself.
    """
    check_end(answer, most_tokens)
    lines = [item.line() for item in _items(visible(str(answer.text)), count, is_last=is_last)]
    if not lines:
        raise BadAnswer(_UNREADABLE)
    _check_repetition([line.text for line in lines])
    lines = _merged(lines)
    if most_cited and any(len(line.numbers) > most_cited for line in lines):
        raise BadAnswer(_MANY.format(most_cited))
    if (tokens := sum(count_tokens(line.text) for line in lines)) > most_tokens:
        raise BadAnswer(_LONG.format(_words(tokens), _words(most_tokens)))
    return lines


def _words(tokens: int) -> int:
    """Estimate the words of so many tokens: models count words better than tokens."""
    return max(1, tokens * 3 // 4)


def check_end(answer: BaseMessage, most_tokens: int) -> None:
    """Raise `BadAnswer` if a provider says that an answer ended before its time."""
    for name in _ENDS:
        value = answer.response_metadata.get(name)
        reason = str(value.get("reason") if isinstance(value, dict) else value).lower()
        if _CUT.search(reason):
            raise BadAnswer(_CUT_OFF.format(_words(most_tokens)))
        if _FILTERED.search(reason):
            raise BadAnswer(_STOPPED)


def _items(text: str, count: int, *, is_last: bool) -> list[_Item]:
    items: list[_Item] = []
    uncited, trailing = list[BadAnswer](), 0  # how many of them stand behind the last line, without a sign
    for line in _without_thoughts(text):
        words = line.strip()
        indent = len(line) - len(line.lstrip())
        if not _FILLED.search(words):
            continue  # blank, or a rule
        try:
            item = _item(words, indent, count)
            if item is None and items and indent > items[-1].indent:
                items[-1].words.append(_BULLET.sub("", words, count=1) if _BULLET.match(words) else words)
            elif item is not None:
                items.append(item)
                trailing = 0
            elif _HEADING.match(words) or words.endswith(_COLONS) or _is_date(words):
                continue
            elif items or _BULLET.match(words):  # other words may stand before the first line only
                trailing += not _BULLET.match(words)
                raise _uncited(words)
        except _UncitedError as error:
            if not is_last:
                raise
            uncited.append(error)
    if uncited and len(uncited) - trailing > len(items):
        raise uncited[0]
    return items


def _without_thoughts(text: str) -> Iterable[str]:
    """Return the lines without a model's thoughts; some servers leave out the tag that opens them."""
    lines: list[str] = []
    thinking = False
    for line in text.split("\n"):
        rest = line
        if _THOUGHTS.match(line.lstrip()):
            thinking = True
        if (end := _END_OF_THOUGHTS.search(line)) and (thinking or not _ITEM.match(line.lstrip())):
            if not thinking:
                lines.clear()
            thinking, rest = False, line[end.end() :]
        if not thinking:
            lines.append(rest)
    return lines


def _item(words: str, indent: int, count: int) -> _Item | None:
    """Read a line that begins with its numbers; None for one that does not."""
    opening = _ITEM.match(words)
    if opening is None or "]" not in words[opening.end() :]:
        return None
    signs, start = opening[1], 0
    numbers = set[int]()
    while opening and (end := words.find("]", opening.end())) >= 0:
        cited = _cited(words[opening.end() : end], count)
        if not cited:
            break
        numbers |= cited
        start = end + 1
        opening = _NEXT.match(words, start)  # another bracket, as in `[12][13]`
    if not numbers:
        if signs.strip():
            raise _uncited(words)
        return None
    return _Item(_priority(signs), numbers, indent, [words[start:]])


def _priority(signs: str) -> Priority:
    return "high" if "!" in signs else "low" if "~" in signs else "normal"


def _cited(text: str, count: int) -> set[int]:
    """Read numbers and ranges, such as `12,14-16`; none if there is anything else."""
    numbers: set[int] = set()
    for part in _BETWEEN.split(_RANGE.sub("-", " ".join(text.split()))):
        if part.lower() in _SKIPPED:
            continue
        found = _NUMBER.fullmatch(part)
        if found is None:
            return set()
        first, last = sorted((int(found[1]), int(found[2] or found[1])))
        if first < 1 or last > count:
            raise BadAnswer(_UNKNOWN.format(last if last > count else first, count))
        numbers.update(range(first, last + 1))
    return numbers


class _UncitedError(BadAnswer):
    """A line cites nothing."""


def _uncited(words: str) -> BadAnswer:
    return _UncitedError(
        _UNCITED.format(f"`{excerpt(words, 20, 0, 0)}`"), "A line does not say which numbers it comes from."
    )


def _is_date(words: str) -> bool:
    """Tell whether a line is a date in any language: it has a year, and at least as many numbers as longer words."""
    parts = words.split(maxsplit=8)
    numbers = sum(bool(_DIGIT.search(part)) for part in parts)
    others = sum(len(part) > 2 and not _DIGIT.search(part) for part in parts)
    return len(parts) <= 8 and bool(_YEAR.search(words)) and numbers >= others


def _check_repetition(texts: list[str]) -> None:
    folded = [" ".join(text.casefold().split()).rstrip(".") for text in texts]
    repeats = len(folded) - len({*folded})
    whole = "\n".join(texts).encode()
    if repeats >= 2 and 2 * repeats >= len(folded):
        raise BadAnswer(_LOOP)
    if len(whole) >= _LOOPING and 20 * len(zlib.compress(whole, 1)) < len(whole):
        raise BadAnswer(_LOOP)


def _merged(lines: list[Line]) -> list[Line]:
    """Join lines of the same text: the first one stays, with the numbers of all."""
    found: dict[str, Line] = {}
    for line in lines:
        first = found.setdefault(line.text, line)
        if first is not line:
            found[line.text] = first._replace(numbers=tuple(sorted({*first.numbers, *line.numbers})))
    return list(found.values())
