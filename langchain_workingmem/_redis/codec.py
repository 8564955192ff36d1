"""Messages to and from their stored form, and times to and from microseconds."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
    message_chunk_to_message,
    message_to_dict,
)
from pydantic import BaseModel, ValidationError

from langchain_workingmem._redis.keys import author_tag, check_id
from langchain_workingmem._text.chunks import count_tokens, split
from langchain_workingmem._text.copies import with_given_name, without_memory
from langchain_workingmem._text.nesting import check_depth, check_nesting, shown
from langchain_workingmem._text.rendering import words_in
from langchain_workingmem._text.said import weight_of, words_of
from langchain_workingmem._text.unicode import is_utf8, to_utf8
from langchain_workingmem.errors import OptionError, WorkingMemError
from langchain_workingmem.models import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from langchain_core.messages import MessageLikeRepresentation

    from langchain_workingmem.options import RecallOptions

_log = logging.getLogger("langchain_workingmem")
_KINDS: dict[str, type[BaseMessage]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "tool": ToolMessage,
    "function": FunctionMessage,
    "chat": ChatMessage,
}
_HEAD = re.compile(
    rb'\{"stored_at":(\d+),"vectors":"[^"]*","said":"\w*/\d+/(\d+)(!?)","state":"\w*","type":"(\w+)","data":'
)
_EPOCH = datetime.fromtimestamp(0, UTC)


def to_micros(at: datetime) -> int:
    """Convert a time; one without a zone is local time, as everywhere in Python."""
    if not isinstance(at, datetime):
        raise OptionError(f"{shown(at)} is of type {type(at).__name__}", remedy="pass a datetime")
    try:
        at = at.astimezone(UTC)
    except (OverflowError, ValueError):  # at the very ends of the calendar there is no other zone
        at = at.replace(tzinfo=UTC)
    return (at - _EPOCH) // timedelta(microseconds=1)  # integers: a float would round


def from_micros(micros: int | bytes) -> datetime:
    """Convert back, to UTC."""
    return _EPOCH + timedelta(0, 0, int(micros))  # by position, which takes a third less time


def canonical_json(value: object, key: str) -> str:
    """Write a value of metadata as JSON that is equal for equal values."""
    try:
        if not isinstance(value, str):
            check_nesting(value)
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"metadata {shown(key)} is not JSON ({error})",
            remedy="use strings, numbers, booleans, None, lists and dicts with str keys",
        ) from error


def check_key(key: object) -> None:
    """Refuse what cannot be a key of metadata."""
    if not is_utf8(key):
        raise OptionError(f"metadata key {shown(key)}", remedy="use a str of valid Unicode")


def label(key: str, value: object) -> str:
    """Give the tag of one pair of metadata; `refresh_labels` in Lua makes the same one."""
    return hashlib.sha1(f"{key}={canonical_json(value, key)}".encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True, slots=True)
class Draft:
    """A message on its way into the store."""

    message: BaseMessage
    id: str
    body: bytes  # JSON without the first brace: the script puts its header in front
    role: str
    name: str
    labels: str
    size: str  # tokens, and the author if he has a name: stands in the keys of its vectors
    words: str  # digest of what it says; empty for tool traffic
    weight: int  # tokens of what it says
    chunks: list[str]  # what to embed
    numbered: bool = False  # memory gave it its id


def as_messages(messages: Iterable[MessageLikeRepresentation]) -> list[BaseMessage]:
    """Accept whatever LangChain accepts as messages, a lone message included."""
    if isinstance(messages, str) or not isinstance(messages, BaseMessage | Iterable):
        raise OptionError(f"a {type(messages).__name__} is not a list of messages", remedy="pass [HumanMessage(text)]")
    pair = isinstance(messages, tuple) and len(messages) == 2 and all(isinstance(part, str) for part in messages)
    given: list[Any] = [messages] if pair or isinstance(messages, BaseMessage | dict) else list(messages)
    # only what is not a message yet is converted: the caller's own objects must come back with their ids
    return [without_memory(item if isinstance(item, BaseMessage) else _converted(item)) for item in given]


def _converted(item: Any) -> BaseMessage:
    try:
        return convert_to_messages([item])[0]
    except (ValueError, NotImplementedError, KeyError, RecursionError) as error:
        raise OptionError(
            f"{type(item).__name__} is no message",
            remedy="pass LangChain messages, (role, text) pairs or role-content dicts",
        ) from error


def is_storable(message: BaseMessage) -> bool:
    """Tell whether a message is part of the conversation: no prompt, no summary, nothing that memory put there."""
    if isinstance(message, SystemMessage | RemoveMessage):
        return False
    return not message.additional_kwargs.get("lc_source")


def count_characters(messages: Iterable[BaseMessage]) -> int:
    """Count the characters of messages at a glance: of texts, content blocks and arguments of tools, not of all that is in them."""
    total = 0
    for message in messages:
        content = message.content
        total += len(content) if isinstance(content, str) else sum(map(_length, content))
        if isinstance(message, AIMessage) and message.tool_calls:
            total += sum(_length(call["args"]) for call in message.tool_calls)
    return total


def _length(block: object) -> int:
    if not isinstance(block, dict):
        return len(block) if isinstance(block, str) else 0
    # of a picture the data stand one level deeper
    parts = chain(*(part.values() if isinstance(part, dict) else (part,) for part in block.values()))
    return sum(len(part) for part in parts if isinstance(part, str))


def drafts(messages: Iterable[BaseMessage], recall: RecallOptions | None, new_id: Callable[[], str]) -> list[Draft]:
    """Prepare messages for `write`. Missing ids are set on the messages themselves, so that saving again is safe."""
    prepared = []
    for given in filter(is_storable, messages):
        numbered = given.id is None
        if numbered:
            given.id = new_id()
        prepared.append(_draft(_whole(with_given_name(given)), recall, numbered=numbered))
    return prepared


def _whole(message: BaseMessage) -> BaseMessage:
    while isinstance(message, BaseMessageChunk):  # a subclass of a chunk becomes a chunk first
        message = message_chunk_to_message(message)
    if message.type not in _KINDS:
        raise OptionError(
            f"a message of type {message.type!r} cannot be read back", remedy=f"use one of {', '.join(_KINDS)}"
        )
    return message


def _draft(message: BaseMessage, recall: RecallOptions | None, *, numbered: bool = False) -> Draft:
    # a lone surrogate can be stored as JSON, but neither indexed nor embedded
    text = to_utf8(words_in(message))
    embeddable = recall is not None and message.type in recall.roles
    name = to_utf8(message.name or "")
    author = author_tag(name)
    tokens = count_tokens(text)
    return Draft(
        message=message,
        id=check_id(message.id, "message id"),
        body=encode_body(message),
        role=message.type,
        name=name,
        labels=",".join(_labels(message, recall.filterable)) if recall else "",
        size=f"{tokens}~{author}" if author else str(tokens),
        words=(words := words_of(message)),
        weight=weight_of([message]) if words else 0,
        chunks=split(text, recall.chunk_tokens) if recall and embeddable else [],
        numbered=numbered,
    )


def draft_stored(message: BaseMessage, value: bytes, recall: RecallOptions) -> Draft:
    """Prepare a stored message for new vectors: its body stays the very bytes that are stored."""
    return replace(_draft(message, recall), body=value[value.index(b'"type":') :])


def _labels(message: BaseMessage, keys: Sequence[str]) -> Iterator[str]:
    nested = message.additional_kwargs.get("metadata")
    places = [
        message.additional_kwargs,
        nested if isinstance(nested, dict) else {},
        message.response_metadata,
    ]
    for key in keys:
        for place in places:
            if key in place:
                with suppress(OptionError):  # nobody can look for it, and no message is lost for that
                    yield label(key, place[key])
                break


def _plain(value: object) -> Any:
    if isinstance(value, BaseModel):  # a parsed answer that with_structured_output leaves in additional_kwargs
        return value.model_dump(mode="json")
    msg = f"{type(value).__name__} is not JSON"
    raise TypeError(msg)


# `json.dumps` would make an encoder per call, which costs as much as encoding.
_encode = json.JSONEncoder(default=_plain, ensure_ascii=False, separators=(",", ":")).encode
_encode_strictly = json.JSONEncoder(default=_plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def dump(value: object, *, allow_nan: bool = True) -> str:
    """Write JSON, pydantic models included; `ValueError` when it is nested too deep.

    NaN and infinity are no JSON. Messages may hold them all the same, since none may be lost.
    """
    return check_depth((_encode if allow_nan else _encode_strictly)(value))


def _is_json(value: object) -> bool:
    try:
        dump(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def encode_body(message: BaseMessage) -> bytes:
    """Write a message as JSON without its first brace.

    What LangChain allows to be any Python object (an artifact, provider extras) is left out, and said in the log,
    where it is not JSON. Anything else that is not JSON raises `OptionError`.
    """
    record = message_to_dict(message)
    try:
        text = dump(record)
    except (TypeError, ValueError, RecursionError):
        data = record["data"]
        if not _is_json(data.get("artifact")):
            data["artifact"] = None
            _log.warning("message %s: its artifact is not JSON and was not stored", message.id)
        for name in ("additional_kwargs", "response_metadata"):
            kept = {key: value for key, value in data[name].items() if _is_json({key: value})}
            if len(kept) < len(data[name]):
                _log.warning("message %s: values in %s are not JSON and were not stored", message.id, name)
            data[name] = kept
        try:
            text = dump(record)
        except (TypeError, ValueError, RecursionError) as error:
            raise OptionError(
                f"message {message.id!r} cannot be stored as JSON ({error})", remedy="use JSON values in it"
            ) from error
    try:
        return text[1:].encode()
    except UnicodeEncodeError:  # a lone surrogate survives as an escape
        return json.dumps(json.loads(text), separators=(",", ":"))[1:].encode()


def decode_message(id: bytes, seq: bytes, value: bytes, thread_id: str) -> StoredMessage:
    """Read a stored message."""
    try:
        message, stored_at, upto, is_refused = _decoded(value)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise WorkingMemError(
            f"thread {thread_id!r} holds something that is no message under {id!r}",
            remedy="was it written by another program?",
        ) from error
    known = id.decode()
    if message.id != known:  # a copy keeps the body of its source
        message.id = known
    position = int(float(seq))  # an older version of a message stands between two numbers
    return StoredMessage(
        message=message, thread_id=thread_id, seq=position, stored_at=stored_at, refused=is_refused, upto=upto
    )


def _decoded(value: bytes) -> tuple[BaseMessage, datetime, int, bool]:
    head = _HEAD.match(value)
    if head is None:
        msg = "it has no header"
        raise ValueError(msg)
    stored_at, upto, refused, role = head.groups()
    message = read_message(role.decode(), value[head.end() : -1])
    return message, from_micros(stored_at), int(upto), bool(refused)


def read_message(role: str, data: bytes) -> BaseMessage:
    """Make a message of its fields in JSON.

    Does what `BaseModel.__init__` does, without the constructors that LangChain puts in front of it: they would make reading
    1,000 messages 40 % slower (benchmarks/decoding.py).
    """
    kind = _KINDS[role]
    validator = kind.__pydantic_validator__
    try:
        message: BaseMessage = validator.validate_json(data, self_instance=kind.__new__(kind))
    except ValidationError:  # a lone surrogate: the fast parser refuses what ours wrote
        message = validator.validate_python(json.loads(data), self_instance=kind.__new__(kind))
    return message


def index_digest_of(value: bytes) -> bytes:
    """Read from a stored message which embedding settings its vectors were made with, empty for none."""
    start = value.index(b'"vectors":"') + 11
    return value[start : value.index(b"/", start)]


def as_dict(reply: Any) -> dict[bytes, Any]:
    """Read a reply of fields and values: RESP3 gives a map, RESP2 a flat list."""
    if isinstance(reply, dict):
        return reply
    return dict(zip(reply[::2], reply[1::2], strict=True))
