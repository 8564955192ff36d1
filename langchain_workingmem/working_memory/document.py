"""The two formats of working memory: how an update becomes the next document. Pure; documents are text.

A refused update raises `WorkingMemoryValidationError`, whose message is written for a model.
"""

from __future__ import annotations

import json
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem._text.values import TOO_DEEP, check_depth, parse_json, shown
from langchain_workingmem.errors import OptionError, WorkingMemoryValidationError
from langchain_workingmem.working_memory.patch import (
    MOST_CHANGES,
    append_patch,
    append_text,
    changed_fields,
    changed_lines,
    has_values,
    is_same,
    merge_patch,
    merge_text,
    patch_between,
    paths,
    shorten,
    without_null,
    without_path,
)
from langchain_workingmem.working_memory.schema import dump, plain, refusal, shaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langchain_workingmem.working_memory.schema import Schema

Mode: TypeAlias = Literal["replace", "merge", "append"]

MOST_QUOTED = 5  # lines that a refusal quotes
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

    def __init__(self, template: str, default_mode: Mode | None = None) -> None:
        _check_mode(default_mode)
        self.template = template
        self.name: Literal["markdown", "text"] = "markdown" if template.strip() else "text"
        self.default_mode: Mode = default_mode or ("replace" if template.strip() else "append")
        self._blank = {"", *map(_squeezed, template.splitlines())}

    def read(self, document: str) -> Read:
        """Read a document."""
        return Read(document, all("".join(line.split()) in self._blank for line in document.splitlines()))

    def is_empty(self, document: str) -> bool:
        """Tell whether a document holds nothing, or only lines of the template."""
        return self.read(document).is_empty

    def apply(self, current: str, content: Any, mode: Mode | None, *, seen: str | None = None) -> str:
        """Return the next document. None takes the default mode; unless "replace" is passed, nothing may be erased.

        `seen`: the older version for which a whole text was made. What it changes of that is applied to the document, line by line.
        """
        _check_mode(mode)
        chosen = mode or self.default_mode
        if not isinstance(content, str):
            raise refusal(
                f"working memory is text here, and the update is of type {type(content).__name__}", "pass a str"
            )
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
            return append_text(current, content)
        return content if seen is None else merge_text(self._or_template(seen), self._or_template(current), content)

    def _or_template(self, document: str) -> str:
        return document if document.strip() else self.template

    def edit(self, current: str, edits: Iterable[tuple[str, str]], *, erases: bool = False) -> str:
        """Replace each `find`, which must occur exactly once; an empty memory is edited as its template.

        Unless it `erases`, something has to be left of what is known. Nothing is replaced where the replacement, which begins with
        `find`, stands already up to the end of the line.
        """
        before = text = self._or_template(current)
        for find, replace in edits:
            at = text.find(find) if find else -1
            if at < 0 or text.find(find, at + 1) >= 0:  # `count` misses overlaps
                raise _misquoted(find, 0 if at < 0 else max(2, text.count(find)), before)
            is_whole = replace.endswith("\n") or text[at + len(replace) :][:1] in ("", "\n")
            if not (is_whole and replace.startswith(find) and text.startswith(replace, at)):
                text = text[:at] + replace + text[at + len(find) :]
        if not erases and self.is_empty(text) and not self.is_empty(before):
            raise refusal("the edit would erase everything that is known", "clear it on purpose instead")
        return current if text == before else text

    def lost(self, before: str, after: str) -> list[str]:
        """Return the lines that an update would take away, if they are more than half of those that are known.

        A line stays if another one with its label has a value.
        """
        lines = after.splitlines()
        kept, labels = {*map(_squeezed, lines)}, {_label(line) for line in lines if _value(line)}
        known = [line for line in before.splitlines() if _squeezed(line) not in self._blank]
        gone = [
            line for line in known if _squeezed(line) not in kept and (not _label(line) or _label(line) not in labels)
        ]
        return gone if len(gone) > max(1, len(known) / 2) else []


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
        return json.dumps(shaped(self.schema.json_schema, is_tool=False), ensure_ascii=False)

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

    def apply(
        self, current: str, content: Any, mode: Mode | None, clear: Sequence[str] = (), *, seen: str | None = None
    ) -> str:
        """Return the next document, as `TextFormat.apply` does; fields in `clear` are deleted before the update."""
        chosen = mode or self.default_mode
        patch = self.schema.patch(_as_object(content))
        if chosen == "replace" and patch and seen is not None and seen != current:  # what it changes of that one
            chosen, patch = "merge", patch_between(reduce(without_path, clear, parse_document(seen)), patch)
        if chosen == "replace" and (patch or not clear):
            after = patch
        else:
            merge = append_patch if chosen == "append" else merge_patch
            after = merge(reduce(without_path, clear, _load(current)), patch)
        # a single null deletes one field, which is fine unless the schema has only one
        is_wide = len(patch) != 1 or len(self.schema.fields) == 1
        if mode != "replace" and current and not clear and is_wide and not has_values(after):
            raise refusal(
                "the update would set everything that is known to null",
                "send only the fields that are new or different, or clear it on purpose",
            )
        if current and is_same(after, parse_json(current)):
            return current  # `after` may have another order of keys
        return self._store(after)

    def remark(self, patch: Mapping[str, Any], clear: Iterable[str], before: str) -> str:
        """Report what an update could not do: fields to clear that do not exist, and fields that the schema does not have."""
        remarks, document = [], parse_document(before)
        missing = [repr(name) for name in dict.fromkeys(clear) if name and without_path(document, name) is document]
        if missing:
            fields = shorten(", ".join(paths(document)))
            rest = f"; the fields were {fields}" if fields else ""
            remarks.append(f"To be cleared, nothing was stored under {shorten(', '.join(missing))}{rest}")
        if unknown := [repr(key) for key in patch if not self.schema.patch({key: 0})]:
            known, names = shorten(", ".join(self.schema.fields)), shorten(", ".join(unknown))
            remarks.append(f"The schema has no {names}, so nothing was stored of it; its fields are {known}")
        return "\n".join(remarks)

    def _store(self, document: dict[str, Any]) -> str:
        if not document:
            return ""
        text = check_size(dump(document), self._max_bytes)  # before it is validated, which may take long
        self.schema.validate(document)
        return text


Format: TypeAlias = TextFormat | JsonFormat


def describe_change(form: Format, before: str, after: str) -> str:
    """Tell a model what its update has changed, one line for each field or line."""
    if before == after:
        return "The update holds nothing new, so nothing was changed."
    if isinstance(form, JsonFormat):
        lines = changed_fields(parse_document(before), parse_document(after))
    else:  # an empty memory is compared as its template, whose lines are not stored
        lines = [line for line in changed_lines(before or form.template, after) if before or line[0] == "+"]
    if not lines:
        return "Working memory is updated; only blanks or the order of its parts are different."
    more = [f"and {len(lines) - MOST_CHANGES} more"] if len(lines) > MOST_CHANGES else []
    return "\n".join(["Working memory is updated:", *map(shorten, lines[:MOST_CHANGES]), *more])


def joined(form: Format, user: str, guest: str) -> str:
    """Return the user's document with what only the guest's has; one of another kind than the user's adds nothing.

    Fields are merged, and those of the user win unless they are null. Raises `WorkingMemoryValidationError` if a schema refuses the result.
    """
    if form.is_empty(guest) or form.is_empty(user):
        return guest if form.is_empty(user) else user
    ours, theirs = parse_json(user), parse_json(guest)
    if isinstance(ours, dict) != isinstance(theirs, dict):
        return user
    if not isinstance(ours, dict):
        return _joined_text(user, guest)
    found = merge_patch(theirs, without_null(ours))
    if is_same(found, ours):
        return user
    return form.apply("", found, "replace") if isinstance(form, JsonFormat) else dump(found)


def _joined_text(user: str, guest: str) -> str:
    """Add the lines that the user's text lacks; a label without a value takes that of the guest."""
    lines, fresh = user.splitlines(), list[str]()
    places = {_label(line): at for at, line in enumerate(lines) if _label(line)}
    for line in guest.splitlines():
        at = places.get(_label(line))
        if at is not None and not _value(lines[at]):
            lines[at] = line
        elif at is None and line.strip() and line not in lines:
            fresh.append(line)
    return "\n".join([*lines, *fresh]) if places or not fresh else append_text(user, "\n".join(fresh))


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
        found = plain(json.loads(check_depth(content)) if isinstance(content, str) else content)
    except (ValueError, RuntimeError) as error:  # of JSON, of Pydantic, and of Python where it has no end
        reason = TOO_DEEP if isinstance(error, RecursionError) else error
        raise refusal(f"the update is not JSON ({reason})", "send JSON values") from error
    if not isinstance(found, dict):
        raise refusal(
            f"working memory is an object here, and the update is of type {type(content).__name__}", "pass a dict"
        )
    return found


def _check_mode(mode: Mode | None) -> None:
    if mode == "merge":
        raise OptionError("mode='merge' needs a schema", remedy="use 'replace' or 'append' for Markdown and text")


def _misquoted(find: str, times: int, text: str) -> WorkingMemoryValidationError:
    seen, remedy, quoted = "`find` is empty", "quote the text that is to be replaced", ""
    if times:
        seen, remedy = f"{shown(find)} stands {times} times in working memory", "quote more of the text around it"
        lines = [line for line in text.splitlines() if find.splitlines()[0] in line][:MOST_QUOTED]
        quoted = ", so that it is unique. It stands in:" + "".join(f"\n    {shorten(line)}" for line in lines)
    elif find:
        seen, remedy = f"{shown(find)} does not stand in working memory", "quote the text exactly as it is"
    return refusal(f"{seen}: {remedy}{quoted}", remedy)


def _squeezed(line: str) -> str:
    return "".join(line.split())


def _label(line: str) -> str:
    label, colon, _ = line.partition(":")
    return label.strip() if colon else ""


def _value(line: str) -> str:
    return line.partition(":")[2].strip("*_ \t")
