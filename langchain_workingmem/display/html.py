"""Pictures for notebooks. Colours are inherited or translucent, so that they are readable on light and on dark."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from langchain_workingmem.display.pictures import WIDE, Block, Picture, Table, clean

if TYPE_CHECKING:
    from langchain_workingmem.display.pictures import Row

_QUIET = "opacity:.7"
_FRAME = "color:inherit;text-align:left;line-height:1.45;overflow-x:auto"
_CAPTION = "margin:.6em 0 .2em 0;font-weight:bold"
# these override the stripes, lines and widths of tables in notebooks and documentation sites
_TABLE = "border-collapse:collapse;border:0;margin:.2em 0;width:auto;color:inherit;background:transparent"
_CELL = "text-align:left;vertical-align:top;padding:.2em .7em;border:0"
_NARROW = f"{_CELL};white-space:nowrap"
_WIDE = f"{_CELL};white-space:pre-wrap;overflow-wrap:anywhere;min-width:14em"
_PRE = (
    "margin:.2em 0;padding:.5em .7em;max-height:24em;overflow:auto;white-space:pre-wrap;overflow-wrap:anywhere;"
    "font-family:ui-monospace,monospace;color:inherit;background:rgba(128,128,128,.1);border:0;border-radius:4px"
)


def draw(picture: Picture) -> str:
    """Draw a picture. All of its content is text, never markup."""
    facts = " · ".join(
        f'<span style="{_QUIET}">{name}</span> <bdi>{_text(value)}</bdi>' for name, value in picture.facts.items()
    )
    title = f'<div><strong dir="auto">{_text(picture.title)}</strong></div>'
    parts = "".join(map(_part, picture.parts))
    return f'<div style="{_FRAME}">{title}{f"<div>{facts}</div>" if facts else ""}{parts}</div>'


def _text(text: str) -> str:
    return escape(clean(text))


def _part(part: Table | Block) -> str:
    caption = f'<div dir="auto" style="{_CAPTION}">{_text(part.caption)}</div>' if part.caption else ""
    if isinstance(part, Block):
        return f'{caption}<pre style="{_PRE}">{_text(part.text)}</pre>'
    heads = "".join(f'<th style="{_NARROW};{_QUIET}">{head}</th>' for head in part.columns)
    rows = "".join(map(_row, part.rows))
    return f'{caption}<table style="{_TABLE}"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'


def _row(row: Row) -> str:
    cells = (
        f'<td dir="auto" style="{_WIDE if head in WIDE else _NARROW}">{_text(cell)}</td>' for head, cell in row.items()
    )
    return f'<tr style="background:transparent">{"".join(cells)}</tr>'
