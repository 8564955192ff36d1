"""Removes from an update what says nothing: values with which a model fills a form, and fields of another kind of object.

A model sends null and empty values for fields that it has nothing to say about; the schema tells them from a null that is
a value. A merge leaves fields of one kind of a union in an object that has become another kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

UNIONS = ("anyOf", "oneOf", "allOf")


def without_padding(patch: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Remove null, empty texts, arrays and objects from a patch; inside arrays, only null that the schema does not allow.

    An array is replaced as a whole, so null inside one may be a value. It stays where the schema says nothing, or allows
    it and has no default of null.
    """
    lean: dict[str, Any] = _lean(patch, [schema], schema)
    return lean


# Below, `schemas` are those that may apply to a value (empty: nothing is known), and `root` is the schema of the document.


def _lean(value: Any, schemas: list[Any], root: dict[str, Any], *, in_array: bool = False) -> Any:
    if isinstance(value, list):
        inner = _of_items(schemas, root)
        items = (item for item in value if item is not None or _may_be_null(inner, root))
        return [_lean(item, inner, root, in_array=True) for item in items]
    if not isinstance(value, dict):
        return value
    lean = {}
    for key, item in value.items():
        inner = _of_field(value, key, schemas, root)
        if item is not None or (in_array and _may_be_null(inner, root)):
            lean[key] = _lean(item, inner, root, in_array=in_array)
    return lean if in_array else {key: item for key, item in lean.items() if item not in ("", [], {})}


def without_strays(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Remove fields that only another kind of an object has, where the constants in the object tell its kind."""
    own: dict[str, Any] = _own(document, [schema], schema)
    return own


def _own(value: Any, schemas: list[Any], root: dict[str, Any]) -> Any:
    if isinstance(value, list):
        inner = _of_items(schemas, root)
        return [_own(item, inner, root) for item in value]
    if not isinstance(value, dict):
        return value
    kinds = [part for part in _parts(schemas, root) if part.get("type") == "object"]
    fitting = [part for part in kinds if fits(value, part)]
    strays: set[str] = set()
    if len(fitting) == 1 and not fitting[0].get("additionalProperties"):
        strays = {name for part in kinds for name in part.get("properties", {})} - {*fitting[0].get("properties", {})}
    return {
        key: _own(item, _of_field(value, key, schemas, root), root) for key, item in value.items() if key not in strays
    }


def ignored_fields(patch: Mapping[str, Any], stored: Any, schema: dict[str, Any]) -> list[str]:
    """Return the fields of a patch, with dots for nested ones, that the schema does not have and that were not stored."""
    return list(dict.fromkeys(_ignored(patch, stored, [schema], schema, "")))


def _ignored(value: Any, stored: Any, schemas: list[Any], root: dict[str, Any], path: str) -> Iterator[str]:
    if isinstance(value, list):
        every = [one for one in stored if isinstance(one, dict)] if isinstance(stored, list) else []
        together = {key: item for one in every for key, item in one.items()}
        for item in value:
            yield from _ignored(item, together, _of_items(schemas, root), root, path)
    elif isinstance(value, dict) and any("properties" in part for part in _parts(schemas, root)):
        kept = stored if isinstance(stored, dict) else {}
        for key, item in value.items():
            inner = _of_field(value, key, schemas, root)
            if inner:
                yield from _ignored(item, kept.get(key), inner, root, f"{path}{key}.")
            elif key not in kept:
                yield f"{path}{key}"


def _of_items(schemas: list[Any], root: dict[str, Any]) -> list[Any]:
    return [part["items"] for part in _parts(schemas, root) if "items" in part]


def _of_field(value: dict[str, Any], key: str, schemas: list[Any], root: dict[str, Any]) -> list[Any]:
    """Find the schemas of a field, in those kinds of its object that fit the constants in it."""
    parts = [part for part in _parts(schemas, root) if fits(value, part)]
    named = [part["properties"][key] for part in parts if key in part.get("properties", {})]
    return named or [part["additionalProperties"] for part in parts if "additionalProperties" in part]


def fits(value: dict[str, Any], part: dict[str, Any]) -> bool:
    """Tell whether the constants in an object are those of a schema."""
    for name, field in part.get("properties", {}).items():
        known = field.get("enum", [field["const"]] if "const" in field else None) if isinstance(field, dict) else None
        if known is not None and value.get(name) is not None and value[name] not in known:
            return False
    return True


def _parts(schemas: list[Any], root: dict[str, Any]) -> list[dict[str, Any]]:
    return list(every_part(schemas, root, set()))


def every_part(
    schemas: list[Any], root: dict[str, Any], seen: set[int], unions: Sequence[str] = UNIONS
) -> Iterator[dict[str, Any]]:
    """Yield schemas and those that they combine or refer to, each once: repeated references would double all below."""
    for schema in schemas:
        if not isinstance(schema, dict) or id(schema) in seen:
            continue
        seen.add(id(schema))
        if pointer := schema.get("$ref"):
            yield from every_part([pointed(pointer, root)], root, seen, unions)
        for key in unions:
            found = schema.get(key, [])
            yield from every_part(found if isinstance(found, list) else [found], root, seen, unions)
        yield schema


def _may_be_null(schemas: list[Any], root: dict[str, Any]) -> bool:
    possible = [one for one in schemas if not (isinstance(one, dict) and one.get("default", "") is None)]
    known: dict[int, bool] = {}
    return not schemas or any(_takes_null(one, root, known) for one in possible)


def _takes_null(schema: Any, root: dict[str, Any], known: dict[int, bool]) -> bool:
    """Tell whether a schema allows null. `known` holds the answers so far; a schema inside itself adds nothing."""
    if not isinstance(schema, dict):
        return schema is not False
    if id(schema) not in known:
        known[id(schema)] = True
        pointer = schema.get("$ref")
        known[id(schema)] = (
            (not pointer or _takes_null(pointed(pointer, root), root, known))
            and "null" in schema.get("type", "null")  # a str or a list of them
            and None in schema.get("enum", [None])
            and schema.get("const") is None
            and all(
                quantor(_takes_null(part, root, known) for part in schema[key])
                for key, quantor in (("allOf", all), ("anyOf", any), ("oneOf", any))
                if key in schema
            )
        )
    return known[id(schema)]


def pointed(pointer: str, root: dict[str, Any]) -> Any:
    """Return the target of a reference, None when there is none."""
    target: Any = root
    for part in filter(None, unquote(pointer).removeprefix("#").split("/")):
        target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
    return target
