"""What models do in the background: titles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_workingmem.checks import at_least, check_model

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
