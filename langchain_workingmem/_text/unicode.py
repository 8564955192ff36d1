# ruff: noqa: RUF001 - letters and digits of other scripts
"""Characters by what they are: those that make up words, and those that are not plain text.

Not plain are lone surrogates, which UTF-8 cannot encode, controls, and hidden characters.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# Scripts that put no spaces between words: Thai and its neighbours, Chinese, Japanese; and Korean, whose words bear particles.
UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e80-\u0ecf\u1000-\u1049\u1780-\u17d3\u3005-\u3007\u3041-\u30fa\u30fc-\u30ff\u3131-\u318e\u3400-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
# Accents and vowels that stand apart from their letter, and that `\w` leaves out.
MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0971-\u0dff\u0e31-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ecd\u102b-\u103e\u17b6-\u17d3"
WORD = re.compile(f"[\\w{MARKS}]+")
# Controls, line separators, overrides and isolates of direction, lone surrogates; and characters without width, such as
# the zero-width space, the fillers of Hangul and two vowels of Khmer.
_ACTING = "\x00-\x08\x0b-\x1f\x7f-\x9f\u115f\u1160\u17b4\u17b5\u200b\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
# Marks of direction (ALM, LRM, RLM): one at a time is part of text.
_DIRECTIONS = "\u061c\u200e\u200f"
# One variation selector, then one joiner, may follow a character; more of them hide text.
_VARIATIONS = "\u034f\u180b-\u180d\u180f\ufe00-\ufe0f"
_JOINERS = "\u00ad\u180e\u200c\u200d"  # with the soft hyphen, which is harmless
_RUN = re.compile(f"[{_ACTING}{_DIRECTIONS}{_VARIATIONS}{_JOINERS}]+")
_VARIATION, _JOINER = re.compile(f"[{_VARIATIONS}]").match, re.compile(f"[{_JOINERS}]").match
_ACTS = re.compile(f"[{_ACTING}]").match
# Tags, which spell hidden ASCII, variation selectors of ideographs, and shorthand and music signs without width. A
# black flag and tags make the flags of England, Scotland and Wales; Unicode recommends no others.
# These have their own pattern: a character class with them is five times slower.
_FLAGS = "|".join("".join(chr(0xE0000 + ord(one)) for one in region) for region in ("gbeng", "gbsct", "gbwls"))
_TAGS = re.compile(
    f"\U0001f3f4(?:{_FLAGS})\U000e007f|[\U000e0000-\U000e0fff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a]+"
)
# Accents of Latin and Greek letters and of the Russian ё, and the vowel signs and lengthenings of Hebrew and Arabic.
_ACCENTS = re.compile(
    "(?<=[a-z\u0370-\u03ff\u0435])[\u0300-\u036f]+|[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c7\u0640\u064b-\u065f]+"
)
_SIGNS = re.compile(f"[^\x00-\x7f\\w{MARKS}\u3099\u309a]+")
_MANY = re.compile(f"([{MARKS}]{{8}})[{MARKS}]+")  # of a letter: to sort them takes the square of their number
_WIDE = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uffdc]+")  # letters and digits
# The zeros of other scripts that write numbers in decimal digits.
_ZEROS = "٠۰०০੦૦୦௦౦೦൦๐໐၀០"
_DIGITS = {ord(zero) + at: str(at) for zero in _ZEROS for at in range(10)}
_ALIKE = _DIGITS | str.maketrans("øłđıς", "oldiσ") | str.maketrans({"ß": "ss", "œ": "oe", "æ": "ae"})
_TAG, _SHORTHAND, _MUSIC = b"\xf3\xa0", b"\xf0\x9b\xb2", b"\xf0\x9d\x85"  # first bytes in UTF-8
_IDEOGRAPH = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_USUAL = frozenset({"\u200c", "\u200d", "\ufe0f", "\ufe0f\u200d"})  # in Persian and emoji: a shortcut
_KEYCAPS = frozenset("0123456789#*")
_PLAIN_ASCII = b"\t\n" + bytes(range(0x20, 0x7F))


def folded(text: str) -> str:
    """Return a text as words are compared: in small letters without accents, with the digits 0 to 9.

    Other signs become blanks: Search divides at those of ASCII only, and would take `„dog“` for a word.
    """
    narrow = _WIDE.sub(lambda wide: unicodedata.normalize("NFKC", wide[0]), text.lower())
    apart = unicodedata.normalize("NFD", _MANY.sub(r"\1", _SIGNS.sub(" ", narrow)))
    return unicodedata.normalize("NFC", _ACCENTS.sub("", apart)).translate(_ALIKE)


def to_utf8(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by question marks."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def without_surrogates(value: Any) -> Any:
    """Apply `to_utf8` to every str in a JSON value."""
    if isinstance(value, str):
        return to_utf8(value)
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    return [without_surrogates(item) for item in value] if isinstance(value, list) else value


def is_utf8(text: object) -> bool:
    """Tell whether something is a str without lone surrogates."""
    return isinstance(text, str) and to_utf8(text) == text


def check_utf8(text: str) -> str:
    """Return a text, or raise `ValueError` for a lone surrogate in it."""
    if not is_utf8(text):
        msg = "it holds a lone surrogate, which UTF-8 cannot carry"
        raise ValueError(msg)
    return text


def replace_hidden(text: str, sign: Callable[[str], str]) -> str:
    """Replace control characters and hidden characters by what `sign` returns for each; line ends and tabs stay.

    Single marks of direction, joiners, variation selectors and the tags of flags stay where they have a meaning.
    """
    # most blocks have nothing to replace, and what is not plain ASCII is short: a twelfth of the time for 5,000 characters
    raw = text.encode(errors="surrogatepass").translate(None, _PLAIN_ASCII)
    may_have_tags = _TAG in raw or _MUSIC in raw or _SHORTHAND in raw
    if not may_have_tags and not _RUN.search(raw.decode(errors="surrogatepass")):
        return text
    if may_have_tags:
        text = _TAGS.sub(lambda found: _tags(found, sign), text)
    return _RUN.sub(lambda found: _run(found, sign), text)


def _tags(found: re.Match[str], sign: Callable[[str], str]) -> str:
    tags = found[0]
    if tags[0] == "\U0001f3f4":
        return tags
    before = found.string[found.start() - 1] if found.start() else ""
    kept = int("\U000e0100" <= tags[0] <= "\U000e01ef" and bool(_IDEOGRAPH.match(before)))
    return tags[:kept] + "".join(map(sign, tags[kept:]))


def _run(found: re.Match[str], sign: Callable[[str], str]) -> str:
    if len(found[0]) == 1 and _ACTS(found[0]):  # a shortcut: a text may hold thousands
        return sign(found[0])
    before = found.string[found.start() - 1] if found.start() else ""
    if len(found[0]) == 1 and found[0] in _DIRECTIONS:
        return found[0]
    if found[0] in _USUAL and not before.isascii() and before < "\U000e0000":
        return found[0]
    varied, joined, directed = "\U000e0100" <= before <= "\U000e01ef", False, False
    shown = []
    for one in found[0]:
        kept = one
        if _VARIATION(one) and not varied and not joined and _varies(before, one):
            varied = True
        elif _JOINER(one) and not joined and not (one == "\u200d" and before.isascii()):
            joined = True
        elif one in _DIRECTIONS and not directed:
            directed = True
        elif kept := sign(one):
            before, varied, joined, directed = kept[-1], False, False, False
        shown.append(kept)
    return "".join(shown)


def _varies(before: str, one: str) -> bool:
    """Tell whether a variation selector has a meaning after a character: in ASCII only after those on keycaps."""
    return not before.isascii() or (before in _KEYCAPS and one in "\ufe0e\ufe0f")


def visible(text: str) -> str:
    """Make a person read the same text in a prompt as the model.

    Controls become signs, line separators line ends, lone surrogates question marks; characters without width go.
    """
    return replace_hidden(text.replace("\r\n", "\n"), _for_prompts)


def _for_prompts(one: str) -> str:
    if one <= "\x9f":
        return picture(one)
    if one in "\u2028\u2029":
        return "\n"
    return "?" if "\ud800" <= one <= "\udfff" else ""


def picture(one: str) -> str:
    """Return the sign for a control character: Unicode's picture, or its code."""
    return chr(0x2400 + ord(one)) if one < " " else f"\\x{ord(one):02x}"


_REPLACED = "\ue000"  # private use: stands for a character that `visible` replaces


def stored_quote(text: str, quoted: str) -> str:
    """Return the only part of a text that `visible` shows as `quoted`, else `quoted` itself."""
    if not quoted or quoted in text:
        return quoted
    masked = replace_hidden(text, lambda _: _REPLACED)
    if masked == text:
        return quoted
    parts: list[str] = []
    positions: list[int] = []  # in the text, of each character that is shown
    for at, (one, mask) in enumerate(zip(text, masked, strict=True)):
        shown = one if one == mask else "" if text.startswith("\r\n", at) else _for_prompts(one)
        parts.append(shown)
        positions += [at] * len(shown)
    seen = "".join(parts)
    start = seen.find(quoted)
    if start < 0 or seen.find(quoted, start + 1) >= 0:
        return quoted
    return text[positions[start] : positions[start + len(quoted) - 1] + 1]
