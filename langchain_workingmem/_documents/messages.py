"""Messages as JSON, and back."""

from __future__ import annotations

import json
import logging
import re
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    ToolMessage,
    message_to_dict,
)
from pydantic import BaseModel, ValidationError

from langchain_workingmem._documents.media import cut, reference_list
from langchain_workingmem._text.nesting import check_depth
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("langchain_workingmem")
_new = object.__new__
_USUAL = (HumanMessage, AIMessage)
KINDS: dict[str, type[BaseMessage]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "tool": ToolMessage,
    "function": FunctionMessage,
    "chat": ChatMessage,
}


def _plain(value: object) -> Any:
    if isinstance(value, BaseModel):  # with_structured_output puts a parsed answer into additional_kwargs
        return value.model_dump(mode="json")
    msg = f"{type(value).__name__} is not JSON"
    raise TypeError(msg)


# `json.dumps` makes an encoder per call, which takes as long as encoding.
_encode = json.JSONEncoder(default=_plain, ensure_ascii=False, separators=(",", ":")).encode
_encode_strictly = json.JSONEncoder(default=_plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def dump(value: object, *, allow_nan: bool = True) -> str:
    """Write JSON, pydantic models included; `ValueError` if it is nested too deep.

    NaN and infinity are not JSON, but messages may hold them, so that no message is lost.
    """
    return check_depth((_encode if allow_nan else _encode_strictly)(value))


def _is_json(value: object) -> bool:
    try:
        dump(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def encode_body(message: BaseMessage) -> tuple[bytes, list[tuple[str, bytes]]]:
    """Write a message as JSON without its first brace; return it, and hash and bytes of each reference in it (`media.cut`).

    An artifact or provider extras, which may be any Python object, are left out with a warning if they are not JSON.
    Anything else that is not JSON raises `OptionError`.
    """
    if usual := _usual(message):
        return usual, []
    record = message_to_dict(message)
    references, media = cut(record["data"])
    try:
        text = dump(record)
    except (TypeError, ValueError, RecursionError):
        record = message_to_dict(message)
        data = record["data"]
        if not _is_json(data.get("artifact")):
            data["artifact"] = None
            _log.warning("message %s: its artifact is not JSON and was not stored", message.id)
        for name in ("additional_kwargs", "response_metadata"):
            kept = {key: value for key, value in data[name].items() if _is_json({key: value})}
            if len(kept) < len(data[name]):
                _log.warning("message %s: values in %s are not JSON and were not stored", message.id, name)
            data[name] = kept
        references, media = cut(data)
        try:
            text = dump(record)
        except (TypeError, ValueError, RecursionError) as error:
            raise OptionError(
                f"message {message.id!r} cannot be stored as JSON ({error})", remedy="use JSON values in it"
            ) from error
    try:
        body = text[1:].encode()
    except UnicodeEncodeError:  # a lone surrogate is stored as an escape
        body = json.dumps(json.loads(text), separators=(",", ":"))[1:].encode()
    return (body[:-1] + reference_list(references), media) if references else (body, media)


# The JSON of the usual message, text without tool calls and metadata, is that of another one with other words. It takes 1 us where
# pydantic and an encoder take 4 to 6.
_MARKS = re.compile('"<(content|name|id)>"')


@cache
def _pattern(kind: type[BaseMessage]) -> tuple[list[str], Callable[[Any], Any], Any, list[str]] | None:
    """Return the fields of a usual message, a getter of those that always have the same values, these, and the JSON between."""
    sample = kind(content="<content>", name="<name>", id="<id>")
    before, *between = _MARKS.split(dump(message_to_dict(sample)))
    if between[::2] != ["content", "name", "id"]:
        return None
    fields = vars(sample)
    others = itemgetter(*(one for one in fields if one not in {"content", "name", "id"}))
    return list(fields), others, others(fields), [before[1:], *between[1::2]]


def _usual(message: BaseMessage) -> bytes | None:
    """Write a usual message as JSON without its first brace; None for another one."""
    if type(message) not in _USUAL or (pattern := _pattern(type(message))) is None:
        return None
    fields, others, same, (start, middle, between, end) = pattern
    values = vars(message)
    if list(values) != fields or others(values) != same or message.__pydantic_extra__:
        return None
    content, name, id = values["content"], values["name"], values["id"]
    if type(content) is not str or type(id) is not str or not (name is None or type(name) is str):
        return None
    try:
        named = "null" if name is None else _encode(name)
        return f"{start}{_encode(content)}{middle}{named}{between}{_encode(id)}{end}".encode()
    except UnicodeEncodeError:
        return None


def read_message(role: str, data: bytes) -> BaseMessage:
    """Make a message from its fields in JSON.

    Like `BaseModel.__init__`, but without LangChain's constructors: with them, reading 1,000 messages takes 40 % longer.
    """
    kind = KINDS[role]
    validator = kind.__pydantic_validator__
    try:
        message: BaseMessage = validator.validate_json(data, self_instance=_new(kind))
    except ValidationError:  # pydantic's parser refuses an escaped lone surrogate
        message = validator.validate_python(json.loads(data), self_instance=_new(kind))
    return message
