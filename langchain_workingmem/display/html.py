"""Pictures for notebooks. Colours are inherited or translucent, so that they are readable on light and on dark."""

from __future__ import annotations

from html import escape

from langchain_workingmem.display.pictures import WIDE, Lines, Part, Picture, Row, Tone
from langchain_workingmem.display.safe import clean

_QUIET = "opacity:.7"
_FRAME = "color:inherit;text-align:left;line-height:1.45;overflow-x:auto"
_INNER = "margin:.6em 0 0 0;padding-left:.8em;border-left:3px solid rgba(128,128,128,.35)"
_CAPTION = "margin:.6em 0 .2em 0;font-weight:bold"
# these override the stripes, lines and widths of tables in notebooks and documentation sites
_TABLE = "border-collapse:collapse;border:0;margin:.2em 0;width:auto;color:inherit;background:transparent"
_CELL = "text-align:left;vertical-align:top;padding:.2em .7em;border:0"
_NARROW = f"{_CELL};white-space:nowrap"
_WIDE = f"{_CELL};white-space:pre-wrap;overflow-wrap:anywhere;min-width:14em"
_HIT = "background:rgba(255,179,0,.2)"
_BAR = "background:linear-gradient(to right,rgba(255,179,0,.5) {0:.0f}%,transparent {0:.0f}%)"
_PRE = (
    "margin:.2em 0;padding:.5em .7em;max-height:24em;overflow:auto;white-space:pre-wrap;overflow-wrap:anywhere;"
    "font-family:ui-monospace,monospace;color:inherit;background:rgba(128,128,128,.1);border:0;border-radius:4px"
)
_TONES: dict[Tone, tuple[str, str]] = {
    "plain": ("span", ""),
    "quiet": ("span", _QUIET),
    "added": ("ins", "text-decoration:none;color:inherit;background:rgba(46,160,67,.28)"),
    "removed": ("del", "text-decoration:none;color:inherit;background:rgba(248,81,73,.28)"),
}


def draw(picture: Picture) -> str:
    """Draw a picture. All of its content is text, never markup."""
    return f'<div style="{_FRAME}">{_picture(picture)}</div>'


def _text(text: str) -> str:
    return escape(clean(text))


def _picture(one: Picture) -> str:
    facts = " · ".join(
        f'<span style="{_QUIET}">{name}</span> <bdi>{_text(value)}</bdi>' for name, value in one.facts.items()
    )
    title = f'<div><strong dir="auto">{_text(one.title)}</strong></div>'
    return "".join([title, f"<div>{facts}</div>" if facts else "", *map(_part, one.parts)])


def _part(part: Part) -> str:
    if isinstance(part, Picture):
        return f'<div style="{_INNER}">{_picture(part)}</div>'
    caption = f'<div dir="auto" style="{_CAPTION}">{_text(part.caption)}</div>' if part.caption else ""
    if isinstance(part, Lines):
        lines = "\n".join(_line(tone, text) for tone, text in part.lines)
        return f'{caption}<pre style="{_PRE}">{lines}</pre>'
    heads = "".join(f'<th style="{_NARROW};{_QUIET}">{head}</th>' for head in part.columns)
    rows = "".join(map(_row, part.rows))
    return f'{caption}<table style="{_TABLE}"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'


def _row(row: Row) -> str:
    cells, share = row
    drawn = []
    for number, (head, cell) in enumerate(cells.items(), 1):
        style = _WIDE if head in WIDE else _NARROW
        if share and number == len(cells):
            style = f"{style};{_BAR.format(100 * share)}"
        text = f"<strong>{_text(cell)}</strong>" if head in WIDE and share is not None else _text(cell)
        drawn.append(f'<td dir="auto" style="{style}">{text}</td>')
    return f'<tr style="{"background:transparent" if share is None else _HIT}">{"".join(drawn)}</tr>'


def _line(tone: Tone, text: str) -> str:
    element, style = _TONES[tone]
    return f'<{element} style="{style}">{_text(text)}</{element}>' if style else _text(text)
