"""What the parts of a `Memory` share: the space, and the two ways to run a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from langchain_workingmem.plans import history
from langchain_workingmem.plans.branch import Branch
from langchain_workingmem.plans.codec import as_messages, drafts
from langchain_workingmem.plans.said import words_of
from langchain_workingmem.plans.turn import question

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator

    from langchain_core.messages import BaseMessage, MessageLikeRepresentation

    from langchain_workingmem.options import OnError
    from langchain_workingmem.plans.effects import Plan
    from langchain_workingmem.plans.history import Mode
    from langchain_workingmem.plans.space import Space

T = TypeVar("T")


class Run(Protocol):
    """Runs a plan now."""

    def __call__(self, plan: Plan[T], progress: Callable[[int, int], object] | None = None) -> T:
        """Return the plan's result."""


class AsyncRun(Protocol):
    """Runs a plan in the running event loop."""

    async def __call__(self, plan: Plan[T], progress: Callable[[int, int], object] | None = None) -> T:
        """Return the plan's result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """What a part works with."""

    space: Space
    run: Run
    arun: AsyncRun
    stream: Callable[[Plan[None]], Iterator[Any]]
    astream: Callable[[Plan[None]], AsyncGenerator[Any]]
    new_id: Callable[[], str]
    on_error: OnError

    def saving(
        self,
        messages: Iterable[MessageLikeRepresentation],
        thread_id: str,
        resource_id: str | None,
        *,
        mode: Mode = "append",
        on_error: OnError | None = None,
        branch: Branch | None = None,
    ) -> Plan[list[BaseMessage]]:
        """Plan to save messages, with vectors if the model works; with a `branch`, as those of a turn."""
        prepared = drafts(messages, self.space.recall, self.new_id)
        return history.save(self.space, prepared, thread_id, resource_id, on_error or self.on_error, mode, branch)

    def saving_turn(
        self, messages: Iterable[MessageLikeRepresentation], thread_id: str, resource_id: str
    ) -> Plan[list[BaseMessage]]:
        """Plan to save a turn, and write down what the list that `context` was asked with has left behind."""
        given = as_messages(messages)
        asked = question(given)
        words = words_of(asked) if asked else ""
        branch = self.space.branches.get((thread_id, words)) or Branch()
        if asked is not None and asked.id is None and branch.question:
            asked.id = branch.question
        stored = yield from self.saving(given, thread_id, resource_id, mode="turn", branch=branch)
        self.space.branches.pop((thread_id, words))
        return stored
