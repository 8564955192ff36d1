"""The public part of observations, `memory.observations`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_workingmem._redis.core import Operations, operation, twin
from langchain_workingmem.observations import changing, reading
from langchain_workingmem.observations.observing import observe

if TYPE_CHECKING:
    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.models import ObservationLog, RecallResult


class Observations(Operations):
    """Observations: a short, dated log that stands for the older messages of a conversation, as `memory.observations`.

    The scope of `ObservationOptions` says which id counts: `thread_id` for the log of a conversation, `user_id` for that of a
    user. In user scope a call with a `thread_id` costs one more round trip, to find its owner. A thread of another user
    raises `ThreadOwnershipError`. Only `observe` needs a model: without options, the others read the log of a thread, or with a
    `user_id` alone that of a user.
    """

    @operation
    def get(self, *, thread_id: str | None = None, user_id: str | None = None) -> Plan[ObservationLog]:
        """Return the log; it is empty and at revision 0 when nothing was ever observed. One round trip.

        Observations of messages on other branches are left out; they come back with their branch. `pending_tokens` of a
        user count what its threads have stored since they were observed.
        """
        return reading.read_log(self._core.state, thread_id, user_id)

    aget = twin(get)

    @operation
    def observe(self, thread_id: str, *, user_id: str | None = None) -> Plan[ObservationLog]:
        """Observe a thread now, until only the newest `keep_tokens` and the present turn are left, and return the log.

        It is safe to call this anywhere, at the same time, and again: while another process observes, it waits, and what is
        observed is never observed again. Each call of the model covers at most `batch_tokens` and is committed at once. A log
        of more than `observation_tokens` is condensed then. If the model fails, or gives no usable answer in three attempts,
        this is logged, the messages stay as they are, and `usage.last_error` of the log says why. A thread that does not exist
        has an empty log. With scope "user", of a thread that is not the last one that its user has written in only a turn
        without an answer is left. About three round trips for each call of the model, and seven more; in scope "user" four, and eleven.
        """
        return observe(self._core.state, thread_id, user_id)

    aobserve = twin(observe)

    @operation
    def sources(
        self,
        observation_id: str,
        *,
        thread_id: str | None = None,
        user_id: str | None = None,
        message_range: int | tuple[int, int] = 1,
    ) -> Plan[RecallResult]:
        """Return the messages behind an observation, the oldest first, each as a hit with the messages around it.

        `message_range` is n on each side, or (before, after), as for recall: questions, and answers without tool calls. Raises
        `ObservationNotFoundError`. Two round trips.
        """
        return reading.sources(self._core.state, observation_id, thread_id, user_id, message_range)

    asources = twin(sources)

    @operation
    def delete(
        self, observation_id: str, *, thread_id: str | None = None, user_id: str | None = None
    ) -> Plan[ObservationLog]:
        """Delete an observation, and return the log. Three round trips, four in scope "user".

        Its messages stay in history and recall, and are not observed again. Delete the messages to
        delete what they say for good. Raises `ObservationNotFoundError`.
        """
        return changing.delete(self._core.state, observation_id, thread_id, user_id)

    adelete = twin(delete)

    @operation
    def clear(self, *, thread_id: str | None = None, user_id: str | None = None) -> Plan[ObservationLog]:
        """Empty the log: its messages are shown as they are again, until they are observed anew.

        Three round trips; in scope "user" three for each thread of the log, and four.
        """
        return changing.clear(self._core.state, thread_id, user_id)

    aclear = twin(clear)
