"""What a process without the schema of a document knows of it: its fields, and where it has lists. Pure functions.

Otherwise the command line would write the items of a list as fields of an object, and take their sources from them.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeGuard

from langchain_workingmem._documents.formats import JsonFormat, TextFormat
from langchain_workingmem._documents.merging import parse_json
from langchain_workingmem._documents.schemas import schema_of
from langchain_workingmem.keeping.shapes import UNIONS

if TYPE_CHECKING:
    from langchain_workingmem._documents.formats import Format, Mode

_NAMED = ("properties", "patternProperties", "$defs", "definitions")


def outline(schema: Any) -> dict[str, Any]:
    """Return of a JSON schema the fields, the lists and the names of their items; it allows what the schema allows."""
    found: dict[str, Any] = {}
    unions: list[dict[str, Any]] = []
    for name, part in schema.items() if isinstance(schema, dict) else ():
        if name in _NAMED and isinstance(part, dict):
            found[name] = {one: outline(below) for one, below in part.items()}
        elif name in ("items", "additionalProperties"):
            found[name] = outline(part)
        elif name == "allOf" and isinstance(part, list):
            found[name] = [*map(outline, part)]
        elif name in UNIONS and isinstance(part, list):  # of one kind: two outlines may allow the same
            unions += map(outline, part)
        elif (
            name == "$ref"
            or (name == "key" and part is True)
            or (name == "type" and not {"object", "array"}.isdisjoint([part] if isinstance(part, str) else part))
        ):
            found[name] = part
    return found | ({"anyOf": unions} if any(unions) else {})


@lru_cache(maxsize=64)
def written(form: JsonFormat) -> str:
    """Return the outline of a format, as it is stored; nothing if it names no field."""
    found = outline(form.schema.json_schema)
    return "" if found == {"type": "object"} else json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def has_fields(form: Format) -> TypeGuard[JsonFormat]:
    """Tell whether a format is one along a schema that names fields."""
    return isinstance(form, JsonFormat) and bool(written(form))


@lru_cache(maxsize=64)
def outlined(text: str, mode: Mode | None = None) -> JsonFormat:
    """Return the format of an outline as it is stored, or was imported; `ValueError`, `OptionError`."""
    found = outline(json.loads(text)) if text else {"type": "object"}
    return JsonFormat(schema_of(found), mode)


def form_of(form: Format) -> str:
    """Describe a format for processes that have another one."""
    return f"json\n{written(form)}".rstrip("\n") if isinstance(form, JsonFormat) else f"text\n{form.template}"


def form_of_text(form: Format, text: str) -> Format:
    """Return the format of the process, or a plain one of the kind that a document has which nobody kept in it."""
    if not text.strip():
        return form
    is_object = isinstance(parse_json(text), dict) and not (isinstance(form, TextFormat) and not form.template.strip())
    if is_object == isinstance(form, JsonFormat):
        return form
    return outlined("") if is_object else TextFormat("")


def same_kind(form: Format, stored: str) -> Format:
    """Return the format of the process, or a plain one of the kind in which the values are kept.

    Free text takes over the template, and a schema without fields the outline: a process that has none, such as the command line,
    must not lose its lines, or the lists and their sources.
    """
    kind, _, template = stored.partition("\n")
    if kind == "json":
        if has_fields(form):
            return form
        return outlined(template, form.default_mode if isinstance(form, JsonFormat) else None)
    if isinstance(form, JsonFormat):
        return TextFormat(template)
    return form if form.template.strip() else TextFormat(template, form.default_mode)
