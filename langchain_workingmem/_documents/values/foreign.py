"""Documents that were written in another format than the program has now, and how a model replaces one. Pure.

A program may change from a template to a schema and back, or to another schema, and old and new processes may run side by side. What
is stored then stays as it is until a model has read it and writes it anew; the old text stays as a revision.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from langchain_workingmem._documents.formats import JsonFormat
from langchain_workingmem._documents.merging import parse_json
from langchain_workingmem._documents.schemas import dump
from langchain_workingmem._documents.values.listed import UnseenError
from langchain_workingmem.errors import WorkingMemoryValidationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._documents.formats import Format, TextFormat

_WHOLE = "The data has another form. Once, send everything in it that still holds, in the form of the {}: it replaces the data."
_PARTS = "Parts of the data do not fit the schema. Once, send what still holds in them, in the form of the schema."
_RESEND = "send everything that still holds once, in the form that the tool takes"


class UnseenDocumentError(UnseenError):
    """A document of another format would be replaced that is not the one which the model was shown."""

    def __init__(self, document: str) -> None:
        super().__init__(
            "working memory has another form, and has changed since you read it, so nothing was changed. Now "
            f"{_RESEND}. It holds:\n{document}",
            remedy=_RESEND,
        )


def foreign_note(form: Format, document: str) -> str:
    """Tell a model what to do about a document of another format; empty if it has this one."""
    if not document:
        return ""
    if isinstance(form, JsonFormat):
        return _json_note(form, document)
    has_template = form.template.strip() and not _is_object(form.template)
    return _WHOLE.format("template") if has_template and _is_object(document) else ""


@lru_cache(maxsize=64)  # a turn shows the same document again and again
def _json_note(form: JsonFormat, document: str) -> str:
    found = parse_json(document)
    if not isinstance(found, dict):
        return _WHOLE.format("schema")
    return "" if _fits(form, found) else _PARTS


def replaced_note(form: Format, before: str, revision: int, *, is_kept: bool) -> str:
    """Tell a model that what it sent replaces a document of another format."""
    kept = f" It stays as revision {revision}." if is_kept else ""
    what = "Parts of the old data" if form.name == "json" and _is_object(before) else "The old data"
    return f"{what} had another form.{kept} If something in it still holds and is missing now, send it as well."


def replaced_text(form: TextFormat, document: str, content: str, seen: str | None) -> str:
    """Return the text that replaces a document of another format; `seen` is what the model was shown, None if that is unknown."""
    form.apply(document, content, None)  # refuses what would erase everything
    _check_seen(document, seen)
    return content


def replaced_fields(
    form: JsonFormat, document: str, patch: dict[str, Any], clear: Sequence[str], seen: str | None
) -> str:
    """Return the document that a patch makes of one of another format: fields that fit the schema stay."""
    found = parse_json(document)
    base = _fitting(form, found) if isinstance(found, dict) else {}
    if not patch and not isinstance(found, dict):
        raise WorkingMemoryValidationError(
            "the data has another form, which has no fields to clear, so nothing was changed", remedy=_RESEND
        )
    after = form.apply(dump(base) if base else "", patch, None, clear)
    if not after:
        raise WorkingMemoryValidationError("nothing would be left, so nothing was changed", remedy=_RESEND)
    _check_seen(document, seen)
    return after


def _check_seen(document: str, seen: str | None) -> None:
    if seen not in (None, document):
        raise UnseenDocumentError(document)


def _fitting(form: JsonFormat, document: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a document that its schema allows; what it misses may still be missing."""
    schema, left = form.schema.json_schema, document
    if schema.get("additionalProperties") is False:
        left = {key: value for key, value in left.items() if key in schema.get("properties", {})}
    while True:
        try:
            form.schema.validate(left)
        except WorkingMemoryValidationError as error:
            fields = error.fields
        else:
            return left
        fit = {key: value for key, value in left.items() if not any(map(_is_in(key), fields))}
        if len(fit) == len(left):
            return left
        left = fit


def _is_in(key: str) -> Any:
    below = (f"{key}.", f"{key}[", f"['{key}']")
    return lambda field: field == key or field.startswith(below)


def _fits(form: JsonFormat, document: dict[str, Any]) -> bool:
    try:
        form.schema.validate(document)
    except WorkingMemoryValidationError:
        return False
    return True


def _is_object(text: str) -> bool:
    return text.lstrip().startswith("{") and isinstance(parse_json(text), dict)
