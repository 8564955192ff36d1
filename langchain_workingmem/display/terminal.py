"""Pictures for rich. Every text is a `Text`, so that none is read as markup."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from langchain_workingmem.display.pictures import WIDE, Block, Picture, Table, clean


def _text(text: str, style: str = "") -> Text:
    return Text(clean(text), style, overflow="fold")


def draw(picture: Picture) -> Group:
    """Draw a picture. All of its content is text, never markup."""
    drawn: list[RenderableType] = [_text(picture.title, "bold")]
    if facts := [Text.assemble((f"{name} ", "dim"), _text(value)) for name, value in picture.facts.items()]:
        drawn.append(Text(" · ").join(facts))
    for part in picture.parts:
        if part.caption:
            drawn += [Text(), _text(part.caption, "bold")]
        drawn.append(Padding(_text(part.text), (0, 0, 0, 2)) if isinstance(part, Block) else _table(part))
    return Group(*drawn)


def _table(part: Table) -> Grid:
    grid = Grid(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for head in part.columns:
        grid.add_column(Text(head), overflow="fold", ratio=1 if head in WIDE else None)
    for row in part.rows:
        grid.add_row(*map(_text, row.values()))
    return grid
