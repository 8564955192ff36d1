"""Marks in messages that memory has changed for a model: what they were, signed, so that no client can write one.

A copy of a message carries what it stands for under `MARK` in its `additional_kwargs`, with an HMAC over thread, user, id and that. The
secret lies in Redis, so all processes of a `key_prefix` agree. A mark without a right signature counts for nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_core.messages import BaseMessage

MARK = "langchain_workingmem"  # key in `additional_kwargs`
SOURCE = "langchain_workingmem"  # `lc_source` of what memory shows beside the conversation; providers do not receive it
# The secrets of all memories of this process: one memory knows the copies of another one in the same agent
_SECRETS: dict[bytes, None] = {}


def note_secret(secret: bytes) -> None:
    """Remember the secret of a memory of this process."""
    _SECRETS[secret] = None


def has_mark(message: BaseMessage) -> bool:
    """Tell whether a message carries a mark, of whomever."""
    return MARK in message.additional_kwargs


def without_block(message: BaseMessage) -> BaseMessage:
    """Return a message without what memory has put in front of the words, for counting and showing: nobody asks who has signed."""
    mark = message.additional_kwargs.get(MARK)
    content = mark.get("content") if isinstance(mark, dict) else None
    return message if not isinstance(content, str | list) else message.model_copy(update={"content": content})


def as_shown(message: BaseMessage, data: dict[str, Any], content: str, **update: Any) -> BaseMessage:
    """Copy a message as reference data that memory shows beside the conversation: nobody saves it."""
    secret = next(iter(_SECRETS), b"")
    mark = {"inserted": True, "user": "", "mac": _signed(secret, "", "", message.id, {"inserted": True}, content)}
    extras = {**message.additional_kwargs, "lc_source": SOURCE, "lc_data": data, MARK: mark}
    return message.model_copy(update={"additional_kwargs": extras, "content": content, **update})


def _signed(
    secret: bytes, thread_id: str, user_id: str, id: str | None, kept: dict[str, Any], content: object = None
) -> str:
    try:
        text = json.dumps([thread_id, user_id, id, kept, content], sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):
        text = repr(id)
    return hmac.new(secret, text.encode(errors="replace"), hashlib.sha256).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Marks:
    """Signs and reads the marks of a user's thread."""

    secret: bytes | None  # None: Redis was never asked
    thread_id: str
    user_id: str  # empty: of any user

    def put(self, message: BaseMessage, update: dict[str, Any], **kept: Any) -> BaseMessage:
        """Copy a message with changes, and with a mark that keeps what it was.

        `kept` are its former `content` and `name`; `inserted` by memory; `short`: its media were not read; `left_out`: seqs that a
        load node has taken out of the state.

        A mark that is there already stays: it keeps the first message.
        """
        kept = {**kept, **(self._read(message) or {}), **({"left_out": kept["left_out"]} if "left_out" in kept else {})}
        own = update.get("content", message.content) if "inserted" in kept else None
        mac = _signed(self.secret or b"", self.thread_id, self.user_id, message.id, kept, own)
        mark = {**kept, "user": self.user_id, "mac": mac}
        extras = {**message.additional_kwargs, MARK: mark}
        return message.model_copy(update={**update, "additional_kwargs": extras})

    def with_memory(self, message: BaseMessage, blocks: Sequence[str]) -> BaseMessage:
        """Copy a message of the user with text of memory in front of the words."""
        text, content = "\n\n".join(blocks), message.content
        more = f"{text}\n\n{content}" if isinstance(content, str) else [{"type": "text", "text": text}, *content]
        return self.put(message, {"content": more}, content=content)

    def inserted(self, message: BaseMessage) -> BaseMessage:
        """Copy a message that memory puts into a conversation: it is no part of it."""
        return self.put(message, {}, inserted=True)

    def is_inserted(self, message: BaseMessage) -> bool:
        """Tell whether memory has put this message into the conversation."""
        return bool((self._read(message) or {}).get("inserted"))

    def left_out(self, messages: Iterable[BaseMessage]) -> frozenset[int]:
        """Return the seqs of stored messages that a load node has taken out of a state, as its messages note."""
        noted = ((self._read(one) or {}).get("left_out") for one in messages if has_mark(one))
        return frozenset(seq for seqs in noted if isinstance(seqs, list) for seq in seqs if isinstance(seq, int))

    def original(self, message: BaseMessage, *, own: bool = False) -> BaseMessage:
        """Return a message as it was before memory changed it; a mark that nobody has signed is left out.

        A copy whose media were not read stays as it is, with its mark: what is stored stands for it.

        With `own`, what another memory of this process has made of it stays.
        """
        if MARK not in message.additional_kwargs:
            return message
        kept = self._read(message, own=own)
        if (kept and "short" in kept) or (kept is None and own and self._read(message) is not None):
            return message
        extras = {key: value for key, value in message.additional_kwargs.items() if key != MARK}
        update: dict[str, Any] = {name: kept[name] for name in ("content", "name") if kept and name in kept}
        return message.model_copy(update={**update, "additional_kwargs": extras})

    def _read(self, message: BaseMessage, *, own: bool = False) -> dict[str, Any] | None:
        """Return what a signed mark keeps; None without one."""
        mark = message.additional_kwargs.get(MARK)
        if not isinstance(mark, dict) or not isinstance(mac := mark.get("mac"), str) or not mac.isascii():
            return None
        kept = {key: value for key, value in mark.items() if key not in {"user", "mac"}}
        content = message.content if "inserted" in kept else None
        for secret in filter(None, (self.secret,) if own else (self.secret, *_SECRETS)):
            user = self.user_id if self.user_id and secret == self.secret else str(mark.get("user"))
            places = ((self.thread_id, user), ("", "")) if "inserted" in kept else ((self.thread_id, user),)
            if any(hmac.compare_digest(mac, _signed(secret, *place, message.id, kept, content)) for place in places):
                return kept
        return None

    def opened(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return messages as they were before memory changed them, without those that memory has put in."""
        if not any(message.additional_kwargs for message in messages):
            return list(messages)
        return [self.original(message) for message in messages if not self.is_inserted(message)]
