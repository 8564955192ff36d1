"""The public part of observations, `memory.observations`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.scripts import find_seqs, owner_of
from langchain_workingmem._redis.state import Operations, operation, twin
from langchain_workingmem.checks import check_range, check_type
from langchain_workingmem.derived import (
    NewRow,
    Rows,
    ThreadRows,
    read_threads,
    thread_commands,
)
from langchain_workingmem.errors import (
    IdError,
    ObservationNotFoundError,
    OptionError,
    ThreadConflictError,
)
from langchain_workingmem.history.read import with_media
from langchain_workingmem.observations.log import KIND, ObservationLog, body_of
from langchain_workingmem.observations.observer import Observer
from langchain_workingmem.observations.part import log_of
from langchain_workingmem.observations.worker import read_unread
from langchain_workingmem.recall.hits import in_windows, read_windows
from langchain_workingmem.recall.ranking import Ranked

if TYPE_CHECKING:
    from langchain_workingmem._redis.state import Core, MemoryState
    from langchain_workingmem.models import RecallResult
    from langchain_workingmem.observations.options import ObservationOptions

_ATTEMPTS = 5  # of a change that meets deletions in the thread


class Observations(Operations):
    """Observations: a short, dated log that stands for the older messages of a conversation, as `memory.observations`.

    Name a thread by `thread_id`, or with a `user_id` alone all threads of a user. A thread of another user raises
    `ThreadOwnershipError`. Only `observe` needs a model: without options, the others read what was written before.
    """

    def __init__(self, core: Core, options: ObservationOptions | None) -> None:
        super().__init__(core)
        self._options = options

    @operation
    def get(self, *, thread_id: str | None = None, user_id: str | None = None) -> Plan[ObservationLog]:
        """Return the log; it is empty when nothing was ever observed. Two round trips, with a thread or a user.

        Observations of messages on other branches are left out; they come back with their branch.
        """
        return _read(self._core.state, thread_id, user_id)

    aget = twin(get)

    @operation
    def observe(self, thread_id: str, *, user_id: str | None = None) -> Plan[ObservationLog]:
        """Observe a thread now, until only the newest `keep_tokens` and the present turn are left, and return its log.

        It is safe to call this anywhere, at the same time, and again: while another process observes, it waits. Each call of the model
        covers at most `batch_tokens` and is committed at once. A log of more than `observation_tokens` is condensed then. If the model
        fails, or gives no usable answer in three attempts, this is logged, and the messages stay as they are. A thread that does not
        exist has an empty log. About five round trips for each call of the model, and nine more.
        """
        if self._options is None:
            raise OptionError(
                "observations are off", remedy="pass observations=ObservationOptions(model=...) to Memory"
            )
        state = self._core.state
        thread_id, owner = yield from owner_of(state, thread_id, user_id)
        log = yield from _read(state, thread_id, owner)
        (exists,) = yield from send(("EXISTS", state.keys.of(thread_id).thread))
        if not exists:
            return log
        yield from Observer(state, self._options, thread_id, owner).run(now=True)
        return (yield from _read(state, thread_id, owner))

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

        `message_range` is n on each side, or (before, after), as for recall: questions and answers. Raises
        `ObservationNotFoundError`. Three round trips, four where a message beside one was deleted, more with media.
        """
        window = check_range(message_range)
        state, (thread_id, number) = self._core.state, _place(observation_id, thread_id)
        shown = yield from ThreadRows(state, thread_id, user_id, KIND).read()
        if number not in shown.rows:
            raise ObservationNotFoundError(observation_id)
        seqs = yield from find_seqs(state.keys.of(thread_id), shown.rows[number]["ids"])
        sources = [Ranked((encode(thread_id).encode(), seq), 0, 1.0, 0.0) for seq in sorted(seqs.values())]
        windows = yield from read_windows(state, sources, window, user_id)
        yield from with_media(state, windows.rows.values())
        existing = [source for source in sources if source.position in windows.rows]
        return in_windows(existing, windows, windows.rows, windows.rows)

    asources = twin(sources)

    @operation
    def delete(
        self, observation_id: str, *, thread_id: str | None = None, user_id: str | None = None
    ) -> Plan[ObservationLog]:
        """Delete an observation, and return the log of its thread. Three round trips.

        Its messages stay in history and recall, and are not observed again. Delete the messages to delete what they say for good.
        Raises `ObservationNotFoundError`.
        """
        state, (thread_id, number) = self._core.state, _place(observation_id, thread_id)
        thread_id, owner = yield from owner_of(state, thread_id, user_id)
        yield from _changed(state, thread_id, owner, delete=number)
        return (yield from _read(state, thread_id, owner))

    adelete = twin(delete)

    @operation
    def clear(self, *, thread_id: str | None = None, user_id: str | None = None) -> Plan[ObservationLog]:
        """Empty the log: its messages are shown as they are again, until they are observed anew.

        Four round trips for each thread, with a user alone one more.
        """
        state = self._core.state
        if thread_id is not None:
            thread_id, user_id = yield from owner_of(state, thread_id, user_id)
            threads = [thread_id]
        else:
            threads = [*(yield from _of_user(state, user_id))]
        for id in threads:
            yield from _changed(state, id, user_id or "", clear=True)
        return (yield from _read(state, thread_id, user_id))

    aclear = twin(clear)


def _changed(
    state: MemoryState, thread_id: str, user_id: str, *, delete: int | None = None, clear: bool = False
) -> Plan[None]:
    """Delete a line, which an empty one replaces, or all; again, where messages were deleted meanwhile."""
    rows = ThreadRows(state, thread_id, user_id, KIND)
    for _ in range(_ATTEMPTS):
        shown = yield from rows.read()
        if shown.missing_at is not None:  # there is no thread
            if delete is not None:
                raise ObservationNotFoundError(f"{thread_id}:{delete}")
            return
        new, drop = list[NewRow](), list[int]()
        if delete is not None:
            if (body := shown.rows.get(delete)) is None:
                raise ObservationNotFoundError(f"{thread_id}:{delete}")
            empty_body = body_of("", body["at"], "low", (), body["messages"], body["level"])
            new, drop = [NewRow(empty_body, replaces=[delete])], [delete]
        if (yield from rows.commit(shown, new, drop=drop, clear=clear)) is not None:
            return
    raise ThreadConflictError(thread_id)


def _place(observation_id: str, thread_id: str | None) -> tuple[str, int]:
    """Return the thread and the number in the id of an observation."""
    thread, _, number = check_type(observation_id, str, "observation_id").rpartition(":")
    if not thread or not number.isdecimal() or (thread_id is not None and thread_id != thread):
        raise ObservationNotFoundError(observation_id)
    return thread, int(number)


def _of_user(state: MemoryState, user_id: str | None) -> Plan[dict[str, Rows]]:
    """Read the rows of all threads of a user."""
    if user_id is None:
        raise IdError("a log needs a thread_id or a user_id", remedy="pass one of them")
    commands = thread_commands(state, check_id(user_id, "user_id"), KIND, ())
    replies = yield from send(*commands)
    return (yield from read_threads(state, user_id, KIND, commands, replies, lambda ids: ids))


def _read(state: MemoryState, thread_id: str | None, user_id: str | None) -> Plan[ObservationLog]:
    if thread_id is not None:
        unread = yield from read_unread(ThreadRows(state, check_id(thread_id, "thread_id"), user_id, KIND))
        return log_of(state, user_id or "", {thread_id: unread.shown}, sum(fact.tokens for fact in unread.facts))
    return log_of(state, user_id or "", (yield from _of_user(state, user_id)), of_user=True)
