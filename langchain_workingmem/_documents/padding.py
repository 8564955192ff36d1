"""Removes from an update what says nothing: values with which a model fills a form, and fields of another kind of object.

A model sends null and empty values for fields that it has nothing to say about; the schema tells them from a null that is
a value. A merge leaves fields of one kind of a union in an object that has become another kind.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMED = {"properties", "patternProperties", "$defs", "definitions"}  # map freely chosen names to schemas
VALUES = {"enum", "const", "examples", "default"}  # hold no schemas
MOST_PARTS = 10_000  # that references may add to a schema: twice the fields that OpenAI accepts in all


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
    fitting = [part for part in kinds if _fits(value, part)]
    strays: set[str] = set()
    if len(fitting) == 1 and not fitting[0].get("additionalProperties"):
        strays = {name for part in kinds for name in part.get("properties", {})} - {*fitting[0].get("properties", {})}
    return {
        key: _own(item, _of_field(value, key, schemas, root), root) for key, item in value.items() if key not in strays
    }


def _of_items(schemas: list[Any], root: dict[str, Any]) -> list[Any]:
    return [part["items"] for part in _parts(schemas, root) if "items" in part]


def _of_field(value: dict[str, Any], key: str, schemas: list[Any], root: dict[str, Any]) -> list[Any]:
    """Find the schemas of a field, in those kinds of its object that fit the constants in it."""
    parts = [part for part in _parts(schemas, root) if _fits(value, part)]
    named = [part["properties"][key] for part in parts if key in part.get("properties", {})]
    return named or [part["additionalProperties"] for part in parts if "additionalProperties" in part]


def _fits(value: dict[str, Any], part: dict[str, Any]) -> bool:
    for name, field in part.get("properties", {}).items():
        known = field.get("enum", [field["const"]] if "const" in field else None) if isinstance(field, dict) else None
        if known is not None and value.get(name) is not None and value[name] not in known:
            return False
    return True


def _parts(schemas: list[Any], root: dict[str, Any]) -> list[dict[str, Any]]:
    """List schemas and those that they combine or refer to, each once: repeated references would double all below them."""
    return list(_every_part(schemas, root, set()))


def _every_part(schemas: list[Any], root: dict[str, Any], seen: set[int]) -> Iterator[dict[str, Any]]:
    for schema in schemas:
        if not isinstance(schema, dict) or id(schema) in seen:
            continue
        seen.add(id(schema))
        if pointer := schema.get("$ref"):
            yield from _every_part([pointed(pointer, root)], root, seen)
        for key in ("anyOf", "oneOf", "allOf"):
            yield from _every_part(schema.get(key, []), root, seen)
        yield schema


def _may_be_null(schemas: list[Any], root: dict[str, Any]) -> bool:
    known: dict[int, bool] = {}
    return not schemas or any(
        _takes_null(one, root, known) and not (isinstance(one, dict) and one.get("default", "") is None)
        for one in schemas
    )


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
            and all(_takes_null(part, root, known) for part in schema.get("allOf", ()))
            and all(
                any(_takes_null(one, root, known) for one in schema[key]) for key in ("anyOf", "oneOf") if key in schema
            )
        )
    return known[id(schema)]


def pointed(pointer: str, root: dict[str, Any]) -> Any:
    """Return the target of a reference, None when there is none."""
    target: Any = root
    for part in pointer.removeprefix("#").strip("/").split("/"):
        target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
    return target


def inlined(schema: dict[str, Any]) -> Any:
    """Replace references by their targets; a schema inside itself ends as any object.

    Each reference copies its target, so references that fan out grow exponentially: `OptionError` above `MOST_PARTS`.
    `dereference_refs` of langchain_core has no such limit, and takes a field or an example named "$ref" for a reference.
    """
    try:
        return _inlined(schema, schema, (), count(1))
    except RecursionError:
        raise _too_large() from None


def _inlined(schema: Any, root: dict[str, Any], inside: tuple[str, ...], parts: Iterator[int]) -> Any:
    if isinstance(schema, list):
        return [_inlined(part, root, inside, parts) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if inside and next(parts) > MOST_PARTS:
        raise _too_large()
    rest: dict[str, Any] = {}
    for key, value in schema.items():
        if key in NAMED - {"$defs", "definitions"} and isinstance(value, dict):
            rest[key] = {name: _inlined(part, root, inside, parts) for name, part in value.items()}
        elif key not in {"$ref", "$defs", "definitions"}:
            rest[key] = value if key in VALUES else _inlined(value, root, inside, parts)
    pointer = schema.get("$ref")
    if not isinstance(pointer, str):
        return rest
    target = pointed(pointer, root)
    if pointer in inside or not isinstance(target, dict):
        return {"type": "object", **rest}
    return {**_inlined(target, root, (*inside, pointer), parts), **rest}


def _too_large() -> OptionError:
    return OptionError(
        f"the $refs of the schema lead to more than {MOST_PARTS:,} parts, or too many levels, to show a model",
        remedy="use fewer definitions that refer to each other, or leave updates to your program with "
        "WorkingMemoryOptions(tools=['get'])",
    )
