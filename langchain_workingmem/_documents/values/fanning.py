"""How often a validator applies a schema to a document: it remembers nothing, so references that fan out make it exponential.

`a0 = {allOf: [a1, a1]}`, `a1 = {allOf: [a2, a2]}` and so on cost twice as much with each name, and a union of kinds that hold the same
union twice as much with each level of the document.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from langchain_workingmem._documents.padding import UNIONS, fits, pointed
from langchain_workingmem.errors import OptionError, Remedy, WorkingMemoryValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_PARTS = 10_000  # that references may add to a schema: twice the fields that OpenAI accepts in all
MOST_CHECKS = 100_000  # of one document: two seconds of `jsonschema`, half of one of Pydantic
_ANY: Any = object()  # a value with every field, and an item in every list
_HERE = (*UNIONS, "if", "then", "else", "not", "dependentSchemas", "dependencies")
_IN_OBJECTS = ("additionalProperties", "unevaluatedProperties", "patternProperties")
_IN_LISTS = ("items", "prefixItems", "contains", "unevaluatedItems")


class Fanning:
    """Bounds the work of a validator; `tagged`: it reads the discriminator of a union. `OptionError` for a schema without a bound."""

    def __init__(self, schema: dict[str, Any], *, tagged: bool) -> None:
        self._root, self._tagged = schema, tagged
        known: dict[Any, float] = {}
        try:
            self._grows = self._count(_ANY, schema, {}) > MOST_PARTS
            if not self._grows or all(self._count(None, part, known) <= MOST_PARTS for part in _dicts(schema)):
                return
        except RecursionError:
            pass
        raise OptionError(
            f"the $refs of the schema lead to more than {MOST_PARTS:,} checks of one value, or too many levels",
            remedy="name each alternative once, in one anyOf, and use fewer definitions that refer to each other",
        )

    def check(self, document: dict[str, Any]) -> None:
        """Raise `WorkingMemoryValidationError` for a document that would take too long."""
        if self._grows and self._count(document, self._root, {}) > MOST_CHECKS:
            seen = "the schema has unions inside unions, too many for the levels of the update, so nothing was changed"
            levels = "send fewer levels{or_discriminator}" if self._tagged else "send fewer levels"
            raise WorkingMemoryValidationError(seen, remedy=Remedy(levels))

    def _count(self, value: Any, schema: Any, known: dict[Any, float]) -> float:
        """Count the parts of a schema that are applied to a value, infinite where one leads to itself."""
        key = id(schema), id(value)
        if key not in known:
            known[key] = inf
            parts = self._applied(value, schema) if isinstance(schema, dict) else ()
            known[key] = 1 + sum(self._count(*pair, known) for pair in parts)
        return known[key]

    def _applied(self, value: Any, schema: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
        """Yield values and the parts of a schema that are applied to them next."""
        if isinstance(pointer := schema.get("$ref"), str):
            yield value, pointed(pointer, self._root)
        is_told = self._tagged and isinstance(value, dict) and "discriminator" in schema
        for part in _parts(schema, _HERE):
            if not is_told or fits(value, pointed(part["$ref"], self._root) if "$ref" in part else part):
                yield value, part
        if value is _ANY or isinstance(value, dict):
            named, inside = schema.get("properties"), _parts(schema, _IN_OBJECTS)
            fields = named if isinstance(named, dict) else {}
            for name, item in (dict.fromkeys([*fields, ""], _ANY) if value is _ANY else value).items():
                yield from ((item, part) for part in ([fields[name], *inside] if name in fields else inside))
        if value is _ANY or isinstance(value, list):
            inside = _parts(schema, _IN_LISTS)
            yield from ((item, part) for item in ([_ANY] if value is _ANY else value) for part in inside)


def _parts(schema: dict[str, Any], names: tuple[str, ...]) -> list[Any]:
    maps = ("patternProperties", "dependentSchemas", "dependencies")
    found = (
        [*one.values()] if name in maps and isinstance(one, dict) else one
        for name, one in schema.items()
        if name in names
    )
    return [part for one in found for part in (one if isinstance(one, list) else [one])]


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _dicts(one)
