"""Where in a document what was said at one time begins. Pure functions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from langchain_workingmem._documents.formats import JsonFormat
from langchain_workingmem._documents.merging import parse_json
from langchain_workingmem.keeping.lines import starts as starts_of_lines
from langchain_workingmem.keeping.paths import join
from langchain_workingmem.keeping.shapes import named_items, shape_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from langchain_workingmem._documents.formats import Format
    from langchain_workingmem.keeping.shapes import Shape
    from langchain_workingmem.keeping.values import Held


def starts_of(form: Format, text: str, present: Mapping[str, Held]) -> list[tuple[int, int]]:
    """Return where values begin that were said at another time than what stands before them, and when they were said."""
    found: list[tuple[int, int]] = []
    for path, at in _positions(form, text):
        held = present.get(path)
        if held is not None and (not found or found[-1][1] != held.since):
            found.append((at, held.since))
    return found


def _positions(form: Format, text: str) -> Iterator[tuple[str, int]]:
    if not isinstance(form, JsonFormat):
        yield from starts_of_lines(form, text)
        return
    document, writer = parse_json(text), _Writer()
    if isinstance(document, dict):
        writer.write(document, shape_of(form), "")
    if "".join(writer.parts) == text:
        yield from writer.positions
    else:  # of another format: it is one value
        yield "", 0


class _Writer:
    """Writes JSON as `json.dumps` does, and notes where each value begins: an item of an object with its key."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.positions: list[tuple[str, int]] = []
        self._length = 0

    def _add(self, text: str) -> None:
        self.parts.append(text)
        self._length += len(text)

    def write(self, value: Any, shape: Shape, path: str) -> None:
        """Write what has values inside; each of them is noted, unless it has values inside, too."""
        items = named_items(value, shape)
        is_object = isinstance(value, dict)
        self._add("{" if is_object else "[")
        for at, (name, item) in enumerate(items.items()):
            if at:
                self._add(", ")
            below, there = shape.field(name), join(path, name)
            inside = named_items(item, below)
            if not inside:
                self.positions.append((there, self._length))
            if is_object:
                self._add(f"{_dumped(name)}: ")
            if inside:
                self.write(item, below, there)
            else:
                self._add(_dumped(item))
        self._add("}" if is_object else "]")


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
