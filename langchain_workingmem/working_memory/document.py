"""The two formats of working memory: how an update becomes the next document. Pure; documents are text.

A refused update raises `WorkingMemoryValidationError`, whose message is written for a model.
"""

from __future__ import annotations

import json
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import langchain_workingmem.working_memory.patch as patches
from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem._text.values import check_depth, parse_json, shown
from langchain_workingmem.errors import OptionError, WorkingMemoryValidationError
from langchain_workingmem.working_memory.patch import is_same, named, shorten, without_path
from langchain_workingmem.working_memory.schema import dump, plain, refusal, update_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langchain_workingmem.working_memory.schema import Schema

Mode: TypeAlias = Literal["replace", "merge", "append"]

MOST_QUOTED = 5  # lines that a refusal quotes
MOST_CHANGES = 20  # that a description shows
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
MOST_WRAPPINGS = 4  # around a text
_WRAPPERS = {"memory", "working_memory", "content", "text", "data"}


class Read(NamedTuple):
    """What a stored document holds."""

    value: Any  # as its reader wants it; the text where it does not fit
    is_empty: bool  # nothing, or the bare template
    problem: str = ""  # why it does not fit


class TextFormat:
    """Markdown along a template, or, with an empty one, free text."""

    def __init__(self, template: str, default_mode: Mode | None = None, max_bytes: int | None = None) -> None:
        self.template = template
        self.name: Literal["markdown", "text"] = "markdown" if template.strip() else "text"
        self.default_mode: Mode = self._mode(default_mode or ("replace" if template.strip() else "append"))
        self._max_bytes = max_bytes
        self._blank = {"", *map(_squeezed, template.splitlines())}

    def read(self, document: str) -> Read:
        """Read a document."""
        return Read(document, self.is_empty(document))

    def is_empty(self, document: str) -> bool:
        """Tell whether a document holds nothing, or only lines of the template."""
        return all(_squeezed(line) in self._blank for line in document.splitlines())

    def is_foreign(self, document: str) -> bool:
        """Tell whether a document was written along a schema; free text takes anything."""
        return self.name == "markdown" and isinstance(parse_json(document), dict)

    def apply(self, current: str, content: Any, mode: Mode | None, *, seen: str | None = None) -> str:
        """Return the next document. None takes the default mode; unless "replace" is passed, nothing may be erased.

        `seen`: the older version for which a whole text was made. What it changes of that is applied to the document, line by line.
        """
        chosen = self._mode(mode or self.default_mode)
        if not isinstance(content, str):
            seen_type = type(content).__name__
            raise refusal(f"working memory is text here, and the update is of type {seen_type}", "pass a str")
        if mode != "replace" and not content.strip():
            raise refusal("the update is empty", "send its whole text, or clear it on purpose")
        if mode != "replace" and self.is_empty(content):
            if self.is_empty(current) or (seen is not None and self.is_empty(seen)):
                return current  # the update says nothing
            raise refusal(
                "the update is the bare template, which would erase what is known",
                "send the template filled with all of it, or clear it on purpose",
            )
        if chosen == "append":
            content = patches.append_text(current, content)
        elif seen is not None:
            content = patches.merge_text(self._or_template(seen), self._or_template(current), content)
        return check_size(content, self._max_bytes)

    def _or_template(self, document: str) -> str:
        return document if document.strip() else self.template

    def _mode(self, mode: Mode) -> Mode:
        if mode == "merge":
            raise OptionError("mode='merge' needs a schema", remedy="use 'replace' or 'append' for Markdown and text")
        return mode

    def edit(self, current: str, edits: Iterable[tuple[str, str]], *, erases: bool = False) -> str:
        """Replace each `find`, which must occur exactly once; an empty memory is edited as its template.

        Unless it `erases`, something has to be left of what is known. Nothing is replaced where the replacement, which begins with
        `find`, stands already up to the end of the line.
        """
        before = text = self._or_template(current)
        for find, replace in edits:
            at = text.find(find) if find else -1
            if at < 0:
                raise refusal(f"{shown(find)} does not stand in working memory", "quote the text exactly as it is")
            if at != text.rfind(find):
                lines = [f"\n    {shorten(line)}" for line in before.splitlines() if find.splitlines()[0] in line]
                remedy = "quote more of the text around it, so that it is unique. It stands in:"
                raise refusal(
                    f"{shown(find)} stands more than once in working memory", remedy + "".join(lines[:MOST_QUOTED])
                )
            is_whole = replace.endswith("\n") or text[at + len(replace) :][:1] in ("", "\n")
            if not (is_whole and replace.startswith(find) and text.startswith(replace, at)):
                text = text[:at] + replace + text[at + len(find) :]
        if not erases and self.is_empty(text) and not self.is_empty(before):
            raise refusal("the edit would erase everything that is known", "clear it on purpose instead")
        return current if text == before else check_size(text, self._max_bytes)

    def lost(self, before: str, after: str) -> list[str]:
        """Return the lines that an update would take away, if they are more than half of those that are known.

        A line stays if another one with its label has a value.
        """
        kept = {_squeezed(line) for line in after.splitlines()}
        labels = {label for label, value in map(_labelled, after.splitlines()) if value}
        known = [line for line in before.splitlines() if _squeezed(line) not in self._blank]
        gone = [line for line in known if _squeezed(line) not in kept and _labelled(line)[0] not in labels]
        return gone if len(gone) > max(1, len(known) / 2) else []

    def changes(self, before: str, after: str) -> list[str]:
        """Describe what an update has changed; an empty memory is compared as its template, whose lines are not stored."""
        lines = patches.changed_lines(before or self.template, after)
        return [line for line in lines if before or line[0] == "+"]

    def joined(self, user: str, guest: str) -> str:
        """Return the user's document with the lines that only the guest's has; a label without a value takes the guest's."""
        if self.name == "text":
            return self.apply(user, guest, "append")
        theirs = {_labelled(line)[0]: line for line in guest.splitlines()}
        lines = []
        for line in user.splitlines():
            label, value = _labelled(line)
            other = theirs.pop(label, line)
            lines.append(line if value else other)
        return check_size("\n".join([*lines, *theirs.values()]), self._max_bytes)


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
        return json.dumps(update_schema(self.schema.json_schema), ensure_ascii=False)

    def read(self, document: str) -> Read:
        """Read a document."""
        if not document:
            return Read(None, is_empty=True)
        try:
            return Read(self.schema.value(_load(document)), is_empty=False)
        except WorkingMemoryValidationError as error:
            return Read(document, is_empty=False, problem=str(error))

    def is_empty(self, document: str) -> bool:
        """Tell whether a document holds nothing."""
        return not document

    def is_foreign(self, document: str) -> bool:
        """Tell whether a document was written in another format."""
        return bool(document) and not isinstance(parse_json(document), dict)

    def apply(
        self, current: str, content: Any, mode: Mode | None, clear: Sequence[str] = (), *, seen: str | None = None
    ) -> str:
        """Return the next document, as `TextFormat.apply` does; fields in `clear` are deleted before the update."""
        chosen = mode or self.default_mode
        patch = self.schema.patch(_as_object(content))
        if chosen == "replace" and patch and seen is not None and seen != current:  # what it changes of that one
            patch = patches.patch_between(reduce(without_path, clear, parse_document(seen)), patch)
            chosen = "merge"
        if chosen == "replace" and (patch or not clear):
            after = patch
        else:
            merge = patches.append_patch if chosen == "append" else patches.merge_patch
            after = merge(reduce(without_path, clear, _load(current)), patch)
        # a single null deletes one field, which is fine unless the schema has only one
        is_wide = len(patch) != 1 or len(self.schema.fields) == 1
        has_values = any(value not in (None, {}) for _, value in named(after))
        if mode != "replace" and current and not clear and is_wide and not has_values:
            raise refusal(
                "the update would set everything that is known to null",
                "send only the fields that are new or different, or clear it on purpose",
            )
        if not after:
            return ""
        text = check_size(dump(after), self._max_bytes)  # before it is validated, which may take long
        if current and is_same(after, parse_json(current)):
            return current  # `after` may have another order of keys
        self.schema.validate(after)
        return text

    def remark(self, patch: Mapping[str, Any], clear: Iterable[str], before: str) -> str:
        """Name the fields of an update that the schema does not have, or under which nothing is stored that could be cleared."""
        document = parse_document(before)
        absent = [f"the schema has no {key!r}" for key in patch if not self.schema.patch({key: 0})]
        absent += [
            f"nothing is stored under {one!r}" for one in clear if one and without_path(document, one) is document
        ]
        known = dict.fromkeys([*self.schema.fields, *(name for name, _ in named(document))])
        return f"But {shorten(', '.join(absent))}; the fields are {shorten(', '.join(known))}" if absent else ""

    def changes(self, before: str, after: str) -> list[str]:
        """Describe what an update has changed."""
        return patches.changed_fields(parse_document(before), parse_document(after))

    def joined(self, user: str, guest: str) -> str:
        """Return the user's document with the fields that only the guest's has, or that are null in the user's."""
        ours = patches.without_padding(parse_document(user))
        return self.apply(user, patches.merge_patch(parse_document(guest), ours), "replace")


Format: TypeAlias = TextFormat | JsonFormat


def describe_change(form: Format, before: str, after: str) -> str:
    """Tell a model what its update has changed, one line for each field or line."""
    if before == after:
        return "The update holds nothing new, so nothing was changed."
    lines = form.changes(before, after)
    if not lines:
        return "Working memory is updated; only blanks or the order of its parts are different."
    more = [f"and {len(lines) - MOST_CHANGES} more"] if len(lines) > MOST_CHANGES else []
    return "\n".join(["Working memory is updated:", *map(shorten, lines[:MOST_CHANGES]), *more])


def unwrapped(text: str) -> str:
    """Take off what models put around a whole text: code fences, the tags of the block, an object with one text."""
    for _ in range(MOST_WRAPPINGS):
        inner = _inner(text.strip())
        if inner is None:
            break
        text = inner
    return text


def _inner(text: str) -> str | None:
    first, _, rest = text.partition("\n")
    if first.startswith("```") and rest.endswith("```") and (first == "```" or first[3:].isalnum()):
        return rest[:-3].removesuffix("\n")
    if text.startswith("<working_memory") and "</data>" in text:
        return text.partition("<data>")[2].rpartition("</data>")[0].strip("\n")
    for tag in ("working_memory", "data", "template"):
        if text.startswith((f"<{tag}>", f"<{tag} ")) and text.endswith(f"</{tag}>"):
            return text.partition(">")[2].rpartition("<")[0].strip("\n")
    value = parse_json(text) if text.startswith("{") else None
    only = [*value.values()] if isinstance(value, dict) and value.keys() <= _WRAPPERS else []
    return only[0] if len(only) == 1 and isinstance(only[0], str) else None


def check_size(document: str, limit: int | None) -> str:
    """Return a document, or raise `WorkingMemoryValidationError` when it is too large or not valid UTF-8."""
    if not is_utf8(document):
        raise refusal("the update holds a lone surrogate, which UTF-8 cannot carry", "send valid Unicode")
    size = len(document.encode())
    if limit is not None and size > limit:
        seen = f"working memory would have {size} bytes, and the limit is {limit}"
        raise refusal(seen, "keep only what matters")
    return document


def parse_document(text: str) -> dict[str, Any]:
    """Return the fields of a document; none when it was written in another format."""
    found = parse_json(text)
    return found if isinstance(found, dict) else {}


def _load(text: str) -> dict[str, Any]:
    document = parse_json(text) if text else {}
    if not isinstance(document, dict):
        raise refusal(
            "what is stored was written in another format than the schema's JSON",
            "replace it as a whole by everything that still holds, in the form of the schema",
        )
    return document


def _as_object(content: Any) -> dict[str, Any]:
    try:
        found = json.loads(check_depth(content)) if isinstance(content, str) else plain(content)
    except (ValueError, RuntimeError) as error:  # of JSON, and of Pydantic
        raise refusal(f"the update is not JSON ({error})", "send JSON values") from error
    if not isinstance(found, dict):
        seen = f"working memory is an object here, and the update is of type {type(content).__name__}"
        raise refusal(seen, "pass a dict")
    return found


def _squeezed(line: str) -> str:
    return "".join(line.split())


def _labelled(line: str) -> tuple[str, str]:
    label, _, value = line.partition(":")
    return label.strip(), value.strip("*_ \t")
