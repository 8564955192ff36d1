"""Three-way merges: what somebody changed of an older version, done to the present one. Pure.

Text is merged line by line, JSON field by field. Blanks at the ends of lines and between words do not make another line.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from langchain_workingmem._documents.lines import matches
from langchain_workingmem._documents.merging import is_same
from langchain_workingmem.errors import WorkingMemoryValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

MOST = 5  # conflicts that a refusal shows
WIDEST = 200  # characters of one that it shows
_NOTHING: Final[Any] = object()  # stands where a document has no such field
_REMEDY = {
    "line": "Repeat the update with these lines as they are now, or change them by `edits`",
    "field": "Repeat the update with these fields as they are now, or name them in `clear` as well, to replace them anyway",
}


class MergeConflictError(WorkingMemoryValidationError):
    """The same place was changed by both sides, and differently; the message shows it as it is now."""

    def __init__(self, kind: str, conflicts: Sequence[tuple[str, str]], rest: int = 0) -> None:
        shown = [f"    now: {_cut(now) or '(gone)'}\n    you: {_cut(sent) or '(gone)'}" for now, sent in conflicts]
        more = [f"    and {rest} more"] if rest else []
        super().__init__(
            "working memory has changed since you read it, in the same places, so nothing was changed. "
            f"{_REMEDY[kind]}:\n" + "\n".join([*shown, *more]),
            remedy=_REMEDY[kind],
        )


def merge_text(seen: str, current: str, sent: str, is_form: Callable[[str], bool] = lambda _: False) -> str:
    """Apply what changed from `seen` to `sent` to `current`, line by line.

    Lines that both insert at the same place are all kept, equal ones once. Whoever leaves out a line that `is_form` (of a
    template, and empty) loses against somebody who fills it in. Raises `MergeConflictError` for a line that both changed
    and differently.
    """
    if sent in (current, seen) or current == seen:
        return current if sent == seen else sent
    base = _split(seen)
    theirs = {edit.place: edit for edit in _edits(base, _split(current), is_form)}
    ours = _edits(base, _split(sent), is_form)
    places = _places(theirs.values())
    taken: list[_Edit] = []
    conflicts: list[tuple[list[_Edit], _Edit]] = []
    for edit in ours:
        if theirs.get(edit.place) == edit:
            continue
        rivals = [other for other in places(edit) if other.place in theirs]
        if not rivals or (not edit.yields and all(other.yields for other in rivals)):
            for other in rivals:
                del theirs[other.place]
            taken.append(edit)
        elif not edit.yields:
            conflicts.append((rivals, edit))
    if conflicts:
        # only those that are shown are written down: many may have one long edit of theirs as a rival
        shown = [(_text(rivals), _text([edit])) for rivals, edit in conflicts[:MOST]]
        raise MergeConflictError("line", shown, len(conflicts) - len(shown))
    known = {(edit.start, _key(line)) for edit in theirs.values() if edit.start == edit.end for line in edit.lines}
    added = {id(edit) for edit in taken if edit.start == edit.end}
    lines: list[str] = []
    at = 0
    # sorted() is stable: at the same place what is there already comes first
    for edit in sorted([*theirs.values(), *taken], key=lambda edit: (edit.start, edit.end)):
        lines += base[at : edit.start]
        is_new = id(edit) in added
        lines += [line for line in edit.lines if not (is_new and line.strip() and (edit.start, _key(line)) in known)]
        at = max(at, edit.end)
    merged = "\n".join([*lines, *base[at:]])
    ending = sent if _ending(sent) != _ending(seen) else current
    return merged + _ending(ending)


def merge_fields(seen: Any, current: Any, sent: Any) -> dict[str, Any]:
    """Apply what changed from `seen` to `sent` to `current`, all of them JSON objects, field by field.

    Arrays are values, not places. Raises `MergeConflictError` for a field that both changed, and differently.
    """
    conflicts: list[tuple[str, str]] = []
    found: dict[str, Any] = _merged(seen, current, sent, "", conflicts)
    if conflicts:
        raise MergeConflictError("field", conflicts[:MOST], max(0, len(conflicts) - MOST))
    return found


def _merged(seen: Any, current: Any, sent: Any, path: str, conflicts: list[tuple[str, str]]) -> Any:
    if _alike(current, sent) or _alike(seen, sent):
        return current
    if _alike(seen, current):
        return sent
    if isinstance(current, dict) and isinstance(sent, dict):
        before = seen if isinstance(seen, dict) else {}
        fields = {
            key: _merged(
                before.get(key, _NOTHING),
                current.get(key, _NOTHING),
                sent.get(key, _NOTHING),
                f"{path}.{key}" if path else key,
                conflicts,
            )
            for key in dict.fromkeys((*current, *sent))
        }
        return {key: value for key, value in fields.items() if value is not _NOTHING}
    conflicts.append((f"{path}: {_said(current)}", f"{path}: {_said(sent)}"))
    return current


def _alike(one: Any, other: Any) -> bool:
    return one is other if _NOTHING in (one, other) else is_same(one, other)


def _said(value: Any) -> str:
    return "nothing" if value is _NOTHING else json.dumps(value, ensure_ascii=False)


# ---------------------------------------------------------------------- lines


@dataclass(frozen=True, slots=True)
class _Edit:
    """Lines that stand in place of some of an older text."""

    start: int  # the first line that goes
    end: int  # the line behind the last one that goes; `start`: the lines are inserted
    lines: tuple[str, ...]
    yields: bool = False  # it means nothing, where somebody else has changed the same

    @property
    def place(self) -> tuple[int, int]:
        """Return what no other edit of the same text has."""
        return self.start, self.end


def _places(edits: Iterable[_Edit]) -> Callable[[_Edit], Iterator[_Edit]]:
    """Give the function that finds the edits of the same lines; to insert beside a changed line touches nothing."""
    by_line: dict[int, _Edit] = {}
    inserts: dict[int, _Edit] = {}
    for edit in edits:
        by_line.update((at, edit) for at in range(edit.start, edit.end))
        if edit.start == edit.end:
            inserts[edit.start] = edit

    def touched(edit: _Edit) -> Iterator[_Edit]:
        if edit.start == edit.end:
            around = by_line.get(edit.start)
            if around is not None and around.start < edit.start:
                yield around
            return
        for at in range(edit.start, edit.end):
            if at in by_line and (at == edit.start or by_line.get(at - 1) is not by_line[at]):
                yield by_line[at]
            if at > edit.start and at in inserts:
                yield inserts[at]

    return touched


def _edits(base: Sequence[str], text: Sequence[str], is_form: Callable[[str], bool]) -> list[_Edit]:
    """List what changed, in pieces as small as can be: a line for a line, where it is clear which became which."""
    found: list[_Edit] = []
    for start, end, first, last in _pieces(base, text):
        old, new = tuple(base[start:end]), tuple(text[first:last])
        if old == new:
            continue
        if len(old) == len(new) == 1 and old[0].strip() and new[0].strip():
            found.append(_Edit(start, end, new, yields=_key(old[0]) == _key(new[0])))
        elif not new or not all(line.strip() for line in (*old, *new)):
            # what leaves and what comes are two things
            found += [_Edit(start, start, new)] if new else []
            found += [_Edit(at, at + 1, (), yields=is_form(base[at])) for at in range(start, end)]
        else:
            found.append(_Edit(start, end, new))
    return found


def _pieces(base: Sequence[str], text: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Pair runs of lines: those that are alike, then those that begin alike, then one by one if they are as many."""
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
    """Return what a line begins with, up to a colon: in a template that is which fact it holds."""
    return _key(line.partition(":")[0])


def _cut(text: str) -> str:
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 4]} ..."
