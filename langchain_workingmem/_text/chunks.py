# ruff: noqa: RUF001 - marks of Chinese and Japanese
"""Estimate the tokens of texts, and cut long ones: into chunks for an embedding model, and down to an excerpt for a prompt."""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from itertools import accumulate, islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

# For English text, as OpenAI and langchain_core's `count_tokens_approximately` estimate.
CHARACTERS_PER_TOKEN = 4
# Where a cut reads best, the best first.
_SEAMS = ("\n\n", "\n", "。", ". ", "？", "? ", "！", "! ", "；", "; ", "，", "、", ", ", " ")

# How many tokens a text takes depends on its script. Of everyday talk, the vocabulary of Llama 2 makes a token of 0.7 Chinese,
# 0.8 Japanese, 0.7 Korean, and 2.4 Russian characters; newer ones take 1.0 to 1.7 of Chinese, Japanese and Korean, and two of
# Cyrillic or Arabic (https://gigagpu.com/ai-tokenizer-considerations). So a character of East Asia is a token here, and two of the
# other scripts (Greek, Cyrillic, Hebrew, Arabic, Thai, Hindi, ...) are one. The first byte in UTF-8 tells them apart.
_RUN = re.compile("([\u3000-\ud7ff\uff00-\uff7f]+)|([\u0380-\u1fff]+)|[^\u0380-\u1fff\u3000-\ud7ff\uff00-\uff7f]+")
_WHOLE, _WIDE_FORMS, _HALF = bytes(range(0xE3, 0xEE)), (b"\xef\xbc", b"\xef\xbd"), bytes(range(0xCE, 0xE2))
_COSTS = {None: "1", 1: "4", 2: "2"}  # by the group of _RUN

CUT = "[...]"  # replaces what is left out
_NEAR = 40  # characters in which a cut looks for a space
_JOINERS = "\u200d\ufe0e\ufe0f"  # of emoji: zero-width joiner and variation selectors
_SKIN = range(0x1F3FB, 0x1F400)
_FILLED = re.compile(r"\S")


def length(text: str) -> int:
    """Return how long a text is, in characters of English: one that takes a token counts four times, one of half a token twice.

    All budgets are reckoned in it, four to a token. English, and Latin letters with accents, count as they are.
    """
    if text.isascii():
        return len(text)
    raw = text.encode(errors="replace")
    wholes = len(raw) - len(raw.translate(None, _WHOLE)) + sum(map(raw.count, _WIDE_FORMS))
    return len(text) + 3 * wholes + len(raw) - len(raw.translate(None, _HALF))


def count_tokens(text: str) -> int:
    """Estimate the tokens of a text."""
    return -(-length(text) // CHARACTERS_PER_TOKEN)


def _ends(text: str) -> Sequence[int]:
    """Return the `length` of the text before each of its characters, and that of all."""
    if length(text) == len(text):
        return range(len(text) + 1)
    costs = _RUN.sub(lambda run: _COSTS[run.lastindex] * len(run[0]), text)
    return array("Q", accumulate(map(int, costs), initial=0))  # a list would take five times as much


def spans(text: str, chunk_tokens: int) -> Iterator[tuple[int, int]]:
    """Yield where each chunk of a text begins and ends, without outer blanks: at most `chunk_tokens` estimated tokens.

    A cut falls after the best seam in the second half of a chunk, or at the limit if there is none.
    """
    limit = chunk_tokens * CHARACTERS_PER_TOKEN
    end = len(text.rstrip())
    start = _filled(text, 0)
    ends = _ends(text) if end > chunk_tokens and length(text) > limit else range(len(text) + 1)
    while ends[end] - ends[start] > limit:
        cut = last = bisect_right(ends, ends[start] + limit) - 1
        half = bisect_right(ends, ends[start] + limit // 2) - 1
        for seam in _SEAMS:
            found = text.rfind(seam, half, last)
            if found > start:
                cut = found + len(seam)
                break
        yield start, start + len(text[start:cut].rstrip())
        start = _filled(text, cut)
    if start < end:
        yield start, end


def _filled(text: str, start: int) -> int:
    """Return the index of the next character that is not blank."""
    found = _FILLED.search(text, start)
    return found.start() if found else len(text)


def split(text: str, chunk_tokens: int) -> list[str]:
    """Cut a text into the chunks that `spans` finds; none for blank text."""
    if length(text) <= chunk_tokens * CHARACTERS_PER_TOKEN:  # as most texts
        return [whole] if (whole := text.strip()) else []
    return [text[start:end] for start, end in spans(text, chunk_tokens)]


def chunk_span(text: str, chunk_tokens: int, number: int) -> tuple[int, int]:
    """Return where chunk `number` begins and ends; the first one if the text now has fewer chunks."""
    found = list(islice(spans(text, chunk_tokens), number + 1)) or [(0, 0)]
    return found[number if number < len(found) else 0]


def excerpt(text: str, tokens: int, start: int, end: int, words: Collection[str] = ()) -> str:
    """Cut a text down to about `tokens` around the characters from `start` to `end`, with CUT at each cut.

    If these do not fit, as many of the `words` (lower case) as possible are kept. A cut falls between words if a space
    is near, and never inside a character that several code points make up.
    """
    size = tokens * CHARACTERS_PER_TOKEN
    if length(text) <= size:
        return text
    start, end, ends = min(start, len(text)), min(end, len(text)), _ends(text)
    room = max(1, size - 2 * (len(CUT) + 1))
    if ends[end] - ends[start] > room:
        start = _densest(text, start, end, room * len(text) // ends[-1], words)
        end = bisect_right(ends, ends[start] + room) - 1
    begin = max(0, min(ends[start] - (room - (ends[end] - ends[start])) // 2, ends[-1] - room))
    first = min(bisect_left(ends, begin), len(text) - 1)
    last = max(bisect_right(ends, begin + room) - 1, first + 1)
    if first:
        blank = re.search(r"\s", text[first - 1 : max(first, min(start, first + _NEAR))])
        first += blank.start() if blank else 0
        while first < last and _continues(text, first):
            first += 1
    if last < len(text):
        near = max(min(end, last), last - _NEAR, first + 1)
        blank = re.search(r"\s(?=\S*$)", text[near : last + 1])
        last = near + blank.start() if blank else last
        while last > first + 1 and _continues(text, last):
            last -= 1
    return f"{CUT + ' ' if first else ''}{text[first:last].strip()}{' ' + CUT if last < len(text) else ''}"


def keep_ends(text: str, characters: int) -> str:
    """Cut a text to a `length` of `characters`: its beginning and its end, as much of both."""
    if length(text) <= characters:
        return text
    tokens, begin, end = characters // 2 // CHARACTERS_PER_TOKEN, text[:characters], text[-characters:]
    return excerpt(begin, tokens, 0, 0) + excerpt(end, tokens, len(end), len(end)).removeprefix(CUT)


def _densest(text: str, start: int, end: int, room: int, words: Collection[str]) -> int:
    """Return where to begin an excerpt of `room` characters that holds the most different words."""
    if not words:
        return start
    pattern = r"\b(?:" + "|".join(sorted(map(re.escape, words), key=len, reverse=True)) + ")"
    best, most = None, 0
    inside: deque[tuple[int, str]] = deque()  # the words in the last `room * 3 / 4` characters
    counts: Counter[str] = Counter()
    for found in re.finditer(pattern, text[start:end], re.IGNORECASE):
        inside.append((found.start(), found[0].lower()))
        counts[inside[-1][1]] += 1
        while inside[0][0] <= found.start() - max(1, room * 3 // 4):
            _, word = inside.popleft()
            counts[word] -= 1
            if not counts[word]:
                del counts[word]
        if len(counts) > most:
            best, most = inside[0][0], len(counts)
    return start if best is None else max(start, min(start + best - room // 4, end - room))


def _continues(text: str, at: int) -> bool:
    """Tell whether a code point continues the one before: an accent, a part of an emoji, a second surrogate."""
    if not 0 < at < len(text):
        return False
    one, before = text[at], text[at - 1]
    return bool(
        unicodedata.combining(one)
        or one in _JOINERS
        or before == "\u200d"
        or ord(one) in _SKIN
        or "\udc00" <= one <= "\udfff"
    )
