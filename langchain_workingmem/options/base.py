"""What several options share: the ids of a run, and the names of choices."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_core.messages import BaseMessage

Scope: TypeAlias = Literal["user", "thread"]
OnError: TypeAlias = Literal["raise", "log"]
Placement: TypeAlias = Literal["question", "system"]
NumberType: TypeAlias = Literal["float32", "float16", "int8"]
# An IANA name such as "Europe/Berlin", or a function of the ids that returns one.
TimeZone: TypeAlias = "str | Callable[[Ids], str]"
TokenCounter: TypeAlias = "Callable[[Sequence[BaseMessage]], int] | Literal['approximate']"

TIMEOUT = timedelta(seconds=10)  # for each reply
EMBEDDING_TIMEOUT = timedelta(seconds=30)  # plus a second for each text
CONNECT_TIMEOUT = timedelta(seconds=2)  # for a connection, which a running server accepts at once


class ThreadIds(TypedDict):
    """A thread and its owner, as arguments: `memory.context(text, **ids)` with `ids: ThreadIds = {...}`."""

    thread_id: str
    user_id: str


@dataclass(frozen=True, slots=True)
class Ids:
    """The thread and the user of a run, None where they are not known."""

    thread_id: str | None = None
    user_id: str | None = None

    @property
    def is_thread_alone(self) -> bool:
        """Tell whether a thread is known, but no user."""
        return self.thread_id is not None and self.user_id is None
