"""What the parts of a `Memory` share: the space, and the two ways to run a plan."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from langchain_workingmem.errors import RedisConnectionError, RedisReplyError
from langchain_workingmem.plans import history
from langchain_workingmem.plans.branch import Branch
from langchain_workingmem.plans.codec import as_messages, drafts, size_of
from langchain_workingmem.plans.effects import LONG, hurried, worked
from langchain_workingmem.plans.turn import branch_is_saved, noted_branch, question

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage, MessageLikeRepresentation

    from langchain_workingmem.io.breaker import Breaker, Part
    from langchain_workingmem.options import OnError
    from langchain_workingmem.plans.effects import Plan
    from langchain_workingmem.plans.history import Mode
    from langchain_workingmem.plans.space import Space

_log = logging.getLogger("langchain_workingmem")

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
    breaker: Breaker

    def gated(self, plan: Plan[T], thread_id: str | None, part: Part = "alone") -> Plan[T]:
        """Run a plan of a face that goes on without memory when Redis is away, which is what on_error="log" means.

        While the breaker is open it raises `RedisConnectionError` at once. What fails opens it: in under a second when
        the connection is refused, after one timeout when nobody answers. With on_error="raise" the plan is run as it is.
        """
        if self.on_error == "raise":
            return (yield from plan)
        if not self.breaker.admits(thread_id, part):
            plan.close()
            raise RedisConnectionError(
                f"Redis has failed, and is asked again every {self.breaker.pause:g} s",
                remedy="check that it runs and that the URL is right",
            )
        try:
            return (yield from hurried(plan, self.breaker.clock))
        except RedisConnectionError:
            self.breaker.fail(thread_id, part)
            raise

    def softly(self, plan: Plan[T], otherwise: T, note: str, thread_id: str | None, part: Part = "alone") -> Plan[T]:
        """Run a plan as `gated` does; with on_error="log" a failing Redis is a line in the log, and `otherwise` comes back."""
        try:
            return (yield from self.gated(plan, thread_id, part))
        except (RedisConnectionError, RedisReplyError) as error:
            if self.on_error == "raise":
                raise
            _log.warning("%s: %s", note, error)
            return otherwise

    def saving(
        self,
        messages: Iterable[MessageLikeRepresentation],
        thread_id: str,
        resource_id: str | None,
        *,
        mode: Mode = "append",
        on_error: OnError | None = None,
        branch: Branch | None = None,
        title_model: BaseChatModel | None = None,
    ) -> Plan[list[BaseMessage]]:
        """Plan to save messages, with vectors if the model works; with a `branch`, as those of a turn.

        `title_model` is for `TitleOptions` without one.
        """
        given = as_messages(messages)
        prepare = partial(drafts, given, self.space.recall, self.new_id)
        chosen = on_error or self.on_error
        save = partial(history.save, self.space)
        rest = (thread_id, resource_id, chosen, mode, branch, title_model)
        size = size_of(given)
        if size <= LONG:  # mistakes show before the plan begins
            return save(prepare(), *rest)

        def saving() -> Plan[list[BaseMessage]]:
            return (yield from save((yield from worked(prepare, size)), *rest))

        return saving()

    def saving_turn(
        self, messages: Iterable[MessageLikeRepresentation], thread_id: str, resource_id: str
    ) -> Plan[list[BaseMessage]]:
        """Plan to save a turn, and write down what the list that `context` was asked with has left behind."""
        given = as_messages(messages)
        asked = question(given)
        noted = noted_branch(self.space, thread_id, asked)
        branch = noted or Branch()
        if asked is not None and asked.id is None and branch.question:
            asked.id = branch.question
        stored = yield from self.saving(given, thread_id, resource_id, mode="turn", branch=branch)
        if noted is not None:
            branch_is_saved(self.space, thread_id, asked, noted)
        return stored
