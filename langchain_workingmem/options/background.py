"""What models do in the background: titles and observations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, get_args

from langchain_workingmem.checks import at_least, check_model, check_time, one_of, wrong_type
from langchain_workingmem.errors import OptionError
from langchain_workingmem.options.base import Placement, Scope

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


@dataclass(frozen=True, kw_only=True, slots=True)
class TitleOptions:
    """Titles for threads that have none, made in the background after a turn is saved.

    A title that a person gave, before or meanwhile, is never changed. One of a model goes with the message that it was made
    from. Without a `model`, `MemoryMiddleware` uses the model of its agent; other ways to save a turn then make no title, which
    is logged once.
    """

    model: BaseChatModel | str | None = None  # or its name: "openai:gpt-4o-mini", or what `init_chat_model` knows
    instructions: str | None = None  # system prompt instead of the default; "{max_chars}" becomes the number
    min_messages: int = 2  # in the thread before a title is made
    max_chars: int = 80

    def __post_init__(self) -> None:
        at_least(self.min_messages, 1, "min_messages")
        at_least(self.max_chars, 8, "max_chars")
        if self.model is not None:
            check_model(self.model, "model")


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservationOptions:
    """Let a model turn older messages into a short log of dated lines. The agent is shown the log in place of these messages.

    The messages stay in history and in recall. Tokens are estimated: 4 characters each.
    """

    model: BaseChatModel | str  # the observer, or its name: "openai:gpt-5-mini", or what `init_chat_model` knows
    scope: Scope = "thread"  # one log for each thread, or one for all threads of a user
    message_tokens: int = 30_000  # of messages without observations; from this number on the oldest are observed
    block_after: int | None = None  # of such messages; above it the next step waits for the observer, at most `timeout`
    keep_tokens: int = 6_000  # of the newest messages; these and the present turn are always shown as they are
    batch_tokens: int = 10_000  # of messages in one call of the model, at most
    observation_tokens: int = 40_000  # of the log; from this number on its oldest half is condensed
    reflector: BaseChatModel | str | None = None  # the model that condenses, or its name; None: `model`
    instructions: str | None = None  # added to the prompts of both, such as what matters in your domain
    background: bool = True  # after a turn is saved; False: only when `observe` is called
    timeout: timedelta = timedelta(minutes=2)  # for each call of a model
    # "question": before the first shown message; "system": after your system prompt; None: "system" if recall and working
    # memory (those that are on) have this placement, else "question"
    placement: Placement | None = None

    def __post_init__(self) -> None:
        check_model(self.model, "model")
        if self.reflector is not None:
            check_model(self.reflector, "reflector")
        one_of(self.scope, get_args(Scope), "scope")
        least = {"message_tokens": 1, "keep_tokens": 0, "batch_tokens": 1, "observation_tokens": 1}
        for name, smallest in least.items():
            at_least(getattr(self, name), smallest, name)
        if self.keep_tokens >= self.message_tokens:
            seen = f"keep_tokens={self.keep_tokens} with message_tokens={self.message_tokens}"
            raise OptionError(seen, remedy="keep fewer tokens than those at which messages are observed")
        if self.block_after is not None and at_least(self.block_after, 1, "block_after") < self.message_tokens:
            raise OptionError(f"block_after={self.block_after}", remedy=f"pass at least {self.message_tokens}")
        if not isinstance(self.instructions, str | None):
            raise wrong_type(self.instructions, "instructions", "pass a str, or None")
        if not isinstance(self.background, bool):
            raise wrong_type(self.background, "background", "pass True or False")
        check_time(self.timeout, "timeout")
        if self.placement is not None:
            one_of(self.placement, get_args(Placement), "placement")
