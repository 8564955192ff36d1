"""JSON values from outside: how deep they may be, and how they and their problems are shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from pydantic import ValidationError

MAX_DEPTH = 100  # levels, which Python can read back at any depth of its own stack; more are a mistake or an attack
WIDEST = 200  # characters of a value that an error shows
TOO_DEEP = f"it is nested deeper than {MAX_DEPTH} levels"


def check_depth(text: str) -> str:
    """Return a JSON text, or raise `ValueError` when it is nested too deep."""
    if text.count("[") + text.count("{") > MAX_DEPTH:  # a cheap first check
        try:
            check_nesting(json.loads(text))
        except RecursionError as error:
            raise ValueError(TOO_DEEP) from error
    return text


def parse_json(text: str) -> Any:
    """Return what a JSON text holds; None when it is not JSON, or nested too deep."""
    try:
        return json.loads(check_depth(text))
    except ValueError:
        return None


def check_nesting(value: object, depth: int = 0) -> None:
    """Raise `ValueError` for nesting of dicts and lists that is too deep or endless, and for keys that are not str."""
    if isinstance(value, Mapping | list | tuple):
        if depth == MAX_DEPTH:
            raise ValueError(TOO_DEEP)
        for key in value if isinstance(value, Mapping) else ():
            if not isinstance(key, str):
                msg = f"key {shown(key)} is no str"
                raise ValueError(msg)  # noqa: TRY004 - as json.dumps does
        for one in value.values() if isinstance(value, Mapping) else value:
            check_nesting(one, depth + 1)


def shown(value: object) -> str:
    """Write any value into an error: cut to WIDEST characters, or by its type if it has no repr."""
    try:
        text = repr(value[: WIDEST + 1] if isinstance(value, str) else value)  # a long text costs no more
    except (ValueError, RecursionError):  # such as an int with more digits than Python prints
        text = f"of type {type(value).__name__}"
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 4]} ..."


def canonical(value: Any) -> bytes | None:
    """Write a value as JSON, the same in whichever order its keys are; None if it is nested too deep."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    except TypeError:  # a lone surrogate, a large int
        try:
            return json.dumps(value, sort_keys=True, default=str).encode()
        except (TypeError, ValueError, RecursionError):
            return None


def problems_in(error: ValidationError) -> list[tuple[str, str]]:
    """Return each field that Pydantic refuses, with dots for nested ones, and what is wrong with it."""
    found = error.errors(include_url=False, include_input=False)
    return [(".".join(map(str, one["loc"])), one["msg"].removeprefix("Value error, ")) for one in found]
