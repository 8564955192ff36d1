"""Three-way merges: the changes to an older version, applied to the present one. Pure.

Text is merged line by line, JSON field by field. Lines that differ only in blanks count as equal.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from langchain_workingmem._documents.lines import Lines
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


def merge_text(
    seen: str,
    current: str,
    sent: str,
    is_filler: Callable[[str], bool] = lambda _: False,
    *,
    yields: bool = False,
) -> str:
    """Apply what changed from `seen` to `sent` to `current`, line by line.

    Lines that both sides insert at the same position are all kept, equal ones once. `is_filler` tells lines of an empty
    template: if one side removes such a line and the other fills it in, the second wins. Raises `MergeConflictError`
    for a line that both sides changed differently; with `yields` it stays as it is in `current`.
    """
    if sent in (current, seen) or current == seen:
        return current if sent == seen else sent
    base = _split(seen)
    theirs = {point: edit for edit in _edits(base, _split(current), is_filler) for point in edit.points}
    taken: list[_Edit] = []
    conflicts: list[tuple[Iterable[_Edit], _Edit]] = []
    for edit in _edits(base, _split(sent), is_filler):
        rivals = {id(theirs[point]): theirs[point] for point in edit.points if point in theirs}.values()
        if edit in rivals:
            continue
        if edit.is_insert and all(other.is_insert for other in rivals):
            known = {_key(line) for other in rivals for line in other.lines if line.strip()}
            taken.append(edit._replace(lines=[line for line in edit.lines if _key(line) not in known]))
        elif not rivals or (not edit.yields and all(other.yields for other in rivals)):
            for point in [point for other in rivals for point in other.points]:
                del theirs[point]
            taken.append(edit)
        elif not edit.yields:
            conflicts.append((rivals, edit))
    if conflicts and not yields:
        # only the shown ones are rendered: many conflicts may share one long rival
        shown = [(_text(rivals), _text([edit])) for rivals, edit in conflicts[:MOST]]
        raise MergeConflictError("line", shown, len(conflicts) - len(shown))
    lines: list[str] = []
    at = 0
    # sorted() is stable: at the same position, present lines come first
    for edit in sorted(
        [*{id(edit): edit for edit in theirs.values()}.values(), *taken], key=lambda edit: edit.points[0]
    ):
        lines += [*base[at : edit.points.start // 2], *edit.lines]
        at = edit.points.stop // 2
    ending = _ending(sent if _ending(sent) != _ending(seen) else current)
    return "\n".join([*lines, *base[at:]]) + ending


def merge_fields(seen: Any, current: Any, sent: Any) -> dict[str, Any]:
    """Apply what changed from `seen` to `sent` to `current`, all of them JSON objects, field by field.

    Arrays are compared as a whole. Raises `MergeConflictError` for a field that both sides changed differently.
    """
    conflicts: list[tuple[str, str]] = []
    found: dict[str, Any] = _merged(seen, current, sent, "", conflicts)
    if conflicts:
        raise MergeConflictError("field", conflicts[:MOST], len(conflicts[MOST:]))
    return found


def _merged(seen: Any, current: Any, sent: Any, path: str, conflicts: list[tuple[str, str]]) -> Any:
    if _is_alike(current, sent) or _is_alike(seen, sent):
        return current
    if _is_alike(seen, current):
        return sent
    if isinstance(current, dict) and isinstance(sent, dict):
        fields = {}
        for key in {**current, **sent}:
            was, now, new = (one.get(key, _GONE) if isinstance(one, dict) else _GONE for one in (seen, current, sent))
            fields[key] = _merged(was, now, new, f"{path}.{key}" if path else key, conflicts)
        return {key: value for key, value in fields.items() if value is not _GONE}
    conflicts.append((f"{path}: {_show(current)}", f"{path}: {_show(sent)}"))
    return current


def _is_alike(one: Any, other: Any) -> bool:
    return one is other if _GONE in (one, other) else is_same(one, other)


def _show(value: Any) -> str:
    return "nothing" if value is _GONE else json.dumps(value, ensure_ascii=False)


class _Edit(NamedTuple):
    """Lines of an older text, and the lines that replace them."""

    points: range  # line n of the older text is at 2 * n + 1; lines are inserted before it at 2 * n
    lines: Sequence[str]
    yields: bool = False  # to an edit of the other side

    @property
    def is_insert(self) -> bool:
        """Tell whether no line is replaced."""
        return self.points[0] % 2 == 0


def _edits(base: Sequence[str], text: Sequence[str], is_filler: Callable[[str], bool]) -> Iterator[_Edit]:
    """List the changes in the smallest pieces: one line for one line, where it is clear which line became which."""
    for start, end, first, last in _pieces(base, text):
        old, new = base[start:end], text[first:last]
        if old == new:
            continue
        if len(old) == len(new) == 1 and old[0].strip() and new[0].strip():
            yield _Edit(range(2 * start + 1, 2 * end), new, yields=_key(old[0]) == _key(new[0]))
        elif old and new and all(line.strip() for line in (*old, *new)):
            yield _Edit(range(2 * start + 1, 2 * end), new)
        else:  # removed and added lines are separate changes
            if new:
                yield _Edit(range(2 * start, 2 * start + 1), new)
            for at in range(start, end):
                yield _Edit(range(2 * at + 1, 2 * at + 2), [], yields=is_filler(base[at]))


def _pieces(base: Sequence[str], text: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Pair runs of lines: equal lines first, then lines with the same label, then one by one in runs of equal length."""
    for kind, start, end, first, last in Lines([*map(_key, base)], [*map(_key, text)]).get_opcodes():
        if kind == "equal":
            yield from _singly(start, end, first)
            continue
        labels = [*map(_label, base[start:end])], [*map(_label, text[first:last])]
        for name, low, high, left, right in Lines(*labels).get_opcodes():
            if name == "equal" or high - low == right - left:
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
