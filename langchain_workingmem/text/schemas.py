"""Schemas of working memory: validating a document, and reading a patch of one.

A schema is a Pydantic model, a TypedDict, a dataclass or a JSON schema. Each answers three questions: is this document
valid, what is this patch in the names that the document uses, and what does a model need to know to write a patch.
"""

from __future__ import annotations

import dataclasses
import json
from functools import cached_property
from types import UnionType
from typing import Annotated, Any, Protocol, Union, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    RootModel,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.fields import FieldInfo
from typing_extensions import is_typeddict

from langchain_workingmem.errors import OptionError, WorkingMemoryValidationError


class Schema(Protocol):
    """What working memory asks of a schema."""

    @property
    def json_schema(self) -> dict[str, Any]:
        """Describe a whole document."""

    @property
    def patch_type(self) -> Any:
        """Describe a patch, in which nothing is required: a Pydantic model or a JSON schema."""

    def patch(self, patch: dict[str, Any]) -> dict[str, Any]:
        """Check a patch, and return it in the names of the document."""

    def validate(self, document: dict[str, Any]) -> dict[str, Any]:
        """Check a document, and return it as it is stored."""

    def value(self, document: dict[str, Any]) -> Any:
        """Return the document as the user's type."""


def schema_of(schema: Any) -> Schema:
    """Take a user's schema, or raise `OptionError`."""
    if isinstance(schema, dict):
        return JsonSchema(schema)
    is_type = isinstance(schema, type) and (issubclass(schema, BaseModel) or dataclasses.is_dataclass(schema))
    if is_type or is_typeddict(schema):
        return TypeSchema(schema)
    msg = f"schema={schema!r}: use a Pydantic model, a TypedDict, a dataclass or a JSON schema (dict)"
    raise OptionError(msg)


class TypeSchema:
    """A Pydantic model, a TypedDict or a dataclass."""

    def __init__(self, schema: type[Any]) -> None:
        self._schema = schema
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(schema)
            self.json_schema = self._adapter.json_schema()
        except PydanticUserError as error:
            msg = f"schema={schema!r} is nothing that Pydantic can validate: {error}"
            raise OptionError(msg) from error

    @cached_property
    def patch_type(self) -> Any:
        is_root = issubclass(self._schema, RootModel)  # a mapping without fields of its own
        return dict[str, Any] if is_root else _patch_model(self._schema, {})

    @cached_property
    def _patches(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.patch_type)

    def patch(self, patch: dict[str, Any]) -> dict[str, Any]:
        try:
            # JSON rules: a date is a string there, also for a strict model
            read = self._patches.validate_json(_dump(patch))
        except ValidationError as error:
            raise _refused(error) from error
        dumped: dict[str, Any] = self._patches.dump_python(
            read, mode="json", by_alias=True, exclude_unset=True, warnings=False
        )
        return dumped

    def validate(self, document: dict[str, Any]) -> dict[str, Any]:
        dumped: dict[str, Any] = self._adapter.dump_python(
            self.value(document), mode="json", by_alias=True, exclude_unset=True, warnings=False
        )
        # a dataclass cannot say which of its fields were set: defaults are not facts
        return _like(dumped, document) if dataclasses.is_dataclass(self._schema) else dumped

    def value(self, document: dict[str, Any]) -> Any:
        try:
            return self._adapter.validate_json(_dump(document))
        except ValidationError as error:
            raise _refused(error) from error


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
            msg = f"schema is not a JSON schema: {error.message}"
            raise OptionError(msg) from error
        if schema.get("type", "object") != "object":
            msg = f"schema has the type {schema['type']!r}: working memory is an object"
            raise OptionError(msg)
        self._validator = kind(schema, format_checker=kind.FORMAT_CHECKER)

    @cached_property
    def patch_type(self) -> dict[str, Any]:
        return _optional(self.json_schema)

    def patch(self, patch: dict[str, Any]) -> dict[str, Any]:
        plain: dict[str, Any] = json.loads(_dump(patch))
        return plain

    def validate(self, document: dict[str, Any]) -> dict[str, Any]:
        problems = sorted(self._validator.iter_errors(document), key=lambda problem: problem.json_path)
        if problems:
            raise _objection(
                [(problem.json_path.removeprefix("$").lstrip("."), problem.message) for problem in problems]
            )
        return document

    def value(self, document: dict[str, Any]) -> dict[str, Any]:
        return document


# ---------------------------------------------------------------------- patches


def _patch_model(schema: type[Any], seen: dict[type[Any], type[BaseModel] | None]) -> type[BaseModel]:
    """Build a model with the fields and names of a schema, in which each may be left out or null, recursively."""
    known = seen.setdefault(schema, None)
    if known is not None:
        return known
    fields: dict[str, Any] = {}
    for name, (annotation, info) in _fields(schema).items():
        kind: Any = (
            Annotated[(_patched(annotation, seen), *info.metadata)] if info.metadata else _patched(annotation, seen)
        )
        fields[name] = (
            kind | None,
            Field(
                default=None,
                alias=info.alias,
                validation_alias=info.validation_alias,
                serialization_alias=info.serialization_alias,
                title=info.title,
                description=info.description,
                examples=info.examples,
            ),
        )
    config = ConfigDict(extra=_extra(schema), populate_by_name=True, arbitrary_types_allowed=True)
    model: type[BaseModel] = create_model(
        f"{schema.__name__}Patch", __config__=config, __doc__=schema.__doc__, **fields
    )
    seen[schema] = model
    return model


def _fields(schema: type[Any]) -> dict[str, tuple[Any, FieldInfo]]:
    if issubclass(schema, BaseModel):
        return {name: (info.annotation, info) for name, info in schema.model_fields.items()}
    hints = get_type_hints(schema, include_extras=True)
    if dataclasses.is_dataclass(schema):
        hints = {field.name: hints[field.name] for field in dataclasses.fields(schema)}
    infos = {name: FieldInfo.from_annotation(_bare(hint)) for name, hint in hints.items()}
    return {name: (info.annotation, info) for name, info in infos.items()}


def _bare(hint: Any) -> Any:
    """Take Required and NotRequired off."""
    return get_args(hint)[0] if getattr(get_origin(hint), "_name", "") in {"Required", "NotRequired"} else hint


def _extra(schema: type[Any]) -> Any:
    config = schema.model_config if issubclass(schema, BaseModel) else getattr(schema, "__pydantic_config__", {})
    return config.get("extra", "ignore")


def _patched(annotation: Any, seen: dict[type[Any], type[BaseModel] | None]) -> Any:
    """Replace schemas inside an annotation by patches of them, where a merge reaches: not inside arrays."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return Annotated[(_patched(inner[0], seen), *inner[1:])]
    if origin is dict and len(inner) == 2:
        return dict.__class_getitem__((inner[0], _patched(inner[1], seen) | None))
    # which of several schemas a patch is meant for cannot be known: those stay whole
    if origin in (Union, UnionType) and sum(map(_is_schema, inner)) == 1:
        return Union.__getitem__(tuple(_patched(part, seen) for part in inner))
    if _is_schema(annotation):
        inside_itself = annotation in seen and seen[annotation] is None
        return dict[str, Any] if inside_itself else _patch_model(annotation, seen)
    return annotation


def _is_schema(annotation: Any) -> bool:
    if is_typeddict(annotation):
        return True
    return isinstance(annotation, type) and (issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation))


def _optional(schema: dict[str, Any]) -> dict[str, Any]:
    """Take `required` off a JSON schema where a merge reaches, and allow null, recursively."""
    found = {key: value for key, value in schema.items() if key != "required"}
    if "properties" in found:
        found["properties"] = {
            name: {"anyOf": [_optional(part), {"type": "null"}]} if isinstance(part, dict) else part
            for name, part in found["properties"].items()
        }
    return found


# ---------------------------------------------------------------------- errors


def _refused(error: ValidationError) -> WorkingMemoryValidationError:
    return _objection([(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors(include_url=False)])


def _objection(problems: list[tuple[str, str]]) -> WorkingMemoryValidationError:
    reasons = "; ".join(f"{field or 'the document'}: {reason}" for field, reason in problems)
    return WorkingMemoryValidationError(
        f"working memory was not changed, because it would not fit its schema: {reasons}",
        tuple(field for field, _ in problems),
    )


def _dump(value: object) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError) as error:
        msg = f"working memory was not changed, because the update is not JSON: {error}"
        raise WorkingMemoryValidationError(msg) from error


def _like(dumped: Any, given: Any) -> Any:
    if isinstance(dumped, dict) and isinstance(given, dict):
        return {key: _like(value, given[key]) for key, value in dumped.items() if key in given}
    return dumped
