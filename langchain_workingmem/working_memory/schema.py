"""Schemas of working memory: Pydantic models, TypedDicts, dataclasses, JSON schemas. What was sent is stored."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, is_dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python
from typing_extensions import is_typeddict

from langchain_workingmem._text.values import check_depth, problems_in
from langchain_workingmem.errors import OptionError, WorkingMemoryValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_VALUES = {"enum", "const", "examples"}  # hold no schemas
_LISTS = {"items", "prefixItems", "contains"}  # which an update replaces as a whole
_LEFT_OUT = {"required", "default", "title", "discriminator", "$defs", "definitions"}


@dataclass(frozen=True)
class Schema:
    """A user's schema."""

    json_schema: dict[str, Any]
    validate: Callable[[dict[str, Any]], object]  # raises `WorkingMemoryValidationError`, which names the fields
    value: Callable[[dict[str, Any]], Any]  # the document as the user's type
    names: Mapping[str, str] = field(default_factory=dict)  # of fields -> by which they are stored
    is_open: bool = True  # it does not ignore fields that it does not know

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields of a document; empty where they are not known."""
        properties: dict[str, Any] = self.json_schema.get("properties", {})
        return properties

    def patch(self, patch: dict[str, Any]) -> dict[str, Any]:
        """Return a patch under the names by which the schema reads its fields, without fields that it ignores."""
        renamed = {self.names.get(key, key): value for key, value in patch.items()}
        return {key: value for key, value in renamed.items() if self.is_open or key in self.fields}


def schema_of(schema: Any) -> Schema:
    """Wrap a user's schema, or raise `OptionError`."""
    if isinstance(schema, dict):
        parsed = _of_json(schema)
    elif is_typeddict(schema) or (isinstance(schema, type) and (issubclass(schema, BaseModel) or is_dataclass(schema))):
        parsed = _of_type(schema)
    else:
        remedy = "use a Pydantic model, a TypedDict, a dataclass or a JSON schema (dict)"
        raise OptionError(f"schema={schema!r}", remedy=remedy)
    json_schema = parsed.json_schema
    says_fields = json_schema.keys() & {"properties", "$ref", "anyOf", "oneOf", "allOf"}
    if json_schema.get("type", "object" if says_fields else None) != "object" or not (parsed.fields or parsed.is_open):
        remedy = (
            "pass a Pydantic model with fields, or {'type': 'object', 'properties': {'name': {'type': 'string'}}}. "
            "For any fields pass {'type': 'object'}, for free text template=''"
        )
        raise OptionError(f"schema={schema!r}: working memory is an object, and this describes none", remedy=remedy)
    update_schema(json_schema)  # a reference that leads nowhere shows here
    return parsed


def _of_type(schema: Any) -> Schema:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(schema)
        json_schema, unaliased = adapter.json_schema(), adapter.json_schema(by_alias=False)
    except PydanticUserError as error:
        problem = f"Pydantic cannot validate schema={schema!r} ({error.message})"
        raise OptionError(problem, remedy="use types that Pydantic knows") from error

    def value(document: dict[str, Any]) -> Any:
        try:  # as JSON, because there a strict model, too, takes a string for a date
            return adapter.validate_json(dump(document))
        except ValidationError as error:
            raise _invalid(problems_in(error)) from error

    names = dict(zip(unaliased.get("properties", ()), json_schema.get("properties", ()), strict=True))
    is_open = "properties" not in json_schema or "additionalProperties" in json_schema
    return Schema(json_schema, value, value, names, is_open)


def _of_json(schema: dict[str, Any]) -> Schema:
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
            raise _invalid((problem.json_path.removeprefix("$").lstrip("."), problem.message) for problem in problems)

    return Schema(schema, validate, lambda document: document)


def _invalid(problems: Iterable[tuple[str, str]]) -> WorkingMemoryValidationError:
    unique = dict.fromkeys(problems)
    reasons = "; ".join(f"{field or 'the document'}: {reason}" for field, reason in unique)
    return refusal(f"it would not fit its schema: {reasons}", reasons, tuple(field for field, _ in unique))


def refusal(reason: str, remedy: str, fields: tuple[str, ...] = ()) -> WorkingMemoryValidationError:
    """Return the error for an update that is not valid."""
    return WorkingMemoryValidationError(f"nothing was changed, because {reason}", fields, remedy=remedy)


def update_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an update, without references; each may be null: OpenAI's strict mode wants all."""
    from langchain_core.utils.json_schema import dereference_refs

    try:
        resolved = dereference_refs(schema, skip_keys=["$defs", "definitions"])
    except (KeyError, ValueError) as error:
        problem = f"schema has a reference that cannot be followed ({error})"
        raise OptionError(problem, remedy="put what it names into $defs") from error
    return dict(_shaped(resolved))


def _shaped(schema: Any, *, is_item: bool = False) -> Any:
    """Return a part of the schema of an update: without titles and defaults; only items of lists must be whole."""
    if isinstance(schema, list):
        return [_shaped(part, is_item=is_item) for part in schema]
    if not isinstance(schema, dict):
        return schema
    shaped: dict[str, Any] = {}
    if schema.get("type") == "object" and "properties" not in schema:
        # stated, so that LangChain's strict mode makes it false: it must be {} then, but OpenAI accepts the schema
        shaped["additionalProperties"] = True
    needed = schema.get("required", ()) if is_item else ()
    for key, value in schema.items():
        if key in _VALUES or (is_item and key == "required"):
            shaped[key] = value
        elif key == "properties":
            parts = {name: _shaped(part, is_item=is_item) for name, part in value.items()}
            shaped[key] = {name: part if name in needed else _or_null(part) for name, part in parts.items()}
        elif key not in _LEFT_OUT:  # an update may fit more than one of several
            shaped["anyOf" if key == "oneOf" else key] = _shaped(value, is_item=is_item or key in _LISTS)
    return shaped


def _or_null(schema: Any) -> Any:
    is_nullable = {"type": "null"} in schema.get("anyOf", ()) if isinstance(schema, dict) else True
    return schema if is_nullable else {"anyOf": [schema, {"type": "null"}]}


def plain(content: Any) -> Any:
    """Convert an update to JSON values; of an instance, only fields that were set (of a dataclass: no defaults)."""
    is_plain_class = is_dataclass(content)
    adapter: TypeAdapter[Any] = TypeAdapter(type(content) if is_plain_class else Any)
    values = adapter.dump_python(content, by_alias=True, exclude_unset=True, exclude_defaults=is_plain_class)
    return to_jsonable_python(values)


def dump(document: dict[str, Any]) -> str:
    """Write a document as JSON, which has neither NaN nor infinity, and is not nested too deep."""
    try:
        return check_depth(json.dumps(document, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise refusal(f"the update is not JSON ({error})", "send JSON values") from error
