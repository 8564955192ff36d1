"""The two formats of working memory: how an update makes the next document. Pure. Refusals are written for a model."""

from __future__ import annotations

import json
import re
from collections import Counter
from difflib import SequenceMatcher, unified_diff
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem._text.values import canonical, check_depth, parse_json, shown
from langchain_workingmem.errors import OptionError, WorkingMemoryValidationError
from langchain_workingmem.working_memory.schema import dump, plain, refusal, update_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from langchain_workingmem.working_memory.schema import Schema

Mode: TypeAlias = Literal["replace", "merge", "append"]

MOST_QUOTED = 5  # lines that a refusal quotes, or conflicts
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
_AROUND = re.compile(
    r"```\w*\n(?P<fenced>.*?)```|<working_memory\b(?>.*?<data>)(?P<data>.*)</data>.*|"
    r"<(?P<tag>working_memory|data|template)\b[^>]*>(?P<inner>.*)</(?P=tag)>",
    re.DOTALL,
)
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
        return {"".join(line.split()) for line in document.splitlines()} <= self._blank

    def is_foreign(self, document: str) -> bool:
        """Tell whether a document was written along a schema; free text takes anything."""
        return self.name == "markdown" and document[:1] == "{" and isinstance(parse_json(document), dict)

    def apply(self, current: str, content: Any, mode: Mode | None, *, seen: str | None = None) -> str:
        """Return the next document. None takes the default mode; unless "replace" is passed, nothing may be erased.

        `seen`: the older version for which a whole text was made; what it changes of that is applied, line by line.
        """
        chosen = self._mode(mode or self.default_mode)
        if not isinstance(content, str):
            seen_type = type(content).__name__
            raise refusal(f"working memory is text here, and the update is of type {seen_type}", "pass a str")
        if mode != "replace" and self.is_empty(content):
            if content.strip() and (self.is_empty(current) or (seen is not None and self.is_empty(seen))):
                return current  # the update says nothing
            remedy = "send a text with all that still holds, or clear it on purpose"
            raise refusal("the update is empty, or the bare template, which would erase what is known", remedy)
        if chosen == "append":
            content = append_text(current, content)
        elif seen is not None:
            content = merge_text(self._or_template(seen), self._or_template(current), content)
        return check_size(content, self._max_bytes)

    def _or_template(self, document: str) -> str:
        return document if document.strip() else self.template

    def _mode(self, mode: Mode) -> Mode:
        if mode == "merge":
            raise OptionError("mode='merge' needs a schema", remedy="use 'replace' or 'append' for Markdown and text")
        return mode

    def edit(self, current: str, edits: Iterable[tuple[str, str]], *, erases: bool = False) -> str:
        """Replace each `find`, which must occur exactly once; an empty memory is edited as its template.

        Unless it `erases`, something has to be left. A replacement that begins with `find` is not repeated where it is.
        """
        before = text = self._or_template(current)
        for find, replace in edits:
            start = text.find(find) if find else -1
            if start < 0:
                raise refusal(f"{shown(find)} does not stand in working memory", "quote the text exactly as it is")
            if start != text.rfind(find):
                lines = [f"\n    {shorten(line)}" for line in text.splitlines() if find.splitlines()[0] in line]
                remedy = "quote more of the text around it, so that it is unique. It stands in:"
                problem = f"{shown(find)} stands more than once in working memory"
                raise refusal(problem, remedy + "".join(lines[:MOST_QUOTED]))
            is_whole = replace.endswith("\n") or text[start + len(replace) :][:1] in ("", "\n")
            if not (is_whole and replace.startswith(find) and text.startswith(replace, start)):
                text = text[:start] + replace + text[start + len(find) :]
        if not erases and self.is_empty(text) and not self.is_empty(before):
            raise refusal("the edit would erase everything that is known", "clear it on purpose instead")
        return current if text == before else check_size(text, self._max_bytes)

    def lost(self, before: str, after: str) -> list[str]:
        """Return the lines an update takes away, if more than half of those known; a label may get a new value."""
        kept = {_squeezed(line) for line in after.splitlines()}
        labels = {label for label, value in map(_labelled, after.splitlines()) if value}
        known = [line for line in before.splitlines() if _squeezed(line) not in self._blank]
        gone = [line for line in known if _squeezed(line) not in kept and _labelled(line)[0] not in labels]
        return gone if len(gone) > max(1, len(known) / 2) else []

    def changes(self, before: str, after: str) -> list[str]:
        """Describe what an update has changed; an empty memory is compared as its template, which is not stored."""
        diff = [*unified_diff((before or self.template).splitlines(), after.splitlines(), n=0, lineterm="")][2:]
        signs = "+-" if before else "+"
        return [f"{line[0]} {line[1:]}" for line in diff if line[0] in signs and line[1:].strip()]

    def joined(self, user: str, guest: str) -> str:
        """Return the user's document, with lines that only the guest's has; a field without value takes the guest's."""
        if self.name == "text":
            return self.apply(user, guest, "append")
        labels = {_labelled(line)[0] for line in self.template.splitlines()}  # of fields; "- 10:30 tea" has none
        labels |= {label for label, value in map(_labelled, (*user.splitlines(), *guest.splitlines())) if not value}
        counts = Counter(_labelled(line)[0] for line in guest.splitlines())
        labels -= {label for label, count in counts.items() if count > 1}  # what comes several times is no field
        theirs = {label if (label := _labelled(line)[0]) in labels else line: line for line in guest.splitlines()}
        lines = []
        for line in user.splitlines():
            label, value = _labelled(line)
            guest_line = theirs.pop(label if label in labels else line, line)
            lines.append(line if value else guest_line)
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
            patch = patch_between(reduce(without_path, clear, parse_document(seen)), patch)
            chosen = "merge"
        if chosen == "replace" and (patch or not clear):
            after = patch
        else:
            merge = append_patch if chosen == "append" else merge_patch
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
        """Name the fields of an update that the schema does not have, or under which nothing could be cleared."""
        document = parse_document(before)
        absent = [f"the schema has no {key!r}" for key in patch if not self.schema.patch({key: 0})]
        absent += [
            f"nothing is stored under {path!r}" for path in clear if path and without_path(document, path) is document
        ]
        known = dict.fromkeys([*self.schema.fields, *(name for name, _ in named(document))])
        return f"But {shorten(', '.join(absent))}; the fields are {shorten(', '.join(known))}" if absent else ""

    def changes(self, before: str, after: str) -> list[str]:
        """Describe what an update has changed."""
        old, new = (dict(named(parse_document(document))) for document in (before, after))
        changed = [name for name in {**new, **old} if not is_same(old.get(name), new.get(name))]
        emptied = {name for name in changed if new.get(name) == {} and any(key.startswith(f"{name}.") for key in old)}
        changed = [name for name in changed if name not in emptied]  # what went out of it says so
        return [f"{name}: {_as_text(new.get(name))} (was {_as_text(old.get(name))})" for name in changed]

    def joined(self, user: str, guest: str) -> str:
        """Return the user's document with the fields that only the guest's has, or that are null in the user's."""
        ours = without_padding(parse_document(user))
        return self.apply(user, merge_patch(parse_document(guest), ours), "replace")


Format: TypeAlias = TextFormat | JsonFormat


# ---------------------------------------------------------------------- beside the formats


def describe_change(form: Format, before: str, after: str) -> str:
    """Tell a model what its update has changed, one line for each field or line."""
    if before == after:
        return "The update holds nothing new, so nothing was changed."
    lines = form.changes(before, after)
    if not lines:
        return "Working memory is updated; only blanks or the order of its parts are different."
    rest = [f"and {len(lines) - MOST_CHANGES} more"] if len(lines) > MOST_CHANGES else []
    return "\n".join(["Working memory is updated:", *map(shorten, lines[:MOST_CHANGES]), *rest])


def unwrapped(text: str) -> str:
    """Take off what models put around a whole text: code fences, the tags of the block, an object with one text."""
    for _ in range(3):
        match, value = _AROUND.fullmatch(text.strip()), parse_json(text)
        values = [*value.values()] if isinstance(value, dict) and value.keys() <= _WRAPPERS else []
        if match:
            text = (match["fenced"] or match["data"] or match["inner"] or "").strip("\n")
        elif len(values) == 1 and isinstance(values[0], str):
            text = values[0]
        else:
            break
    return text


def check_size(document: str, limit: int | None) -> str:
    """Return a document, or raise `WorkingMemoryValidationError` when it is too large or not valid UTF-8."""
    if not is_utf8(document):
        raise refusal("the update holds a lone surrogate, which UTF-8 cannot carry", "send valid Unicode")
    size = len(document.encode())
    if limit is not None and size > limit:
        problem = f"working memory would have {size} bytes, and the limit is {limit}"
        raise refusal(problem, "keep only what matters")
    return document


def parse_document(text: str) -> dict[str, Any]:
    """Return the fields of a document; none when it was written in another format."""
    value = parse_json(text)
    return value if isinstance(value, dict) else {}


def _load(text: str) -> dict[str, Any]:
    document = parse_json(text or "{}")
    if not isinstance(document, dict):
        raise refusal(
            "what is stored was written in another format than the schema's JSON",
            "replace it as a whole by everything that still holds, in the form of the schema",
        )
    return document


def _as_object(content: Any) -> dict[str, Any]:
    try:
        value = json.loads(check_depth(content)) if isinstance(content, str) else plain(content)
    except (ValueError, RuntimeError) as error:  # of JSON, and of Pydantic
        raise refusal(f"the update is not JSON ({error})", "send JSON values") from error
    if canonical(value) is None:
        raise refusal("the update has an int of too many digits, or is nested too deep", "send JSON values")
    if not isinstance(value, dict):
        problem = f"working memory is an object here, and the update is of type {type(content).__name__}"
        raise refusal(problem, "pass a dict")
    return value


def _squeezed(line: str) -> str:
    return "".join(line.split())


def _labelled(line: str) -> tuple[str, str]:
    label, _, value = line.partition(":")
    return label.strip(), value.strip("*_ \t")


def _as_text(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)


def shorten(text: str, width: int = 200) -> str:
    """Cut a long text for a message."""
    return text if len(text) <= width else f"{text[: width - 4]} ..."


# ---------------------------------------------------------------------- JSON


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396): objects merge deeply, null deletes, all else is replaced."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def append_patch(target: Any, patch: Any) -> Any:
    """Append: objects merge deeply, arrays grow by items that they lack (compared as JSON), all else is replaced."""
    if isinstance(patch, dict):
        before = target if isinstance(target, dict) else {}
        return before | {key: append_patch(before.get(key), value) for key, value in patch.items()}
    if isinstance(patch, list):
        items = [*target, *patch] if isinstance(target, list) else patch
        return list({json.dumps(item, sort_keys=True): item for item in items}.values())
    return patch


def patch_between(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the merge patch that makes one document of another."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            if below := patch_between(old, value):
                patch[key] = below
        elif key not in before or not is_same(old, value):
            patch[key] = value
    return patch


def without_padding(value: Any) -> Any:
    """Remove fields that a model fills a form with: null, empty texts, lists and objects."""
    if isinstance(value, dict):
        lean = {key: without_padding(item) for key, item in value.items()}
        return {key: item for key, item in lean.items() if item not in (None, "", [], {})}
    return [without_padding(item) for item in value] if isinstance(value, list) else value


def is_same(left: Any, right: Any) -> bool:
    """Compare two JSON values in any order of keys; true and 1 differ, unlike in Python."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def named(document: Any, parents: str = "") -> Iterator[tuple[str, Any]]:
    """List the values of an object by their dotted names, in nested objects those that have none inside."""
    for key, value in document.items() if isinstance(document, dict) else ():
        if isinstance(value, dict) and value:
            yield from named(value, f"{parents}{key}.")
        else:
            yield f"{parents}{key}", value


def without_path(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object without the value of a dotted name, and itself where there is none; keys may hold dots."""
    if name in document:
        return {key: value for key, value in document.items() if key != name}
    for key, value in document.items():
        if isinstance(value, dict) and name.startswith(f"{key}."):
            below = without_path(value, name[len(key) + 1 :])
            if below is not value:
                return {**document, key: below}
    return document


# ---------------------------------------------------------------------- text


def append_text(target: str, addition: str) -> str:
    """Append a block of text after a blank line, unless the target has it already as whole lines."""
    block = addition.strip("\n")
    if not target.strip():
        return block
    if f"\n{block}\n" in f"\n{target}\n":
        return target
    return f"{target.rstrip()}\n\n{block}"


def merge_text(base: str, current: str, sent: str) -> str:
    """Apply the change from `base` to `sent` to `current`; refuse it where both changed the same lines differently."""
    if sent == base:
        return current
    if current == base:
        return sent
    base_lines, conflicts, merged = _lines(base), list[str](), list[str]()
    current_changes, sent_changes = _changes(base_lines, _lines(current)), _changes(base_lines, _lines(sent))
    for place in range(2 * len(base_lines) + 1):
        before = [base_lines[place // 2]] if place % 2 else []
        current_lines, sent_lines = current_changes.get(place, before), sent_changes.get(place, before)
        if current_lines in (before, sent_lines):
            merged += sent_lines
        elif place % 2 == 0:
            merged += [*current_lines, *(line for line in sent_lines if line not in current_lines or not line.strip())]
        elif sent_lines == before:
            merged += current_lines
        else:
            both = [shorten("\n".join(lines)) or "(gone)" for lines in (current_lines, sent_lines)]
            conflicts.append("\n    now: {}\n    you: {}".format(*both))
    if conflicts:
        remedy = "repeat the update with these lines as they are now, or change them by `edits`"
        problem = "working memory has changed since you read it, in the same places"
        raise refusal(f"{problem}: {remedy}:{''.join(conflicts[:MOST_QUOTED])}", remedy)
    return "\n".join(merged) + sent[len(sent.rstrip("\n")) :]


def _changes(base: Sequence[str], text: list[str]) -> dict[int, list[str]]:
    """Return the lines that a text has instead: of line n at 2 * n + 1, those inserted before it at 2 * n."""
    changes: dict[int, list[str]] = {}
    for kind, start, end, first, last in SequenceMatcher(None, base, text).get_opcodes():
        if kind == "equal":
            continue
        if kind == "insert":
            changes[2 * start] = text[first:last]
        elif end - start == last - first:  # line by line, so that others may change the lines beside one
            changes |= {2 * (start + offset) + 1: [line] for offset, line in enumerate(text[first:last])}
        else:
            changes |= {place: [] for place in range(2 * start + 1, 2 * end, 2)}
            changes[2 * start + 1] = text[first:last]
    return changes


def _lines(text: str) -> list[str]:
    stripped = text.rstrip("\n")
    return stripped.split("\n") if stripped else []
