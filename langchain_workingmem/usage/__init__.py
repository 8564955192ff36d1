"""What memory costs: the tokens of a context by its parts, and the work of models in the background."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_core.messages import SystemMessage

from langchain_workingmem._text.messages import is_blank, weight_of
from langchain_workingmem._text.sending import without_block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem.options import TokenCounter


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextUsage:
    """The tokens of a context by its parts, which add up to `total`. An estimate, unless `token_counter` counts exactly."""

    history: int  # messages of earlier turns, and the calls and results of tools in them
    recall: int  # recalled messages, and the log of observations
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


# ---------------------------------------------------------------------- the parts of a context

_PARTS = {"recalled_messages": "recall", "working_memory": "working_memory"}  # by the tags of memory's blocks
# Memory's blocks begin with these tags. What was stored is escaped in them, so it holds no tags.
_BLOCK = re.compile(rf"\n\n(?=<(?:{'|'.join(_PARTS)})[ >])")
_TAG = re.compile(r"<(\w+)")


def usage_of(system: Sequence[str], messages: Sequence[BaseMessage], how: Counting) -> ContextUsage:
    """Count the parts of a context, each by what it adds: so they add up to the total, however the counter rounds."""
    count = weight_of if how.counter == "approximate" else how.counter
    divided = [
        (message, "question" if is_fresh else "history", *_divided(message))
        for message, is_fresh in zip(messages, _is_fresh(messages, how.present), strict=True)
    ]
    tokens, total = dict[str, int](), 0
    for part in ("question", "history", "recall", "working_memory"):
        tokens[part] = -total
        sent: list[BaseMessage] = [SystemMessage(block) for block in system if _part_of(block) in tokens]
        for message, kind, bare, blocks in divided:
            if kind in tokens:
                kept_blocks = [block for block in blocks if _part_of(block) in tokens]
                sent.append(message if len(kept_blocks) == len(blocks) else _with(bare, kept_blocks))
        total = count(sent) if sent else 0
        tokens[part] += total
    return ContextUsage(**tokens, total=total)


def _part_of(block: str) -> str:
    """Tell which part of memory has made a block."""
    return _PARTS.get((_TAG.match(block) or ["", ""])[1], "recall")


def _divided(message: BaseMessage) -> tuple[BaseMessage, list[str]]:
    """Return a message without the blocks of memory in it, and those blocks."""
    bare = without_block(message)
    if is_blank(bare) and isinstance(message.content, str):  # the model is shown words in its place
        bare = bare.model_copy(update={"content": message.content.rpartition("\n\n")[2]})
    content, words = message.content, bare.content
    if isinstance(content, str) and isinstance(words, str):
        front = [content[: len(content) - len(words)].removesuffix("\n\n")]
    else:
        front = [str(part.get("text", "")) for part in content[: len(content) - len(words)] if isinstance(part, dict)]
    return bare, [block for text in front if text for block in _BLOCK.split(text)]


def _is_fresh(messages: Sequence[BaseMessage], present: Sequence[BaseMessage] | None) -> list[bool]:
    """Tell of each message whether it belongs to the present turn, or is a system message of the caller."""
    question = max((index for index, message in enumerate(messages) if message.type == "human"), default=0)
    ids = None if present is None else {message.id for message in present}
    fresh = (index >= question if ids is None else message.id in ids for index, message in enumerate(messages))
    return [message.type == "system" or is_fresh for message, is_fresh in zip(messages, fresh, strict=True)]


def _with(message: BaseMessage, blocks: Sequence[str]) -> BaseMessage:
    text, content = "\n\n".join(blocks), message.content
    if not text:
        return message
    extended = f"{text}\n\n{content}" if isinstance(content, str) else [{"type": "text", "text": text}, *content]
    return message.model_copy(update={"content": extended})
