"""Pictures for rich. Every text is a `Text`, so that none is read as markup."""

from __future__ import annotations

from rich import table
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from langchain_workingmem.display.pictures import WIDE, Block, Picture, Table, clean


def _text(text: str, style: str = "") -> Text:
    return Text(clean(text), style, overflow="fold")


def draw(picture: Picture) -> Group:
    """Draw a picture. All of its content is text, never markup."""
    renderables: list[RenderableType] = [_text(picture.title, "bold")]
    if facts := [Text.assemble((f"{name} ", "dim"), _text(value)) for name, value in picture.facts.items()]:
        renderables.append(Text(" · ").join(facts))
    for part in picture.parts:
        if part.caption:
            renderables += [Text(), _text(part.caption, "bold")]
        renderables.append(Padding(_text(part.text), (0, 0, 0, 2)) if isinstance(part, Block) else Rows(part))
    return Group(*renderables)


class Rows:
    """A table where it fits; else a block for each row: no id, time or word is broken where a space is near."""

    def __init__(self, part: Table) -> None:
        self._part = part

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw what fits."""
        columns = (table.Column(Text(head), overflow="fold") for head in self._part.columns)
        grid = table.Table(*columns, box=None, padding=(0, 2, 0, 0), header_style="dim")
        for row in self._part.rows:
            grid.add_row(*map(_text, row.values()))
        if console.measure(grid, options=options.update(max_width=10_000)).maximum <= options.max_width:
            yield grid
            return
        for row in self._part.rows:
            cells = ((head, cell) for head, cell in row.items() if cell and head not in WIDE)
            facts = [Text.assemble((f"{head} ", "dim"), _text(cell)) for head, cell in cells]
            first = 1 if WIDE.isdisjoint(row) else len(facts)  # what a message is about takes a line, or else a title
            yield Text(" · ").join(facts[:first])
            below = [Text(" · ").join(facts[first:]), *(_text(cell) for head, cell in row.items() if head in WIDE)]
            yield from (Padding(line, (0, 0, 0, 2)) for line in below if line)
