"""Messages as a model receives them: copies that carry memory, signed, and lists that every provider accepts. No I/O.

A copy says under `MARK` in its `additional_kwargs` what it stands for, with an HMAC over thread, user, id and that, so
no client can write one. The secret lies in Redis, for all processes of a `key_prefix`. A wrong mark counts nothing.

Providers refuse a tool result without its call, a call without all of its results, an id that comes twice, and messages
without content. Every list that memory puts together passes through `provider_valid`.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from secrets import token_bytes
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, FunctionMessage, HumanMessage, ToolCall, ToolMessage

from langchain_workingmem._text.messages import acceptable_name, has_content, tool_call_ids
from langchain_workingmem._text.unicode import in_texts, to_utf8
from langchain_workingmem._text.values import canonical
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MARK = "langchain_workingmem"  # key in `additional_kwargs`
SOURCE = "langchain_workingmem"  # `lc_source` of what memory shows beside the conversation; providers do not receive it
# The secrets of all memories of this process: one memory knows the copies of another one in the same agent
SECRETS: dict[bytes, None] = {}


def without_block(message: BaseMessage) -> BaseMessage:
    """Return a message without what memory has put before its words, for counting and showing; signed or not."""
    mark = message.additional_kwargs.get(MARK)
    content = mark.get("content") if isinstance(mark, dict) else None
    return message.model_copy(update={"content": content}) if isinstance(content, str | list) else message


def as_shown(message: BaseMessage, data: dict[str, Any], content: str) -> BaseMessage:
    """Copy a message as reference data that memory shows beside the conversation: nobody saves it."""
    extras = {**message.additional_kwargs, "lc_source": SOURCE, "lc_data": data}
    copy = message.model_copy(update={"additional_kwargs": extras, "content": content})
    return Marks(next(iter(SECRETS), b""), "", "").inserted(copy)  # any secret of this process is believed here


@dataclass(frozen=True, slots=True)
class Marks:
    """Signs and reads the marks of a user's thread."""

    secret: bytes | None  # None: Redis was never asked
    thread_id: str
    user_id: str  # empty: of any user

    def put(self, message: BaseMessage, update: dict[str, Any], **kept: Any) -> BaseMessage:
        """Copy a message with changes, and with a mark that keeps what it was.

        `kept` are its former `content` and `name`, else it stands for what is stored; `inserted` by memory; `left_out`:
        seqs that a load node has taken out of the state. Marked twice, a message keeps the content of the first time.
        """
        kept = {**kept, **(self._read(message) or {}), **({"left_out": kept["left_out"]} if "left_out" in kept else {})}
        content = update.get("content", message.content)
        mac = self._signed(self.secret or b"", self.user_id, message.id, kept, content)
        extras = {**message.additional_kwargs, MARK: {**kept, "user": self.user_id, "mac": mac}}
        return message.model_copy(update={**update, "additional_kwargs": extras})

    def with_memory(self, message: BaseMessage, blocks: Sequence[str]) -> BaseMessage:
        """Copy a message of the user with text of memory in front of the words."""
        text, content = "\n\n".join(blocks), message.content
        extended = f"{text}\n\n{content}" if isinstance(content, str) else [{"type": "text", "text": text}, *content]
        return self.put(message, {"content": extended}, content=content)

    def inserted(self, message: BaseMessage) -> BaseMessage:
        """Copy a message that memory puts into a conversation: it is no part of it."""
        return self.put(message, {}, inserted=True)

    def left_out(self, messages: Iterable[BaseMessage]) -> frozenset[int]:
        """Return the seqs of stored messages that a load node has taken out of a state, as its messages note."""
        marked = (message for message in messages if MARK in message.additional_kwargs)
        return frozenset(seq for message in marked for seq in (self._read(message) or {}).get("left_out") or ())

    def unmarked(self, messages: Iterable[BaseMessage], *, own: bool = False) -> list[BaseMessage]:
        """Undo what memory has changed, and leave out what it put in; `own`: undo only what this memory has changed."""
        originals = list[BaseMessage]()
        for message in messages:
            kept = self._read(message, own=own) if MARK in message.additional_kwargs else {}
            if "inserted" in (kept or ()) and not own:
                continue
            is_anothers = kept is None and own and self._read(message) is not None
            if is_anothers or (kept is not None and "content" not in kept):
                originals.append(message)
                continue
            # a mark that nobody has signed is left out, too
            extras = {key: value for key, value in message.additional_kwargs.items() if key != MARK}
            former = {name: value for name, value in (kept or {}).items() if name in {"content", "name"}}
            originals.append(message.model_copy(update={**former, "additional_kwargs": extras}))
        return originals

    def _read(self, message: BaseMessage, *, own: bool = False) -> dict[str, Any] | None:
        """Return what a mark keeps that this memory has signed, or, without `own`, another one of this process."""
        mark = message.additional_kwargs.get(MARK)
        if not isinstance(mark, dict) or not isinstance(mac := mark.get("mac"), str) or not mac.isascii():
            return None
        kept = {key: value for key, value in mark.items() if key not in {"user", "mac"}}
        for secret in filter(None, (self.secret,) if own else (self.secret, *SECRETS)):
            user = self.user_id if self.user_id and secret == self.secret else str(mark.get("user"))
            if hmac.compare_digest(mac, self._signed(secret, user, message.id, kept, message.content)):
                return kept
        return None

    def _signed(self, secret: bytes, user_id: str, id: str | None, kept: dict[str, Any], content: object) -> str:
        """Sign what a mark keeps, for this thread and a user; the content of an `inserted` message, for any thread."""
        scope = [None, None, content] if "inserted" in kept else [self.thread_id, user_id, None]
        text = canonical([*scope, id, kept]) or token_bytes()  # what cannot be written has no right mark
        return hmac.digest(secret, text, "sha256").hex()[:32]


_SENT = ("content", "name", "tool_calls", "invalid_tool_calls")
_RAW_CALLS = {"tool_calls", "function_call"}  # ChatOpenAI sends these when a message has no calls of its own
_RESULTS = (ToolMessage, FunctionMessage)
_TALK = (HumanMessage, AIMessage)


def headed_groups(messages: Iterable[BaseMessage]) -> list[tuple[BaseMessage, list[BaseMessage]]]:
    """Cut a conversation into what must stay together: a call with its results directly after it, or one message.

    Returns each group with the message that it was made of. Results may stand anywhere after their call; providers may
    number the calls of each answer anew. Results without a call and empty messages are left out. Of messages with one
    id the last stays, at the place of the first. A call without all of its results becomes a copy of its words.
    """
    unique: dict[object, BaseMessage] = {}
    for message in messages:
        unique[object() if message.id is None else message.id] = message
    heads: list[tuple[BaseMessage, dict[str, BaseMessage | None]]] = []
    unanswered: dict[str, dict[str, BaseMessage | None]] = {}
    for message in unique.values():
        if isinstance(message, _RESULTS):
            call_id = f"\0{message.name}" if isinstance(message, FunctionMessage) else message.tool_call_id
            if answers := unanswered.pop(call_id, None):
                answers[call_id] = message
            continue
        may_call = isinstance(message, AIMessage) and (
            message.tool_calls
            or message.invalid_tool_calls
            or message.additional_kwargs
            or type(message.content) is list
        )
        calls = tool_call_ids(message) if may_call else []
        answers = dict.fromkeys(calls)
        heads.append((message, answers))
        if len(answers) == len(calls):  # the same id for two calls cannot be answered
            unanswered.update(dict.fromkeys(calls, answers))
    groups: list[tuple[BaseMessage, list[BaseMessage]]] = []
    for message, answers in heads:
        group = [message, *(answer for answer in answers.values() if answer is not None)]
        if len(group) <= len(answers):
            group = [with_calls(message)]
        # Gemini wants a call right behind the user or a result, not behind the words of a call that was taken out
        while len(group) > 1 and groups and groups[-1][1][-1].additional_kwargs.get("lc_source") == SOURCE:
            groups.pop()
        content = group[0].content
        if len(group) > 1 or (bool(content.strip()) if type(content) is str else has_content(group[0])):
            groups.append((message, group))
    return groups


def with_calls(
    message: BaseMessage, calls: Sequence[ToolCall] = (), content: str | list[Any] | None = None
) -> BaseMessage:
    """Copy an answer with only these of its calls, and `content`, else its words; by `lc_source`, nobody saves it."""
    extras = {key: value for key, value in message.additional_kwargs.items() if key not in _RAW_CALLS}
    metadata = {key: value for key, value in message.response_metadata.items() if key != "output_version"}
    text = str(message.text) if content is None else content
    content = "" if isinstance(text, str) and not text.strip() else text  # Claude refuses blank text
    lean = {"content": content, "tool_calls": [*calls], "invalid_tool_calls": [], "response_metadata": metadata}
    return message.model_copy(update={**lean, "additional_kwargs": {**extras, "lc_source": SOURCE}})


def provider_valid(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Return the messages that every provider accepts, in order."""
    return [
        message  # nearly all of them
        if type(message) in _TALK
        and type(message.content) is str
        and message.content.isascii()
        and not (message.name or (type(message) is AIMessage and (message.tool_calls or message.invalid_tool_calls)))
        else sendable(message)
        for _, group in headed_groups(messages)
        for message in group
    ]


def sendable(message: BaseMessage) -> BaseMessage:
    """Return a message, or a copy, without lone surrogates (half an emoji), under a name that providers accept."""
    parts = {name: value for name in _SENT if (value := getattr(message, name, None))}
    try:
        clean = in_texts(parts, to_utf8)
    except RecursionError as error:
        problem = f"message {message.id!r} is nested deeper than Python can follow, or contains itself"
        raise OptionError(problem, remedy="pass content and arguments of tools as plain JSON") from error
    if message.name and not isinstance(message, _RESULTS):  # named after their calls
        clean["name"] = acceptable_name(message.name)
    return message if clean == parts else message.model_copy(update=clean)
