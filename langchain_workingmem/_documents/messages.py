"""Messages as JSON, and back: by LangChain's own serialisation, without the values that every message of a kind has.

What LangChain lets pass without a check, as `model_copy` does, is mended when it is written: what was saved can be read.
"""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from math import isfinite
from typing import TYPE_CHECKING, Any

import orjson
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    ToolMessage,
)
from pydantic import BaseModel, ValidationError

from langchain_workingmem._text.nesting import MAX_DEPTH, TOO_DEEP, check_depth
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger("langchain_workingmem")
LONG = 65_536  # characters of a string within content blocks that lies beside the body
KINDS: dict[str, type[BaseMessage]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "tool": ToolMessage,
    "function": FunctionMessage,
    "chat": ChatMessage,
}
_USUAL = {"human", "ai"}
PLAIN = {"content", "id", "name"}  # fields of the usual message, which need no check
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)  # of what was stored
_WHOLE = {"content", "artifact"}  # fields that are stored if they are empty
_EMPTY: tuple[Any, ...] = (None, [], {})
_COUNTS = ("input_tokens", "output_tokens", "total_tokens")
_LOOSE = ("artifact", "additional_kwargs", "response_metadata")  # which may hold any Python object


def _as_json(value: object) -> Any:
    if isinstance(value, BaseModel):  # with_structured_output puts a parsed answer into additional_kwargs
        return value.model_dump(mode="json")
    msg = f"{type(value).__name__} is not JSON"
    raise TypeError(msg)


def dump(value: object, *, allow_nan: bool = True) -> str:
    """Write JSON, pydantic models included; `ValueError` if it is nested too deep.

    NaN and infinity are not JSON, but messages may hold them, so that no message is lost.
    """
    return check_depth(
        json.dumps(value, default=_as_json, ensure_ascii=False, separators=(",", ":"), allow_nan=allow_nan)
    )


def _encoded(value: object) -> bytes:
    try:
        text = orjson.dumps(value, default=_as_json)
        if b"null" in text and _has_nan(value):  # which orjson writes as null
            return dump(value).encode()
        if text.count(b"[") + text.count(b"{") > MAX_DEPTH:
            check_depth(text.decode())
        return text  # noqa: TRY300 - it may hold what is refused below
    except (TypeError, RecursionError):  # a lone surrogate, a large int, a key that is no str
        # orjson would read a large int as a float; what holds NaN, it leaves to json
        return json.dumps({**json.loads(dump(value)), "wide": float("nan")}, separators=(",", ":")).encode()


def _has_nan(value: object) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_nan, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and not isfinite(value)


def _is_json(value: object) -> bool:
    try:
        dump(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def body_of(message: BaseMessage, kind: str) -> tuple[bytes, list[str]]:
    """Write a message as JSON without its first brace; return it, and the long strings that lie beside it.

    `kind` is q for a question, a for an answer, empty for tool traffic. Raises `OptionError` for what cannot be read back.
    """
    try:
        return _body(message, kind)
    except UNREADABLE as error:
        raise _unstorable(message, error) from error


def _body(message: BaseMessage, kind: str) -> tuple[bytes, list[str]]:
    given = message.model_dump(warnings=False)  # as message_to_dict does
    data = {
        key: value
        for key, value in given.items()
        if (value not in _EMPTY or key in _WHOLE) and key != "type" and value is not None
    }
    data = data if "content" in data else {"content": "", **data}
    is_plain = (
        message.type in _USUAL and data.keys() <= PLAIN and type(data["content"]) is type(data.get("name", "")) is str
    )
    if not is_plain:
        data = _mended(message, data)
    media, paths = [], []
    if not isinstance(data["content"], str) or "artifact" in data:
        for path, text in [*_long_strings(data)]:
            _put(data, path, "")
            paths.append(path)
            media.append(text)
    record: dict[str, Any] = {"type": message.type, "kind": kind, **({"media": paths} if paths else {}), "data": data}
    return _encoded(record)[1:], media


def message_of(role: str, data: dict[str, Any]) -> BaseMessage:
    """Make a message of its stored fields."""
    return KINDS[role](**data)


def _unstorable(message: BaseMessage, error: Exception) -> OptionError:
    why = (
        "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        if isinstance(error, ValidationError)
        else error
    )
    return OptionError(
        f"message {message.id!r} cannot be stored ({why})",
        remedy="use JSON values, of the types that LangChain's messages have",
    )


def _mended(message: BaseMessage, data: dict[str, Any]) -> dict[str, Any]:
    """Return fields that can be read back: what is not JSON beside the content is left out, what LangChain would refuse is mended."""
    for name in _LOOSE:
        value = data.get(name)
        if name != "artifact" and value is not None and not isinstance(value, dict):
            del data[name]
        elif value is not None and not _is_json(value):
            if name == "artifact":
                del data[name]
                _log.warning("message %s: its artifact is not JSON and was not stored", message.id)
                continue
            data[name] = {key: one for key, one in value.items() if _is_json({key: one})}
            _log.warning("message %s: values in %s are not JSON and were not stored", message.id, name)
    content = data.get("content", "")
    if not isinstance(content, str):
        scalar = isinstance(content, bool | int | float)
        if isinstance(content, list):
            content = [one if isinstance(one, str | dict) else str(one) for one in content if one is not None]
        data["content"] = str(content) if scalar else _with_text([content] if isinstance(content, dict) else content)
    if "status" in data and data["status"] not in {"success", "error"}:
        data["status"] = "error"
    if "usage_metadata" in data:
        data["usage_metadata"] = _usage(data["usage_metadata"])
    for call in data.get("tool_calls") or ():
        if isinstance(call, dict) and isinstance(call.get("args"), str):
            call["args"] = _arguments(call["args"])
    data = {key: value for key, value in data.items() if value not in _EMPTY or key in _WHOLE}
    message_of(message.type, {"content": "", **json.loads(_encoded(data))})  # raises for what cannot be read back
    return data


def _with_text(value: Any, depth: int = 0) -> Any:
    """Return content with base64 in the place of bytes, as some providers take pictures."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if not isinstance(value, dict | list):
        return value
    if depth > MAX_DEPTH:
        raise ValueError(TOO_DEEP)
    if isinstance(value, dict):
        return {key: _with_text(one, depth + 1) for key, one in value.items()}
    return [_with_text(one, depth + 1) for one in value]


def _usage(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    kept = {key: one for key, one in value.items() if key not in _COUNTS and isinstance(one, dict)}
    return {**{name: _number(value.get(name)) for name in _COUNTS}, **kept}


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and value == value and abs(value) < LONG**3 else 0  # noqa: PLR0124 - not NaN


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(check_depth(text))
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"input": text}


# ---------------------------------------------------------------------- long strings


def _long_strings(data: dict[str, Any]) -> Iterator[tuple[list[Any], str]]:
    """Yield the long strings of content blocks and artifact, other than text, with the keys that lead to each."""
    for name in ("content", "artifact"):
        if not isinstance(data.get(name, ""), str):
            yield from _walk(data[name], [name])


def _walk(value: Any, path: list[Any]) -> Iterator[tuple[list[Any], str]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        if isinstance(one, str):
            if len(one) >= LONG and key != "text":
                yield [*path, key], one
        elif len(path) < MAX_DEPTH:
            yield from _walk(one, [*path, key])


def _put(data: Any, path: list[Any], text: str) -> None:
    *way, last = path
    for key in way:
        data = data[key]
    data[last] = text


def put_media(record: dict[str, Any], texts: list[bytes]) -> None:
    """Put long strings back into a record that was read."""
    for path, text in zip(record.pop("media"), texts, strict=True):
        _put(record["data"], path, text.decode("utf-8", "surrogatepass"))
