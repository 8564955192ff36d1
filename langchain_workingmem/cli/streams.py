"""What commands read and write: results on the terminal, JSON, and files.

Text of users and models is shown as text: no markup, no control of the terminal.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer
from rich.console import Console

from langchain_workingmem.display.pictures import Table, clean
from langchain_workingmem.display.terminal import Rows
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


def dumps(value: Any, *, indent: int | None = None) -> str:
    """Write records, messages and plain values as JSON of ASCII, which is safe to print in a terminal."""
    return json.dumps(value, default=_plain, indent=indent)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        # what its repr leaves out is for the package itself
        names = [field.name for field in fields(value) if field.repr]
        names += [name for name, attribute in vars(type(value)).items() if isinstance(attribute, cached_property)]
        return {name: getattr(value, name) for name in names}
    if isinstance(value, datetime):
        return value.isoformat()
    from langchain_core.messages import BaseMessage, message_to_dict

    return message_to_dict(value) if isinstance(value, BaseMessage) else str(value)


def printed(form: str, data: Any, drawn: Any = None) -> None:
    """Print a result: as one JSON document, or as what people read, which is the record itself unless `drawn` is given."""
    if form == "json":
        typer.echo(dumps(data, indent=2))
    else:
        show(data if drawn is None else drawn)


def show(drawn: Any) -> None:
    """Print a text, or draw a record."""
    if isinstance(drawn, str):
        typer.echo(clean(drawn))
    else:
        Console(highlight=False).print(drawn)


def table(columns: Sequence[str], rows: Iterable[Iterable[str]], nothing: str) -> Rows | str:
    """Draw rows of text; `nothing` stands for none."""
    lines = [dict(zip(columns, cells, strict=True)) for cells in rows]
    return Rows(Table(lines)) if lines else nothing


# ---------------------------------------------------------------------- files


def parsed(text: str, name: str, **options: Any) -> Any:
    """Read JSON; `name` is its source, for errors."""
    try:
        return json.loads(text, **options)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{name} is not JSON ({error})") from error


def parsed_lines(lines: Iterable[str], name: str) -> Iterator[Any]:
    """Read JSON lines."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield parsed(line, f"{name}, line {number}")


@contextmanager
def reading(name: str) -> Iterator[TextIO]:
    """Open a file to read; - is standard input."""
    if name == "-":
        yield sys.stdin
        return
    try:
        with Path(name).expanduser().open(encoding="utf-8-sig") as file:
            yield file
    except UnicodeDecodeError as error:
        raise OptionError(f"{name} is not UTF-8 ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise OptionError(f"{name} cannot be used: {error.strerror or error}") from error


@contextmanager
def writing(path: Path | None) -> Iterator[TextIO]:
    """Open a file to write. It replaces an older one when it is complete."""
    if path is None:
        yield sys.stdout
        return
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise OptionError(f"{path} cannot be used: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
