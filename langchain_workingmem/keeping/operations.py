"""Reads what a keeper answers, and applies it: pure functions. Each operation is checked alone; what fails is left out and counted."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import orjson
from pydantic import BaseModel, Field

from langchain_workingmem._text.messages import unescape, without_thoughts
from langchain_workingmem._text.unicode import in_texts, visible
from langchain_workingmem._text.values import check_depth, parse_json
from langchain_workingmem.errors import WorkingMemError, WorkingMemoryValidationError
from langchain_workingmem.keeping.values import (
    Leaf,
    differences,
    emptied_field,
    is_field,
    item_name,
    leaves,
    path_part,
    path_parts,
    remove_at,
    set_at,
    written,
)
from langchain_workingmem.observations.worker import BadAnswer, check_end
from langchain_workingmem.working_memory.document import JsonFormat

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem.working_memory.document import Format

MOST_OPERATIONS = 100  # operations of an answer
MOST_VALUES = 200  # that one operation changes
_MOST_BROKEN = 50  # places of an answer that look like JSON and are none
_FEW = 4  # values of a document that may go at once without another question

_UNREADABLE = "The answer holds no operation that can be read. Answer with a JSON array of operations, or with [] if nothing is to be changed."
_EMPTIES = "The operations take away {} of {} values. If that is meant, write the same answer again."


class Operation(BaseModel):
    """One change: op and path with a value, or find and replace."""

    op: Literal["set", "add", "remove"] | None = Field(None, description="for a document along a schema")
    path: str | None = Field(None, description="JSON Pointer, or the number of a value such as v3")
    value: str | int | float | bool | list[str] | None = Field(
        None, description="what is set or added; an object as JSON"
    )
    find: str | None = Field(None, description="for a document that is text: what is replaced, or the number of a line")
    replace: str | None = Field(None, description="for a document that is text: what stands there then")
    messages: list[int] = Field(description="numbers of the messages that say so, at least one")


class Operations(BaseModel):
    """The changes that the document needs; none if nothing is to be changed."""

    operations: list[Operation]


class AppliedOperation(NamedTuple):
    """What one operation has changed."""

    leaves: dict[str, Leaf]  # by path; a value None for what is gone
    numbers: tuple[int, ...]  # of the messages that say so
    replaced: dict[str, Leaf]  # what stood there before


@dataclass(slots=True)
class CheckedAnswer:
    """What an answer does to a document."""

    text: str
    changes: list[AppliedOperation] = field(default_factory=list)
    left_out: int = 0


# ---------------------------------------------------------------------- reading


def read_operations(answer: BaseMessage, parsed: Any) -> list[dict[str, Any]]:
    """Return the operations of an answer, wherever they stand in it."""
    check_end(answer)
    if isinstance(parsed, Operations):
        operations: list[Any] | None = [operation.model_dump(exclude_none=True) for operation in parsed.operations]
    else:
        operations = _listed(without_thoughts(str(answer.text)))
    if operations is None:
        raise BadAnswer(_UNREADABLE)
    return [operation if isinstance(operation, dict) else {} for operation in operations]


def _listed(text: str) -> list[Any] | None:
    operations, has_operations = list[Any](), False
    for value in _values(text):
        items = value
        if isinstance(value, dict):
            inner = next((item for item in value.values() if isinstance(item, list) and "op" not in value), None)
            items = inner if inner is not None and "find" not in value else [value]
        if not items or any(isinstance(item, dict) for item in items):
            has_operations = True
            operations += items
    return operations if has_operations else None


def _values(text: str) -> Iterator[Any]:
    """Yield the objects and lists that stand in a text."""
    decode, position, broken = json.JSONDecoder(strict=False).raw_decode, 0, 0
    while (opening := re.compile(r"[\[{]").search(text, position)) and broken < _MOST_BROKEN:
        try:
            value, position = decode(text, opening.start())
            check_depth(text[opening.start() : position])
        except (ValueError, RecursionError):
            broken, position = broken + 1, opening.end()
        else:
            yield value


# ---------------------------------------------------------------------- applying


@dataclass(slots=True)
class AnswerCheck:
    """Applies the operations of answers to a document."""

    form: Format
    text: str
    numbers: Mapping[str, str]  # of the values and lines that the keeper was shown
    sources: Mapping[int, bool]  # by the number of each message: whether it may be a source alone
    refused: str | None = None  # what the last answer had, if it would have emptied the document

    def __call__(self, answer: BaseMessage, parsed: Any) -> CheckedAnswer:
        """Read an answer, and apply it. An answer that empties the document is refused once."""
        operations = read_operations(answer, parsed)
        checked = CheckedAnswer(self.text, left_out=max(0, len(operations) - MOST_OPERATIONS))
        for operation in operations[:MOST_OPERATIONS]:
            before = leaves(self.form, checked.text)
            try:
                numbers = self._cited(operation)
                text = self._applied(checked.text, operation)
            except (WorkingMemError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
                checked.left_out += 1
                continue
            changed = differences(before, leaves(self.form, text)) or self._ended(operation)
            if len(changed) > MOST_VALUES or not _is_storable(changed):
                checked.left_out += 1
            elif changed:
                replaced = {path: before[path] for path in changed if path in before}
                checked.changes.append(AppliedOperation(changed, numbers, replaced))
                checked.text = text
        before, after = leaves(self.form, self.text), leaves(self.form, checked.text)
        removed = len(before.keys() - after.keys())
        if len(before) >= _FEW and 2 * removed > len(before) and self.refused != (dumped := json.dumps(operations)):
            self.refused = dumped
            raise BadAnswer(_EMPTIES.format(removed, len(before)))
        return checked

    def _ended(self, operation: dict[str, Any]) -> dict[str, Leaf]:
        """Return the value that holds no longer, also if nothing stands there: something older may be read later."""
        if isinstance(self.form, JsonFormat):
            path = self._path(operation)
            is_end = operation["op"] == "remove" and path_parts(path)[0] in self.form.schema.fields
            return {path: Leaf(None)} if is_end else {}
        find = unescape(str(operation["find"]))
        paths = emptied_field(self.form, self.numbers.get(find, find), unescape(str(operation.get("replace") or "")))
        return {path: Leaf(None) for path in paths}

    def _path(self, operation: dict[str, Any]) -> str:
        path = unescape(str(operation["path"]))
        return self.numbers.get(path, path if path.startswith("/") else f"/{path}")

    def _cited(self, operation: dict[str, Any]) -> tuple[int, ...]:
        cited = operation.get("messages")
        numbers = {int(number) for number in (cited if isinstance(cited, list) else [cited])}  # type: ignore[arg-type]
        if not numbers <= self.sources.keys() or not any(self.sources[number] for number in numbers):
            raise ValueError("it cites no message that is a source")
        return tuple(sorted(numbers))

    def _applied(self, text: str, operation: dict[str, Any]) -> str:
        if not isinstance(self.form, JsonFormat):
            find, replace = unescape(str(operation["find"])), visible(unescape(str(operation.get("replace") or "")))
            if not find.strip() and not self.form.template.strip():  # free text grows at its end
                return self.form.apply(text, replace, "append")
            return self.form.edit(text, [(self.numbers.get(find, find), replace)], erases=True)
        path = self._path(operation)
        names, value = path_parts(path), _seen(operation.get("value"))
        document = parse_json(text) if text else {}
        if not isinstance(document, dict):
            raise WorkingMemoryValidationError("the document has another form", remedy="write it anew")
        if operation["op"] == "remove":
            if not remove_at(document, names):
                if names[0] not in self.form.schema.fields:
                    raise WorkingMemoryValidationError(f"nothing stands at {path}", remedy="name a value")
                return text
            return written(self.form, document)
        if value is None:
            raise WorkingMemoryValidationError("no value", remedy="use remove")
        for encoded in dict.fromkeys(map(json.dumps, (value, _decoded(value)))):  # an object may have come as JSON
            try:
                return _set(self.form, deepcopy(document), operation["op"], path, names, json.loads(encoded))
            except WorkingMemoryValidationError as error:
                failure = error
        raise failure


def _set(form: JsonFormat, document: dict[str, Any], op: str, path: str, names: Sequence[str], value: Any) -> str:
    if op == "add":
        names, leaf = [*names, path_part(item_name(value))], Leaf(value, is_item=True)
    else:
        leaf = Leaf(value)
    set_at(document, [*names], leaf)
    text = written(form, document) if is_field(form, names[0]) else ""
    if op == "set" and not any(key == path or key.startswith(f"{path}/") for key in leaves(form, text)):
        raise WorkingMemoryValidationError("the schema has no such field", remedy="name a field of the schema")
    return text


def _is_storable(changed: dict[str, Leaf]) -> bool:
    """Tell whether rows can hold values: no integers beyond 64 bits, no lone surrogates."""
    try:
        orjson.dumps([(path, leaf.value) for path, leaf in changed.items()])
    except TypeError:
        return False
    return True


def _decoded(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
    except ValueError:
        return value


def _seen(value: Any) -> Any:
    """Return a value as a person sees it: without the escapes of the prompt, hidden text and control characters."""
    return in_texts(value, lambda text: visible(unescape(text)))
