"""Read what a keeper answers: the operations, wherever they stand in its answer. Pure functions.

Models write JSON in many clothes: one array, an object on each line, in a code fence, with words around it. What is JSON is taken, and
nothing is guessed from prose. An operation that cannot be read is left out and counted; the others are taken.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._text.nesting import check_depth
from langchain_workingmem._text.rendering import unescape
from langchain_workingmem._text.unicode import visible
from langchain_workingmem.observations import BadAnswer, check_end

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from langchain_core.messages import BaseMessage


class Answered(NamedTuple):
    """What an answer holds."""

    operations: list[dict[str, Any]]  # as the model wrote them, the numbers in `messages` as a list of int
    left_out: int = 0  # which cannot be read


_MOST = 1000  # operations of one answer; more are a loop
_MOST_BROKEN = 50  # objects that are no JSON: then the rest is not looked at
_MOST_LISTS = 500  # lists that are none, each of which may be read to the end of the answer
_WORDS = 400  # of an answer that was cut off, when it is asked for again
_WRAPPERS = ("operations", "changes", "updates")  # of an object around the list
_UNREADABLE = (
    "The answer holds no operation that can be read. Answer with a JSON array of operations, or with [] if nothing is to be "
    "changed, and nothing else."
)
_OPENING = re.compile(r"[\[{]")
_BRACKETS = re.compile(r"[\[\s]*")
# where reading goes on after what is no JSON: at an object that begins a line, or that follows another one
_NEXT = re.compile(r"(?m)^[ \t,*\[-]*(?=\{)|\}\s*,\s*(?=\{\s*\"(?:op|find)\")")
_THOUGHTS = re.compile(r"(?is)\A\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)")
_END_OF_THOUGHTS = re.compile(r"(?im)</think(?:ing)?>[ \t]*$")  # no value ends a line like this
_DIGITS = re.compile(r"\d{1,9}")
_VALUE = re.compile(r"v(\d{1,6})")  # the number of a value that the keeper was shown


def read_operations(answer: BaseMessage) -> Answered:
    """Read an answer that holds operations and nothing else that matters.

    Raises `BadAnswer` for one that was cut off or filtered, or holds no JSON at all: an empty list says that nothing changes.
    """
    check_end(answer, _WORDS)
    found = operations_in(_without_thoughts(str(answer.text)))
    if found is None or (found.left_out and not found.operations):
        raise BadAnswer(_UNREADABLE)
    return found


def operations_in(text: str) -> Answered | None:
    """Return all operations in a text; None where it holds nothing that could be one."""
    operations: list[dict[str, Any]] = []
    left_out = 0
    has_some = False
    for value in _values(text):
        if value is _BROKEN:
            left_out += 1
            continue
        given = _listed(value)
        if given is None:
            continue
        has_some = True
        for one in given:
            operation = _operation(one) if len(operations) < _MOST else None
            if operation is None:
                left_out += 1
            else:
                operations.append(operation)
    return Answered(operations, left_out) if has_some or left_out else None


def _without_thoughts(text: str) -> str:
    """Leave out a model's thoughts; some servers leave out the tag that opens them."""
    text = _THOUGHTS.sub("", text, count=1)
    ends = [*_END_OF_THOUGHTS.finditer(text)]
    return text[ends[-1].end() :] if ends else text


_BROKEN: Any = object()


def _no_number(name: str) -> Any:
    msg = f"{name} is no JSON"
    raise ValueError(msg)


_decode = json.JSONDecoder(strict=False, parse_constant=_no_number).raw_decode


def _values(text: str) -> Iterator[Any]:
    """Yield the objects and lists of a text, `_BROKEN` for each object that is no JSON."""
    at, broken, lists = 0, 0, 0
    while (opening := _OPENING.search(text, at)) and broken < _MOST_BROKEN and lists < _MOST_LISTS:
        start = opening.start()
        try:
            value, at = _decode(text, start)
            check_depth(text[start:at])
        except (ValueError, RecursionError):  # also a number with too many digits
            if text[start] == "[":  # look into it
                lists += 1
                at = _end(_BRACKETS, text, start)
                continue
            broken += 1
            following = _NEXT.search(text, start + 1)
            at = len(text) if following is None else following.end()
            yield _BROKEN
        else:
            yield value


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return max(at + 1, found.end() if found else 0)


def _listed(value: Any) -> list[Any] | None:
    """Return the operations that a JSON value may hold; None where it is none, such as a list of numbers."""
    if isinstance(value, dict):
        inner = next((value[name] for name in _WRAPPERS if isinstance(value.get(name), list)), None)
        return [value] if inner is None or "op" in value else inner
    is_list_of_others = value and not any(isinstance(one, dict) for one in value)
    return None if is_list_of_others else value


def _operation(value: Any) -> dict[str, Any] | None:
    """Return an operation with its fields, and no others; None for what is none."""
    match value:
        case {"op": "set" | "add" | "remove" as op, "path": str() as path}:
            found: dict[str, Any] = {"op": op, "path": unescape(path)}
            if op != "remove" and "value" not in value:
                return None
            if op != "remove" or "value" in value:
                found["value"] = _seen(value["value"])
        case {"find": str() as find, "replace": str() as replace}:
            found = {"find": unescape(find), "replace": _seen(replace)}
        case _:
            return None
    messages = _numbers(value.get("messages"))
    return None if messages is None else {**found, "messages": messages}


def _numbers(value: Any) -> list[int] | None:
    """Return the numbers of messages; None where there are none, or something else."""
    given = value if isinstance(value, list) else [value]
    found = [int(one) if isinstance(one, str) and _DIGITS.fullmatch(one) else one for one in given]
    is_numbers = all(isinstance(one, int) and not isinstance(one, bool) for one in found)
    return found if found and is_numbers else None


def _seen(value: Any) -> Any:
    """Return a value as a person sees it: without the escapes of the prompt, hidden text and control characters."""
    if isinstance(value, str):
        return visible(unescape(value))
    if isinstance(value, dict):
        return {visible(unescape(key)): _seen(one) for key, one in value.items()}
    return [_seen(one) for one in value] if isinstance(value, list) else value


def with_paths(operations: Iterable[dict[str, Any]], shown: Mapping[int, str]) -> list[dict[str, Any]]:
    """Return operations with the path, or the line, for each number of a value that the keeper was shown, such as v3."""
    found: list[dict[str, Any]] = []
    for one in operations:
        name = "path" if "path" in one else "find"
        number = _VALUE.fullmatch(one[name])
        known = shown.get(int(number[1])) if number else None
        found.append(one if known is None else {**one, name: known})
    return found
