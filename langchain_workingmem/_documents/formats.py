"""The formats of working memory: how an update becomes the next document. Pure; documents are text.

A refused update raises `WorkingMemoryValidationError`, whose message is written for a model.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from langchain_workingmem._documents.merging import (
    append_patch,
    append_text,
    at_path,
    count_leaves,
    is_same,
    merge_patch,
    parse_json,
    paths,
    shorten,
    without_paths,
)
from langchain_workingmem._documents.schemas import check_utf8, dump, plain, refusal, shape
from langchain_workingmem._documents.threeway import merge_text
from langchain_workingmem._text.nesting import check_depth
from langchain_workingmem.errors import OptionError, Remedy, WorkingMemoryValidationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langchain_workingmem._documents.schemas import Schema

Mode: TypeAlias = Literal["replace", "merge", "append"]

QUOTED = 5  # lines that a refusal quotes at most

DEFAULT_TEMPLATE = """\
# User information
- **First name**:
- **Last name**:
- **Location**:
- **Occupation**:
- **Interests**:
- **Goals**:
- **Events**:
- **Facts**:
- **Projects**:
"""


class TextFormat:
    """Markdown along a template, or, with an empty one, free text."""

    def __init__(self, template: str, default_mode: Mode | None = None) -> None:
        _check_mode(default_mode)
        self.template = template
        self.name: Literal["markdown", "text"] = "markdown" if template.strip() else "text"
        self.default_mode: Mode = default_mode or ("replace" if template.strip() else "append")
        self._template_lines = frozenset(map(_squeezed, _lines(template)))

    def apply(self, current: str, content: Any, mode: Mode | None) -> str:
        """Return the next document. None takes the default mode; unless "replace" is passed, nothing may be erased."""
        _check_mode(mode)
        if not isinstance(content, str):
            raise WorkingMemoryValidationError(
                f"working memory is text here, the update is of type {type(content).__name__}", remedy="pass a str"
            )
        if mode != "replace" and self.is_empty(content):
            if content.strip() and self.is_empty(current):
                return current  # still nothing is known
            seen, remedy = (
                "is the bare template, which would erase what is known",
                "the template filled with everything that is known",
            )
            if not content.strip():
                seen, remedy = "is empty", "its whole text"
            raise WorkingMemoryValidationError(
                f"the update {seen}, so working memory was not changed",
                remedy=f"send {remedy}, or clear it on purpose",
            )
        return append_text(current, content) if (mode or self.default_mode) == "append" else content

    def replace(self, current: str, content: str, seen: str | None) -> str:
        """Apply an update that was made for `seen`, an older version of the document; None: which one is unknown.

        In mode "replace", the changes from `seen` to the update are applied to the document as it is, line by line.
        """
        if self.default_mode != "replace" or seen is None:
            return self.apply(current, content, None)
        if content.strip() and self.is_empty(content) and self.is_empty(seen):
            return current  # the update says nothing
        self.apply(current, content, None)  # refuses what would erase everything
        merged = merge_text(self._or_template(seen), self._or_template(current), content)
        return self.apply(current, merged, None)

    def _or_template(self, document: str) -> str:
        return document if document.strip() else self.template

    def edit(self, current: str, edits: Sequence[tuple[str, str]], *, erases: bool = False) -> str:
        """Replace each `find`, which must occur exactly once; an empty memory is edited as its template.

        Unless it `erases`, something has to be left of what is known.

        Nothing is replaced where the replacement, which begins with `find`, stands already up to the end of the line.
        """
        before = text = self._or_template(current)
        for find, replace in edits:
            at = text.find(find) if find else -1
            if at < 0 or text.find(find, at + 1) >= 0:
                # `count` misses overlaps
                raise _misquoted(find, 0 if at < 0 else max(2, text.count(find)), before)
            is_whole = replace.endswith("\n") or text[at + len(replace) :][:1] in ("", "\n")
            if is_whole and replace.startswith(find) and text.startswith(replace, at):
                continue  # the same edit was made before
            text = text[:at] + replace + text[at + len(find) :]
        if not erases and self.is_empty(text) and not self.is_empty(before):
            raise WorkingMemoryValidationError(
                "the edit would erase everything that is known, so nothing was changed",
                remedy="clear it on purpose instead",
            )
        return current if text == before else text

    def value(self, document: str) -> str:
        """Return a document as its reader wants it."""
        return document

    def is_empty(self, document: str) -> bool:
        """Tell whether a document holds nothing, or only lines of the template."""
        return set(map(_squeezed, _lines(document))) <= self._template_lines


class JsonFormat:
    """A JSON document along a schema."""

    name: Literal["json"] = "json"

    def __init__(self, schema: Schema, default_mode: Mode | None = None, max_bytes: int | None = None) -> None:
        self.schema = schema
        self._max_bytes = max_bytes
        self.default_mode: Mode = default_mode or "merge"

    @cached_property
    def described(self) -> str:
        """The schema of an update, as JSON for a prompt."""
        return json.dumps(shape(self.schema.json_schema, nullable=False), ensure_ascii=False)

    def apply(self, current: str, content: Any, mode: Mode | None, clear: Sequence[str] = ()) -> str:
        """Return the next document, as `TextFormat.apply` does; fields in `clear` are deleted before the update."""
        chosen = mode or self.default_mode
        patch = self.schema.patch(_as_object(content))
        if chosen == "replace" and (patch or not clear):
            after = patch
        else:
            merge = append_patch if chosen == "append" else merge_patch
            after = merge(without_paths(self._load(current), clear), patch)
        if mode != "replace" and current and not clear and self._wipes(patch, after):
            raise WorkingMemoryValidationError(
                "the update would set everything that is known to null, so working memory was not changed",
                remedy="send only the fields that are new or different, or clear it on purpose",
            )
        if current and is_same(after, parse_json(current)):
            return current  # `after` may have another order of keys
        return self._store(after)

    def _wipes(self, patch: dict[str, Any], after: dict[str, Any]) -> bool:
        # a single null deletes one field, which is fine unless the schema has only one
        several = count_leaves(patch) != 1 or len(self.schema.fields) == 1
        return several and not count_leaves(after, null=False)

    def remark(self, patch: Mapping[str, Any], clear: Iterable[str], before: str) -> str:
        """Report what an update could not do: fields to clear that do not exist, and fields that the schema does not have."""
        remarks, document = [], parse_json(before) or {}
        if missing := [repr(name) for name in dict.fromkeys(clear) if name and not at_path(document, name)]:
            fields = shorten(", ".join(paths(document)))
            rest = f"; the fields were {fields}" if fields else ""
            remarks.append(f"To be cleared, nothing was stored under {shorten(', '.join(missing))}{rest}")
        if unknown := [repr(key) for key in patch if not self.schema.patch({key: 0})]:
            known = shorten(", ".join(self.schema.fields))
            names = shorten(", ".join(unknown))
            remarks.append(f"The schema has no {names}, so nothing was stored of it; its fields are {known}")
        return "\n".join(remarks)

    def _load(self, text: str) -> dict[str, Any]:
        document = parse_json(text) if text else {}
        if not isinstance(document, dict):
            raise WorkingMemoryValidationError(
                "what is stored was written in another format than the schema's JSON",
                remedy=Remedy("{rewrite}"),
            )
        return document

    def _store(self, document: dict[str, Any]) -> str:
        if not document:
            return ""
        text = check_size(dump(document), self._max_bytes)  # before it is validated, which may take long
        self.schema.validate(document)
        return text

    def value(self, document: str) -> Any:
        """Return a document as the user's type, None when it is empty."""
        loaded = self._load(document)
        return self.schema.value(loaded) if loaded else None

    def is_empty(self, document: str) -> bool:
        """Tell whether a document holds nothing."""
        return not document


Format: TypeAlias = TextFormat | JsonFormat


def check_size(document: str, limit: int | None) -> str:
    """Return a document, or raise `WorkingMemoryValidationError` when it is too large or not valid UTF-8."""
    size = len(check_utf8(document).encode())
    if limit is not None and size > limit:
        raise WorkingMemoryValidationError(
            f"working memory would have {size} bytes, the limit is {limit}, so nothing was changed",
            remedy=Remedy("keep only what matters{or_max_bytes}"),
        )
    return document


def _check_mode(mode: Mode | None) -> None:
    if mode == "merge":
        raise OptionError("mode='merge' needs a schema", remedy="use 'replace' or 'append' for Markdown and text")


def _as_object(content: Any) -> dict[str, Any]:
    if isinstance(content, str):
        try:
            content = json.loads(check_depth(content))
        except ValueError as error:
            raise refusal(f"the update is not JSON ({error})", "send JSON") from error
    found = plain(content)
    if not isinstance(found, dict):
        raise WorkingMemoryValidationError(
            f"working memory is an object here, the update is of type {type(content).__name__}", remedy="pass a dict"
        )
    return found


def _misquoted(find: str, times: int, text: str) -> WorkingMemoryValidationError:
    seen, remedy, where = "`find` is empty", "quote the text that is to be replaced", ""
    lines: list[str] = []
    if times:
        seen, remedy = f"{shorten(find)!r} stands {times} times in working memory", "quote more of the text around it"
        where = ", so that it is unique. It stands in:"
        lines = [line for line in text.splitlines() if find.splitlines()[0] in line]
    elif find:
        seen, remedy = f"{shorten(find)!r} does not stand in working memory", "quote the text exactly as it is"
    quoted = where + "".join(f"\n    {shorten(line)}" for line in lines[:QUOTED]) if lines else ""
    return WorkingMemoryValidationError(f"{seen}, so nothing was changed: {remedy}{quoted}", remedy=remedy)


def _squeezed(line: str) -> str:
    return "".join(line.split())


def _lines(text: str) -> list[str]:
    return [line for line in map(str.strip, text.splitlines()) if line]
