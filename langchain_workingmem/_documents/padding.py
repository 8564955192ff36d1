"""Which parts of a JSON schema speak about a place in a document, and what they say is to be taken out there.

A model fills a form with null and emptiness when it has nothing to say, and that is to be told from null that is a value;
and a merge leaves fields of one kind of a union in an object that has become another.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMED = {"properties", "patternProperties", "$defs", "definitions"}  # hold schemas by names that anybody may choose
VALUES = {"enum", "const", "examples", "default"}  # hold no schemas
MOST_PARTS = 10_000  # that references may add to a schema: twice the fields that OpenAI takes in all


def without_padding(patch: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Take out null, empty texts, arrays and objects wherever a merge reaches; in arrays, null that has no place there.

    An array is replaced as a whole, so inside one null may be a value: it stays where the JSON schema allows it, unless
    that is what a missing field means anyway, and where the schema says nothing.
    """
    found: dict[str, Any] = _merged(patch, [schema], schema)
    return found


def _merged(value: Any, places: list[Any], root: dict[str, Any]) -> Any:
    if not isinstance(value, dict):
        return _replaced(value, places, root)
    lean = {key: _merged(item, _fields(value, key, places, root), root) for key, item in value.items()}
    return {key: item for key, item in lean.items() if item not in (None, "", [], {})}


def _replaced(value: Any, places: list[Any], root: dict[str, Any]) -> Any:
    """`places` are the schemas that may apply to a value; none: nothing is known."""
    if isinstance(value, list):
        items = [part["items"] for part in _parts(places, root) if "items" in part]
        return [_replaced(item, items, root) for item in value if item is not None or _may_be_null(items, root)]
    if isinstance(value, dict):
        fields = {key: _fields(value, key, places, root) for key in value}
        return {
            key: _replaced(item, fields[key], root)
            for key, item in value.items()
            if item is not None or _may_be_null(fields[key], root)
        }
    return value


def without_strays(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Take out of objects what only another kind of them has, where their constants tell which kind they are."""
    found: dict[str, Any] = _own(document, [schema], schema)
    return found


def _own(value: Any, places: list[Any], root: dict[str, Any]) -> Any:
    if isinstance(value, list):
        items = [part["items"] for part in _parts(places, root) if "items" in part]
        return [_own(item, items, root) for item in value]
    if not isinstance(value, dict):
        return value
    kinds = [part for part in _parts(places, root) if part.get("type") == "object"]
    meant = [part for part in kinds if _fits(value, part)]
    strays: set[str] = set()
    if len(meant) == 1 and not meant[0].get("additionalProperties"):
        strays = {name for part in kinds for name in part.get("properties", {})} - {*meant[0].get("properties", {})}
    return {
        key: _own(item, _fields(value, key, places, root), root) for key, item in value.items() if key not in strays
    }


def _fields(value: dict[str, Any], key: str, places: list[Any], root: dict[str, Any]) -> list[Any]:
    """Find the schemas of a field, of several kinds of an object in those that the constants in the value speak for."""
    parts = [part for part in _parts(places, root) if _fits(value, part)]
    named = [part["properties"][key] for part in parts if key in part.get("properties", {})]
    return named or [part["additionalProperties"] for part in parts if "additionalProperties" in part]


def _fits(value: dict[str, Any], part: dict[str, Any]) -> bool:
    for name, field in part.get("properties", {}).items():
        known = field.get("enum", [field["const"]] if "const" in field else None) if isinstance(field, dict) else None
        if known is not None and value.get(name) is not None and value[name] not in known:
            return False
    return True


def _parts(schemas: list[Any], root: dict[str, Any]) -> list[dict[str, Any]]:
    """Take schemas apart; each part once, since several references may lead to it, and each doubles what lies below."""
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
    return not schemas or any(_takes_null(one, root, known) and not _is_null_by_default(one) for one in schemas)


def _is_null_by_default(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("default", "") is None


def _takes_null(schema: Any, root: dict[str, Any], known: dict[int, bool]) -> bool:
    """Tell whether a schema allows null. `known` holds the answers so far; a schema inside itself adds nothing."""
    if not isinstance(schema, dict):
        return schema is not False
    if id(schema) in known:
        return known[id(schema)]
    known[id(schema)] = True
    pointer = schema.get("$ref")
    known[id(schema)] = (
        (not pointer or _takes_null(pointed(pointer, root), root, known))
        and "null" in schema.get("type", "null")  # a str or a list of them
        and None in schema.get("enum", [None])
        and schema.get("const") is None
        and all(_takes_null(part, root, known) for part in schema.get("allOf", ()))
        and all(
            any(_takes_null(part, root, known) for part in schema[key]) for key in ("anyOf", "oneOf") if key in schema
        )
    )
    return known[id(schema)]


def pointed(pointer: str, root: dict[str, Any]) -> Any:
    """Return what a reference points to, None for one that leads nowhere."""
    target: Any = root
    for part in pointer.removeprefix("#").strip("/").split("/"):
        target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
    return target


# ---------------------------------------------------------------------- references


def inlined(schema: dict[str, Any]) -> Any:
    """Put what references point to in their place; a schema inside itself ends as any object.

    Each reference to a schema copies it, so references that fan out grow exponentially: `OptionError` above `MOST_PARTS`.
    `dereference_refs` of langchain_core has no bound, and does not tell a field named "$ref", or an example, from a reference.
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
