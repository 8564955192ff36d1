# ruff: noqa: RUF001 - letters, digits and marks of other scripts
"""Texts by their characters: how long they are, where they are cut, which words they hold, and what nobody sees."""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

# ---------------------------------------------------------------------- length

CHARACTERS_PER_TOKEN = 4  # of English, as OpenAI and langchain_core's `count_tokens_approximately` estimate
# Characters of everyday talk in a token: with Llama 2 0.7 of Chinese or Korean, 0.8 of Japanese, 2.4 of Russian; with
# newer models 1.0 to 1.7 of East Asia, two of Cyrillic or Arabic (https://gigagpu.com/ai-tokenizer-considerations).
# Here it is one of East Asia, two of Greek, Cyrillic, Hebrew, Arabic, Thai, Hindi, ...: their first UTF-8 byte tells.
_RUN = re.compile("([\u3000-\ud7ff\uff00-\uff7f]+)|([\u0380-\u1fff]+)|[^\u0380-\u1fff\u3000-\ud7ff\uff00-\uff7f]+")
_WHOLE, _WIDE_FORMS, _HALF = bytes(range(0xE3, 0xEE)), (b"\xef\xbc", b"\xef\xbd"), bytes(range(0xCE, 0xE2))
_COSTS = {None: "1", 1: "4", 2: "2"}  # by the group of _RUN


def length(text: str) -> int:
    """Return a text's length as budgets count it: 4 for a character that is a token, 2 for half a token, 1 else."""
    if text.isascii():
        return len(text)
    raw = text.encode(errors="replace")
    wholes = len(raw) - len(raw.translate(None, _WHOLE)) + sum(map(raw.count, _WIDE_FORMS))
    return len(text) + 3 * wholes + len(raw) - len(raw.translate(None, _HALF))


def count_tokens(text: str) -> int:
    """Estimate the tokens of a text."""
    return -(-(len(text) if text.isascii() else length(text)) // CHARACTERS_PER_TOKEN)


def _ends(text: str) -> Sequence[int]:
    """Return the `length` of the text before each of its characters, and that of all."""
    if length(text) == len(text):
        return range(len(text) + 1)
    costs = _RUN.sub(lambda run: _COSTS[run.lastindex] * len(run[0]), text)
    return array("Q", accumulate(map(int, costs), initial=0))  # a list would take five times as much


# ---------------------------------------------------------------------- chunks

# Where a cut reads best, the best first.
_SEAMS = ("\n\n", "\n", "。", ". ", "？", "? ", "！", "! ", "；", "; ", "，", "、", ", ", " ")
_FILLED = re.compile(r"\S|\Z")


def spans(text: str, chunk_tokens: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of chunks of at most `chunk_tokens`, without outer blanks, cut at the best seam."""
    limit = chunk_tokens * CHARACTERS_PER_TOKEN
    end = len(text.rstrip())
    start = next(_FILLED.finditer(text)).start()
    ends = _ends(text) if length(text) > limit else range(len(text) + 1)
    while ends[end] - ends[start] > limit:
        cut = last = bisect_right(ends, ends[start] + limit) - 1
        half = bisect_right(ends, ends[start] + limit // 2) - 1
        for seam in _SEAMS:
            place = text.rfind(seam, half, last)
            if place > start:
                cut = place + len(seam)
                break
        yield start, start + len(text[start:cut].rstrip())
        start = next(_FILLED.finditer(text, cut)).start()
    if start < end:
        yield start, end


# ---------------------------------------------------------------------- excerpts

CUT = "[...]"  # replaces what is left out
_NEAR = 40  # characters in which a cut looks for a space


def excerpt(text: str, tokens: int, start: int, end: int, words: Collection[str] = ()) -> str:
    """Cut a text to about `tokens` around `start` to `end` or, if that is too long, the most `words`. CUT marks it."""
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
    if last < len(text):
        near = max(min(end, last), last - _NEAR, first + 1)
        blank = re.search(r"\s(?=\S*$)", text[near : last + 1])
        last = near + blank.start() if blank else last
    return f"{CUT + ' ' if first else ''}{text[first:last].strip()}{' ' + CUT if last < len(text) else ''}"


def keep_ends(text: str, characters: int) -> str:
    """Cut a text to a `length` of `characters`: its beginning and its end, as much of both."""
    if length(text) <= characters:
        return text
    tokens, begin, end = characters // 2 // CHARACTERS_PER_TOKEN, text[:characters], text[-characters:]
    return excerpt(begin, tokens, 0, 0) + excerpt(end, tokens, len(end), len(end)).removeprefix(CUT)


def _densest(text: str, start: int, end: int, room: int, words: Collection[str]) -> int:
    """Return where an excerpt of `room` characters with the most words begins, with some text in front of these."""
    if not words:
        return start
    pattern = re.compile(rf"(?<![^\W{UNSPACED}])(?:{'|'.join(map(re.escape, words))})", re.IGNORECASE)
    places = [match.start() for match in pattern.finditer(text, start, end)] or [start]
    best = max(range(len(places)), key=lambda index: bisect_left(places, places[index] + room * 3 // 4) - index)
    return max(start, min(places[best] - room // 4, end - room))


# ---------------------------------------------------------------------- words

# Scripts without spaces between words: Thai and its neighbours, Chinese, Japanese; and Korean with its particles.
UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e80-\u0ecf\u1000-\u1049\u1780-\u17d3\u3005-\u3007\u3041-\u30fa\u30fc-\u30ff\u3131-\u318e\u3400-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
# Accents and vowels that stand apart from their letter, and that `\w` leaves out.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0971-\u0dff\u0e31-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ecd\u102b-\u103e\u17b6-\u17d3"
WORD = re.compile(f"[\\w{_MARKS}]+")
# Accents of Latin and Greek letters and of the Russian ё, and the vowel signs and lengthenings of Hebrew and Arabic.
_ACCENTS = re.compile(
    "(?<=[a-z\u0370-\u03ff\u0435])[\u0300-\u036f]+|[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c7\u0640\u064b-\u065f]+"
)
_SIGNS = re.compile(f"[^\x00-\x7f\\w{_MARKS}\u3099\u309a]+")
_MANY = re.compile(f"([{_MARKS}]{{8}})[{_MARKS}]+")  # of a letter: to sort them takes the square of their number
_WIDE = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uffdc]+")  # letters and digits
# The zeros of other scripts that write numbers in decimal digits.
_ZEROS = "٠۰०০੦૦୦௦౦೦൦๐໐၀០"
_ALIKE = {ord(zero) + digit: str(digit) for zero in _ZEROS for digit in range(10)} | str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ı": "i", "ς": "σ", "ß": "ss", "œ": "oe", "æ": "ae"}
)
_UNSPACED = re.compile(f"[{UNSPACED}]+")
QUESTION_MARK = re.compile(
    "[?\u037e\u055e\u061f\u1367\u203d\u2047-\u2049\u2cfa\u2cfb\u2e2e\ua60f\ua6f7\ufe16\ufe56\uff1f]"
)
# What matches as a whole, as it is named by digits or an address: 10.0.0.1, ORD-2024-0815, ann@example.com; no dates.
_LETTER, _JOINT = f"[^\\W_{UNSPACED}]", "[.:/@+_-]"
_EXACT = re.compile(
    rf"(?<!{_LETTER})(?<!{_LETTER}{_JOINT})(?={_LETTER}++{_JOINT})(?=[\w.:/@+-]{{0,63}}[\d@])"
    r"(?!(?:19|20)\d\d[./-]\d|\d\d?[./-]\d\d?[./-](?:19|20)\d\d(?!\w))"
    rf"{_LETTER}++(?:{_JOINT}{{1,2}}{_LETTER}++)++"
)
_INSIDE = re.compile(rf"{_JOINT}(?<=\w{_JOINT}){_JOINT}?\w")  # what each has: it is found 20 times as fast
_LONGEST_EXACT = 64  # characters; a longer one is mostly data
_JOINTS = str.maketrans({joint: "_" * (index + 1) for index, joint in enumerate(".-/:+")} | {"@": "_at_"})


def folded(text: str) -> str:
    """Return a text as words are compared: small letters without accents, digits 0 to 9, all other signs as blanks."""
    narrow = _WIDE.sub(lambda wide: unicodedata.normalize("NFKC", wide[0]), text.lower())
    decomposed = unicodedata.normalize("NFD", _MANY.sub(r"\1", _SIGNS.sub(" ", narrow)))
    return unicodedata.normalize("NFC", _ACCENTS.sub("", decomposed)).translate(_ALIKE)


def as_searched(text: str, *, whole: bool = False) -> str:
    """Return a text as its words are searched: where none are separated, each two characters in a row are one.

    Search divides at spaces and signs: a sentence of Chinese, Japanese, Korean or Thai would be one word, and an IP
    address or an order number only digits, so it follows in one word, or, `whole`, is one.
    """
    text = text if text.isascii() else folded(text)
    if _INSIDE.search(text):

        def as_one(match: re.Match[str]) -> str:
            exact = match[0]
            joined = exact if len(exact) > _LONGEST_EXACT else exact.translate(_JOINTS)
            return joined if whole or joined == exact else f"{exact} {joined}"

        text = _EXACT.sub(as_one, text)
    if text.isascii():
        return text
    return _UNSPACED.sub(lambda run: f" {' '.join(map(add, run[0], run[0][1:])) or run[0]} ", text)


# ---------------------------------------------------------------------- surrogates


def to_utf8(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by question marks."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def in_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Apply a change to every str in a JSON value."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {in_texts(key, change): in_texts(item, change) for key, item in value.items()}
    return [in_texts(item, change) for item in value] if isinstance(value, list) else value


def is_utf8(text: object) -> bool:
    """Tell whether something is a str without lone surrogates."""
    return isinstance(text, str) and to_utf8(text) == text


# ---------------------------------------------------------------------- hidden characters

# Controls, line separators, overrides and isolates of direction, lone surrogates; characters without width (zero-width
# space, fillers of Hangul, two vowels of Khmer); signs of shorthand and music; tags, which spell hidden ASCII.
_ACTING = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u115f\u1160\u17b4\u17b5\u200b\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_DIRECTIONS = "\u061c\u200e\u200f"
_VARIATIONS = "\u034f\u180b-\u180d\u180f\ufe00-\ufe0f"
_JOINERS = "\u00ad\u180e\u200c\u200d"  # with the soft hyphen
_UNSEEN = f"{_ACTING}{_DIRECTIONS}{_VARIATIONS}{_JOINERS}"
_HIDDEN = re.compile(f"[{_UNSEEN}]")
# One variation selector, joiner or mark of direction may follow a character; a row of them, most in ASCII, hide text.
_WRITTEN = re.compile(
    f"(?P<written>(?<=[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])[\U000e0100-\U000e01ef]"
    f"|(?<=[^\x00-\x7f{_UNSEEN}])[{_VARIATIONS}]?[{_JOINERS}]?[{_DIRECTIONS}]?(?<=[{_UNSEEN}])"
    f"|(?<=[0-9#*])[\ufe0e\ufe0f]|(?<=[!-~])[\u00ad\u180e\u200c]|(?<![{_UNSEEN}])[{_DIRECTIONS}])"
    f"|[{_UNSEEN}]"
)
_PLAIN_ASCII = b"\t\n" + bytes(range(0x20, 0x7F))


def replace_hidden(text: str, sign: Callable[[str], str]) -> str:
    """Replace control and hidden characters by their `sign`; line ends, tabs, and single marks with a meaning stay."""
    # most blocks have nothing to replace, and little that is not ASCII: a twelfth of the time for 5,000 characters
    rest = text.encode(errors="surrogatepass").translate(None, _PLAIN_ASCII)
    if not rest or not _HIDDEN.search(rest.decode(errors="surrogatepass")):
        return text
    return _WRITTEN.sub(lambda match: match[0] if match.lastgroup else sign(match[0]), text)


def visible(text: str) -> str:
    """Make a person read the same text in a prompt as the model: controls become signs, what has no width goes."""
    return replace_hidden(text.replace("\r\n", "\n"), _for_prompts)


def _for_prompts(character: str) -> str:
    if character <= "\x9f":
        return picture(character)
    if character in "\u2028\u2029":
        return "\n"
    return "?" if "\ud800" <= character <= "\udfff" else ""


def picture(character: str) -> str:
    """Return the sign for a control character: Unicode's picture, or its code."""
    return chr(0x2400 + ord(character)) if character < " " else f"\\x{ord(character):02x}"
