"""Conversion of messages to what is stored of them, and back."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_core.messages import (
    BaseMessage,
    BaseMessageChunk,
    RemoveMessage,
    SystemMessage,
    convert_to_messages,
    message_chunk_to_message,
)
from pydantic import ValidationError

from langchain_workingmem._documents.messages import KINDS, UNREADABLE, body_of, dump
from langchain_workingmem._documents.metadata import label
from langchain_workingmem._redis.keys import author_tag, check_id
from langchain_workingmem._text.chunks import count_tokens, split
from langchain_workingmem._text.names import is_memory_tool
from langchain_workingmem._text.rendering import words_in
from langchain_workingmem._text.said import structured_text, weight_of, words_of
from langchain_workingmem._text.unicode import to_utf8
from langchain_workingmem.errors import OptionError
from langchain_workingmem.models import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from langchain_core.messages import MessageLikeRepresentation

    from langchain_workingmem.options import RecallOptions

_log = logging.getLogger("langchain_workingmem")
_NOT_STORED = (SystemMessage, RemoveMessage)  # a union takes longer to make than to ask
_DECIDED = "hitl_interrupt_decision"  # LangChain marks the result of a tool so that a person has given or refused
_told: set[tuple[str, int]] = set()  # rows whose damage was logged


# ---------------------------------------------------------------------- what callers pass


def as_messages(messages: Iterable[MessageLikeRepresentation]) -> list[BaseMessage]:
    """Convert what LangChain accepts as messages, or one such message, to a list of messages.

    Messages stay the caller's objects, which are given their ids later.
    """
    given: Iterable[Any] = messages if type(messages) is list else _listed(messages)
    return [item if isinstance(item, BaseMessage) else _converted(item) for item in given]


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


def mended(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """Return messages with fields of the types that LangChain gives them, which `model_copy` and assignments do not check."""
    odd = [dict(_odd(one)) for one in messages] if _are_odd(messages) else ()
    return (
        [one.model_copy(update=more) if more else one for one, more in zip(messages, odd, strict=True)]
        if odd
        else messages
    )


def _are_odd(messages: Sequence[BaseMessage]) -> bool:
    return not all(
        (type(one.content) is str or (isinstance(one.content, list) and all(map(_is_block, one.content))))
        and type(one.additional_kwargs) is type(one.response_metadata) is dict
        and type(one.name or "") is str
        and type(getattr(one, "tool_calls", [])) is type(getattr(one, "invalid_tool_calls", [])) is list
        and type(getattr(one, "tool_call_id", "")) is str
        for one in messages
    )


def _is_block(block: object) -> bool:
    return isinstance(block, str | dict)


def _odd(message: BaseMessage) -> Iterator[tuple[str, Any]]:
    """Yield the fields that have other types, and what stands for them."""
    content: Any = message.content
    if isinstance(content, dict):
        yield "content", [content]
    elif isinstance(content, list | tuple):
        yield "content", [one if _is_block(one) else str(one) for one in content if one is not None]
    elif not isinstance(content, str):
        yield (
            "content",
            "" if content is None else content.decode(errors="replace") if isinstance(content, bytes) else str(content),
        )
    for name, kind in (
        ("additional_kwargs", dict),
        ("response_metadata", dict),
        ("tool_calls", list),
        ("invalid_tool_calls", list),
    ):
        if not isinstance(getattr(message, name, kind()), kind):
            yield name, kind()
    for name in ("name", "tool_call_id"):
        if not isinstance(value := getattr(message, name, None) or "", str):
            yield name, str(value)


def is_storable(message: BaseMessage) -> bool:
    """Tell whether history stores a message: it is no system message, no removal, and not generated."""
    source = message.additional_kwargs.get("lc_source") if message.additional_kwargs else None
    return not (isinstance(message, _NOT_STORED) or (source and source != _DECIDED))


def count_characters(messages: Iterable[BaseMessage]) -> int:
    """Count the characters to read, roughly: of texts and content blocks, and 500 for a message's other parts."""
    return sum(500 + (len(one.content) if isinstance(one.content, str) else _length(one.content)) for one in messages)


def _length(content: object) -> int:
    try:
        return len(repr(content))
    except (ValueError, RecursionError):  # it will be refused
        return 0


# ---------------------------------------------------------------------- writing


@dataclass(slots=True)  # frozen, each would take 1 us more
class Draft:
    """A message that is prepared for the store."""

    message: BaseMessage
    id: str
    body: bytes  # JSON without the first brace: the script adds the time in front
    role: str
    name: str
    labels: str
    metadata: str  # JSON of the keys that recall filters on; empty where it filters on none
    size: str  # tokens, and the author if there is one: part of the keys of its vectors
    words: str  # see `words_of`; empty for tool traffic
    weight: int  # its tokens, those of tool calls included
    chunks: list[str]  # the texts to embed
    media: list[str] = field(default_factory=list)  # long strings that lie beside the body
    writer: str = ""  # see `Facts.writer`
    seq: int | None = None  # of the stored message that it replaces
    facts: str | None = None  # of the stored message that gets new vectors
    at: int | None = None  # microseconds, of an older message
    is_superseded: bool = False
    numbered: bool = False  # its id is new

    def head(self) -> dict[str, Any]:
        """Return what `write.lua` reads of it beside body, vectors and media."""
        found: dict[str, Any] = {
            "id": self.id,
            "words": self.words,
            "tokens": self.weight,
            "writer": self.writer,
            "role": self.role,
            "name": self.name,
            "labels": self.labels,
            "size": self.size,
            "media": len(self.media),
        }
        optional = {"metadata": self.metadata, "seq": self.seq, "facts": self.facts, "at": self.at}
        found |= {name: value for name, value in optional.items() if value not in (None, "")}
        return {**found, "is_superseded": True} if self.is_superseded else found


def drafts(
    messages: Iterable[BaseMessage],
    recall: RecallOptions | None,
    new_id: Callable[[], str],
    structured: Collection[int] = (),
) -> list[Draft]:
    """Prepare messages for the store. Missing ids are set on the messages, so that saving them again is safe.

    `structured` are the structured answers among them, as `structured_answers` returns them.
    """
    prepared = []
    for given in filter(is_storable, messages):
        numbered = given.id is None
        if numbered:
            given.id = new_id()
        draft = draft_of(_whole(given), recall, structured=id(given) in structured)
        draft.message, draft.numbered = given if type(given) is type(draft.message) else draft.message, numbered
        prepared.append(draft)
    return prepared


def _whole(message: BaseMessage) -> BaseMessage:
    while isinstance(message, BaseMessageChunk):  # a subclass of a chunk becomes a chunk first, then a message
        message = message_chunk_to_message(message)
    if message.type not in KINDS:
        raise OptionError(
            f"a message of type {message.type!r} cannot be read back", remedy=f"use one of {', '.join(KINDS)}"
        )
    return message


def draft_of(message: BaseMessage, recall: RecallOptions | None, *, structured: bool = False) -> Draft:
    """Prepare one message with an id."""
    # JSON can hold a lone surrogate, but the index and the embedding model cannot
    text = to_utf8(structured_text(message) if structured else words_in(message))
    is_own = message.type == "tool" and is_memory_tool(message.name)
    embeddable = recall is not None and message.type in recall.roles and not is_own
    name = to_utf8(str(message.name or ""))
    author = author_tag(name, message.type)
    labels, metadata = _filterable(message, recall) if recall and recall.filterable else ("", "")
    tokens, words = count_tokens(text), words_of(message, structured=structured)
    body, media = body_of(message, words[:1])
    return Draft(
        message=message,
        id=check_id(message.id, "message id"),
        body=body,
        role=message.type,
        name=name,
        labels=labels,
        metadata=metadata,
        size=f"{tokens}~{author}" if author else str(tokens),
        words=words,
        weight=weight_of([message]),
        chunks=split(text, recall.chunk_tokens) if recall and embeddable else [],
        media=media,
    )


def _filterable(message: BaseMessage, recall: RecallOptions) -> tuple[str, str]:
    """Return the labels and the metadata by which recall filters."""
    found = metadata_of(message, recall.filterable)
    labels = [label(key, value) for key, value in found.items()]
    return ",".join(labels), json.dumps(found, separators=(",", ":"))


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


# ---------------------------------------------------------------------- reading


def read_rows(found: Iterable[tuple[int, int, bytes | None]], thread_id: str, *, make: bool) -> list[StoredMessage]:
    """Read bodies, each with its place and the tokens of the thread up to it; what cannot be read is left out, and logged once.

    With `make`, messages are made as well: what LangChain refuses cannot be read either.
    """
    rows = []
    for place, upto, body in found:
        try:
            rows.append(StoredMessage.of(body, thread_id, place, upto, make=make))
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


def search_version(about: Any) -> int | None:
    """Return the version of Search in the reply to HELLO: 80_600 is 8.6.0; None if the server does not show it."""
    from langchain_workingmem.errors import RedisReplyError

    modules = () if isinstance(about, RedisReplyError) else as_dict(about).get(b"modules", ())
    return next((int(one[b"ver"]) for one in map(as_dict, modules) if one[b"name"] == b"search"), None)
