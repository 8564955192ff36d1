"""Three-way merges: what somebody changed of an older version, done to the present one. Pure.

Text is merged line by line, JSON field by field. Blanks at the ends of lines and between words do not make another line.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from langchain_workingmem.errors import WorkingMemoryValidationError
from langchain_workingmem.text.merging import is_same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

MOST = 5  # conflicts that a refusal shows
WIDEST = 200  # characters of one that it shows
LARGEST = 10_000  # product of the lengths of two runs that difflib compares, whose time grows with it
_Run: TypeAlias = tuple[str, int, int, int, int]  # one of difflib's opcodes
_Link: TypeAlias = "tuple[int, int, _Link | None]"  # a pair of equal lines, and the one before it
_NOTHING: Final[Any] = object()  # stands where a document has no such field
_REMEDY = {
    "line": "Repeat the update with these lines as they are now, or change them by `edits`",
    "field": "Repeat the update with these fields as they are now, or name them in `clear` as well, to replace them anyway",
}


class MergeConflictError(WorkingMemoryValidationError):
    """The same place was changed by both sides, and differently; the message shows it as it is now."""

    def __init__(self, kind: str, conflicts: Sequence[tuple[str, str]]) -> None:
        shown = [
            f"    now: {_cut(now) or '(gone)'}\n    you: {_cut(sent) or '(gone)'}" for now, sent in conflicts[:MOST]
        ]
        rest = len(conflicts) - MOST
        more = [f"    and {rest} more"] if rest > 0 else []
        super().__init__(
            "working memory has changed since you read it, in the same places, so nothing was changed. "
            f"{_REMEDY[kind]}:\n" + "\n".join([*shown, *more])
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
    theirs = dict.fromkeys(_edits(base, _split(current), is_form))
    ours = _edits(base, _split(sent), is_form)
    places = _places(theirs)
    taken: list[_Edit] = []
    conflicts: list[tuple[str, str]] = []
    for edit in ours:
        if edit in theirs:
            continue
        rivals = [other for other in places(edit) if other in theirs]
        if not rivals or (not edit.yields and all(other.yields for other in rivals)):
            for other in rivals:
                del theirs[other]
            taken.append(edit)
        elif not edit.yields:
            conflicts.append(("\n".join(line for other in rivals for line in other.lines), "\n".join(edit.lines)))
    if conflicts:
        raise MergeConflictError("line", conflicts)
    known = {(edit.start, _key(line)) for edit in theirs if edit.start == edit.end for line in edit.lines}
    added = {edit for edit in taken if edit.start == edit.end}
    lines: list[str] = []
    at = 0
    # sorted() is stable: at the same place what is there already comes first
    for edit in sorted([*theirs, *taken], key=lambda edit: (edit.start, edit.end)):
        lines += base[at : edit.start]
        is_new = edit in added
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
        raise MergeConflictError("field", conflicts)
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
    for name, start, end, first, last in _matches([*map(_key, base)], [*map(_key, text)]):
        if name == "equal":
            yield from _singly(start, end, first)
            continue
        named = _matches([*map(_label, base[start:end])], [*map(_label, text[first:last])])
        for kind, low, high, left, right in named:
            if kind == "equal" or high - low == right - left:
                yield from _singly(start + low, start + high, first + left)
            else:
                yield start + low, start + high, first + left, first + right


def _matches(one: Sequence[str], other: Sequence[str]) -> Iterator[_Run]:
    """Compare two lists, as difflib's opcodes do, in a time that does not grow with the square of their lengths.

    What stands exactly once in both holds them together; only short runs between such lines are given to difflib.
    """
    start = first = 0
    for at, to in [*_anchors(one, other), (len(one), len(other))]:
        yield from _between(one, other, (start, at, first, to))
        if at < len(one):
            yield "equal", at, at + 1, to, to + 1
        start, first = at + 1, to + 1


def _between(one: Sequence[str], other: Sequence[str], run: tuple[int, int, int, int]) -> Iterator[_Run]:
    start, end, first, last = run
    while start < end and first < last and one[start] == other[first]:
        yield "equal", start, start + 1, first, first + 1
        start, first = start + 1, first + 1
    tail = 0
    while start < end - tail and first < last - tail and one[end - tail - 1] == other[last - tail - 1]:
        tail += 1
    end, last = end - tail, last - tail
    if (end - start) * (last - first) > LARGEST:
        yield "replace", start, end, first, last
    else:
        for name, low, high, left, right in SequenceMatcher(None, one[start:end], other[first:last]).get_opcodes():
            yield name, start + low, start + high, first + left, first + right
    if tail:
        yield "equal", end, end + tail, last, last + tail


def _anchors(one: Sequence[str], other: Sequence[str]) -> list[tuple[int, int]]:
    """Pair what stands once in both: the longest series of such pairs that is in order on both sides."""
    counts, others = Counter(one), Counter(other)
    where = {item: at for at, item in enumerate(other) if others[item] == 1}
    tails: list[int] = []  # the least place in `other` with which a series of each length ends
    ends: list[_Link] = []
    for at, item in enumerate(one):
        if counts[item] == 1 and item in where:
            length = bisect_left(tails, where[item])
            link = (at, where[item], ends[length - 1] if length else None)
            tails[length : length + 1] = [where[item]]
            ends[length : length + 1] = [link]
    found = []
    last = ends[-1] if ends else None
    while last is not None:
        found.append(last[:2])
        last = last[2]
    return found[::-1]


def _singly(start: int, end: int, first: int) -> Iterator[tuple[int, int, int, int]]:
    for at in range(end - start):
        yield start + at, start + at + 1, first + at, first + at + 1


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
