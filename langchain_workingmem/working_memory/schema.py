"""Schemas of working memory: they validate a document, and make the user's type of it.

A schema is a Pydantic model, a TypedDict, a dataclass or a JSON schema. The JSON that was sent is stored; Pydantic, or the package
`jsonschema`, validates it before.
"""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import AliasPath, BaseModel, PydanticUserError, RootModel, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python
from typing_extensions import is_typeddict

from langchain_workingmem._text.values import check_depth, problems_in
from langchain_workingmem.errors import OptionError, WorkingMemoryValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_TYPED_DICT = "use TypedDict of typing_extensions below Python 3.12: from typing_extensions import TypedDict"
_NAMED = {"properties", "patternProperties", "$defs", "definitions"}  # map freely chosen names to schemas
_VALUES = {"enum", "const", "examples"}  # hold no schemas
_LEFT_OUT = {"required", "default", "title", "discriminator"}
_SAY_FIELDS = {"$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "if", "patternProperties"}


@dataclasses.dataclass(frozen=True)
class Schema:
    """A user's schema."""

    json_schema: dict[str, Any]
    validate: Callable[[dict[str, Any]], object]  # raises `WorkingMemoryValidationError`, which names the fields
    value: Callable[[dict[str, Any]], Any]  # the document as the user's type
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of fields -> by which they are stored
    is_open: bool = True  # it does not ignore fields that it does not know

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields of a document; empty where they are not known."""
        found: dict[str, Any] = self.json_schema.get("properties", {})
        return found

    def patch(self, patch: dict[str, Any]) -> dict[str, Any]:
        """Return a patch under the names by which the schema reads its fields, without fields that it ignores."""
        named = {self.names.get(key, key): value for key, value in patch.items()}
        return {key: value for key, value in named.items() if self.is_open or key in self.fields}


def schema_of(schema: Any) -> Schema:
    """Wrap a user's schema, or raise `OptionError`."""
    if isinstance(schema, dict):
        found, named = _of_json(schema), "schema"
    elif is_typeddict(schema) or (isinstance(schema, type) and _has_fields(schema)):
        found, named = _of_type(schema), f"schema={schema!r}"
    else:
        raise OptionError(
            f"schema={schema!r}", remedy="use a Pydantic model, a TypedDict, a dataclass or a JSON schema (dict)"
        )
    whole = found.json_schema
    is_open = whole.get("additionalProperties", "type" in whole and "properties" not in whole)
    if (kind := whole.get("type", "object")) != "object":
        seen = f"has the type {kind!r}: working memory is an object"
    elif found.fields or is_open or _SAY_FIELDS & whole.keys():
        update_schema(whole)  # a reference that leads nowhere shows here
        return found
    else:
        seen = "describes no object: it names no fields"
    raise OptionError(
        f"{named} {seen}",
        remedy="pass a Pydantic model with fields, or {'type': 'object', 'properties': {'name': {'type': 'string'}}}. "
        "For any fields pass {'type': 'object'}, for free text template=''",
    )


def _has_fields(kind: type[Any]) -> bool:
    return issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind)


def _of_type(schema: Any) -> Schema:
    """Wrap a Pydantic model, a TypedDict or a dataclass."""
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(schema)
        json_schema = adapter.json_schema(by_alias=_by_alias(schema))
    except PydanticUserError as error:
        reason, remedy = f" ({error.message})", "use types that Pydantic knows"
        if error.code == "typed-dict-version":
            reason, remedy = "", _TYPED_DICT
        raise OptionError(f"Pydantic cannot validate schema={schema!r}{reason}", remedy=remedy) from error

    def value(document: dict[str, Any]) -> Any:
        try:
            return adapter.validate_json(
                dump(document)
            )  # as JSON, because there a strict model, too, takes a string for a date
        except ValidationError as error:
            raise _invalid(problems_in(error)) from error

    for name, info in getattr(schema, "model_fields", {}).items():
        if isinstance(info.validation_alias, AliasPath):
            raise OptionError(f"field {name!r} is read from a path", remedy="give it an alias that is a name")
    names = {name: stored for name, (stored, _) in _fields(schema).items()}
    is_open = "properties" not in json_schema or "additionalProperties" in json_schema
    return Schema(json_schema, value, value, names, is_open)


def _of_json(schema: dict[str, Any]) -> Schema:
    """Wrap a JSON schema, which the package `jsonschema` checks."""
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    try:
        kind = validator_for(schema)
        kind.check_schema(schema)
    except SchemaError as error:
        raise OptionError(f"schema is not a JSON schema ({error.message})", remedy="correct it") from error
    validator = kind(schema, format_checker=kind.FORMAT_CHECKER)

    def validate(document: dict[str, Any]) -> None:
        if problems := sorted(validator.iter_errors(document), key=lambda problem: problem.json_path):
            raise _invalid((one.json_path.removeprefix("$").lstrip("."), one.message) for one in problems)

    return Schema(schema, validate, lambda document: document)


def _invalid(problems: Iterable[tuple[str, str]]) -> WorkingMemoryValidationError:
    found = dict.fromkeys(problems)
    reasons = "; ".join(f"{field or 'the document'}: {reason}" for field, reason in found)
    return refusal(f"it would not fit its schema: {reasons}", reasons, tuple(field for field, _ in found))


def refusal(reason: str, remedy: str, fields: tuple[str, ...] = ()) -> WorkingMemoryValidationError:
    """Return the error for an update that is not valid."""
    return WorkingMemoryValidationError(f"nothing was changed, because {reason}", fields, remedy=remedy)


# ---------------------------------------------------------------------- what a model is shown


def update_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an update as a tool takes it: without references, and each property may be null.

    OpenAI's strict mode requires every property, and a model without a value for one sends null.
    """
    from langchain_core.utils.json_schema import dereference_refs

    try:
        whole = dereference_refs(schema, skip_keys=["$defs", "definitions"])
    except (KeyError, ValueError) as error:
        raise OptionError(
            f"schema has a reference that cannot be followed ({error})", remedy="put what it names into $defs"
        ) from error
    return dict(
        shaped({key: value for key, value in whole.items() if key not in ("$defs", "definitions")}, is_tool=True)
    )


def shaped(schema: Any, *, is_tool: bool) -> Any:
    """Return the JSON schema of an update, for a prompt or a tool: nothing is required of it, and titles and defaults are noise."""
    if isinstance(schema, list):
        return [shaped(part, is_tool=is_tool) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    if is_tool and schema.get("type") == "object" and "properties" not in schema:
        # stated, so that LangChain's strict mode makes it false: it must be {} then, but OpenAI accepts the schema
        found["additionalProperties"] = True
    for key, value in schema.items():
        if key in _VALUES:
            found[key] = value
        elif key in _NAMED and isinstance(value, dict):
            found[key] = {name: shaped(part, is_tool=is_tool) for name, part in value.items()}
        elif key not in _LEFT_OUT:  # an update may fit more than one of several
            found["anyOf" if key == "oneOf" and is_tool else key] = shaped(value, is_tool=is_tool)
    if is_tool and "properties" in found:
        found["properties"] = {name: _or_null(part) for name, part in found["properties"].items()}
    return found


def _or_null(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    described = {"description": schema["description"]} if "description" in schema else {}
    rest = {key: value for key, value in schema.items() if key not in described}
    options = rest.pop("anyOf") if "anyOf" in rest else [rest]
    null = [] if {"type": "null"} in options else [{"type": "null"}]
    return {**(rest if options != [rest] else {}), "anyOf": [*options, *null], **described}


# ---------------------------------------------------------------------- JSON of an update


def plain(value: Any) -> Any:
    """Convert an update to JSON values; of models and dataclasses only fields that were set, or that tell their kind."""
    if isinstance(value, RootModel):
        return plain(value.root)
    if _has_fields(type(value)):
        return {name: plain(item) for name, item in _set_fields(value).items()}
    if isinstance(value, dict):
        return {key if isinstance(key, str) else json.dumps(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, int):
        str(value)  # raises for one with more digits than Python reads back
    return to_jsonable_python(value)


def _set_fields(value: Any) -> dict[str, Any]:
    if isinstance(value, BaseModel):
        is_set = value.model_fields_set
    else:
        is_set = {one.name for one in dataclasses.fields(value) if getattr(value, one.name) != _default(one)}
    kind: Any = type(value)
    fields = _fields(kind).items()
    found = {stored: getattr(value, name) for name, (stored, is_tag) in fields if name in is_set or is_tag}
    return found | (getattr(value, "model_extra", None) or {})


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


@cache
def _fields(kind: Any) -> dict[str, tuple[str, bool]]:
    """Return of each field the name under which it is stored, and whether it has one possible value, as the tag of a union."""
    named, stored = _properties(kind, by_alias=False), _properties(kind, by_alias=_by_alias(kind))
    return {name: (alias, "const" in field) for (name, field), alias in zip(named.items(), stored, strict=True)}


def _properties(kind: Any, *, by_alias: bool) -> dict[str, Any]:
    whole = TypeAdapter(kind).json_schema(by_alias=by_alias)
    found: dict[str, Any] = whole.get("$defs", {}).get(kind.__name__, whole).get("properties", {})
    return found


def _by_alias(kind: Any) -> bool:
    return bool(getattr(kind, "model_config", {}).get("validate_by_alias", True))


def dump(document: dict[str, Any]) -> str:
    """Write a document as JSON, which has neither NaN nor infinity, and is not nested too deep."""
    try:
        return check_depth(json.dumps(document, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise refusal(f"the update is not JSON ({error})", "send JSON values") from error
