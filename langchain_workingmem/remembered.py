"""The records of working memory: the document, what changed in it, and each value with its time and sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # noqa: TC003 - pydantic resolves the annotations of a state with a MemoryContext
from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - likewise
from importlib import import_module
from typing import TYPE_CHECKING, Any

from langchain_workingmem._text.nesting import as_json
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable


_NAMED = 12  # paths in an error


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


def not_kept() -> OptionError:
    """Return the error for a document of which nothing but the text is recorded."""
    return OptionError(
        "time and sources of the values are not recorded here",
        remedy="pass keeper= to WorkingMemoryOptions: they are recorded from then on",
    )


def unknown_path(path: object, known: Iterable[str]) -> OptionError:
    """Return the error for a path that no value has or had, with those that exist; those below it or like it first."""
    wanted = str(path).strip("/").casefold()
    paths = sorted(known, key=lambda one: (wanted not in one.casefold()) if wanted else False)
    more = f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else ""
    remedy = f"use one of {', '.join(map(repr, paths[:_NAMED]))}{more}" if paths else "nothing was written yet"
    return OptionError(f"working memory has no value at {path!r}", remedy=remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingMemoryValue:
    """One value of working memory during a time, with the messages that it comes from."""

    path: str  # JSON Pointer: /city, /pets/Rex/age; in a template /Location
    value: Any  # JSON; None where nothing was known
    since: datetime  # when it was said
    until: datetime | None  # when something else was said; None: it holds
    sources: list[tuple[str, str]]  # (thread_id, message_id); none where a program or a person set it
    origin: str  # who wrote it: "keeper", "tool", "program" or "person"
    recorded_at: datetime
    is_set: bool = True  # False: from `since` on nothing was known
    # of the sources in their threads; -1: unknown
    positions: tuple[int, ...] = field(default=(), repr=False, compare=False)

    @property
    def text(self) -> str:
        """Return the value as people read it, "" where nothing was known."""
        if not self.is_set:
            return ""
        return self.value if isinstance(self.value, str) else as_json(self.value)


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
    is_kept: bool = field(default=False, repr=False, compare=False)  # time and sources of its values are recorded
    # Where in the text what was said at another time than what stands before it begins, and when it was said, in microseconds
    starts: tuple[tuple[int, int], ...] = field(default=(), repr=False, compare=False)
    # By path the values that hold or held, the newest first; only `working_memory.get` reads it. None: it was not read
    timeline: Mapping[str, Sequence[WorkingMemoryValue]] | None = field(default=None, repr=False, compare=False)

    def sources(self, path: str) -> list[tuple[str, str]]:
        """Return (thread_id, message_id) of the messages that a value comes from; none where a program or a person set it.

        `path` is a JSON Pointer: "/city", "/pets/Rex/age", "/allergies/nuts", or "/Location" for a field of a template. A value that
        no longer holds has the sources of what ended it. `OptionError` names the paths that exist; another one says that the state
        comes from a turn, which does not read this, or that no keeper is on.
        """
        return list(self._at(path)[0].sources)

    def since(self, path: str) -> datetime:
        """Return when a value was said, not when it was recorded; of one that no longer holds, when it ended. See `sources`."""
        return self._at(path)[0].since

    def history(self, path: str) -> list[WorkingMemoryValue]:
        """Return what a value is and was, the present one first; at most as many as `WorkingMemoryOptions.revisions`. See `sources`.

        Where nothing was known for a time, there is an entry with `is_set` False. What stood on deleted messages is not there.
        """
        return list(self._at(path))

    def _at(self, path: str) -> Sequence[WorkingMemoryValue]:
        if self.timeline is None:
            if self.is_kept:
                seen = "this state comes without the sources of its values: only `get` reads them"
                raise OptionError(seen, remedy="read it with memory.working_memory.get()")
            raise not_kept()
        found = self.timeline.get(path) if isinstance(path, str) else None
        if found is None:
            raise unknown_path(path, self.timeline)
        return found
