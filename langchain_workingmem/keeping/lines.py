"""The values of a text: from a template or free text to values by path, and back, byte for byte. Pure functions.

A line `- **Key**: value` is the field `/Key`, below a heading `/Heading/Key`; any other line is an item that its own text names.
The first heading of the template names the whole, and stands in no path. Lines of the template are no values.
The layout has an entry for each line: a digest of its path, and how it is written, where that is unusual. It holds no words.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from langchain_workingmem.keeping.paths import WIDEST, digest, join, name_of, names_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from langchain_workingmem._documents.formats import TextFormat

_HEADING = re.compile(r"(#{1,6})[ \t]+(?=\S)")
_BULLET = re.compile(r"(?:[-*+•][ \t]+)?")
_SIGN = "|"  # between the parts of an entry of the layout; nothing that they hold


class _Line(NamedTuple):
    """A line in parts: `lead`, then, of a field only, `before`, its label and `after`; then the value, and `trail`."""

    path: str
    value: str
    lead: str = "- "
    before: str = ""
    after: str = ""  # with the colon; empty: no field
    trail: str = ""

    def text(self, value: str) -> str:
        """Write the line with a value."""
        if not self.after:
            return f"{self.lead}{value}{self.trail}"
        after = self.after.rstrip() if self.value and not value else self.after
        if value and not self.value:  # it was written empty
            after += " "
        return f"{self.lead}{self.before}{names_of(self.path)[-1]}{after}{value}{self.trail}"


class _Template:
    """The lines of a template."""

    def __init__(self, text: str) -> None:
        self.is_read = False  # then labels without marks are fields only where it has them
        self.title: str | None = None
        self.lines: dict[str, _Line] = {}
        self.raw: dict[str, str] = {}
        self.order: list[str] = []  # of the layout
        if text.strip():
            first = next(line.strip() for line in text.split("\n") if line.strip())
            if heading := _HEADING.match(first):
                self.title = first[heading.end() :]
            for raw, line in _parsed(text, self):
                self.order.append(raw if line is None else digest(line.path))
                if line and line.path not in self.lines:
                    self.lines[line.path], self.raw[line.path] = line, raw
        self.is_read = True

    def usual(self, path: str, value: str) -> str:
        """Write a line as it is written when the layout does not say how."""
        if path in self.lines:
            line = self.lines[path]
            return self.raw[path] if line.value == value else line._replace(trail="").text(value)
        name = names_of(path)[-1]
        if not name:
            return f"## {value}"
        return f"- {value}" if name.rstrip() == name_of(value) else f"- **{name}**: {value}".rstrip()

    def stands(self, line: _Line) -> bool:
        """Tell whether a line says no more than the template."""
        return line.path in self.lines and self.lines[line.path].value == line.value


@lru_cache(maxsize=64)
def _template(text: str) -> _Template:
    return _Template(text)


def read(form: TextFormat, text: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the values of a text by path, in its order, and its layout."""
    template = _template(form.template)
    found: dict[str, Any] = {}
    layout: list[str] = []
    for raw, line in _parsed(text, template):
        if line is None:
            layout.append(raw)
            continue
        if not template.stands(line):
            found[line.path] = line.value
        entry = digest(line.path)
        if template.usual(line.path, line.value) != raw:
            entry = _SIGN.join([entry, *line[2:], *([] if line.value else [""])])
        layout.append(entry)
    return found, tuple(layout)


def starts(form: TextFormat, text: str) -> Iterator[tuple[str, int]]:
    """Yield the path of each line that is a value, and where the line begins."""
    template, at = _template(form.template), 0
    for raw, line in _parsed(text, template):
        if line is not None and not template.stands(line):
            yield line.path, at
        at += len(raw) + 1


def _parsed(text: str, template: _Template) -> Iterator[tuple[str, _Line | None]]:
    """Yield each line, and its parts; blank lines that follow each other come as one, without parts."""
    section, levels = "", [(0, "")]  # headings around the line, with their paths
    taken: dict[str, _Line] = {}
    blank: list[str] = []
    for raw in text.split("\n") if text else ():
        stripped = raw.strip()
        if not stripped:
            blank.append(raw)
            continue
        if blank:
            yield "\n".join(blank), None
            blank = []
        lead, trail = raw[: len(raw) - len(raw.lstrip())], raw[len(raw.rstrip()) :]
        if heading := _HEADING.match(stripped):
            name, level = stripped[heading.end() :], len(heading[1])
            if name == template.title:
                levels = [(0, "")]
            else:
                while levels[-1][0] >= level:
                    levels.pop()
                levels.append((level, join(levels[-1][1], name_of(name))))
            section = levels[-1][1]
            yield raw, _Line(f"{section}/", name, lead + heading[0], trail=trail)
            continue
        bullet = _BULLET.match(stripped)
        sign = bullet[0] if bullet else ""
        core = stripped[len(sign) :]
        for line in (*_field(section, core, template), *_items(section, core)):
            known = taken.setdefault(line.path, line)
            if known is line or (known.value == line.value and not line.after):
                yield raw, line._replace(lead=lead + sign, trail=trail)
                break
    if blank:
        yield "\n".join(blank), None


def _field(section: str, core: str, template: _Template) -> Iterator[_Line]:
    """Yield the field that a line may be."""
    if core.startswith("**"):
        label, is_closed, rest = core[2:].partition("**")
        before, after = "**", "**"
        if label.endswith(":"):
            label, after = label[:-1], ":**"
        elif rest.lstrip().startswith(":"):
            colon = rest.index(":") + 1
            after, rest = after + rest[:colon], rest[colon:]
        else:
            return
    else:
        label, is_closed, rest = core.partition(":")
        before, after = "", ":"
        if rest.strip() if not template.is_read else join(section, label) not in template.lines:
            return
    if not is_closed or not label or label != label.strip() or len(label) > WIDEST:
        return
    value = rest.strip()
    if value:
        after += rest[: len(rest) - len(rest.lstrip())]
    yield _Line(join(section, label), value, before=before, after=after)


def _items(section: str, core: str) -> Iterator[_Line]:
    """Yield the items that a line may be; the second where a field has the name."""
    path = join(section, name_of(core))
    yield _Line(path, core)
    yield _Line(f"{path} ", core)


def write(form: TextFormat, values: Mapping[str, Any], layout: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return the text with these values, and their paths in its order.

    What the layout does not know stands where the template has it, else at the end of its section.
    """
    template = _template(form.template)
    if not values and not layout:
        return "", []
    layout = layout or tuple(template.order)
    paths = {digest(path): path for path in (*template.lines, *values)}
    found: list[tuple[str, str | None]] = []  # lines, and the paths of their values
    positions: dict[str, int] = {}
    ends: dict[str, int] = {}  # of sections
    end = 0
    for entry in layout:
        name, *parts = entry.split(_SIGN)
        if not entry.strip():
            found.append((entry, None))
        elif (path := paths.get(name)) is not None:
            value = values[path] if path in values else template.lines[path].value
            written = _line(path, parts).text(value) if parts else template.usual(path, value)
            found.append((written, path if path in values else None))
            end = positions[path] = ends[_section(path)] = len(found)
    others = _others(template, values, positions, ends, end)
    text: list[tuple[str, str | None]] = []
    for at in range(len(found) + 1):
        text += [(template.usual(path, values[path]), path) for path in others.get(at, ())]
        text += found[at : at + 1]
    return "\n".join(line for line, _ in text), [*dict.fromkeys(path for _, path in text if path)]


def _line(path: str, parts: list[str]) -> _Line:
    lead, before, after, trail = parts[:4]
    return _Line(path, "" if len(parts) > 4 else "x", lead, before, after, trail)


def _section(path: str) -> str:
    return path[: path.rindex("/")]


def _others(
    template: _Template, values: Mapping[str, Any], positions: Mapping[str, int], ends: Mapping[str, int], end: int
) -> dict[int, list[str]]:
    """Return the paths that the layout does not know, by the number of lines before them."""
    found: dict[int, list[str]] = defaultdict(list)
    position = 0
    for path in template.lines:
        if path in positions:
            position = positions[path]
        elif path in values:
            found[position].append(path)
    for path in values:
        if path not in positions and path not in template.lines:
            found[ends.get(_section(path), end)].append(path)
    return found
