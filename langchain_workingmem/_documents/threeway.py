"""Three-way merges: the changes to an older version, applied to the present one. Pure.

Text is merged line by line, JSON field by field. Lines that differ only in blanks count as equal.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from langchain_workingmem._documents.lines import matches
from langchain_workingmem._documents.merging import is_same, shorten
from langchain_workingmem.errors import WorkingMemoryValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

MOST = 5  # conflicts that a refusal shows
_GONE: Final[Any] = object()  # instead of a field that a document does not have
_REMEDY = {
    "line": "Repeat the update with these lines as they are now, or change them by `edits`",
    "field": "Repeat the update with these fields as they are now, or name them in `clear` as well, to replace them anyway",
}


class MergeConflictError(WorkingMemoryValidationError):
    """Both sides changed the same line or field, and differently; the message shows both versions."""

    def __init__(self, kind: str, conflicts: Sequence[tuple[str, str]], rest: int = 0) -> None:
        shown = [f"    now: {shorten(now) or '(gone)'}\n    you: {shorten(you) or '(gone)'}" for now, you in conflicts]
        more = [f"    and {rest} more"] if rest else []
        super().__init__(
            "working memory has changed since you read it, in the same places, so nothing was changed. "
            f"{_REMEDY[kind]}:\n" + "\n".join([*shown, *more]),
            remedy=_REMEDY[kind],
        )


def merge_text(seen: str, current: str, sent: str, is_filler: Callable[[str], bool] = lambda _: False) -> str:
    """Apply what changed from `seen` to `sent` to `current`, line by line.

    Lines that both sides insert at the same position are all kept, equal ones once. `is_filler` tells lines of an empty
    template: if one side removes such a line and the other fills it in, the second wins. Raises `MergeConflictError`
    for a line that both sides changed differently.
    """
    if sent in (current, seen) or current == seen:
        return current if sent == seen else sent
    base = _split(seen)
    theirs = {edit.span: edit for edit in _edits(base, _split(current), is_filler)}
    find_rivals = _rival_finder(theirs.values())
    taken: list[_Edit] = []
    conflicts: list[tuple[list[_Edit], _Edit]] = []
    for edit in _edits(base, _split(sent), is_filler):
        if theirs.get(edit.span) == edit:
            continue
        rivals = [other for other in find_rivals(edit) if other.span in theirs]
        if not rivals or (not edit.yields and all(other.yields for other in rivals)):
            for other in rivals:
                del theirs[other.span]
            taken.append(edit)
        elif not edit.yields:
            conflicts.append((rivals, edit))
    if conflicts:
        # only the shown ones are rendered: many conflicts may share one long rival
        shown = [(_text(rivals), _text([edit])) for rivals, edit in conflicts[:MOST]]
        raise MergeConflictError("line", shown, len(conflicts) - len(shown))
    known = {(edit.start, _key(line)) for edit in theirs.values() if edit.is_insert for line in edit.lines}
    added = {id(edit) for edit in taken if edit.is_insert}
    lines: list[str] = []
    at = 0
    # sorted() is stable: at the same position, present lines come first
    for edit in sorted([*theirs.values(), *taken], key=lambda edit: edit.span):
        lines += base[at : edit.start]
        is_new = id(edit) in added
        lines += [line for line in edit.lines if not (is_new and line.strip() and (edit.start, _key(line)) in known)]
        at = max(at, edit.end)
    ending = _ending(sent if _ending(sent) != _ending(seen) else current)
    return "\n".join([*lines, *base[at:]]) + ending


def merge_fields(seen: Any, current: Any, sent: Any) -> dict[str, Any]:
    """Apply what changed from `seen` to `sent` to `current`, all of them JSON objects, field by field.

    Arrays are compared as a whole. Raises `MergeConflictError` for a field that both sides changed differently.
    """
    conflicts: list[tuple[str, str]] = []
    found: dict[str, Any] = _merged(seen, current, sent, "", conflicts)
    if conflicts:
        raise MergeConflictError("field", conflicts[:MOST], max(0, len(conflicts) - MOST))
    return found


def _merged(seen: Any, current: Any, sent: Any, path: str, conflicts: list[tuple[str, str]]) -> Any:
    if _is_alike(current, sent) or _is_alike(seen, sent):
        return current
    if _is_alike(seen, current):
        return sent
    if isinstance(current, dict) and isinstance(sent, dict):
        before = seen if isinstance(seen, dict) else {}
        fields = {}
        for key in {**current, **sent}:
            inner = f"{path}.{key}" if path else key
            fields[key] = _merged(
                before.get(key, _GONE), current.get(key, _GONE), sent.get(key, _GONE), inner, conflicts
            )
        return {key: value for key, value in fields.items() if value is not _GONE}
    conflicts.append((f"{path}: {_show(current)}", f"{path}: {_show(sent)}"))
    return current


def _is_alike(one: Any, other: Any) -> bool:
    return one is other if _GONE in (one, other) else is_same(one, other)


def _show(value: Any) -> str:
    return "nothing" if value is _GONE else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class _Edit:
    """Lines of an older text, and the lines that replace them."""

    start: int  # the first replaced line
    end: int  # the line after the last replaced one; `start`: the lines are inserted
    lines: tuple[str, ...]
    yields: bool = False  # to an edit of the other side

    @property
    def span(self) -> tuple[int, int]:
        """Return the range of replaced lines, which is unique among the edits of a text."""
        return self.start, self.end

    @property
    def is_insert(self) -> bool:
        """Tell whether no line is replaced."""
        return self.start == self.end


def _rival_finder(edits: Iterable[_Edit]) -> Callable[[_Edit], Iterator[_Edit]]:
    """Return a function that finds those of the edits that change the same lines; an insert beside them does not."""
    by_line: dict[int, _Edit] = {}
    inserts: dict[int, _Edit] = {}
    for edit in edits:
        by_line.update((at, edit) for at in range(edit.start, edit.end))
        if edit.is_insert:
            inserts[edit.start] = edit

    def find(edit: _Edit) -> Iterator[_Edit]:
        if edit.is_insert:
            around = by_line.get(edit.start)
            if around is not None and around.start < edit.start:
                yield around
            return
        for at in range(edit.start, edit.end):
            if at in by_line and (at == edit.start or by_line.get(at - 1) is not by_line[at]):
                yield by_line[at]
            if at > edit.start and at in inserts:
                yield inserts[at]

    return find


def _edits(base: Sequence[str], text: Sequence[str], is_filler: Callable[[str], bool]) -> list[_Edit]:
    """List the changes in the smallest pieces: one line for one line, where it is clear which line became which."""
    found: list[_Edit] = []
    for start, end, first, last in _pieces(base, text):
        old, new = tuple(base[start:end]), tuple(text[first:last])
        if old == new:
            continue
        if len(old) == len(new) == 1 and old[0].strip() and new[0].strip():
            found.append(_Edit(start, end, new, yields=_key(old[0]) == _key(new[0])))
        elif not new or not all(line.strip() for line in (*old, *new)):
            # removed and added lines are separate changes
            found += [_Edit(start, start, new)] if new else []
            found += [_Edit(at, at + 1, (), yields=is_filler(base[at])) for at in range(start, end)]
        else:
            found.append(_Edit(start, end, new))
    return found


def _pieces(base: Sequence[str], text: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Pair runs of lines: equal lines first, then lines with the same label, then one by one in runs of equal length."""
    for name, start, end, first, last in matches([*map(_key, base)], [*map(_key, text)]):
        if name == "equal":
            yield from _singly(start, end, first)
            continue
        named = matches([*map(_label, base[start:end])], [*map(_label, text[first:last])])
        for kind, low, high, left, right in named:
            if kind == "equal" or high - low == right - left:
                yield from _singly(start + low, start + high, first + left)
            else:
                yield start + low, start + high, first + left, first + right


def _singly(start: int, end: int, first: int) -> Iterator[tuple[int, int, int, int]]:
    for at in range(end - start):
        yield start + at, start + at + 1, first + at, first + at + 1


def _text(edits: Iterable[_Edit]) -> str:
    return "\n".join(line for edit in edits for line in edit.lines)


def _split(text: str) -> list[str]:
    stripped = text.rstrip("\n")
    return stripped.split("\n") if stripped else []


def _ending(text: str) -> str:
    return text[len(text.rstrip("\n")) :]


def _key(line: str) -> str:
    return " ".join(line.split())


def _label(line: str) -> str:
    """Return the beginning of a line up to a colon, which names the fact in a template."""
    return _key(line.partition(":")[0])
