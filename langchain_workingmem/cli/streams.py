"""What commands read and write: results on the terminal, JSON, and files.

Text of users and models is shown as text: no markup, no control of the terminal.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import zlib
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import typer
from langchain_core.messages import BaseMessage, message_to_dict
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from langchain_workingmem._text.observed import in_zone
from langchain_workingmem._text.unicode import replace_hidden
from langchain_workingmem.display.pictures import SHOWN_IN, clock
from langchain_workingmem.display.safe import clean
from langchain_workingmem.errors import OptionError, WorkingMemError
from langchain_workingmem.models import Page
from langchain_workingmem.reports import Diagnosis

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from langchain_workingmem.models import WorkingMemoryValue

WIDE = 1000  # columns of a table that goes to a file or a pipe


def dumps(value: Any, *, indent: int | None = None) -> str:
    """Write records, messages and plain values as JSON that is safe to print in a terminal."""
    found = json.dumps(value, default=_plain, ensure_ascii=False, indent=indent)
    if "NaN" in found or "Infinity" in found:  # a message may hold them, JSON has none
        found = json.dumps(json.loads(found, parse_constant=lambda _: None), ensure_ascii=False, indent=indent)
    return replace_hidden(found, lambda one: json.dumps(one)[1:-1].replace("\x7f", "\\u007f"))


def _plain(value: Any) -> Any:
    if isinstance(value, BaseMessage):
        return message_to_dict(value)
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value.isoformat() if isinstance(value, datetime) else str(value)


def show(record: Any, *, as_json: bool = False) -> None:
    """Print a text, a record with rich, or its JSON. A row is one line in a file or a pipe.

    Of a pair, the first is for JSON, the second for people; None leaves it out.
    """
    data, drawn = record if isinstance(record, tuple) else (record, record)
    if drawn is None and not as_json:
        return
    if as_json or isinstance(drawn, str):
        if data is not None or not as_json:
            typer.echo(dumps(data, indent=2) if as_json else drawn)
        return
    wide = (
        isinstance(drawn, Page | Diagnosis | Group | Table) and not sys.stdout.isatty() and "COLUMNS" not in os.environ
    )
    Console(width=WIDE if wide else None, highlight=False).print(drawn, soft_wrap=isinstance(drawn, Text))


def revisions(head: str, rows: Iterable[tuple[Any, ...]], nothing: str) -> Table | str:
    """Draw kept revisions, each with its origin and the cells below the words of `head`."""
    columns = ("revision", f"written ({clock()})", "by", *head.split("|"))
    lines = ((str(kept.revision), seconds(kept.updated_at), kept.origin or "", *cells) for kept, *cells in rows)
    return table(columns, lines, nothing)


def seconds(at: datetime | None) -> str:
    """Write a time to the second, in the zone of whoever looks."""
    return f"{in_zone(at, SHOWN_IN.get()):%Y-%m-%d %H:%M:%S}" if at else ""


def table(columns: Iterable[str], rows: Iterable[Iterable[str]], nothing: str) -> Table | str:
    """Draw rows of text; `nothing` stands for none."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for cells in rows:
        drawn.add_row(*map(text, cells))
    return drawn if drawn.rows else nothing


def values(found: Iterable[WorkingMemoryValue], of: str, nothing: str) -> Table | str:
    """Draw values of working memory, without what a list of one path or of present values does not need: `of` stays."""
    until = f"until ({clock()})"
    columns = ["path", "value", f"since ({clock()})", until, "by", "sources"]
    columns = [one for one in columns if one not in {"path", until} or one.startswith(of)]
    return table(columns, ([row[column] for column in columns] for row in (one.row() for one in found)), nothing)


def text(value: str, style: str = "") -> Text:
    """Make text without markup and control characters."""
    return Text(clean(value), style)


# ---------------------------------------------------------------------- files


def parsed(text: str, name: str, remedy: str | None = None, **options: Any) -> Any:
    """Read JSON; `name` is its source, for errors."""
    try:
        return json.loads(text, **options)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{name} is not JSON ({error})", remedy=remedy) from error


def parsed_lines(lines: Iterable[str], name: str) -> Iterator[Any]:
    """Read JSON lines."""
    with _decoded(name):
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield parsed(line, f"{name}, line {number}")


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
