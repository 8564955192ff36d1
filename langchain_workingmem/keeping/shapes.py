"""What a JSON schema says about the values of a document: their names, and those of the items of lists. Pure functions.

An object is addressed by its keys, an item of a list by the field that the schema marks with `json_schema_extra={"key": True}`, else
by its value. A list of which the schema says nothing, one that repeats an item, and an empty one are one value.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from langchain_workingmem.keeping.paths import name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from langchain_workingmem._documents.formats import JsonFormat

UNIONS = ("anyOf", "oneOf", "allOf")
_OF_OBJECTS = ("properties", "patternProperties", "additionalProperties")


@lru_cache(maxsize=64)
def shape_of(form: JsonFormat) -> Shape:
    """Return the shape of whole documents."""
    return Shape([form.schema.json_schema], form.schema.json_schema)


class Shape:
    """What a schema says about one value: which names lead further down."""

    def __init__(self, schemas: list[Any], root: dict[str, Any], *, is_whole: bool = False) -> None:
        self.is_whole = is_whole  # it is an item that its value names, so nothing inside has a path
        self._root = root
        self._parts = list(_every_part(schemas, root, set()))
        self._known: dict[str, Shape] = {}

    @cached_property
    def order(self) -> dict[str, int]:
        """Return the position of each field that the schema names."""
        names = (name for part in self._parts for name in part.get("properties", ()))
        return {name: at for at, name in enumerate(dict.fromkeys(names))}

    @cached_property
    def key(self) -> str | None:
        """Return the field that names the items of a list, None where the schema marks none."""
        return self.item.marked

    @cached_property
    def marked(self) -> str | None:
        """Return the field that names such an object in a list."""
        fields = (pair for part in self._parts for pair in part.get("properties", {}).items())
        return next((name for name, field in fields if isinstance(field, dict) and field.get("key") is True), None)

    @cached_property
    def kind(self) -> Literal["keyed", "valued", "other"]:
        """Return how the items of a list are addressed; "other": there is no list, or its items have no names."""
        if any(part.get("type") == "object" or not part.keys().isdisjoint(_OF_OBJECTS) for part in self._parts):
            return "other"  # a path could mean a key or an item
        if self.key is not None:
            return "keyed"
        return "valued" if self.is_list else "other"

    @cached_property
    def item(self) -> Shape:
        """Return the shape of an item of a list."""
        schemas = [part["items"] for part in self._parts if "items" in part]
        keyed = Shape(schemas, self._root)
        return keyed if keyed.marked else Shape(schemas, self._root, is_whole=True)

    @cached_property
    def _further(self) -> Shape:
        return Shape([part[name] for part in self._parts for name in _OF_OBJECTS[2:] if name in part], self._root)

    def has(self, name: str) -> bool:
        """Tell whether the schema knows what has this name in an object or a list; an open object has all names."""
        if self.kind != "other":
            return True
        if name in self.order or not self._parts:
            return True
        patterns = (pattern for part in self._parts for pattern in part.get("patternProperties", ()))
        return any(map(_is_open, self._parts)) or any(re.search(pattern, name) for pattern in patterns)

    @cached_property
    def is_list(self) -> bool:
        """Tell whether the value may be a list."""
        return any("array" in _kinds(part) or "items" in part for part in self._parts)

    def may_be(self, *kinds: str) -> bool:
        """Tell whether the value may be of one of these types."""
        known = {one for part in self._parts for one in _kinds(part)}
        return not known or not known.isdisjoint((*kinds, "any"))

    def field(self, name: str) -> Shape:
        """Return the shape of what has this name in an object or a list."""
        if self.kind != "other":
            return self.item
        if name not in self.order:
            return self._further
        if name not in self._known:
            named = [part["properties"][name] for part in self._parts if name in part.get("properties", ())]
            self._known[name] = Shape(named, self._root)
        return self._known[name]


def _kinds(part: dict[str, Any]) -> Iterable[str]:
    """Return the types that a part of a schema allows; "any" where it says nothing of its own."""
    if "type" in part:
        return [part["type"]] if isinstance(part["type"], str) else part["type"]
    if "enum" in part or "const" in part:
        values = part.get("enum", [part.get("const")])
        return ["any" if isinstance(value, dict | list) else "string" for value in values]
    return () if any(name in part for name in ("$ref", "anyOf", "oneOf", "allOf")) else ["any"]


def _is_open(part: dict[str, Any]) -> bool:
    """Tell whether an object may have further names."""
    if "additionalProperties" in part:
        return part["additionalProperties"] is not False
    says_nothing = part.keys().isdisjoint(("properties", "patternProperties"))
    return (says_nothing and "object" in _kinds(part)) or [*_kinds(part)] == ["any"]


def named_items(value: Any, shape: Shape) -> Mapping[str, Any]:
    """Return what a value holds by name; nothing where its parts have no names of their own."""
    if shape.is_whole:
        return {}
    if isinstance(value, dict):
        return value if shape.kind == "other" else {}
    if not isinstance(value, list) or shape.kind == "other":
        return {}
    if shape.kind == "keyed":
        if not all(isinstance(item, dict) and _is_scalar(item.get(shape.key, ())) for item in value):
            return {}
        found = {name_of(item[shape.key]): item for item in value}
    else:
        found = {name_of(item): item for item in value}
    return found if len(found) == len(value) else {}


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _every_part(schemas: list[Any], root: dict[str, Any], seen: set[int]) -> Iterator[dict[str, Any]]:
    """Yield schemas and those that they combine or refer to, each once: repeated references would double all below."""
    for schema in schemas:
        if not isinstance(schema, dict) or id(schema) in seen:
            continue
        seen.add(id(schema))
        if pointer := schema.get("$ref"):
            yield from _every_part([_pointed(pointer, root)], root, seen)
        for key in UNIONS:
            found = schema.get(key, [])
            yield from _every_part(found if isinstance(found, list) else [found], root, seen)
        yield schema


def _pointed(pointer: str, root: dict[str, Any]) -> Any:
    """Return the target of a reference, None when there is none."""
    target: Any = root
    for part in filter(None, unquote(pointer).removeprefix("#").split("/")):
        target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
    return target
