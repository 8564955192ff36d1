"""Extends griffe: comments of fields become their descriptions, and each method names its async twin in one line."""

from __future__ import annotations

import re
from typing import Any

import griffe

_COMMENT = re.compile(r"#\s*(?!noqa|type:)(.+)$")
_DESCRIPTION = re.compile(r'description="([^"]+)"')  # of a pydantic Field


class Reference(griffe.Extension):
    """Lists the fields of a class in its docstring, and lists async twins under their sync methods."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Change a class after the whole package is loaded."""
        own = {name: member for name, member in cls.members.items() if isinstance(member, griffe.Object)}
        for name, member in own.items():
            for twin in (f"a{name}", f"aget_{name}"):
                if isinstance(own.get(twin), griffe.Function) or f"twin({name})" in str(
                    getattr(own.get(twin), "value", "")
                ):
                    _add(member, f"Async twin: `{twin}`.")
                    del cls.members[twin]
            if isinstance(member, griffe.Function) and str(member.returns).startswith("Plan["):
                member.returns = member.returns.slice  # of an `operation`, which runs the plan
        if fields := [line for member in own.values() if (line := _field(cls, member))]:
            _add(cls, "Attributes:\n" + "\n".join(fields))


def _add(member: griffe.Object, text: str) -> None:
    before = member.docstring.value + "\n\n" if member.docstring else ""
    member.docstring = griffe.Docstring(before + text, parent=member)


def _field(cls: griffe.Class, member: griffe.Object) -> str | None:
    """Return the line of an attribute for the docstring of its class; None if it is not a field."""
    if not isinstance(member, griffe.Attribute) or member.docstring or member.name.startswith("_"):
        return None
    annotation = member.annotation
    if annotation is None and str(member.value) == member.name:  # self.fields = fields
        annotation = next((one.annotation for one in cls.parameters if one.name == member.name), None)
    return f"    {member.name} ({annotation}): {_comment(member)}" if annotation else None


def _comment(field: griffe.Attribute) -> str:
    """Return the comment at the end of a field's line, or the comment lines above it."""
    lines = field.source.splitlines()
    if beside := _COMMENT.search(lines[-1]) or _DESCRIPTION.search(" ".join(lines)):
        return beside.group(1)
    before = field.module.source.splitlines()[: (field.lineno or 1) - 1]
    above = re.search(r"(?:\n *# .*)+$", "\n".join(["", *before]))
    return " ".join(above.group().replace("#", " ").split()) if above else ""
