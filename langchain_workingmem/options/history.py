"""Which messages of a thread a turn shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from langchain_workingmem._text.nesting import shown
from langchain_workingmem.checks import as_tuple, at_least, check_roles, one_of
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem.options.base import TokenCounter


DEFAULT_LIMIT = int("32000")  # tokens; an object of its own, so that the same number of a program is told apart


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryOptions:
    """Which of a thread's messages a turn shows.

    `last_messages` counts the user's messages and the answers without tool calls. Tool calls and results of the turns that
    are shown come with them. A history that would begin with an answer grows to its question. A turn shows at least
    `last_messages` and fewer than `last_messages + step`: its beginning moves in steps, so that the prompt keeps its prefix
    from turn to turn, which providers bill at a fraction.
    """

    last_messages: int | None = 10  # None: all of them, 0: none
    step: int | None = None  # messages by which the beginning moves; None: `last_messages`, 1: exactly the last ones
    # Tool traffic is dropped first, the oldest before the newest, then the oldest turns; never the words of the newest turn. The default
    # never cuts the running turn, and is off with last_messages=None; a number of yours cuts finished tool calls of the running turn, too
    max_tokens: int | None = DEFAULT_LIMIT
    token_counter: TokenCounter = "approximate"  # of English as langchain_core counts: 4 characters a token
    # Tools whose calls and results are shown in their own turn only: memory's; or memory's and the named ones; True: all
    exclude_tools: bool | Literal["memory"] | Sequence[str] = "memory"
    # Pictures, audio and files that a model is shown: those of all turns, of the last turn that has some, or of the last n such turns.
    # In a copy, the others are named, as in "[picture: map.png]": their answers stay, and the prompt costs less
    media: Literal["all", "last"] | int = "all"
    roles: Sequence[str] | None = None  # message types to show, None: all

    def __post_init__(self) -> None:
        one_of(self.media, ("all", "last"), "media") if isinstance(self.media, str) else at_least(
            self.media, 1, "media"
        )
        for name, least in (("last_messages", 0), ("step", 1), ("max_tokens", 1)):
            if (value := getattr(self, name)) is not None:
                at_least(value, least, name)
        if self.last_messages is None and self.has_default_limit:
            object.__setattr__(self, "max_tokens", None)
        if self.token_counter != "approximate" and not callable(self.token_counter):
            remedy = "use 'approximate' or a function of a list of messages"
            raise OptionError(f"token_counter={shown(self.token_counter)}", remedy=remedy)
        if not isinstance(self.exclude_tools, bool) and self.exclude_tools != "memory":
            names = as_tuple(self.exclude_tools, "exclude_tools", "tool names, 'memory', or a bool")
            object.__setattr__(self, "exclude_tools", names)
        if self.roles is not None:
            object.__setattr__(self, "roles", check_roles(self.roles))

    @property
    def has_default_limit(self) -> bool:
        """Tell whether no program has named `max_tokens`."""
        return self.max_tokens is DEFAULT_LIMIT
