"""The output of the commands. Text of users and models is shown as text: no markup, no control of the terminal."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

import typer
from langchain_core.messages import BaseMessage, message_to_dict
from rich.console import Console
from rich.text import Text

from langchain_workingmem._text.unicode import replace_hidden
from langchain_workingmem.display.safe import clean

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


def show(record: Any, *, as_json: bool, wide: bool = False) -> None:
    """Print a text, a record with rich, or its JSON. `wide`: one line for each row in a file or a pipe."""
    if as_json or isinstance(record, str):
        typer.echo(dumps(record, indent=2) if as_json else record)
        return
    width = WIDE if wide and not sys.stdout.isatty() and "COLUMNS" not in os.environ else None
    Console(width=width, highlight=False).print(record)


def text(value: str, style: str = "") -> Text:
    """Make text without markup and control characters."""
    return Text(clean(value), style)
