"""The record of working memory, and what all records with a picture share."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - pydantic resolves the annotations of a state with a MemoryContext
from importlib import import_module
from typing import Any


class Shown:
    """What every record with a picture inherits: notebooks show it, and terminals through rich.

    Modules that draw stand above the records, so they are imported by name, and only when something is drawn.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self._drawn("html"))

    def __rich__(self) -> Any:
        return self._drawn("terminal")

    def _drawn(self, module: str) -> Any:
        records, drawing = (import_module(f"langchain_workingmem.display.{name}") for name in ("records", module))
        return drawing.draw(records.picture_of(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingMemoryState(Shown):
    """Working memory at one revision."""

    value: Any  # text, or the document as the schema's type: a model, a dataclass, a dict; None while it is empty
    text: str  # as it is stored: Markdown, text or JSON
    revision: int  # 0: never written
    updated_at: datetime | None  # None: never written
    is_empty: bool  # no text, or the bare template
    origin: str | None = None  # the operation that wrote it: update, tool, clear, revert, seed, clone
    key: str = field(default="", repr=False, compare=False)  # of Redis
