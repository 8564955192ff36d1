"""Schemas of working memory: validating a document, and reading a patch of one.

A schema is a Pydantic model, a TypedDict, a dataclass or a JSON schema. What is stored is the JSON that was sent, in the
names by which the schema reads it; the schema says whether it is valid, and makes the user's type of it when it is read.
So nothing depends on how a model writes itself: secrets, computed fields and serializers of its own do no harm.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Protocol, Union, get_args, get_origin, get_type_hints

from pydantic import AliasChoices, AliasPath, BaseModel, PydanticUserError, RootModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python
from typing_extensions import is_typeddict

from langchain_workingmem._documents.padding import NAMED, VALUES, pointed, without_strays
from langchain_workingmem._text.nesting import MAX_DEPTH
from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem.errors import OptionError, WorkingMemoryValidationError

_TYPED_DICT = "Pydantic needs that of typing_extensions below Python 3.12: from typing_extensions import TypedDict"


class Schema(Protocol):
    """What working memory asks of a schema."""

    @property
    def json_schema(self) -> dict[str, Any]:
        """Describe a whole document."""

    def patch(self, patch: dict[str, Any]) -> dict[str, Any]:
        """Return a patch in the names of the document, without what the schema ignores."""

    def own(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a merged document without what the kinds of its objects cannot hold."""

    def validate(self, document: dict[str, Any]) -> None:
        """Raise `WorkingMemoryValidationError`, which names the fields, unless a document is valid."""

    def value(self, document: dict[str, Any]) -> Any:
        """Return the document as the user's type."""


def schema_of(schema: Any) -> Schema:
    """Take a user's schema, or raise `OptionError`."""
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
        self._schema = schema
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(schema)
            self.json_schema = self._adapter.json_schema()
        except PydanticUserError as error:
            reason, remedy = f" ({error.message})", "use types that Pydantic knows"
            if error.code == "typed-dict-version":
                reason, remedy = "", _TYPED_DICT
            raise OptionError(
                f"schema={schema!r} is nothing that Pydantic can validate{reason}", remedy=remedy
            ) from error
        _check_fields(self.json_schema, f"schema={schema!r}")

    def patch(self, patch: dict[str, Any]) -> dict[str, Any]:
        named: dict[str, Any] = _named(patch, self._schema, "")
        return named

    def own(self, document: dict[str, Any]) -> dict[str, Any]:
        return without_strays(document, self.json_schema)

    def validate(self, document: dict[str, Any]) -> None:
        self.value(document)

    def value(self, document: dict[str, Any]) -> Any:
        try:
            # JSON rules: a date is a string there, also for a strict model
            return self._adapter.validate_json(dump(document))
        except ValidationError as error:
            problems = [(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors(include_url=False)]
            raise _objection(problems) from error


class JsonSchema:
    """A JSON schema, checked by the package `jsonschema`."""

    def __init__(self, schema: dict[str, Any]) -> None:
        from jsonschema import SchemaError
        from jsonschema.validators import validator_for

        self.json_schema = schema
        try:
            kind = validator_for(schema)
            kind.check_schema(schema)
        except SchemaError as error:
            raise OptionError(f"schema is not a JSON schema ({error.message})", remedy="correct it") from error
        _check_fields(schema, "schema")
        self._validator = kind(schema, format_checker=kind.FORMAT_CHECKER)

    def patch(self, patch: dict[str, Any]) -> dict[str, Any]:
        return patch

    def own(self, document: dict[str, Any]) -> dict[str, Any]:
        return document  # any object may hold further fields

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
            named = ((problem.json_path.removeprefix("$").lstrip("."), problem.message) for problem in problems)
            raise _objection(list(named))

    def value(self, document: dict[str, Any]) -> dict[str, Any]:
        return document


def _check_fields(schema: dict[str, Any], named: str) -> None:
    if schema.get("type", "object") != "object":
        seen = f"has the type {schema['type']!r}: working memory is an object"
    elif not _has_fields(schema, schema, set()):
        seen = "describes no object: it names no fields"
    else:
        return
    remedy = (
        "pass a Pydantic model with fields, or {'type': 'object', 'properties': {'name': {'type': 'string'}}}. "
        "For any fields pass {'type': 'object'}, for free text template=''"
    )
    raise OptionError(f"{named} {seen}; {remedy}", remedy=remedy)


def _has_fields(schema: Any, root: dict[str, Any], seen: set[str]) -> bool:
    """Tell whether a schema names fields of an object, or says that it may have others, in itself or in what it is made of."""
    if not isinstance(schema, dict):
        return False
    if schema.get("properties") or schema.get("patternProperties"):
        return True
    if any(schema.get(name, False) is not False for name in ("additionalProperties", "unevaluatedProperties")):
        return True
    if schema.get("type") == "object" and "properties" not in schema:  # says so in words: any object
        return schema.get("additionalProperties") is not False
    pointer = schema.get("$ref", schema.get("$dynamicRef"))
    if isinstance(pointer, str) and pointer not in seen:
        if not pointer.startswith("#/"):
            return True  # somewhere else: only validating will show
        seen.add(pointer)
        if _has_fields(pointed(pointer, root), root, seen):
            return True
    lists = [part for name in ("allOf", "anyOf", "oneOf") for part in schema.get(name, ())]
    parts = [*lists, *(schema.get(name) for name in ("then", "else"))]
    return any(_has_fields(part, root, seen) for part in parts)


# ---------------------------------------------------------------------- what a model is shown


def shape(schema: Any, *, nullable: bool) -> Any:
    """Rewrite a JSON schema as that of a patch: nothing is required, titles and defaults leave.

    `nullable` lets each property be null as well: in OpenAI's strict mode every property must be sent, and null is how a
    model says that it has nothing to say.
    """
    if isinstance(schema, list):
        return [shape(part, nullable=nullable) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    if nullable and schema.get("type") == "object" and "properties" not in schema:
        found["additionalProperties"] = True  # said in words, so that strict mode makes {} of it, and refuses nothing
    for key, value in schema.items():
        if key in NAMED and isinstance(value, dict):
            parts = {name: shape(part, nullable=nullable) for name, part in value.items()}
            found[key] = (
                {name: _or_null(part) for name, part in parts.items()} if key == "properties" and nullable else parts
            )
        elif key == "oneOf" and nullable and "anyOf" not in schema:
            found["anyOf"] = shape(value, nullable=nullable)  # of several patches more than one may fit
        elif key not in {"required", "default", "title", "discriminator"}:
            found[key] = value if key in VALUES else shape(value, nullable=nullable)
    return found


def _or_null(schema: Any) -> Any:
    options = schema.get("anyOf", []) if isinstance(schema, dict) else []
    if not isinstance(schema, dict) or {"type": "null"} in options:
        return schema
    if options:
        return {**schema, "anyOf": [*options, {"type": "null"}]}
    description = {key: schema[key] for key in ("description",) if key in schema}
    return {"anyOf": [{key: schema[key] for key in schema if key not in description}, {"type": "null"}], **description}


# ---------------------------------------------------------------------- names


class _Name(NamedTuple):
    """How the document calls a field, and what the field holds."""

    key: str
    annotation: Any


def _named(value: Any, annotation: Any, path: str) -> Any:
    """Rename the keys of JSON to those by which the schema reads it, and leave out what it ignores."""
    annotation = _bare(annotation)
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        # which of several schemas is meant cannot be known: those take what is sent
        fitting = [part for part in inner if _holds(value, part)]
        return _named(value, fitting[0], path) if len(fitting) == 1 else value
    if not _holds(value, annotation):
        return value
    if _is_schema(annotation):
        return _fields_named(value, annotation, path)
    if isinstance(value, list):
        return [_named(item, inner[0], f"{path}{at}.") for at, item in enumerate(value)] if inner else value
    return {key: _named(item, inner[-1], f"{path}{key}.") for key, item in value.items()} if inner else value


def _fields_named(value: dict[str, Any], schema: type[Any], path: str) -> Any:
    if issubclass(schema, RootModel):
        return _named(value, schema.model_fields["root"].annotation, path)
    names, extra = _names(schema)  # type: ignore[arg-type]
    found = {}
    for key, item in value.items():
        if key in names:
            found[names[key].key] = _named(item, names[key].annotation, f"{path}{key}.")
        elif extra == "allow":
            found[key] = item
        elif extra == "forbid":
            raise _objection([(f"{path}{key}", "the schema does not allow further fields")])
    return found


def _holds(value: Any, annotation: Any) -> bool:
    """Tell whether an annotation is one of objects, or of arrays, as the value is."""
    annotation = _bare(annotation)
    origin = get_origin(annotation) or annotation
    if isinstance(value, dict):
        return _is_schema(annotation) or (isinstance(origin, type) and issubclass(origin, Mapping))
    return isinstance(value, list) and isinstance(origin, type) and issubclass(origin, list | set | frozenset | tuple)


@lru_cache(maxsize=256)  # a program may make classes without end, and its entries keep them alive
def _names(schema: type[Any]) -> tuple[dict[str, _Name], Literal["ignore", "allow", "forbid"]]:
    """Map every name of a field to the one that reads it; and tell what happens to other names."""
    if not issubclass(schema, BaseModel):
        hints = get_type_hints(schema, include_extras=True)
        extra = getattr(schema, "__pydantic_config__", {}).get("extra", "ignore")
        return {name: _Name(name, hint) for name, hint in hints.items()}, extra
    names: dict[str, _Name] = {}
    extra = schema.model_config.get("extra") or "ignore"
    for name, info in schema.model_fields.items():
        alias = info.validation_alias if schema.model_config.get("validate_by_alias", True) else None
        aliases = alias.choices if isinstance(alias, AliasChoices) else [alias]
        texts = [one for one in aliases if isinstance(one, str)]
        if any(isinstance(one, AliasPath) for one in aliases):
            extra = "allow"  # the field is read from within others
        for known in (name, *texts):
            names[known] = _Name(texts[0] if texts else name, info.annotation)
    return names, extra


def _bare(annotation: Any) -> Any:
    """Take Annotated, Required and NotRequired off."""
    while get_origin(annotation) is Annotated or getattr(get_origin(annotation), "_name", "") in {
        "Required",
        "NotRequired",
        "ReadOnly",
    }:
        annotation = get_args(annotation)[0]
    return annotation


def _is_schema(annotation: Any) -> bool:
    if is_typeddict(annotation):
        return True
    return isinstance(annotation, type) and (issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation))


# ---------------------------------------------------------------------- JSON


def plain(value: Any, depth: int = 0) -> Any:
    """Write a value as JSON holds it; of models and dataclasses what was set, not what is a default."""
    if depth > MAX_DEPTH:
        raise WorkingMemoryValidationError(
            f"working memory was not changed, because the update is nested deeper than {MAX_DEPTH} levels",
            remedy="send fewer levels",
        )
    if isinstance(value, RootModel):
        return plain(value.root, depth)
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in value.model_fields_set}
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {
            field.name: found
            for field in dataclasses.fields(value)
            if _is_set(field, found := getattr(value, field.name))
        }
    if isinstance(value, dict):
        return {_key(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth + 1) for item in value]
    if hasattr(value, "get_secret_value"):
        return value.get_secret_value()
    if isinstance(value, str) and not is_utf8(value):
        raise WorkingMemoryValidationError(
            "working memory was not changed, because the update holds a lone surrogate, which UTF-8 cannot carry",
            remedy="send valid Unicode",
        )
    try:
        if isinstance(value, int):
            str(value)  # Python refuses to print very long numbers, and to read them
        return to_jsonable_python(value)
    except (PydanticSerializationError, ValueError) as error:  # bytes that are no UTF-8, say
        raise _no_json(error) from error


def _key(key: Any) -> str:
    """Write a key as JSON does: 1 becomes "1", None "null"."""
    found = plain(key)
    return found if isinstance(found, str) else json.dumps(found)


def _is_set(field: dataclasses.Field[Any], value: Any) -> bool:
    if field.default_factory is not dataclasses.MISSING:
        return bool(value != field.default_factory())
    return field.default is dataclasses.MISSING or bool(value != field.default)


def dump(document: dict[str, Any]) -> str:
    """Write a document as JSON, which knows neither NaN nor infinity."""
    try:
        return json.dumps(document, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise _no_json(error) from error


def _no_json(error: Exception) -> WorkingMemoryValidationError:
    return WorkingMemoryValidationError(
        f"working memory was not changed, because the update is not JSON ({error})", remedy="send JSON values"
    )


def _objection(problems: list[tuple[str, str]]) -> WorkingMemoryValidationError:
    reasons = "; ".join(f"{field or 'the document'}: {reason}" for field, reason in problems)
    return WorkingMemoryValidationError(
        f"working memory was not changed, because it would not fit its schema: {reasons}",
        tuple(field for field, _ in problems),
        remedy=reasons,
    )
