"""The record of working memory, and what all records with a picture share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence  # noqa: TC003 - pydantic resolves the annotations of a state with a MemoryContext
from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - pydantic resolves the annotations of a state with a MemoryContext
from importlib import import_module
from typing import Any

from langchain_workingmem.errors import OptionError


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
class WorkingMemoryValue:
    """One value of working memory, with the messages that it comes from."""

    path: str  # JSON Pointer: /city, /languages/Danish; in a template /Location; of free text a line
    value: Any  # None: from then on nothing was known
    since: datetime  # when it was said
    sources: list[tuple[str, str]]  # (thread_id, message_id); none where tool, program or person have set it


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
    kept: str | None = field(default=None, repr=False, compare=False)  # what a keeper has noted beside the document
    # By path all that was said, what holds first; only `working_memory.get` reads it
    timeline: Mapping[str, Sequence[WorkingMemoryValue]] | None = field(default=None, repr=False, compare=False)

    def sources(self, path: str) -> list[tuple[str, str]]:
        """Return (thread_id, message_id) of the messages that a value comes from; none where tool, program or person have set it.

        `path` is a JSON Pointer: "/city", "/languages/Danish", or "/Location" for a field of a template, or a line of free text behind a
        slash. `OptionError` names the paths that exist, or says that the state comes from a turn, which does not read this.
        """
        return list(self._at(path)[0].sources)

    def since(self, path: str) -> datetime:
        """Return when a value was said, not when it was recorded. See `sources`."""
        return self._at(path)[0].since

    def history(self, path: str) -> list[WorkingMemoryValue]:
        """Return what a value is and was, the present one first; one without a value says that nothing holds any more. See `sources`."""
        return list(self._at(path))

    def _at(self, path: str) -> Sequence[WorkingMemoryValue]:
        if self.timeline is None:
            remedy = "call working_memory.get() of a memory with WorkingMemoryOptions(keeper=...)"
            raise OptionError("time and sources of the values are not known here", remedy=remedy)
        if found := self.timeline.get(path if path.startswith("/") else f"/{path}"):
            return found
        raise unknown_path(path, self.timeline)


def unknown_path(path: str, known: Iterable[str]) -> OptionError:
    """Return the error for a path that no value has or had."""
    paths = ", ".join(map(repr, sorted(known)[:12]))
    remedy = f"use one of {paths}" if paths else "nothing is known yet"
    return OptionError(f"working memory has no value at {path!r}", remedy=remedy)
