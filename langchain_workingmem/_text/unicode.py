"""Characters that are no text: lone surrogates, which UTF-8 cannot carry, and those that act or hide where text is shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# Characters that act: controls, line separators, overrides and isolates of direction, lone surrogates; and those without any
# width that nobody reads, such as a zero-width space, the fillers of Hangul and two vowels of Khmer.
_ACTING = "\x00-\x08\x0b-\x1f\x7f-\x9f\u115f\u1160\u17b4\u17b5\u200b\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
# Marks of direction (ALM, LRM, RLM) are part of text, one at a time.
_DIRECTIONS = "\u061c\u200e\u200f"
# Characters that change the one in front of them: one of these, and then one of those, has a meaning; more of them hide text.
_VARIATIONS = "\u034f\u180b-\u180d\u180f\ufe00-\ufe0f"
_JOINERS = "\u00ad\u180e\u200c\u200d"  # soft hyphens too: invisible by design, and harmless
_RUN = re.compile(f"[{_ACTING}{_DIRECTIONS}{_VARIATIONS}{_JOINERS}]+")
_VARIATION, _JOINER = re.compile(f"[{_VARIATIONS}]").match, re.compile(f"[{_JOINERS}]").match
# The plane of tags, which spell out ASCII unseen, and of variations of ideographs; and the signs of shorthand and music that
# have no width. Tags behind a black flag make the flags of England, Scotland and Wales; Unicode recommends no others.
# It is a pattern of its own, because a class with such characters is five times as slow to look for.
_FLAGS = "|".join("".join(chr(0xE0000 + ord(one)) for one in region) for region in ("gbeng", "gbsct", "gbwls"))
_TAGS = re.compile(
    f"\U0001f3f4(?:{_FLAGS})\U000e007f|[\U000e0000-\U000e0fff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a]+"
)
_TAG, _SHORTHAND, _MUSIC = b"\xf3\xa0", b"\xf0\x9b\xb2", b"\xf0\x9d\x85"  # how they begin in UTF-8, and few others do
_IDEOGRAPH = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_USUAL = frozenset({"\u200c", "\u200d", "\ufe0f", "\ufe0f\u200d"})  # in Persian and emoji: worth a short cut
_KEYCAPS = frozenset("0123456789#*")
_ACTING_ASCII = bytes([*range(0x09), *range(0x0B, 0x20), 0x7F])


def to_utf8(text: str) -> str:
    """Put a question mark where UTF-8 cannot carry a text."""
    return text.encode(errors="replace").decode()


def without_surrogates(value: Any) -> Any:
    """Do so in all of a JSON value."""
    if isinstance(value, str):
        return to_utf8(value)
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    return [without_surrogates(item) for item in value] if isinstance(value, list) else value


def is_utf8(text: object) -> bool:
    """Tell whether something is a str that UTF-8 can carry."""
    return isinstance(text, str) and to_utf8(text) == text


def replace_hidden(text: str, sign: Callable[[str], str]) -> str:
    """Put signs in the place of characters that act or hide text; line ends and tabs stay.

    So do single marks of direction, and what holds words and emoji together where it does: a joiner, a variation of the character
    in front, the tags of a flag.
    """
    raw = text.encode(errors="replace")
    if text.isascii():
        if len(raw.translate(None, _ACTING_ASCII)) == len(raw):
            return text  # most blocks, and ten times as fast
    elif _TAG in raw or _MUSIC in raw or _SHORTHAND in raw:
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
    before = found.string[found.start() - 1] if found.start() else ""
    if len(found[0]) == 1 and found[0] in _DIRECTIONS:
        return found[0]
    if found[0] in _USUAL and not before.isascii() and before < "\U000e0000":
        return found[0]
    varied, joined, directed = "\U000e0100" <= before <= "\U000e01ef", False, False
    shown = []
    for one in found[0]:
        if _VARIATION(one) and not varied and not joined and _varies(before, one):
            varied = True
            shown.append(one)
        elif _JOINER(one) and not joined and not (one == "\u200d" and before.isascii()):
            joined = True
            shown.append(one)
        elif one in _DIRECTIONS and not directed:
            directed = True
            shown.append(one)
        else:
            shown.append(sign(one))
            if shown[-1]:
                before, varied, joined, directed = shown[-1][-1], False, False, False
    return "".join(shown)


def _varies(before: str, one: str) -> bool:
    """Tell whether a character has variations: no letter of ASCII does, and of its other characters those on keycaps."""
    return not before.isascii() or (before in _KEYCAPS and one in "\ufe0e\ufe0f")


def visible(text: str) -> str:
    """Write text into a prompt such that a person who looks at it reads what the model reads, in UTF-8.

    Controls become signs, line separators line ends, lone surrogates question marks; what has no width is left out.
    """
    return replace_hidden(text.replace("\r\n", "\n"), _for_prompts)


def _for_prompts(one: str) -> str:
    if one <= "\x9f":
        return picture(one)
    if one in "\u2028\u2029":
        return "\n"
    return "?" if "\ud800" <= one <= "\udfff" else ""


def picture(one: str) -> str:
    """Give the sign for a control character: Unicode's picture, or its code."""
    return chr(0x2400 + ord(one)) if one < " " else f"\\x{ord(one):02x}"


_MARK = "\ue000"  # for private use: stands for one character that is not shown as it is


def stored_quote(text: str, quoted: str) -> str:
    """Return the one part of a text that `visible` shows as what is quoted; where there is none or several, what is quoted."""
    if not quoted or quoted in text:
        return quoted
    marked = replace_hidden(text, lambda _: _MARK)
    if marked == text:
        return quoted
    parts: list[str] = []
    places: list[int] = []  # in the text, of each character that is shown
    for at, (one, mark) in enumerate(zip(text, marked, strict=True)):
        if one == mark:
            parts.append(one)
        else:
            parts.append("" if text.startswith("\r\n", at) else _for_prompts(one))
        places += [at] * len(parts[-1])
    seen = "".join(parts)
    start = seen.find(quoted)
    if start < 0 or seen.find(quoted, start + 1) >= 0:
        return quoted
    return text[places[start] : places[start + len(quoted) - 1] + 1]
