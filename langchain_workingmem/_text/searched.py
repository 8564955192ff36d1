"""Texts as their words are searched, and texts that ask something."""

from __future__ import annotations

import re
from operator import add

from langchain_workingmem._text.unicode import UNSPACED, folded

_UNSPACED = re.compile(f"[{UNSPACED}]+")
_MARK = re.compile("[?\u037e\u055e\u061f\u1367\u203d\u2047-\u2049\u2cfa\u2cfb\u2e2e\ua60f\ua6f7\ufe16\ufe56\uff1f]")
# What is named by its digits or is an address, which matches as a whole: 10.0.0.1, ORD-2024-0815, v1.2, ann@example.com.
# A date is read as a time.
_LETTER, _JOINT = f"[^\\W_{UNSPACED}]", "[.:/@+_-]"
_EXACT = re.compile(
    rf"(?<!{_LETTER})(?<!{_LETTER}{_JOINT})(?={_LETTER}++{_JOINT})(?=[\w.:/@+-]{{0,63}}[\d@])"
    r"(?!(?:19|20)\d\d[./-]\d|\d\d?[./-]\d\d?[./-](?:19|20)\d\d(?!\w))"
    rf"{_LETTER}++(?:{_JOINT}{{1,2}}{_LETTER}++)++"
)
_INSIDE = re.compile(rf"{_JOINT}(?<=\w{_JOINT}){_JOINT}?\w")  # what each has: it is found 20 times as fast
_LONGEST_EXACT = 64  # characters; a longer one is mostly data
_JOINTS = str.maketrans({joint: "_" * (at + 1) for at, joint in enumerate(".-/:+")} | {"@": "_at_"})


def asks(text: str) -> bool:
    """Tell whether a text has a question mark, of any script."""
    return "?" in text or (not text.isascii() and bool(_MARK.search(text)))


def has_digit(text: str) -> bool:
    """Tell whether a text holds a number, such as that of an order."""
    return any(map(str.isdigit, text))


def as_searched(text: str, *, whole: bool = False) -> str:
    """Return a text with its words as they are searched: where none are separated, each two characters in a row are one.

    Search divides at spaces and signs. So of Chinese, Japanese, Korean and Thai a sentence would be a word, and hardly ever
    asked for; and of an IP address or an order number only the digits would be left, so it follows in one word, or, `whole`, is one.
    """
    text = text if text.isascii() else folded(text)
    if _INSIDE.search(text):
        text = _EXACT.sub(_as_one if whole else _joined, text)
    return text if text.isascii() else _UNSPACED.sub(_pairs, text)


def _joined(found: re.Match[str]) -> str:
    return found[0] if len(found[0]) > _LONGEST_EXACT else f"{found[0]} {_as_one(found)}"


def _as_one(found: re.Match[str]) -> str:
    return found[0] if len(found[0]) > _LONGEST_EXACT else found[0].translate(_JOINTS)


def _pairs(found: re.Match[str]) -> str:
    run = found[0]
    return f" {' '.join(map(add, run, run[1:])) or run} "
