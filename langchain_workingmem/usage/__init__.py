"""What memory costs: the tokens of a context by its parts, and the work of models in the background."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    """How the tokens of a context are counted, by `parts.py`, when somebody asks."""

    counter: TokenCounter = "approximate"
    # of the present turn; None: the last message of the user, and what follows
    present: Sequence[BaseMessage] | None = None
    # the system message of a request, with these blocks of memory at its end; None: each is a message of its own
    in_prompt: Callable[[Sequence[str]], BaseMessage | None] | None = None
