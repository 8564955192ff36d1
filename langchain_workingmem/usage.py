"""What memory costs: the tokens of a context by its parts, and the work of models in the background."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile
from operator import eq
from typing import TYPE_CHECKING, Literal

from langchain_core.messages import SystemMessage

from langchain_workingmem._text.copies import is_from_memory, with_memory, without_memory
from langchain_workingmem._text.said import is_blank, weight_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from langchain_core.messages import BaseMessage

    from langchain_workingmem.options.base import TokenCounter


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextUsage:
    """The tokens of a context by its parts, which add up to `total`. An estimate, unless `token_counter` counts exactly."""

    history: int  # messages of earlier turns, and the calls and results of tools in them
    recall: int  # recalled messages
    working_memory: int
    observations: int  # the log, with the line that says which day it is
    files: int  # passages of files that recall has found
    # the present turn: the user's words, what has followed them, and system messages in the caller's list
    question: int
    total: int  # of `system` and `messages`
    # of `total`, what this context begins with as the one before it of the same thread did; None: this process has not made
    # that one, or nobody had asked a context of this memory for its usage by then
    shared_prefix: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    """Calls of a model, failed ones too, and their tokens: as the provider says (`usage_metadata`), else estimated."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UserUsage:
    """What models have done for a user in the background so far."""

    titles: ModelUsage  # of threads
    observer: ModelUsage  # observer and reflector; with keeper="observer" they keep working memory in the same calls
    keeper: ModelUsage  # of working memory


Part = Literal["recall", "working_memory", "observations", "files"]
_PARTS: dict[str, Part] = {
    "recalled_messages": "recall",
    "working_memory": "working_memory",
    "observations": "observations",
    "today": "observations",
    "files": "files",
}
# Memory's blocks begin with these tags. What was stored is escaped in them, so it holds no tags.
_BLOCK = re.compile(rf"\n\n(?=<(?:{'|'.join(_PARTS)})[ >])")
_TAG = re.compile(r"<(\w+)")


@dataclass(slots=True)
class Counting:
    """How the tokens of a context are counted."""

    counter: TokenCounter = "approximate"
    # of the present turn; None: the last message of the user, and what follows
    present: Sequence[BaseMessage] | None = None
    # the system message of a request, with these blocks of memory at its end; None: each is a message of its own
    in_prompt: Callable[[Sequence[str]], BaseMessage | None] | None = None
    # given the `signs` of this context: with how many of them the one before began; None: that is unknown
    before: Callable[[tuple[int, ...]], int | None] | None = None

    def of_system(self, blocks: Sequence[str]) -> list[BaseMessage]:
        """Return the system messages that hold these blocks."""
        if self.in_prompt is None:
            return [*map(SystemMessage, blocks)]
        return [one for one in (self.in_prompt(blocks),) if one is not None]

    def tokens(self, system: Sequence[str], messages: Sequence[BaseMessage]) -> int:
        """Count what memory sends: without the program's own system prompt. An empty list is not counted."""
        count = weight_of if self.counter == "approximate" else self.counter
        own = self.of_system(()) if system else []
        sent = [*(self.of_system(system) if system else ()), *messages]
        return (count(sent) if sent else 0) - (count(own) if own else 0)

    def beginning(self, system: Sequence[str], messages: Sequence[BaseMessage], number: int) -> int:
        """Count the first blocks and messages, as many as this number."""
        return self.tokens(system[:number], messages[: max(0, number - len(system))])


@dataclass(slots=True)
class _Piece:
    """A message, divided into its own words and the blocks of memory in front of them."""

    message: BaseMessage
    own: BaseMessage | None  # None: it is a log, and has no words of its own
    blocks: list[str]
    kind: str  # of its own words

    @property
    def kinds(self) -> set[str]:
        """Return the parts of a context that it has something of."""
        return {*map(part_of, self.blocks), *([] if self.own is None else [self.kind])}

    def with_only(self, parts: AbstractSet[str]) -> list[BaseMessage]:
        """Return the message with what belongs to these parts; nothing if that is nothing."""
        if self.kinds <= parts:
            return [self.message]
        kept = [block for block in self.blocks if part_of(block) in parts]
        if self.own is None or self.kind not in parts:
            return []
        return [with_memory(self.own, kept) if kept else self.own]


def part_of(block: str) -> Part:
    """Tell which part of memory has made a block."""
    return _PARTS.get((_TAG.match(block) or ["", ""])[1], "recall")


def blocks_of(message: BaseMessage) -> tuple[BaseMessage | None, list[str]]:
    """Return a message without the blocks of memory in it, None if it has nothing else, and those blocks."""
    data = message.additional_kwargs.get("lc_data")
    if is_from_memory(message) and isinstance(data, dict) and "observations" in data:  # a log
        return None, [str(message.text)]
    own = without_memory(message)
    if is_blank(own) and isinstance(message.content, str):  # the model is shown words in its place
        own = own.model_copy(update={"content": message.content.rpartition("\n\n")[2]})
    content, words = message.content, own.content
    if isinstance(content, str) and isinstance(words, str):
        front = [content[: len(content) - len(words)].removesuffix("\n\n")]
    else:
        front = [str(block["text"]) for block in content[: len(content) - len(words)] if isinstance(block, dict)]
    return own, [block for text in front if text for block in _BLOCK.split(text)]


def usage_of(system: Sequence[str], messages: Sequence[BaseMessage], how: Counting) -> ContextUsage:
    """Count the parts of a context, each by what it adds: so they add up to the total, however the counter rounds."""
    pieces = [
        _Piece(message, *blocks_of(message), kind="question" if is_fresh else "history")
        for message, is_fresh in zip(messages, _is_fresh(messages, how.present), strict=True)
    ]
    kinds = {*map(part_of, system)}.union(*(piece.kinds for piece in pieces))
    parts, included, total = dict.fromkeys(("question", "history", *_PARTS.values()), 0), set[str](), 0
    for part in parts:
        if part in kinds:
            included.add(part)
            shown = [one for piece in pieces for one in piece.with_only(included)]
            counted = how.tokens([block for block in system if part_of(block) in included], shown)
            parts[part], total = counted - total, counted
    number = None if how.before is None else how.before(signs(system, messages))
    shared = None if number is None else how.beginning(system, messages, number)
    return ContextUsage(**parts, total=total, shared_prefix=shared)


def _is_fresh(messages: Sequence[BaseMessage], present: Sequence[BaseMessage] | None) -> list[bool]:
    """Tell of each message whether it belongs to the present turn, or is a system message of the caller."""
    asked = max((at for at, one in enumerate(messages) if one.type == "human"), default=0)
    ids = None if present is None else {one.id for one in present}
    return [one.type == "system" or (at >= asked if ids is None else one.id in ids) for at, one in enumerate(messages)]


def signs(system: Sequence[str], messages: Sequence[BaseMessage]) -> tuple[int, ...]:
    """Return a number for each block and each message, the same where a provider is sent the same."""
    names = ("type", "content", "name", "tool_calls", "tool_call_id")
    sent = (repr([getattr(one, name, None) for name in names]) for one in messages)
    return tuple(map(hash, (*system, *sent)))


def alike(one: Iterable[int], other: Iterable[int]) -> int:
    """Return how many signs both begin with."""
    return sum(1 for _ in takewhile(bool, map(eq, one, other)))
