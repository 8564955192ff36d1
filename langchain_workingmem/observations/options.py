"""The options of observations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from langchain_workingmem.errors import OptionError
from langchain_workingmem.options import Placement, Scope, check_fields

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservationOptions:
    """Let a model turn older messages into a short log of dated lines. The agent is shown the log in place of these messages.

    The messages stay in history and in recall. Tokens are estimated: 4 characters each.

    Args:
        model: The observer, a chat model or its name: "openai:gpt-5-mini", or what `init_chat_model` knows.
        scope: "user": the logs of the user's 50 newest threads are shown as one; each thread is observed for itself.
        message_tokens: Of messages without observations; from this number on the oldest are replaced by lines.
        keep_tokens: Of the newest messages; these, and the question of the running turn, are shown as they are.
        batch_tokens: Of messages in one call of the model, at most.
        observation_tokens: Of the log of a thread; from this number on its oldest half is condensed.
        block_after: Tokens of messages without observations above which the next step of an agent waits for the observer, each
            call for `timeout`; what is still above it is left out, oldest finished calls first. None: 1.5 times `message_tokens`.
        reflector: The model that condenses, or its name; None: `model`.
        instructions: Added to the prompts of both, such as what matters in your domain.
        background: It observes after messages are saved; False: only when `observe` is called.
        timeout: For each call of a model.
        placement: "question": in front of the first shown message; "system": after your system prompt; None: "system" if recall
            and working memory (those that are on) have this placement, else "question".
    """

    model: BaseChatModel | str
    scope: Scope = "thread"
    message_tokens: int = 30_000
    keep_tokens: int = 6_000
    batch_tokens: int = 10_000
    observation_tokens: int = 40_000
    block_after: int | None = None
    reflector: BaseChatModel | str | None = None
    instructions: str | None = None
    background: bool = True
    timeout: timedelta = timedelta(minutes=2)
    placement: Placement | None = None

    def __post_init__(self) -> None:
        check_fields(self, keep_tokens=0)
        if self.keep_tokens >= self.message_tokens:
            problem = f"keep_tokens={self.keep_tokens} with message_tokens={self.message_tokens}"
            raise OptionError(problem, remedy="keep fewer tokens than those at which messages are observed")
        if self.block_after is not None and self.block_after < self.message_tokens:
            raise OptionError(f"block_after={self.block_after}", remedy=f"pass at least {self.message_tokens}")

    @property
    def limit(self) -> int:
        """Return the tokens of messages without observations that a prompt holds at most."""
        return self.block_after or self.message_tokens * 3 // 2
