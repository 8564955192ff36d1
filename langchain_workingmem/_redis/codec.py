"""Messages as they are stored: LangChain's fields as JSON, without empty ones; and what scripts need of each."""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
from langchain_core.messages import (
    BaseMessage,
    BaseMessageChunk,
    RemoveMessage,
    SystemMessage,
    convert_to_messages,
    message_chunk_to_message,
)
from pydantic import BaseModel, ValidationError

from langchain_workingmem._redis.filters import label
from langchain_workingmem._redis.keys import author_tag, check_id
from langchain_workingmem._text.messages import (
    KINDS,
    is_memory_tool,
    structured_text,
    weight_of,
    words_digest,
    words_in,
)
from langchain_workingmem._text.unicode import count_tokens, spans, to_utf8
from langchain_workingmem._text.values import MAX_DEPTH, TOO_DEEP, check_depth, problems_in
from langchain_workingmem.errors import OptionError, RedisReplyError
from langchain_workingmem.models import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from langchain_core.messages import MessageLikeRepresentation

    from langchain_workingmem.options import RecallOptions

_log = logging.getLogger("langchain_workingmem")
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)  # of what was stored

# ---------------------------------------------------------------------- what callers pass

_NOT_STORED = (SystemMessage, RemoveMessage)
_DECIDED = "hitl_interrupt_decision"  # LangChain marks the result of a tool so that a person has given or refused


def as_messages(messages: Iterable[MessageLikeRepresentation]) -> list[BaseMessage]:
    """Convert what LangChain accepts as messages, or one message, to a list; messages stay the caller's objects."""
    passed: Any = messages
    if isinstance(passed, str) or not isinstance(passed, BaseMessage | Iterable):
        raise OptionError(f"a {type(passed).__name__} is not a list of messages", remedy="pass [HumanMessage(text)]")
    is_pair = isinstance(passed, tuple) and len(passed) == 2 and all(isinstance(part, str) for part in passed)
    converted = []
    items: Iterable[Any] = [passed] if is_pair or isinstance(passed, BaseMessage | dict) else passed
    for item in items:
        try:
            converted.append(item if isinstance(item, BaseMessage) else convert_to_messages([item])[0])
        except (ValueError, NotImplementedError, KeyError, RecursionError) as error:
            remedy = "pass LangChain messages, (role, text) pairs or role-content dicts, of user, assistant or tool"
            raise OptionError(f"{type(item).__name__} is not a message ({str(error)[:100]})", remedy=remedy) from error
    return converted


def is_storable(message: BaseMessage) -> bool:
    """Tell whether history stores a message: it is no system message, no removal, and not generated."""
    source = message.additional_kwargs.get("lc_source") if message.additional_kwargs else None
    return not (isinstance(message, _NOT_STORED) or (source and source != _DECIDED))


def count_characters(messages: Iterable[BaseMessage]) -> int:
    """Count the characters to read, roughly: of texts and content blocks, and 500 for a message's other parts."""
    size = 0
    for message in messages:
        with suppress(ValueError, RecursionError):  # it will be refused
            size += 500 + len(message.content if isinstance(message.content, str) else repr(message.content))
    return size


# ---------------------------------------------------------------------- what is written


@dataclass(slots=True)  # frozen, each would take 1 us more
class Draft:
    """A message that is prepared for the store."""

    message: BaseMessage
    id: str
    body: bytes  # JSON without the first brace: the script adds the time in front
    role: str
    labels: str
    metadata: str  # JSON of the keys that recall filters on; empty where it filters on none
    length: int  # tokens of its text: with the author, a part of the keys of its vectors
    author: str  # see `author_tag`
    digest: str  # see `words_digest`; empty for tool traffic
    weight: int  # its tokens, those of tool calls included
    chunks: list[str]  # the texts to embed
    media: list[str] = field(default_factory=list)  # long strings that lie beside the body
    writer: str = ""  # see `Facts.writer`
    seq: int | None = None  # of the stored message that it replaces
    facts: str | None = None  # of the stored message that gets new vectors
    at: int | None = None  # microseconds, of an older message
    is_superseded: bool = False
    has_new_id: bool = False  # made here: nobody else knows it

    def refuse(self) -> None:
        """Note that a provider has refused the message: no model is shown it, and nobody searches for it."""
        self.digest, self.chunks = f"{self.digest}!", []


def drafts(
    messages: Iterable[BaseMessage],
    recall: RecallOptions | None,
    new_id: Callable[[], str],
    structured: Collection[int] = (),
) -> list[Draft]:
    """Prepare messages for the store; set missing ids, so a retry is safe. `structured`: from `structured_answers`."""
    prepared = []
    for message in filter(is_storable, messages):
        has_new_id = message.id is None
        if has_new_id:
            message.id = new_id()
        whole = message if message.type in KINDS else _without_chunks(message)
        draft = draft_of(whole, recall, structured=id(message) in structured)
        draft.has_new_id = has_new_id
        prepared.append(draft)
    return prepared


def _without_chunks(message: BaseMessage) -> BaseMessage:
    while isinstance(message, BaseMessageChunk):  # a subclass of a chunk becomes a chunk first, then a message
        message = message_chunk_to_message(message)
    if message.type not in KINDS:
        raise OptionError(f"a {message.type!r} message cannot be stored", remedy=f"use one of {', '.join(KINDS)}")
    return message


def draft_of(message: BaseMessage, recall: RecallOptions | None, *, structured: bool = False) -> Draft:
    """Prepare one message with an id."""
    # JSON can hold a lone surrogate, but the index and the embedding model cannot
    text = to_utf8(structured_text(message) if structured else words_in(message))
    labels, metadata = _filterable(message, recall.filterable) if recall and recall.filterable else ("", "")
    digest = words_digest(message, structured=structured)
    is_from_memory = message.type == "tool" and is_memory_tool(message.name)
    chunks = spans(text, recall.chunk_tokens) if recall and message.type in recall.roles and not is_from_memory else ()
    body, media = body_of(message, digest[:1])
    return Draft(
        message=message,
        id=check_id(message.id, "message id"),
        body=body,
        role=message.type,
        labels=labels,
        metadata=metadata,
        length=count_tokens(text),
        author=author_tag(to_utf8(str(message.name)) if message.name else "", message.type),
        digest=digest,
        weight=weight_of([message]),
        chunks=[text[start:end] for start, end in chunks],
        media=media,
    )


def _filterable(message: BaseMessage, keys: Iterable[str]) -> tuple[str, str]:
    """Return the labels and the metadata by which recall filters. A value that is not JSON matches nothing."""
    nested = message.additional_kwargs.get("metadata")
    sources = [message.additional_kwargs, nested if isinstance(nested, dict) else {}, message.response_metadata]
    metadata: dict[str, Any] = {}
    for key in keys:
        source = next((source for source in sources if key in source), None)
        if source is not None:
            with suppress(TypeError, ValueError, RecursionError):
                metadata[key] = json.loads(dump(source[key]))
    labels = [label(key, value) for key, value in metadata.items()]
    return ",".join(labels), json.dumps(metadata, separators=(",", ":"))


# ---------------------------------------------------------------------- bodies

LONG_TEXT = 65_536  # characters of a string within content blocks that lies beside the body
PLAIN = {"content", "id", "name"}  # fields of the usual message, which need no check
_STORED_EMPTY = {"content", "artifact", "name"}  # fields that are stored, or refused, if they are empty
_BOXES = (dict, list)  # a union takes longer to make than to ask
_LOOSE = ("artifact", "additional_kwargs", "response_metadata")  # which may hold any Python object
_COUNTS = ("input_tokens", "output_tokens", "total_tokens")


def body_of(message: BaseMessage, kind: str) -> tuple[bytes, list[str]]:
    """Return a message as JSON without its first brace, and its long strings; `OptionError` if nothing can read it."""
    try:
        data, media, paths = _filled({**vars(message), **(message.model_extra or {})}), list[str](), list[list[Any]]()
        is_text = data.keys() <= PLAIN and type(data["content"]) is type(data.get("name", "")) is str
        if not is_text or type(message) is not KINDS[message.type]:  # another class may have its own way
            data = _checked(message)
            for name in ("content", "artifact"):
                _take_media(data.get(name), [name], media, paths)
        record = {"type": message.type, "kind": kind, **({"media": paths} if paths else {}), "data": data}
        return _encoded(record)[1:], media
    except UNREADABLE as error:
        why = "; ".join(map(": ".join, problems_in(error))) if isinstance(error, ValidationError) else error
        remedy = "use JSON values, of the types that LangChain's messages have"
        raise OptionError(f"message {message.id!r} cannot be stored ({why})", remedy=remedy) from error


def _filled(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a message that are not empty, without its type; content and artifact may be empty."""
    return {
        key: value
        for key, value in data.items()
        if key != "type" and value is not None and (key in _STORED_EMPTY or not isinstance(value, _BOXES) or value)
    }


def _checked(message: BaseMessage) -> dict[str, Any]:
    """Return the fields of a message that LangChain can read back, without what is not JSON."""
    data = _filled(message.model_dump(warnings=False))
    if (usage := data.get("usage_metadata")) is not None:  # some providers leave numbers out
        data["usage_metadata"] = {**usage, **{name: usage.get(name) or 0 for name in _COUNTS}}
    data = _filled(KINDS[message.type](**data).model_dump(warnings=False))  # LangChain checks what was changed
    for name in (name for name in _LOOSE if name in data and not _is_json({name: data[name]})):
        if name == "artifact":
            del data[name]
        else:
            data[name] = {key: item for key, item in data[name].items() if _is_json({key: item})}
        _log.warning("message %s: what is not JSON in its %s was not stored", message.id, name)
    return data


def _is_json(value: dict[Any, Any]) -> bool:
    try:
        _encoded(value)
    except UNREADABLE:
        return False
    return True


def _take_media(value: Any, path: list[Any], media: list[str], paths: list[list[Any]]) -> None:
    """Take long strings, and bytes as base64, out of a value, other than text; note the keys to each."""
    if len(path) > MAX_DEPTH:  # at once: what contains itself twice would be walked for ever
        raise ValueError(TOO_DEEP)
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(items):
        if isinstance(item, dict | list):
            _take_media(item, [*path, key], media, paths)
            continue
        value[key] = text = b64encode(item).decode() if isinstance(item, bytes) else item
        if isinstance(text, str) and len(text) >= LONG_TEXT and key != "text":
            value[key] = ""
            paths.append([*path, key])
            media.append(text)


def _as_json(value: object) -> Any:
    if isinstance(value, BaseModel):  # with_structured_output puts a parsed answer into additional_kwargs
        return value.model_dump(mode="json")
    msg = f"{type(value).__name__} is not JSON"
    raise TypeError(msg)


def _encoded(value: dict[str, Any]) -> bytes:
    """Write JSON; NaN and infinity as null. `ValueError` if it is nested too deep."""
    try:
        text = orjson.dumps(value, default=_as_json)
    except TypeError:  # a lone surrogate, a large int, a key that is no str
        # orjson would read a large int as a float, but refuses NaN: so `StoredMessage.of` reads this by json, and whole
        text = json.dumps({**value, "read_by_json": float("nan")}, default=_as_json, separators=(",", ":")).encode()
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH:
        check_depth(text.decode())
    return text


def dump(value: object) -> str:
    """Write JSON of any int and any text, pydantic models included; `ValueError` for NaN, or if nested too deep."""
    return check_depth(json.dumps(value, default=_as_json, ensure_ascii=False, separators=(",", ":"), allow_nan=False))


# ---------------------------------------------------------------------- what is read

_told: set[tuple[str, int]] = set()  # rows whose damage was logged


def read_rows(
    entries: Iterable[tuple[int, int, bytes | None]], thread_id: str, *, make: bool = False
) -> list[StoredMessage]:
    """Read bodies, with their places and the thread's tokens up to them, `make` messages; log once what is left out."""
    rows = []
    for place, total_tokens, body in entries:
        try:
            row = StoredMessage.of(body, thread_id, place, total_tokens)
            if make:
                row.message  # noqa: B018 - makes it
            rows.append(row)
        except UNREADABLE as error:
            tell_damage(thread_id, place, error)
    return rows


def is_readable(row: StoredMessage) -> bool:
    """Make the message of a row; tell whether that was possible."""
    try:
        row.message  # noqa: B018 - makes it
    except UNREADABLE as error:
        tell_damage(row.thread_id, row.place, error)
        return False
    return True


def tell_damage(thread_id: str, seq: int, error: Exception) -> None:
    """Log once that a message cannot be read."""
    if (thread_id, seq) not in _told and len(_told) < 10_000:
        _told.add((thread_id, seq))
        why = type(error).__name__ if isinstance(error, ValidationError) else error
        _log.error("message %d of thread %r cannot be read, and is left out: %s", seq, thread_id, why)


def as_dict(reply: Any) -> dict[bytes, Any]:
    """Convert a reply of fields and values: a map in RESP3, a flat list in RESP2."""
    if isinstance(reply, dict):
        return reply
    return dict(zip(reply[::2], reply[1::2], strict=True))


def search_version(hello: Any) -> int | None:
    """Return the version of Search in the reply to HELLO: 80_600 is 8.6.0; None if the server does not show it."""
    modules = () if isinstance(hello, RedisReplyError) else as_dict(hello).get(b"modules", ())
    return next((int(module[b"ver"]) for module in map(as_dict, modules) if module[b"name"] == b"search"), None)
