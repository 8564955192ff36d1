"""Pictures for rich. Every text is a `Text`, so that none is read as markup."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from langchain_workingmem.display.pictures import WIDE, Lines, Picture, Table, Tone
from langchain_workingmem.display.safe import clean

_TONES: dict[Tone, str] = {"plain": "", "quiet": "dim", "added": "green", "removed": "red"}


def _text(text: str, style: str = "") -> Text:
    return Text(clean(text), style, overflow="fold")


def draw(picture: Picture) -> Group:
    """Draw a picture. All of its content is text, never markup."""
    drawn: list[RenderableType] = [_text(picture.title, "bold")]
    if facts := [Text.assemble((f"{name} ", "dim"), _text(value)) for name, value in picture.facts.items()]:
        drawn.append(Text(" · ").join(facts))
    for part in picture.parts:
        if isinstance(part, Picture):
            drawn.append(Padding(draw(part), (1, 0, 0, 2)))
            continue
        if part.caption:
            drawn += [Text(), _text(part.caption, "bold")]
        drawn.append(_lines(part) if isinstance(part, Lines) else _table(part))
    return Group(*drawn)


def _lines(part: Lines) -> Padding:
    return Padding(Text("\n").join(_text(text, _TONES[tone]) for tone, text in part.lines), (0, 0, 0, 2))


def _table(part: Table) -> Grid:
    grid = Grid(box=None, padding=(0, 2, 0, 0), header_style="dim")
    grid.add_column("")
    for head in part.columns:
        grid.add_column(Text(head), overflow="fold", ratio=1 if head in WIDE else None)
    for cells, share in part.rows:
        pointer, style = ("", "") if share is None else ("▸", "bold")
        grid.add_row(pointer, *map(_text, cells.values()), style=style)
    return grid
