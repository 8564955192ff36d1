"""Conversion of messages to and from what is stored of them, and of times to and from microseconds."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    RemoveMessage,
    SystemMessage,
    convert_to_messages,
    message_chunk_to_message,
)

from langchain_workingmem._documents.media import refer, split_media
from langchain_workingmem._documents.messages import KINDS, dump, encode_body, read_message
from langchain_workingmem._documents.metadata import label
from langchain_workingmem._redis.keys import author_tag, check_id
from langchain_workingmem._text.chunks import count_tokens, split
from langchain_workingmem._text.copies import with_given_name, without_memory
from langchain_workingmem._text.media import SHORT, short_words
from langchain_workingmem._text.names import is_memory_tool
from langchain_workingmem._text.nesting import shown
from langchain_workingmem._text.rendering import words_in
from langchain_workingmem._text.said import structured_text, weight_of, words_of
from langchain_workingmem._text.unicode import to_utf8
from langchain_workingmem.errors import OptionError, RedisReplyError, WorkingMemError
from langchain_workingmem.models import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from zoneinfo import ZoneInfo

    from langchain_core.messages import MessageLikeRepresentation

    from langchain_workingmem.options import RecallOptions

_log = logging.getLogger("langchain_workingmem")
_STORED = re.compile(
    rb'\{"stored_at":(\d+),"vectors":"[^"]*","said":"\w*/\d+/(\d+)(!?)","state":"\w*","type":"(\w+)","data":(.*)\}',
    re.DOTALL,
).fullmatch
_new = object.__new__
# filled field by field: the constructor of a frozen dataclass takes 1 us, this 0.4 us
_message, _thread_id, _seq, _stored_at, _superseded, _refused, _upto = (
    getattr(StoredMessage, one.name).__set__ for one in fields(StoredMessage)
)
_NOT_STORED = (SystemMessage, RemoveMessage)  # a union takes longer to make than to ask
_DECIDED = "hitl_interrupt_decision"  # LangChain marks the result of a tool so that a person has given or refused
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


def aware(at: datetime | None, zone: ZoneInfo | None = None, *, last: bool = False) -> datetime | None:
    """Return the time; one without a zone is in `zone`, as the times that the model is shown. None: UTC.

    Of a time that comes twice, when clocks are set back, the first one counts, or the `last`.
    """
    if at is None or at.tzinfo is not None:
        return at
    return (max if last else min)((at.replace(tzinfo=zone or UTC, fold=fold) for fold in (0, 1)), key=to_micros)


def from_micros(micros: int | bytes) -> datetime:
    """Convert microseconds to a time in UTC."""
    return _EPOCH + timedelta(0, 0, int(micros))  # positional arguments take a third less time


@dataclass(slots=True)  # frozen, each would take 1 us more
class Draft:
    """A message that is prepared for the store."""

    message: BaseMessage
    id: str
    body: bytes  # JSON without the first brace: the script adds a header before it; of a shortened copy behind a blank
    role: str
    name: str
    labels: str
    metadata: str  # JSON of the keys that recall filters on; empty where it filters on none
    size: str  # tokens, and the author if there is one: part of the keys of its vectors
    words: str  # see `words_of`; empty for tool traffic
    weight: int  # its tokens, those of tool calls included
    chunks: list[str]  # the texts to embed
    media: list[tuple[str, bytes]] = field(default_factory=list)  # hash and bytes of each reference in the body
    numbered: bool = False  # its id is new


def as_messages(messages: Iterable[MessageLikeRepresentation]) -> list[BaseMessage]:
    """Convert what LangChain accepts as messages, or one such message, to a list of messages."""
    given: Iterable[Any] = messages if type(messages) is list else _listed(messages)
    # messages stay the caller's objects, which are given their ids later
    return [item if isinstance(item, BaseMessage) and not item.additional_kwargs else _taken(item) for item in given]


def _taken(item: Any) -> BaseMessage:
    return without_memory(item if isinstance(item, BaseMessage) else _converted(item))


def _listed(messages: Any) -> Iterable[Any]:
    if isinstance(messages, str) or not isinstance(messages, BaseMessage | Iterable):
        raise OptionError(f"a {type(messages).__name__} is not a list of messages", remedy="pass [HumanMessage(text)]")
    pair = isinstance(messages, tuple) and len(messages) == 2 and all(isinstance(part, str) for part in messages)
    return [messages] if pair or isinstance(messages, BaseMessage | dict) else messages


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
    source = message.additional_kwargs.get("lc_source")
    return not (isinstance(message, _NOT_STORED) or (source and source != _DECIDED))


def count_characters(messages: Iterable[BaseMessage]) -> int:
    """Count the characters to read, roughly: of texts, content blocks and tool arguments, and 500 for a message's other parts."""
    total = 0
    for message in messages:
        content = message.content
        total += 500 + (len(content) if isinstance(content, str) else sum(map(_length, content)))
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
    if message.type not in KINDS:
        raise OptionError(
            f"a message of type {message.type!r} cannot be read back", remedy=f"use one of {', '.join(KINDS)}"
        )
    return message


def _draft(
    message: BaseMessage,
    recall: RecallOptions | None,
    *,
    numbered: bool = False,
    structured: bool = False,
    body: bytes | None = None,
) -> Draft:
    # JSON can hold a lone surrogate, but the index and the embedding model cannot
    text = to_utf8(structured_text(message) if structured else words_in(message))
    is_own = message.type == "tool" and is_memory_tool(message.name)
    embeddable = recall is not None and message.type in recall.roles and not is_own
    name = to_utf8(message.name or "")
    author = author_tag(name, message.type)
    media: list[tuple[str, bytes]] = []
    if body is None and not isinstance(message.content, str) and short_words(message) is not None:
        extras = {key: value for key, value in message.additional_kwargs.items() if key != SHORT}
        body, media = encode_body(message.model_copy(update={"additional_kwargs": extras}))
        body = b" " + body
    elif body is None:
        body, media = encode_body(message)
    tokens = count_tokens(text)
    return Draft(
        message=message,
        id=check_id(message.id, "message id"),
        body=body,
        role=message.type,
        name=name,
        **_filterable(message, recall),
        size=f"{tokens}~{author}" if author else str(tokens),
        words=words_of(message, structured=structured),
        weight=weight_of([message]),
        chunks=split(text, recall.chunk_tokens) if recall and embeddable else [],
        media=media,
        numbered=numbered,
    )


def draft_stored(message: BaseMessage, value: bytes, recall: RecallOptions) -> Draft:
    """Prepare a stored message for new vectors; the body stays the stored bytes."""
    structured = b'"said":"as' in value[: value.index(b'"type":')]
    return _draft(message, recall, structured=structured, body=value[value.index(b'"type":') :])


def _filterable(message: BaseMessage, recall: RecallOptions | None) -> dict[str, str]:
    """Return the fields of vectors by which recall filters on metadata."""
    if recall is None or not recall.filterable:
        return {"labels": "", "metadata": ""}
    found = metadata_of(message, recall.filterable)
    labels = [label(key, value) for key, value in found.items()]
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


def decode_message(id: bytes, seq: bytes, value: bytes, thread_id: str) -> StoredMessage:
    """Convert a stored message; `WorkingMemError` for anything else. Its media are references: see `media.with_media`."""
    try:
        if (parts := _STORED(value)) is None:
            raise ValueError("it has no header")
        stored_at, upto, refused, role, data = parts.groups()
        references: list[tuple[bytes, ...]] = []
        if data[-1:] == b"]":
            data, references = split_media(data)
        message, at, tokens = read_message(role.decode(), data), from_micros(stored_at), int(upto)
        if references:
            refer(message, references, said_words(value))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise WorkingMemError(
            f"thread {thread_id!r} holds something under {id!r} that is not a message",
            remedy="was it written by another program?",
        ) from error
    known = id.decode()
    if message.id != known:  # a clone has the body of its source
        message.id = known
    row = _new(StoredMessage)
    _message(row, message)
    _thread_id(row, thread_id)
    _seq(row, int(float(seq)))  # that of an older version of a message is a fraction
    _stored_at(row, at)
    _superseded(row, False)  # noqa: FBT003
    _refused(row, bool(refused))
    _upto(row, tokens)
    return row


def said_words(value: bytes) -> str:
    """Return the `words` of a stored message."""
    start = value.index(b'"said":"') + 8
    return value[start : value.index(b"/", start)].decode()


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
