"""What a process without the schema of a document knows of it: its fields, and where it has lists. Pure functions.

Otherwise the command line would write the items of a list as fields of an object, and take their sources from them.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeGuard

from langchain_workingmem._documents.formats import JsonFormat
from langchain_workingmem._documents.padding import UNIONS
from langchain_workingmem._documents.schemas import schema_of

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
