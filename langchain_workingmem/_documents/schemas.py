"""Schemas of working memory: validate a document, and read a patch of one.

A schema is a Pydantic model, a TypedDict, a dataclass or a JSON schema. The JSON that was sent is stored, under the names by
which the schema reads it; the schema validates it, and makes the user's type of it when it is read. So secrets, computed
fields and custom serializers of a model do no harm.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import count
from types import UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    Discriminator,
    PydanticUserError,
    RootModel,
    TypeAdapter,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python
from typing_extensions import is_typeddict

from langchain_workingmem._documents.padding import UNIONS, every_part, pointed, without_strays
from langchain_workingmem._documents.values.fanning import MOST_PARTS, Fanning
from langchain_workingmem._text.nesting import MAX_DEPTH
from langchain_workingmem._text.problems import problems_in
from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem.errors import OptionError, WorkingMemoryValidationError

_TYPED_DICT = "use TypedDict of typing_extensions below Python 3.12: from typing_extensions import TypedDict"
_DEFINITIONS = {"$defs", "definitions"}
_NAMED = {"properties", "patternProperties", *_DEFINITIONS}  # map freely chosen names to schemas
_VALUES = {"enum", "const", "examples"}  # hold no schemas
_LEFT_OUT = {"required", "default", "title", "discriminator"}
_QUALIFIERS = {"Required", "NotRequired", "ReadOnly"}  # of a TypedDict; typing and typing_extensions have their own


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
        self._schema = schema
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(schema)
            self.json_schema = self._adapter.json_schema()
        except PydanticUserError as error:
            reason, remedy = f" ({error.message})", "use types that Pydantic knows"
            if error.code == "typed-dict-version":
                reason, remedy = "", _TYPED_DICT
            raise OptionError(f"Pydantic cannot validate schema={schema!r}{reason}", remedy=remedy) from error
        _check_fields(self.json_schema, f"schema={schema!r}")
        self._fanning = Fanning(self.json_schema, tagged=True)

    def patch(self, patch: dict[str, Any]) -> dict[str, Any]:
        """Return a patch under the names of the document, without what the schema ignores."""
        named: dict[str, Any] = _named(patch, self._schema, "")
        return named

    def own(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a merged document without fields that the kinds of its objects cannot hold."""
        return without_strays(document, self.json_schema)

    def validate(self, document: dict[str, Any]) -> None:
        """Raise `WorkingMemoryValidationError`, which names the fields, unless a document is valid."""
        self.value(document)

    def value(self, document: dict[str, Any]) -> Any:
        """Return the document as the user's type."""
        self._fanning.check(document)
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
        _check_fields(schema, "schema")
        self._fanning = Fanning(schema, tagged=False)
        self._validator = kind(schema, format_checker=kind.FORMAT_CHECKER)

    def patch(self, patch: dict[str, Any]) -> dict[str, Any]:
        return patch

    def own(self, document: dict[str, Any]) -> dict[str, Any]:
        return document  # any object may hold further fields

    def validate(self, document: dict[str, Any]) -> None:
        from referencing.exceptions import Unresolvable

        dump(document)
        self._fanning.check(document)
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


def _check_fields(schema: dict[str, Any], named: str) -> None:
    if schema.get("type", "object") != "object":
        seen = f"has the type {schema['type']!r}: working memory is an object"
    elif not any(map(_has_fields, every_part([schema], schema, set(), (*UNIONS, "then", "else")))):
        seen = "describes no object: it names no fields"
    else:
        return
    raise OptionError(
        f"{named} {seen}",
        remedy="pass a Pydantic model with fields, or {'type': 'object', 'properties': {'name': {'type': 'string'}}}. "
        "For any fields pass {'type': 'object'}, for free text template=''",
    )


def _has_fields(part: dict[str, Any]) -> bool:
    """Tell whether a part of a schema names fields of an object, or allows any."""
    return bool(
        part.get("properties")
        or part.get("patternProperties")
        or any(part.get(name, False) is not False for name in ("additionalProperties", "unevaluatedProperties"))
        or (part.get("type") == "object" and part.keys().isdisjoint(("properties", "additionalProperties")))
        # of another document, or not known yet: only validation resolves it
        or "$dynamicRef" in part
        or not part.get("$ref", "#/").startswith("#/")
    )


def shape(schema: dict[str, Any], *, nullable: bool) -> Any:
    """Turn a JSON schema into the schema of a patch: nothing is required, titles and defaults are removed.

    `nullable` is for tools. It allows null for each property: OpenAI's strict mode requires every property, and a model
    without a value for one sends null. And it replaces references by their targets; a schema inside itself ends as any
    object. References that fan out grow exponentially: `OptionError` above `MOST_PARTS`. `dereference_refs` of
    langchain_core has no such limit, and takes a field or an example named "$ref" for a reference.
    """
    try:
        return _shaped(schema, schema if nullable else None, (), count(1))
    except RecursionError:
        raise _too_large() from None


def _shaped(schema: Any, root: dict[str, Any] | None, inside: tuple[str, ...], parts: Iterator[int]) -> Any:
    if isinstance(schema, list):
        return [_shaped(part, root, inside, parts) for part in schema]
    if not isinstance(schema, dict):
        return schema
    around = dict.fromkeys(schema, inside)  # the references around each key: what stands beside one is not inside it
    while root is not None and isinstance(pointer := schema.get("$ref"), str):
        target = pointed(pointer, root)
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        is_open = pointer not in inside and isinstance(target, dict)
        inside = (*inside, pointer)
        schema = {**(target if is_open else {"type": "object"}), **rest}
        around = dict.fromkeys(schema, inside) | around
    if inside and next(parts) > MOST_PARTS:
        raise _too_large()
    found: dict[str, Any] = {}
    if root is not None and schema.get("type") == "object" and "properties" not in schema:
        # stated, so that LangChain's strict mode makes it false: it must be {} then, but OpenAI accepts the schema
        found["additionalProperties"] = True
    for key, value in schema.items():
        if key in _LEFT_OUT or (root is not None and key in _DEFINITIONS):
            continue
        if key in _NAMED and isinstance(value, dict):
            found[key] = {name: _shaped(part, root, around[key], parts) for name, part in value.items()}
            if key == "properties" and root is not None:
                found[key] = {name: _or_null(part) for name, part in found[key].items()}
        elif key in _VALUES:
            found[key] = value
        else:  # a patch may fit more than one of several
            name = "anyOf" if key == "oneOf" and root is not None and "anyOf" not in schema else key
            found[name] = _shaped(value, root, around[key], parts)
    return found


def _too_large() -> OptionError:
    return OptionError(
        f"the $refs of the schema lead to more than {MOST_PARTS:,} parts, or too many levels, to show a model",
        remedy="use fewer definitions that refer to each other, or leave updates to your program with "
        "WorkingMemoryOptions(tools=['get'])",
    )


def _or_null(schema: Any) -> Any:
    options = schema.get("anyOf", []) if isinstance(schema, dict) else []
    if not isinstance(schema, dict) or {"type": "null"} in options:
        return schema
    if options:
        return {**schema, "anyOf": [*options, {"type": "null"}]}
    description = {key: schema.pop(key) for key in ("description",) if key in schema}
    return {"anyOf": [schema, {"type": "null"}], **description}


def _named(value: Any, annotation: Any, path: str) -> Any:
    """Rename the keys of JSON to the names by which the schema reads them, and remove fields that it ignores."""
    annotation = _bare(annotation)
    inner = get_args(annotation)
    if get_origin(annotation) in (Union, UnionType):
        # which of several fitting schemas is meant is unknown: the value stays as it is
        fitting = [part for part in inner if _holds(value, part)]
        return _named(value, fitting[0], path) if len(fitting) == 1 else value
    if not _holds(value, annotation):
        return value
    if not _is_schema(annotation):
        if not inner:
            return value
        if isinstance(value, list):
            return [_named(item, inner[0], f"{path}{at}.") for at, item in enumerate(value)]
        return {key: _named(item, inner[-1], f"{path}{key}.") for key, item in value.items()}
    if issubclass(annotation, RootModel):
        return _named(value, annotation.model_fields["root"].annotation, path)
    names, extra = _names(annotation)
    found = {}
    for key, item in value.items():
        if key in names:
            name, field = names[key]
            found[name] = _named(item, field, f"{path}{key}.")
        elif extra == "allow":
            found[key] = item
        elif extra == "forbid":
            raise _invalid([(f"{path}{key}", "the schema does not allow further fields")])
    return found


def _holds(value: Any, annotation: Any) -> bool:
    """Tell whether an annotation is one of objects, or of arrays, as the value is."""
    annotation = _bare(annotation)
    if isinstance(value, dict) and _is_schema(annotation):
        return True
    kinds = Mapping if isinstance(value, dict) else list | set | frozenset | tuple
    origin = get_origin(annotation) or annotation
    return isinstance(value, dict | list) and isinstance(origin, type) and issubclass(origin, kinds)


@lru_cache(maxsize=256)  # bounded: a program may create classes without end, and entries keep them alive
def _names(schema: type[Any]) -> tuple[dict[str, tuple[str, Any]], Literal["ignore", "allow", "forbid"]]:
    """Map every accepted name of a field to its stored name and type, and return what happens to other names."""
    if not issubclass(schema, BaseModel):
        hints = get_type_hints(schema, include_extras=True)
        extra = getattr(schema, "__pydantic_config__", {}).get("extra", "ignore")
        return {name: (name, hint) for name, hint in hints.items()}, extra
    names: dict[str, tuple[str, Any]] = {}
    extra = schema.model_config.get("extra") or "ignore"
    for name, info in schema.model_fields.items():
        alias = info.validation_alias if schema.model_config.get("validate_by_alias", True) else None
        aliases = alias.choices if isinstance(alias, AliasChoices) else [alias]
        texts = [one for one in aliases if isinstance(one, str)]
        if any(isinstance(one, AliasPath) for one in aliases):
            extra = "allow"  # such a field is read from inside another one
        for known in (name, *texts):
            names[known] = (texts[0] if texts else name, info.annotation)
    return names, extra


def _bare(annotation: Any) -> Any:
    """Unwrap Annotated, Required, NotRequired and ReadOnly."""
    while (origin := get_origin(annotation)) is Annotated or getattr(origin, "_name", "") in _QUALIFIERS:
        annotation = get_args(annotation)[0]
    return annotation


def _is_schema(annotation: Any) -> bool:
    if is_typeddict(annotation):
        return True
    return isinstance(annotation, type) and (issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation))


def plain(value: Any, depth: int = 0, annotation: Any = None) -> Any:
    """Convert a value to what JSON holds; of models and dataclasses only fields that were set, and those that tell their kind.

    `annotation` is the type of the field that holds it.
    """
    if depth > MAX_DEPTH:
        raise refusal(f"the update is nested deeper than {MAX_DEPTH} levels", "send fewer levels")
    if isinstance(value, RootModel):
        return plain(value.root, depth, next(_told(value, set()))[2])
    if _is_schema(type(value)):
        return {name: plain(item, depth + 1, inner) for name, item, inner in _told(value, _tags(annotation))}
    if isinstance(value, dict):
        return {_key(key): plain(item, depth + 1, annotation) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth + 1, annotation) for item in value]
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


def _told(value: Any, tags: set[str]) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, value and type of the fields of an instance that were set, or that tell its kind: `tags` and constants."""
    kind: Any = type(value)
    if isinstance(value, BaseModel):
        is_set = value.model_fields_set
        hints: dict[str, Any] = {name: Annotated[info.annotation, info] for name, info in kind.model_fields.items()}
        hints |= dict.fromkeys(is_set - hints.keys())  # further fields that the model allows
    else:
        is_set = {field.name for field in dataclasses.fields(value) if _is_set(field, getattr(value, field.name))}
        hints = dict.fromkeys((field.name for field in dataclasses.fields(value)), None)
        with suppress(NameError):  # names of a function that has returned
            hints |= {name: hint for name, hint in get_type_hints(kind, include_extras=True).items() if name in hints}
    stored = _names(kind)[0] if isinstance(value, BaseModel) else {}
    for name, hint in hints.items():
        bare = _bare(hint)
        if name in is_set or name in tags or (get_origin(bare) is Literal and len(get_args(bare)) == 1):
            yield stored.get(name, (name,))[0], getattr(value, name), hint


def _tags(annotation: Any, inside: tuple[Any, ...] = ()) -> set[str]:
    """Return the fields by which the unions in a type tell their kinds apart."""
    if isinstance(annotation, FieldInfo | Discriminator):
        return {annotation.discriminator} if isinstance(annotation.discriminator, str) else set()
    parts = [*get_args(annotation), *getattr(annotation, "__metadata__", ())]
    if annotation not in inside and hasattr(annotation, "__value__"):  # of `type X = ...`
        parts.append(annotation.__value__)
        inside = (*inside, annotation)
    return set[str]().union(*(_tags(part, inside) for part in parts))


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
