"""Schemas of working memory: they validate a document, and make the user's type of it.

A schema is a Pydantic model, a TypedDict, a dataclass or a JSON schema. The JSON that was sent is stored; Pydantic, or the package
`jsonschema`, validates it before.
"""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints
from urllib.parse import unquote

from pydantic import AliasChoices, AliasPath, BaseModel, PydanticUserError, RootModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python
from typing_extensions import is_typeddict

from langchain_workingmem._text.nesting import MAX_DEPTH, problems_in
from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem.errors import OptionError, WorkingMemoryValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator

_TYPED_DICT = "use TypedDict of typing_extensions below Python 3.12: from typing_extensions import TypedDict"
_DEFINITIONS = {"$defs", "definitions"}
_NAMED = {"properties", "patternProperties", *_DEFINITIONS}  # map freely chosen names to schemas
_VALUES = {"enum", "const", "examples"}  # hold no schemas
_LEFT_OUT = {"required", "default", "title", "discriminator"}
_SAY_FIELDS = {"$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "if", "patternProperties"}


def schema_of(schema: Any) -> Schema:
    """Wrap a user's schema, or raise `OptionError`."""
    if isinstance(schema, dict):
        return JsonSchema(schema)
    if _is_schema(schema):
        return TypeSchema(schema)
    raise OptionError(
        f"schema={schema!r}", remedy="use a Pydantic model, a TypedDict, a dataclass or a JSON schema (dict)"
    )


class TypeSchema:
    """A Pydantic model, a TypedDict or a dataclass."""

    def __init__(self, schema: type[Any]) -> None:
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(schema)
            self.json_schema = self._adapter.json_schema()
        except PydanticUserError as error:
            reason, remedy = f" ({error.message})", "use types that Pydantic knows"
            if error.code == "typed-dict-version":
                reason, remedy = "", _TYPED_DICT
            raise OptionError(f"Pydantic cannot validate schema={schema!r}{reason}", remedy=remedy) from error
        self.update_schema = _checked(self.json_schema, f"schema={schema!r}")
        self._names = _stored_names(schema)
        # what the schema ignores is not stored
        self._is_open = not self.fields or "additionalProperties" in self.json_schema or None in self._names

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields of a document; empty where they are not known."""
        found: dict[str, Any] = self.json_schema.get("properties", {})
        return found

    def patch(self, patch: dict[str, Any]) -> dict[str, Any]:
        """Return a patch under the aliases of its fields, without fields that the schema ignores."""
        named = {self._names.get(key, key): value for key, value in patch.items()}
        return {key: value for key, value in named.items() if self._is_open or key in self.fields}

    def validate(self, document: dict[str, Any]) -> None:
        """Raise `WorkingMemoryValidationError`, which names the fields, unless a document is valid."""
        self.value(document)

    def value(self, document: dict[str, Any]) -> Any:
        """Return the document as the user's type."""
        try:
            # as JSON, because there a strict model, too, takes a string for a date
            return self._adapter.validate_json(dump(document))
        except ValidationError as error:
            raise _invalid(problems_in(error)) from error


class JsonSchema:
    """A JSON schema, checked by the package `jsonschema`; its methods are those of `TypeSchema`."""

    def __init__(self, schema: dict[str, Any]) -> None:
        from jsonschema import SchemaError
        from jsonschema.validators import validator_for

        self.json_schema = schema
        try:
            kind = validator_for(schema)
            kind.check_schema(schema)
        except SchemaError as error:
            raise OptionError(f"schema is not a JSON schema ({error.message})", remedy="correct it") from error
        self.update_schema = _checked(schema, "schema")
        self._validator = kind(schema, format_checker=kind.FORMAT_CHECKER)

    @property
    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = self.json_schema.get("properties", {})
        return found

    def patch(self, patch: dict[str, Any]) -> dict[str, Any]:
        return patch

    def validate(self, document: dict[str, Any]) -> None:
        from referencing.exceptions import Unresolvable

        dump(document)
        try:
            problems = sorted(self._validator.iter_errors(document), key=lambda problem: problem.json_path)
        except Unresolvable as error:
            raise OptionError(
                f"schema has a reference that leads nowhere ({error})", remedy="put what it names into $defs"
            ) from error
        if problems:
            raise _invalid([(one.json_path.removeprefix("$").lstrip("."), one.message) for one in problems])

    def value(self, document: dict[str, Any]) -> dict[str, Any]:
        return document


Schema: TypeAlias = TypeSchema | JsonSchema


def _checked(schema: dict[str, Any], named: str) -> dict[str, Any]:
    """Return the schema of an update for a model, or raise `OptionError` for one that describes no object or is too large."""
    kind = schema.get("type", "object")
    if kind != "object":
        seen = f"has the type {kind!r}: working memory is an object"
    elif not (
        schema.get("properties") or schema.get("additionalProperties") or not _SAY_FIELDS.isdisjoint(schema)
    ) and ("type" not in schema or "properties" in schema or "additionalProperties" in schema):
        seen = "describes no object: it names no fields"
    else:
        return dict(shape(schema, nullable=True))
    raise OptionError(
        f"{named} {seen}",
        remedy="pass a Pydantic model with fields, or {'type': 'object', 'properties': {'name': {'type': 'string'}}}. "
        "For any fields pass {'type': 'object'}, for free text template=''",
    )


def shape(schema: dict[str, Any], *, nullable: bool) -> Any:
    """Turn a JSON schema into the schema of a patch: nothing is required, titles and defaults are removed.

    `nullable` is for tools. It allows null for each property: OpenAI's strict mode requires every property, and a model
    without a value for one sends null. And it replaces references by their targets; a schema inside itself ends as any
    object.
    """
    return _shaped(schema, schema if nullable else None, ())


def _shaped(schema: Any, root: dict[str, Any] | None, inside: tuple[str, ...]) -> Any:
    if isinstance(schema, list):
        return [_shaped(part, root, inside) for part in schema]
    if not isinstance(schema, dict):
        return schema
    around = dict.fromkeys(schema, inside)  # the references around each key: what stands beside one is not inside it
    while root is not None and isinstance(pointer := schema.get("$ref"), str):
        target = _pointed(pointer, root)
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        is_open = pointer not in inside and isinstance(target, dict)
        inside = (*inside, pointer)
        schema = {**(target if is_open else {"type": "object"}), **rest}
        around = dict.fromkeys(schema, inside) | around
    found: dict[str, Any] = {}
    if root is not None and schema.get("type") == "object" and "properties" not in schema:
        # stated, so that LangChain's strict mode makes it false: it must be {} then, but OpenAI accepts the schema
        found["additionalProperties"] = True
    for key, value in schema.items():
        if key in _LEFT_OUT or (root is not None and key in _DEFINITIONS):
            continue
        if key in _NAMED and isinstance(value, dict):
            found[key] = {name: _shaped(part, root, around[key]) for name, part in value.items()}
            if key == "properties" and root is not None:
                found[key] = {name: _or_null(part) for name, part in found[key].items()}
        elif key in _VALUES:
            found[key] = value
        else:  # a patch may fit more than one of several
            name = "anyOf" if key == "oneOf" and root is not None and "anyOf" not in schema else key
            found[name] = _shaped(value, root, around[key])
    return found


def _or_null(schema: Any) -> Any:
    options = schema.get("anyOf", []) if isinstance(schema, dict) else []
    if not isinstance(schema, dict) or {"type": "null"} in options:
        return schema
    if options:
        return {**schema, "anyOf": [*options, {"type": "null"}]}
    description = {key: schema.pop(key) for key in ("description",) if key in schema}
    return {"anyOf": [schema, {"type": "null"}], **description}


def _pointed(pointer: str, root: dict[str, Any]) -> Any:
    """Return the target of a reference, None when there is none."""
    target: Any = root
    for part in filter(None, unquote(pointer).removeprefix("#").split("/")):
        target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
    return target


def _is_schema(annotation: Any) -> bool:
    if is_typeddict(annotation):
        return True
    return isinstance(annotation, type) and (issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation))


def plain(value: Any, depth: int = 0) -> Any:
    """Convert a value to what JSON holds; of models and dataclasses only fields that were set."""
    if depth > MAX_DEPTH:
        raise refusal(f"the update is nested deeper than {MAX_DEPTH} levels", "send fewer levels")
    if isinstance(value, RootModel):
        return plain(value.root, depth)
    if _is_schema(type(value)):
        return {name: plain(item, depth + 1) for name, item in _told(value)}
    if isinstance(value, dict):
        return {_key(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth + 1) for item in value]
    if hasattr(value, "get_secret_value"):
        return value.get_secret_value()
    if isinstance(value, str):
        check_utf8(value)
    try:
        if isinstance(value, int):
            str(value)  # raises for an int with more digits than Python reads back
        return to_jsonable_python(value)
    except (PydanticSerializationError, ValueError) as error:  # such as bytes that are not UTF-8
        raise refusal(f"the update is not JSON ({error})", "send JSON values") from error


def check_utf8(text: str) -> str:
    """Return a text of an update, or raise the error for a lone surrogate in it."""
    if not is_utf8(text):
        raise refusal("the update holds a lone surrogate, which UTF-8 cannot carry", "send valid Unicode")
    return text


def _key(key: Any) -> str:
    """Convert a key as JSON does: 1 becomes "1", None "null"."""
    found = plain(key)
    return found if isinstance(found, str) else json.dumps(found)


def _told(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of an instance that were set, or have one possible value, which may tell its kind."""
    kind: Any = type(value)
    hints: dict[str, Any]
    names: dict[Any, str]
    if isinstance(value, BaseModel):
        is_set, names = value.model_fields_set, _stored_names(kind)
        hints = {name: info.annotation for name, info in kind.model_fields.items()} | dict.fromkeys(
            is_set - kind.model_fields.keys()
        )
    else:
        is_set, names = {one.name for one in dataclasses.fields(value) if _is_set(one, getattr(value, one.name))}, {}
        hints = dict.fromkeys(one.name for one in dataclasses.fields(value))
        with suppress(NameError):  # names of a function that has returned
            hints |= {name: hint for name, hint in get_type_hints(kind).items() if name in hints}
    for name, hint in hints.items():
        origin: Any = get_origin(hint)
        if name in is_set or (origin is Literal and len(get_args(hint)) == 1):
            yield names.get(name, name), getattr(value, name)


def _stored_names(schema: type[Any]) -> dict[Any, str]:
    """Map every name by which a model reads a field to the one that is stored; None stands for a path into another field."""
    found: dict[Any, str] = {}
    config = getattr(schema, "model_config", {})
    for name, info in getattr(schema, "model_fields", {}).items():
        alias = info.validation_alias if config.get("validate_by_alias", True) else None
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
        texts = [one for one in choices if isinstance(one, str)]
        found |= dict.fromkeys([name, *texts], texts[0] if texts else name)
        if any(isinstance(one, AliasPath) for one in choices):
            found[None] = name
    return found


def _is_set(field: dataclasses.Field[Any], value: Any) -> bool:
    if field.default_factory is not dataclasses.MISSING:
        return bool(value != field.default_factory())
    return field.default is dataclasses.MISSING or bool(value != field.default)


def dump(document: dict[str, Any]) -> str:
    """Write a document as JSON, which has neither NaN nor infinity."""
    try:
        return json.dumps(document, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise refusal(f"the update is not JSON ({error})", "send JSON values") from error


def refusal(reason: str, remedy: str, fields: tuple[str, ...] = ()) -> WorkingMemoryValidationError:
    """Return the error for an update that is not valid."""
    return WorkingMemoryValidationError(f"working memory was not changed, because {reason}", fields, remedy=remedy)


def _invalid(problems: list[tuple[str, str]]) -> WorkingMemoryValidationError:
    reasons = "; ".join(f"{field or 'the document'}: {reason}" for field, reason in dict.fromkeys(problems))
    return refusal(f"it would not fit its schema: {reasons}", reasons, tuple(field for field, _ in problems))
