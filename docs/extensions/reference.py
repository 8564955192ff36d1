"""What griffe does not read: comments beside fields become their descriptions, async twins a line under their methods."""

from __future__ import annotations

import re
from typing import Any

import griffe

_COMMENT = re.compile(r"#\s*(?!noqa|type:)(.+)$")
_DESCRIPTION = re.compile(r'description="([^"]+)"')  # of a pydantic Field


class Reference(griffe.Extension):
    """Lists the fields of a class in its docstring, and folds async twins into their sync methods."""

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Work on a class when all of the package is loaded."""
        for name, member in list(cls.members.items()):
            for twin in (cls.members.get(f"a{name}"), cls.members.get(f"aget_{name}")):
                if isinstance(twin, griffe.Function) and not member.is_alias:
                    _add(member, f"Async twin: `{twin.name}`.")
                    del cls.members[twin.name]
        fields = [line for member in cls.members.values() if (line := _field(cls, member))]
        if fields:
            _add(cls, "Attributes:\n" + "\n".join(fields))


def _add(member: griffe.Object | griffe.Alias, text: str) -> None:
    told = member.docstring.value + "\n\n" if member.docstring else ""
    member.docstring = griffe.Docstring(told + text, parent=member)


def _field(cls: griffe.Class, member: griffe.Object | griffe.Alias) -> str | None:
    """Return the line of an attribute in the docstring of its class; None for what is no field."""
    if not isinstance(member, griffe.Attribute) or member.docstring or member.name.startswith("_"):
        return None
    annotation = member.annotation
    if annotation is None and str(member.value) == member.name:  # self.fields = fields
        annotation = next((one.annotation for one in cls.parameters if one.name == member.name), None)
    return f"    {member.name} ({annotation}): {_comment(member)}" if annotation else None


def _comment(field: griffe.Attribute) -> str:
    """Return what stands beside a field, or above it."""
    lines = field.lines_collection[field.filepath]
    first, last = (field.lineno or 1) - 1, (field.endlineno or 1) - 1
    if beside := _COMMENT.search(lines[last]) or _DESCRIPTION.search(" ".join(lines[first : last + 1])):
        return beside.group(1)
    above = re.search(r"(?:\n *# .*)+$", "\n".join(["", *lines[:first]]))
    return " ".join(above.group().replace("#", " ").split()) if above else ""
