"""Conversion of messages to and from their stored JSON, and of times to and from microseconds."""

from __future__ import annotations

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

from langchain_workingmem._documents.metadata import label, presence_label
from langchain_workingmem._redis.keys import author_tag, check_id
from langchain_workingmem._text.chunks import count_tokens, split
from langchain_workingmem._text.copies import with_given_name, without_memory
from langchain_workingmem._text.names import is_memory_tool
from langchain_workingmem._text.nesting import check_depth, shown
from langchain_workingmem._text.rendering import words_in
from langchain_workingmem._text.said import structured_text, weight_of, words_of
from langchain_workingmem._text.unicode import to_utf8
from langchain_workingmem.errors import OptionError, RedisReplyError, WorkingMemError
from langchain_workingmem.models import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

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
_NOT_STORED = (SystemMessage, RemoveMessage)  # a union takes longer to make than to ask
_EPOCH = datetime.fromtimestamp(0, UTC)


def to_micros(at: datetime) -> int:
    """Convert a time; a naive one is local time."""
    if not isinstance(at, datetime):
        raise OptionError(f"{shown(at)} is of type {type(at).__name__}", remedy="pass a datetime")
    try:
        at = at.astimezone(UTC)
    except (OverflowError, ValueError):  # near the first or last possible time there is no conversion
        at = at.replace(tzinfo=UTC)
    return (at - _EPOCH) // timedelta(microseconds=1)  # integers: a float would round


def in_utc(at: datetime | None) -> datetime | None:
    """Return the time; one without a zone is in UTC, as the times that the model is shown."""
    return at.replace(tzinfo=UTC) if at is not None and at.tzinfo is None else at


def from_micros(micros: int | bytes) -> datetime:
    """Convert microseconds to a time in UTC."""
    return _EPOCH + timedelta(0, 0, int(micros))  # positional arguments take a third less time


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that is prepared for the store."""

    message: BaseMessage
    id: str
    body: bytes  # JSON without the first brace: the script adds a header before it
    role: str
    name: str
    labels: str
    metadata: str  # JSON of the keys that recall filters on; empty where it filters on none
    size: str  # tokens, and the author if there is one: part of the keys of its vectors
    words: str  # see `words_of`; empty for tool traffic
    weight: int  # its tokens, those of tool calls included
    chunks: list[str]  # the texts to embed
    numbered: bool = False  # its id is new


def as_messages(messages: Iterable[MessageLikeRepresentation]) -> list[BaseMessage]:
    """Convert what LangChain accepts as messages, or one such message, to a list of messages."""
    if isinstance(messages, str) or not isinstance(messages, BaseMessage | Iterable):
        raise OptionError(f"a {type(messages).__name__} is not a list of messages", remedy="pass [HumanMessage(text)]")
    pair = isinstance(messages, tuple) and len(messages) == 2 and all(isinstance(part, str) for part in messages)
    given: list[Any] = [messages] if pair or isinstance(messages, BaseMessage | dict) else list(messages)
    # messages stay the caller's objects, which are given their ids later
    return [without_memory(item if isinstance(item, BaseMessage) else _converted(item)) for item in given]


def _converted(item: Any) -> BaseMessage:
    try:
        return convert_to_messages([item])[0]
    except (ValueError, NotImplementedError, KeyError, RecursionError) as error:
        raise OptionError(
            f"{type(item).__name__} is not a message",
            remedy="pass LangChain messages, (role, text) pairs or role-content dicts",
        ) from error


def is_storable(message: BaseMessage) -> bool:
    """Tell whether history stores a message: it is no system message, no removal, and not generated."""
    return not (isinstance(message, _NOT_STORED) or message.additional_kwargs.get("lc_source"))


def count_characters(messages: Iterable[BaseMessage]) -> int:
    """Count the characters of texts, content blocks and tool arguments, roughly: deeper levels are left out."""
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
    # the data of a picture is one level deeper
    parts = chain(*(part.values() if isinstance(part, dict) else (part,) for part in block.values()))
    return sum(len(part) for part in parts if isinstance(part, str))


def drafts(
    messages: Iterable[BaseMessage],
    recall: RecallOptions | None,
    new_id: Callable[[], str],
    structured: Collection[int] = (),
) -> list[Draft]:
    """Prepare messages for `write`. Missing ids are set on the messages, so that saving them again is safe.

    `structured` are the structured answers among them, as `structured_answers` returns them.
    """
    prepared = []
    for given in filter(is_storable, messages):
        numbered = given.id is None
        if numbered:
            given.id = new_id()
        whole = _whole(with_given_name(given))
        prepared.append(_draft(whole, recall, numbered=numbered, structured=id(given) in structured))
    return prepared


def _whole(message: BaseMessage) -> BaseMessage:
    while isinstance(message, BaseMessageChunk):  # a subclass of a chunk becomes a chunk first, then a message
        message = message_chunk_to_message(message)
    if message.type not in _KINDS:
        raise OptionError(
            f"a message of type {message.type!r} cannot be read back", remedy=f"use one of {', '.join(_KINDS)}"
        )
    return message


def _draft(
    message: BaseMessage, recall: RecallOptions | None, *, numbered: bool = False, structured: bool = False
) -> Draft:
    # JSON can hold a lone surrogate, but the index and the embedding model cannot
    text = to_utf8(structured_text(message) if structured else words_in(message))
    is_own = message.type == "tool" and is_memory_tool(message.name)
    embeddable = recall is not None and message.type in recall.roles and not is_own
    name = to_utf8(message.name or "")
    author = author_tag(name, message.type)
    tokens = count_tokens(text)
    return Draft(
        message=message,
        id=check_id(message.id, "message id"),
        body=encode_body(message),
        role=message.type,
        name=name,
        **_filterable(message, recall),
        size=f"{tokens}~{author}" if author else str(tokens),
        words=words_of(message, structured=structured),
        weight=weight_of([message]),
        chunks=split(text, recall.chunk_tokens) if recall and embeddable else [],
        numbered=numbered,
    )


def draft_stored(message: BaseMessage, value: bytes, recall: RecallOptions) -> Draft:
    """Prepare a stored message for new vectors; the body stays the stored bytes."""
    structured = b'"said":"as' in value[: value.index(b'"type":')]
    return replace(_draft(message, recall, structured=structured), body=value[value.index(b'"type":') :])


def filters_of(message: BaseMessage, recall: RecallOptions) -> list[str]:
    """Return fields and values by which recall filters documents of a message."""
    fields = {"role": message.type, "name": to_utf8(message.name or ""), **_filterable(message, recall)}
    return [part for name, value in fields.items() if value or name != "metadata" for part in (name, value)]


def _filterable(message: BaseMessage, recall: RecallOptions | None) -> dict[str, str]:
    """Return the fields of vectors by which recall filters on metadata."""
    if recall is None or not recall.filterable:
        return {"labels": "", "metadata": ""}
    found = metadata_of(message, recall.filterable)
    labels = [one for key, value in found.items() for one in (label(key, value), presence_label(key))]
    return {"labels": ",".join(labels), "metadata": json.dumps(found, separators=(",", ":"))}


def metadata_of(message: BaseMessage, keys: Iterable[str]) -> dict[str, Any]:
    """Return these keys of a message's metadata, without values that are not JSON: the message is stored, they match nothing."""
    nested = message.additional_kwargs.get("metadata")
    sources = [message.additional_kwargs, nested if isinstance(nested, dict) else {}, message.response_metadata]
    found: dict[str, Any] = {}
    for key in keys:
        source = next((source for source in sources if key in source), None)
        if source is not None:
            with suppress(TypeError, ValueError, RecursionError):
                found[key] = json.loads(dump(source[key], allow_nan=False))
    return found


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


def encode_body(message: BaseMessage) -> bytes:
    """Write a message as JSON without its first brace.

    An artifact or provider extras, which may be any Python object, are left out with a warning if they are not JSON.
    Anything else that is not JSON raises `OptionError`.
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
    except UnicodeEncodeError:  # a lone surrogate is stored as an escape
        return json.dumps(json.loads(text), separators=(",", ":"))[1:].encode()


def decode_message(id: bytes, seq: bytes, value: bytes, thread_id: str) -> StoredMessage:
    """Convert a stored message; `WorkingMemError` for anything else."""
    try:
        message, stored_at, upto, is_refused = _decoded(value)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise WorkingMemError(
            f"thread {thread_id!r} holds something under {id!r} that is not a message",
            remedy="was it written by another program?",
        ) from error
    known = id.decode()
    if message.id != known:  # a clone has the body of its source
        message.id = known
    number = int(float(seq))  # that of an older version of a message is a fraction
    return StoredMessage(
        message=message, thread_id=thread_id, seq=number, stored_at=stored_at, refused=is_refused, upto=upto
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
    """Make a message from its fields in JSON.

    Like `BaseModel.__init__`, but without LangChain's constructors: with them, reading 1,000 messages takes 40 % longer
    (benchmarks/decoding.py).
    """
    kind = _KINDS[role]
    validator = kind.__pydantic_validator__
    try:
        message: BaseMessage = validator.validate_json(data, self_instance=kind.__new__(kind))
    except ValidationError:  # pydantic's parser refuses an escaped lone surrogate
        message = validator.validate_python(json.loads(data), self_instance=kind.__new__(kind))
    return message


def index_digest_of(value: bytes) -> bytes:
    """Return the digest of the embedding settings of a stored message's vectors, empty without vectors."""
    start = value.index(b'"vectors":"') + 11
    return value[start : value.index(b"/", start)]


def as_dict(reply: Any) -> dict[bytes, Any]:
    """Convert a reply of fields and values: a map in RESP3, a flat list in RESP2."""
    if isinstance(reply, dict):
        return reply
    return dict(zip(reply[::2], reply[1::2], strict=True))


def search_version(about: Any) -> int | None:
    """Return the version of Search in the reply to HELLO: 80_600 is 8.6.0; None if the server does not show it."""
    modules = () if isinstance(about, RedisReplyError) else as_dict(about).get(b"modules", ())
    return next((int(one[b"ver"]) for one in map(as_dict, modules) if one[b"name"] == b"search"), None)
