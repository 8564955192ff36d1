"""Reads what observer and reflector answer, and says what is wrong with it: pure functions.

Models that can answer along a schema give a `Lines`. Others write plain lines: a date, then a sign, the numbers in brackets, and the text.
What would lose something, or put something into the log that nobody said, is a `BadAnswer`.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import BaseModel, Field

from langchain_workingmem._text.messages import unescape, without_thoughts
from langchain_workingmem._text.unicode import count_tokens, excerpt, visible
from langchain_workingmem.observations.worker import BadAnswer, check_end

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

MOST_CITED = 64  # messages that a line cites
MOST_LINES = 200  # of an answer


class Noted(BaseModel):
    """One line of the notes."""

    date: str = Field(default="", description="date of the messages, as in 2026-11-20")
    priority: Literal["high", "normal", "low"] = "normal"
    text: str = Field(description="the note, in one line")
    numbers: list[int] = Field(description="numbers of the elements that the note comes from, at least one")


class Lines(BaseModel):
    """The notes on what was read, the oldest first."""

    lines: list[Noted]


class Line(NamedTuple):
    """A line as a model wrote it."""

    text: str  # without line ends, control characters and hidden text
    priority: str
    numbers: tuple[int, ...]  # of what it comes from: sorted, each once


_UNREADABLE = "The answer holds no line that can be read. Answer with lines such as `- [3,4] text` and nothing else."
_UNCITED = "A line does not say which numbers it comes from: `{}`. Begin each line with !, - or ~ and the numbers, as in `- [3,4] text`."
_UNKNOWN = "A line cites {}, but the numbers go from 1 to {}. Cite only numbers that you were given."
_LONG = (
    "The lines have about {} words, and {} are allowed. Join what belongs together, and leave out what matters least."
)
_MANY = "A line cites more than {} messages. Write several lines, each about a part of them."
_LOOP = "The answer says the same again and again. Write each thing in one line, with all numbers that it comes from."

_ITEM = re.compile(
    r"(?:\d{1,3}[.)][ \t]{0,4})?([-!~*+\u2022 \t]{0,16})\[([^\[\]]{0,4000})\]((?:[ \t]?,?[ \t]?\[[^\[\]]{0,4000}\]){0,64})(.*)",
    re.DOTALL,
)
_NUMBER = re.compile(r"(?:#|n=)?\"?(\d{1,9})\"?(?: ?(?:-|\u2013|\u2014|\.\.|to) ?(\d{1,9}))?")
_BULLET = re.compile(r"[ \t]{0,16}(?:\d{1,3}[.)]|[-!~*+\u2022])\s")
_MARKUP = re.compile(r"#|```|~~~|</?[a-z][^<>]*>$", re.IGNORECASE)
_DATE = re.compile(r"[^\[]{0,20}\d{4}[^\[]{0,20}$")
_WORDY = re.compile(r"[^\W_]")
_LOOPING = 1000  # bytes from which on texts that compress to a twentieth are a loop


def read_lines(count: int, most_tokens: int, answer: BaseMessage, parsed: Any) -> list[Line]:
    """Read an answer about `count` numbered elements; `most_tokens` is the limit of all texts together."""
    check_end(answer)
    if isinstance(parsed, Lines):
        lines = [Line(note.text, note.priority, _checked(note.numbers, note.text, count)) for note in parsed.lines]
    else:
        lines = _plain(without_thoughts(visible(str(answer.text))), count)
    lines = [line._replace(text=visible(" ".join(unescape(line.text).split()))) for line in lines]
    lines = [line for line in lines if _WORDY.search(line.text)]
    if not lines:
        raise BadAnswer(_UNREADABLE)
    if len(lines) > MOST_LINES:
        raise BadAnswer(_LOOP)
    if any(len(line.numbers) > MOST_CITED for line in lines):
        raise BadAnswer(_MANY.format(MOST_CITED))
    lines = _joined(lines)
    if (tokens := sum(count_tokens(line.text) for line in lines)) > most_tokens:
        raise BadAnswer(_LONG.format(max(1, tokens * 3 // 4), max(1, most_tokens * 3 // 4)))
    return lines


def _plain(text: str, count: int) -> list[Line]:
    """Read plain lines; words before the first one, headings and dates are none."""
    lines: list[Line] = []
    for row in text.splitlines():
        item = _ITEM.match(row.lstrip())
        if item is not None and (numbers := _numbers(f"{item[2]} {item[3]}", count)):
            priority = "high" if "!" in item[1] else "low" if "~" in item[1] else "normal"
            words = item[4].lstrip("*: \t")
            lines.append(Line(words, priority, tuple(numbers)))
        elif not _WORDY.search(row) or _MARKUP.match(row.strip()):
            continue
        elif lines and row[:1] in " \t" and not _BULLET.match(row):
            lines[-1] = lines[-1]._replace(text=f"{lines[-1].text} {row}")
        elif row.rstrip().endswith(":") or (_DATE.match(row) and not _BULLET.match(row)):
            continue
        elif lines or _BULLET.match(row):
            raise BadAnswer(_UNCITED.format(excerpt(row, 20, 0, 0)))
    return lines


def _numbers(text: str, count: int) -> list[int]:
    numbers = set[int]()
    for first, last in _NUMBER.findall(text):
        low, high = sorted((int(first), int(last or first)))
        if low < 1 or high > count:
            raise BadAnswer(_UNKNOWN.format(low if low < 1 else high, count))
        numbers.update(range(low, high + 1))
    return sorted(numbers)


def _checked(numbers: list[int], text: str, count: int) -> tuple[int, ...]:
    if not numbers:
        raise BadAnswer(_UNCITED.format(excerpt(text, 20, 0, 0)))
    if wrong := [number for number in numbers if not 1 <= number <= count]:
        raise BadAnswer(_UNKNOWN.format(wrong[0], count))
    return tuple(sorted({*numbers}))


def _joined(lines: list[Line]) -> list[Line]:
    """Join lines of the same text; raise where a model goes round in circles."""
    unique = dict[str, Line]()
    for line in lines:
        words = " ".join(line.text.casefold().split()).rstrip(".")
        numbers = {*unique[words].numbers, *line.numbers} if words in unique else line.numbers
        unique[words] = unique.get(words, line)._replace(numbers=tuple(sorted(numbers)))
    joined = "\n".join(line.text for line in lines).encode()
    repeats = len(lines) - len(unique)
    if (repeats >= 2 and 2 * repeats >= len(lines)) or (
        len(joined) >= _LOOPING and 20 * len(zlib.compress(joined, 1)) < len(joined)
    ):
        raise BadAnswer(_LOOP)
    return list(unique.values())
