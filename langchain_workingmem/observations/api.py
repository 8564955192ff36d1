"""The public part of observations, `memory.observations`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_workingmem.observations import changing, reading
from langchain_workingmem.observations.observing import observe

if TYPE_CHECKING:
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem.models import ObservationLog, RecallResult


class Observations:
    """Observations: a short, dated log that stands for the older messages of a conversation, as `memory.observations`.

    The scope of `ObservationOptions` says which id counts: `thread_id` for the log of a conversation, `resource_id` for that of a
    user. In resource scope a call with a `thread_id` costs one more round trip, to find its owner. A thread of another resource
    raises `ThreadOwnershipError`. Only `observe` needs a model: without options, the others read the log of a thread, or with a
    `resource_id` alone that of a resource.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def get(self, *, thread_id: str | None = None, resource_id: str | None = None) -> ObservationLog:
        """Return the log; it is empty and at revision 0 when nothing was ever observed. One round trip.

        Observations of messages on other branches are left out; they come back with their branch. `pending_tokens` of a
        resource count what its threads have stored since they were observed.
        """
        return self._core.run(reading.read_log(self._core.state, thread_id, resource_id))

    async def aget(self, *, thread_id: str | None = None, resource_id: str | None = None) -> ObservationLog:
        """Async twin of `get`."""
        return await self._core.arun(reading.read_log(self._core.state, thread_id, resource_id))

    def observe(self, thread_id: str, *, resource_id: str | None = None) -> ObservationLog:
        """Observe a thread now, until only the newest `keep_tokens` and the present turn are left, and return the log.

        It is safe to call this anywhere, at the same time, and again: while another process observes, it waits, and what is
        observed is never observed again. Each call of the model covers at most `batch_tokens` and is committed at once. A log
        of more than `observation_tokens` is condensed then. If the model fails, or gives no usable answer in three attempts,
        this is logged, the messages stay as they are, and `usage.last_error` of the log says why. A thread that does not exist
        has an empty log. Two round trips for each call of the model, and four more.
        """
        return self._core.run(observe(self._core.state, thread_id, resource_id))

    async def aobserve(self, thread_id: str, *, resource_id: str | None = None) -> ObservationLog:
        """Async twin of `observe`."""
        return await self._core.arun(observe(self._core.state, thread_id, resource_id))

    def sources(
        self,
        observation_id: str,
        *,
        thread_id: str | None = None,
        resource_id: str | None = None,
        message_range: int | tuple[int, int] = 1,
    ) -> RecallResult:
        """Return the messages behind an observation, the oldest first, each as a hit with the messages around it.

        `message_range` is n on each side, or (before, after), as for recall: questions, and answers without tool calls. Raises
        `ObservationNotFoundError`. Two round trips.
        """
        plan = reading.sources(self._core.state, observation_id, thread_id, resource_id, message_range)
        return self._core.run(plan)

    async def asources(
        self,
        observation_id: str,
        *,
        thread_id: str | None = None,
        resource_id: str | None = None,
        message_range: int | tuple[int, int] = 1,
    ) -> RecallResult:
        """Async twin of `sources`."""
        plan = reading.sources(self._core.state, observation_id, thread_id, resource_id, message_range)
        return await self._core.arun(plan)

    def update(
        self, observation_id: str, text: str, *, thread_id: str | None = None, resource_id: str | None = None
    ) -> ObservationLog:
        """Replace the text of an observation, as a person's correction, and return the log. Three round trips, with recall six.

        Id, time and sources stay. Raises `ObservationNotFoundError`.
        """
        return self._core.run(changing.update(self._core.state, observation_id, text, thread_id, resource_id))

    async def aupdate(
        self, observation_id: str, text: str, *, thread_id: str | None = None, resource_id: str | None = None
    ) -> ObservationLog:
        """Async twin of `update`."""
        return await self._core.arun(changing.update(self._core.state, observation_id, text, thread_id, resource_id))

    def delete(
        self, observation_id: str, *, thread_id: str | None = None, resource_id: str | None = None
    ) -> ObservationLog:
        """Delete an observation, and return the log. Three round trips, with recall four.

        Its messages stay in history and recall, and are not observed again. `revert` brings it back: delete the messages to
        delete what they say for good. Raises `ObservationNotFoundError`.
        """
        return self._core.run(changing.delete(self._core.state, observation_id, thread_id, resource_id))

    async def adelete(
        self, observation_id: str, *, thread_id: str | None = None, resource_id: str | None = None
    ) -> ObservationLog:
        """Async twin of `delete`."""
        return await self._core.arun(changing.delete(self._core.state, observation_id, thread_id, resource_id))

    def clear(self, *, thread_id: str | None = None, resource_id: str | None = None) -> ObservationLog:
        """Empty the log: its messages are shown as they are again, until they are observed anew. Three round trips.

        `revert` brings it back. In resource scope this takes one round trip more for each thread of the log.
        """
        return self._core.run(changing.clear(self._core.state, thread_id, resource_id))

    async def aclear(self, *, thread_id: str | None = None, resource_id: str | None = None) -> ObservationLog:
        """Async twin of `clear`."""
        return await self._core.arun(changing.clear(self._core.state, thread_id, resource_id))

    def history(
        self, *, thread_id: str | None = None, resource_id: str | None = None, limit: int = 20
    ) -> list[ObservationLog]:
        """Return the kept revisions, the present one first, with time and origin. Two round trips.

        The last 20 are kept. Observations whose messages were deleted are gone from all of them.
        """
        return self._core.run(changing.history(self._core.state, thread_id, resource_id, limit))

    async def ahistory(
        self, *, thread_id: str | None = None, resource_id: str | None = None, limit: int = 20
    ) -> list[ObservationLog]:
        """Async twin of `history`."""
        return await self._core.arun(changing.history(self._core.state, thread_id, resource_id, limit))

    def revert(self, revision: int, *, thread_id: str | None = None, resource_id: str | None = None) -> ObservationLog:
        """Store an old revision as a new one, and return it. Five round trips, with recall six or more. Raises `RevisionNotFoundError`.

        Messages that it does not cover are shown as they are again.
        """
        return self._core.run(changing.revert(self._core.state, revision, thread_id, resource_id))

    async def arevert(
        self, revision: int, *, thread_id: str | None = None, resource_id: str | None = None
    ) -> ObservationLog:
        """Async twin of `revert`."""
        return await self._core.arun(changing.revert(self._core.state, revision, thread_id, resource_id))
