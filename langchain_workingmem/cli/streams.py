"""What commands read and write: results on the terminal, JSON, and files.

Text of users and models is shown as text: no markup, no control of the terminal.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import sys
import zlib
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypeAlias, cast

import typer

from langchain_workingmem._text.unicode import replace_hidden
from langchain_workingmem.display.safe import clean
from langchain_workingmem.errors import OptionError, WorkingMemError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table
    from rich.text import Text

    from langchain_workingmem.models import WorkingMemoryValue

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # beginnings: https://owasp.org/www-community/attacks/CSV_Injection
Format: TypeAlias = Literal["table", "json", "jsonl", "csv"]


def dumps(value: Any, *, indent: int | None = None) -> str:
    """Write records, messages and plain values as JSON that is safe to print in a terminal."""
    found = json.dumps(value, default=_plain, ensure_ascii=False, indent=indent)
    if "NaN" in found or "Infinity" in found:  # a message may hold them, JSON has none
        found = json.dumps(json.loads(found, parse_constant=lambda _: None), ensure_ascii=False, indent=indent)
    return replace_hidden(found, lambda one: json.dumps(one)[1:-1].replace("\x7f", "\\u007f"))


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        # what its repr leaves out is for the package itself
        return {field.name: getattr(value, field.name) for field in fields(value) if field.repr}
    if isinstance(value, datetime):
        return value.isoformat()
    from langchain_core.messages import BaseMessage, message_to_dict

    return message_to_dict(value) if isinstance(value, BaseMessage) else str(value)


class Printer:
    """Prints what a command yields: one JSON document, one a line, lines of CSV, or what people read.

    Of a pair, the first is for programs, the second for people; None leaves it out.
    """

    def __init__(self, form: Format) -> None:
        self._form = form
        self._columns: list[str] = []

    def show(self, record: Any) -> None:
        """Print one of the results of a command."""
        data, drawn = record if isinstance(record, tuple) else (record, record)
        if self._form == "table":
            show(drawn)
        elif self._form == "json" and data is not None:
            typer.echo(dumps(data, indent=2))
        elif self._form == "jsonl":
            for row in _rows(data):
                typer.echo(dumps(row))
        elif self._form == "csv":
            self._write([_cells(row) for row in _rows(data)])
        sys.stdout.flush()  # `tail` waits between two of them

    def _write(self, rows: list[dict[str, str]]) -> None:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        if rows and not self._columns:
            self._columns = [*rows[0]]
            writer.writerow(self._columns)
        writer.writerows([row.get(column, "") for column in self._columns] for row in rows)


def _rows(data: Any) -> Iterable[Any]:
    """Return the entries of a list, also of one in a record beside other fields; anything else is one row."""
    if isinstance(data, Mapping):
        lists = [value for value in data.values() if _is_list(value)]
        return lists[0] if len(lists) == 1 else [data]
    return data if _is_list(data) else [] if data is None else [data]


def _is_list(value: Any) -> bool:
    return isinstance(value, list) or (is_dataclass(value) and isinstance(value, Iterable))


def _cells(row: Any) -> dict[str, str]:
    """Write the fields of a record: a message as its id, role, name and text, what is nested as JSON."""
    from langchain_core.messages import BaseMessage

    from langchain_workingmem._text.rendering import ROLES, message_text

    found: dict[str, Any] = {}
    plain = row if isinstance(row, Mapping | BaseMessage) else _plain(row)
    for name, value in plain.items() if isinstance(plain, Mapping) else [("value", plain)]:
        if isinstance(value, BaseMessage):
            role = ROLES.get(value.type, value.type)
            found |= {"id": value.id, "role": role, "name": value.name, "text": message_text(value, whole=True)}
        else:
            found[name] = value
    return {name: _cell(value) for name, value in found.items()}


def _cell(value: Any) -> str:
    """Write a cell. An apostrophe before a text says that it is no formula, as which a spreadsheet would run it."""
    if isinstance(value, str):
        return clean(f"'{value}" if value.startswith(_FORMULA) else value)
    return "" if value is None else clean(dumps(value).strip('"'))


def show(drawn: Any) -> None:
    """Print a text, or draw a record. A row is one line in a file or a pipe, unless COLUMNS says how wide it may be."""
    if drawn is None:
        return
    if isinstance(drawn, str):
        typer.echo(drawn)
        return
    if callable(drawn):  # it shows itself
        drawn()
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        console.print(drawn, soft_wrap=isinstance(drawn, Text))
        return
    console = Console(highlight=False, width=max(1, Console(width=_WIDEST).measure(drawn).maximum))
    with console.capture() as capture:
        console.print(drawn, soft_wrap=True)
    for line in capture.get().splitlines():
        typer.echo(line.rstrip())


_WIDEST = 1_000_000  # columns of a table that goes to a file or a pipe


def revisions(head: str, rows: Iterable[tuple[Any, ...]], nothing: str) -> Table | str:
    """Draw kept revisions, each with its origin and the cells below the words of `head`."""
    from langchain_workingmem.display.pictures import clock

    columns = ("revision", f"written ({clock()})", "by", *head.split("|"))
    lines = ((str(kept.revision), seconds(kept.updated_at), kept.origin or "", *cells) for kept, *cells in rows)
    return table(columns, lines, nothing)


def seconds(at: datetime | None) -> str:
    """Write a time to the second, in the zone of whoever looks."""
    from langchain_workingmem._text.observed import in_zone
    from langchain_workingmem.display.pictures import SHOWN_IN

    return f"{in_zone(at, SHOWN_IN.get()):%Y-%m-%d %H:%M:%S}" if at else ""


def table(columns: Iterable[str], rows: Iterable[Iterable[str]], nothing: str) -> Table | str:
    """Draw rows of text; `nothing` stands for none."""
    from rich.table import Table

    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for cells in rows:
        drawn.add_row(*map(text, cells))
    return drawn if drawn.rows else nothing


def values(found: Iterable[WorkingMemoryValue], of: str, nothing: str) -> Table | str:
    """Draw values of working memory, without what a list of one path or of present values does not need: `of` stays."""
    from langchain_workingmem.display.pictures import clock
    from langchain_workingmem.display.records import value_cells

    until = f"until ({clock()})"
    columns = ["path", "value", f"since ({clock()})", until, "by", "sources"]
    columns = [one for one in columns if one not in {"path", until} or one.startswith(of)]
    return table(columns, ([row[column] for column in columns] for row in map(value_cells, found)), nothing)


def text(value: str, style: str = "") -> Text:
    """Make text without markup and control characters."""
    from rich.text import Text

    return Text(clean(value), style)


# ---------------------------------------------------------------------- files


def parsed(text: str, name: str, remedy: str | None = None, **options: Any) -> Any:
    """Read JSON; `name` is its source, for errors."""
    try:
        return json.loads(text, **options)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{name} is not JSON ({error})", remedy=remedy) from error


def parsed_lines(lines: Iterable[str], name: str, remedy: str | None = None) -> Iterator[Any]:
    """Read JSON lines."""
    with _decoded(name):
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield parsed(line, f"{name}, line {number}", remedy)


@contextmanager
def reading(name: str) -> Iterator[TextIO]:
    """Open a file to read, gzipped if its name ends in .gz; - is standard input."""
    with usable(name):
        opened = gzip.open if name.endswith(".gz") else open
        file = sys.stdin if name == "-" else cast("TextIO", opened(Path(name).expanduser(), "rt", encoding="utf-8-sig"))
    try:
        with _decoded(name):
            yield file
    finally:
        if file is not sys.stdin:
            file.close()


@contextmanager
def writing(path: Path | None) -> Iterator[TextIO]:
    """Open a file to write. It replaces an older one when it is complete."""
    if path is None:
        yield sys.stdout
        return
    part = path.with_name(f"{path.name}.part") if path.is_file() or not path.exists() else path
    try:
        with usable(path):
            with part.open("w", encoding="utf-8") as file:
                yield file
            part.replace(path)
    finally:
        if part != path:
            part.unlink(missing_ok=True)


@contextmanager
def _decoded(name: str) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        why = f"{error.reason} at byte {error.start}"
        raise OptionError(f"{name} is not UTF-8 ({why}): convert it, for example with iconv") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise OptionError(f"{name} is not a complete gzip file ({error}): copy it again") from error


@contextmanager
def usable(name: object) -> Iterator[None]:
    """Turn what the system refuses into an error that names the file."""
    try:
        yield
    except WorkingMemError:  # errors of Redis, some of which are OSErrors
        raise
    except OSError as error:
        raise OptionError(f"{name} cannot be used: {error.strerror or error}") from error
