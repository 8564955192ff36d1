"""What memory costs: the tokens of a context by its parts, and the work of models in the background."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from langchain_core.messages import SystemMessage

from langchain_workingmem._text.said import is_blank, weight_of
from langchain_workingmem._text.sending import without_block

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from langchain_core.messages import BaseMessage

    from langchain_workingmem.options import TokenCounter


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextUsage:
    """The tokens of a context by its parts, which add up to `total`. An estimate, unless `token_counter` counts exactly."""

    history: int  # messages of earlier turns, and the calls and results of tools in them
    recall: int  # recalled messages
    working_memory: int
    # the present turn: the user's words, what has followed them, and system messages in the caller's list
    question: int
    total: int  # of `system` and `messages`


@dataclass(frozen=True, slots=True, kw_only=True)
class UserUsage:
    """What models have done for a user in the background so far, such as titles."""

    calls: int = 0  # of models, failed ones too
    input_tokens: int = 0  # as the provider says (`usage_metadata`), else estimated
    output_tokens: int = 0


@dataclass(slots=True)
class Counting:
    """How the tokens of a context are counted, when somebody asks."""

    counter: TokenCounter = "approximate"
    # of the present turn; None: the last message of the user, and what follows
    present: Sequence[BaseMessage] | None = None
    # the system message of a request, with these blocks of memory at its end; None: each is a message of its own
    in_prompt: Callable[[Sequence[str]], BaseMessage | None] | None = None


# ---------------------------------------------------------------------- the parts of a context

Part = Literal["recall", "working_memory"]
_PARTS: dict[str, Part] = {"recalled_messages": "recall", "working_memory": "working_memory"}
# Memory's blocks begin with these tags. What was stored is escaped in them, so it holds no tags.
_BLOCK = re.compile(rf"\n\n(?=<(?:{'|'.join(_PARTS)})[ >])")
_TAG = re.compile(r"<(\w+)")


def tokens_of(how: Counting, system: Sequence[str], messages: Sequence[BaseMessage]) -> int:
    """Count what memory sends: without the program's own system prompt. An empty list is not counted."""
    count = weight_of if how.counter == "approximate" else how.counter
    own = _in_prompt(how, ()) if system else []
    sent = [*(_in_prompt(how, system) if system else ()), *messages]
    return (count(sent) if sent else 0) - (count(own) if own else 0)


def _in_prompt(how: Counting, blocks: Sequence[str]) -> list[BaseMessage]:
    """Return the system messages that hold these blocks."""
    if how.in_prompt is None:
        return [*map(SystemMessage, blocks)]
    return [one for one in (how.in_prompt(blocks),) if one is not None]


def part_of(block: str) -> Part:
    """Tell which part of memory has made a block."""
    return _PARTS.get((_TAG.match(block) or ["", ""])[1], "recall")


def blocks_of(message: BaseMessage) -> tuple[BaseMessage, list[str]]:
    """Return a message without the blocks of memory in it, and those blocks."""
    own = without_block(message)
    if is_blank(own) and isinstance(message.content, str):  # the model is shown words in its place
        own = own.model_copy(update={"content": message.content.rpartition("\n\n")[2]})
    content, words = message.content, own.content
    if isinstance(content, str) and isinstance(words, str):
        front = [content[: len(content) - len(words)].removesuffix("\n\n")]
    else:
        front = [
            str(block.get("text", "")) for block in content[: len(content) - len(words)] if isinstance(block, dict)
        ]
    return own, [block for text in front if text for block in _BLOCK.split(text)]


def usage_of(system: Sequence[str], messages: Sequence[BaseMessage], how: Counting) -> ContextUsage:
    """Count the parts of a context, each by what it adds: so they add up to the total, however the counter rounds."""
    kinds = ["question" if is_fresh else "history" for is_fresh in _is_fresh(messages, how.present)]
    divided = list(map(blocks_of, messages))
    found = set[str](part_of(block) for blocks in (system, *(front for _, front in divided)) for block in blocks)
    found |= {*kinds}
    parts, included, total = dict.fromkeys(("question", "history", *_PARTS.values()), 0), set[str](), 0
    for part in parts:
        if part in found:
            included.add(part)
            blocks = [block for block in system if part_of(block) in included]
            pieces = zip(messages, divided, kinds, strict=True)
            shown = [
                one for message, (own, front), kind in pieces for one in _only(included, message, own, front, kind)
            ]
            counted = tokens_of(how, blocks, shown)
            parts[part], total = counted - total, counted
    return ContextUsage(**parts, total=total)


def _only(
    parts: AbstractSet[str], message: BaseMessage, own: BaseMessage, blocks: Sequence[str], kind: str
) -> list[BaseMessage]:
    """Return a message with what belongs to these parts, its own words to the part `kind`; nothing if that is nothing."""
    kept = [block for block in blocks if part_of(block) in parts]
    if kind not in parts:
        return []
    if len(kept) == len(blocks):
        return [message]
    return [_with(own, kept) if kept else own]


def _is_fresh(messages: Sequence[BaseMessage], present: Sequence[BaseMessage] | None) -> list[bool]:
    """Tell of each message whether it belongs to the present turn, or is a system message of the caller."""
    asked = max((at for at, one in enumerate(messages) if one.type == "human"), default=0)
    ids = None if present is None else {one.id for one in present}
    return [one.type == "system" or (at >= asked if ids is None else one.id in ids) for at, one in enumerate(messages)]


def _with(message: BaseMessage, blocks: Sequence[str]) -> BaseMessage:
    text, content = "\n\n".join(blocks), message.content
    more = f"{text}\n\n{content}" if isinstance(content, str) else [{"type": "text", "text": text}, *content]
    return message.model_copy(update={"content": more})
