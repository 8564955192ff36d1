"""Markdown as HTML, in time that grows with the text alone: each line is read once, and each sign of it.

Only what working memory and answers of models have: headings, lists, quotes, code, bold and italic text. All text is escaped; an address
stays text, so a page has no link that was stored. Other marks are shown as they are.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape

LONGEST = 8_000  # characters; a longer text is shown as it is
_LINE = re.compile(
    r"(?P<indent>[ \t]*)(?:(?P<marks>#{1,6})[ \t]+|(?P<item>[-*+]|\d{1,3}[.)])[ \t]+|(?P<quote>>)[ \t]?)?(?P<rest>.*)"
)
_INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*")
_DEEPEST = 4  # levels of lists


class Html(str):
    """What is HTML already."""

    __slots__ = ()

    def __html__(self) -> str:
        """Tell templates so."""
        return self


@lru_cache(maxsize=1024)  # a page that is loaded again shows mostly the same
def rendered(text: str) -> Html:
    """Return the HTML of a text."""
    blocks, paragraph, code = list[str](), list[str](), None
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            if code is None:
                _end(paragraph, blocks)
                code = list[str]()
            else:
                blocks.append(f"<pre>{escape(chr(10).join(code))}</pre>")
                code = None
        elif code is not None:
            code.append(line)
        else:
            _read(line, paragraph, blocks)
    _end(paragraph, blocks)
    if code is not None:
        blocks.append(f"<pre>{escape(chr(10).join(code))}</pre>")
    return Html("\n".join(blocks))


def _read(line: str, paragraph: list[str], blocks: list[str]) -> None:
    """Read a line, which continues `paragraph` or is a block."""
    match = _LINE.fullmatch(line)
    mark = match and (match["marks"] or match["item"] or match["quote"])
    if match is None or (mark is None and match["rest"].strip()):
        paragraph.append(line)
        return
    _end(paragraph, blocks)
    if mark is None:
        return
    text = _inline(match["rest"])
    if match["marks"]:
        blocks.append(f'<p class="md h{min(len(mark), 3)}">{text}</p>')
    elif match["quote"]:
        blocks.append(f"<blockquote>{text}</blockquote>")
    else:
        level = min(len(match["indent"].expandtabs(4)) // 2, _DEEPEST - 1)
        sign = "•" if len(mark) == 1 else escape(mark)
        blocks.append(f'<p class="md item l{level}"><span>{sign}</span> {text}</p>')


def _end(paragraph: list[str], blocks: list[str]) -> None:
    """End a paragraph."""
    if paragraph:
        blocks.append(f'<p class="md">{_inline(chr(10).join(paragraph))}</p>')
        paragraph.clear()


def _inline(text: str) -> str:
    def marked(match: re.Match[str]) -> str:
        code, bold, italic = match.groups()
        return f"<code>{code}</code>" if code else f"<b>{bold}</b>" if bold else f"<em>{italic}</em>"

    return _INLINE.sub(marked, escape(text))
