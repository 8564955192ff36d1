"""A worker that makes rows of a kind in one thread: one at a time over all processes, with pauses after failures."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4

from langchain_workingmem._engine.calls import is_refusal
from langchain_workingmem._engine.plan import Plan, Sleep, Spawn, send
from langchain_workingmem.derived.asking import Asking, BadAnswer, ChangedError
from langchain_workingmem.derived.rows import fail, give, state_command, take
from langchain_workingmem.errors import ModelError, ThreadNotFoundError, ThreadOwnershipError, WorkingMemError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from langchain_core.language_models import BaseChatModel

    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.derived.rows import Work

WAIT = 0.25  # seconds between two looks at the lease of another worker

_log = logging.getLogger("langchain_workingmem")


# The workers of this process: prefix of the keys, kind and thread. They share one token, so that what an event loop has left unfinished
# does not keep its lease from the next worker.
_WORKING: set[tuple[str, str, str]] = set()
_TOKENS: dict[int, str] = {}  # by process: a fork is another one


@dataclass(slots=True)
class _Running:
    """The workers in the background of a memory."""

    threads: dict[tuple[str, str], bool] = field(
        default_factory=dict
    )  # kind and thread: whether there may be more to do


class Worker:
    """The worker of a thread, while it has the lease."""

    kind: ClassVar[str]
    name: ClassVar[str]  # of its runs and tasks
    title: ClassVar[str]  # in logs

    def __init__(self, state: MemoryState, thread_id: str, user_id: str, seconds: float) -> None:
        self.state, self.thread_id, self.user_id = state, thread_id, user_id
        self.seconds = seconds  # for each call of a model
        self.until = inf  # by the clock of the process: then nothing more is begun
        self.now = False  # whatever thresholds say
        self.error: str | None = None  # why the model has failed
        self.about = ""  # what the model is asked about
        self._token = _TOKENS.setdefault(os.getpid(), uuid4().hex)
        self._mine = state.keys.prefix, self.kind, thread_id

    def _stepped(self) -> Plan[bool]:
        try:
            return (yield from self.step())
        except ChangedError:
            return True

    @property
    def zone(self) -> ZoneInfo | None:
        """Return the time zone of the user."""
        return self.state.zone(self.thread_id, self.user_id)

    def step(self) -> Plan[bool]:
        """Do one thing; return whether there may be more to do."""
        raise NotImplementedError

    def pause(self) -> Plan[None]:
        """Do what needs no model, while the workers pause."""
        yield from ()

    def in_background(self) -> Plan[None]:
        """Work in the background, unless a worker of this process does so."""
        running, mine = self.state.room(_Running).threads, (self.kind, self.thread_id)
        if mine in running:
            running[mine] = True
            return
        running[mine] = True

        def work() -> Plan[None]:
            try:
                while running.get(mine):
                    running[mine] = False
                    yield from self.run()
            except (ThreadNotFoundError, ThreadOwnershipError):
                pass  # deleted or given away meanwhile
            except WorkingMemError as error:
                _log.warning("thread %r: %s has failed: %s", self.thread_id, self.title, error)
            finally:
                running.pop(mine, None)

        def lost() -> None:
            running.pop(mine, None)
            _WORKING.discard(self._mine)
            _log.warning(
                "thread %r: %s was ended with its event loop, and goes on after the next turn; await memory.asettled() waits for it",
                self.thread_id,
                self.title,
            )

        yield Spawn(work(), slow=True, lost=lost, task=self.name)

    def run(self, *, now: bool = False) -> Plan[None]:
        """Work until there is nothing to do. `now`: whatever thresholds and pauses say, waiting for another worker."""
        self.now = now
        while self._mine in _WORKING:
            if not now or monotonic() > self.until:
                return
            yield Sleep(WAIT / 10)
        _WORKING.add(self._mine)
        try:
            yield from self._run()
        finally:
            _WORKING.discard(self._mine)

    def run_once(self) -> Plan[bool]:
        """Work, or find that all pause; False: another worker has the lease."""
        if self._mine in _WORKING:
            return False
        _WORKING.add(self._mine)
        try:
            wait, is_pause = yield from self.take()
            if wait == 0:
                yield from self.work()
            return wait == 0 or is_pause
        finally:
            _WORKING.discard(self._mine)

    def _run(self) -> Plan[None]:
        while True:
            wait, is_pause = yield from self.take()
            if wait == 0:
                break
            if not self.now and is_pause:
                yield from self.pause()
            if not self.now or monotonic() > self.until:
                return
            yield Sleep(min(wait / 1000, WAIT))
        yield from self.work()

    def take(self) -> Plan[tuple[int, bool]]:
        """Take or prolong the lease: for a question to a model, and some time."""
        ms = int(self.seconds * 1000) + 15_000
        return take(self.state, self.thread_id, self.user_id, self.kind, self._token, ms, force=self.now)

    def asking(self, model: BaseChatModel, work: Work) -> Asking:
        """Return what asks a model; before each further question it prolongs the lease, and looks whether the thread is as it was."""

        def go_on() -> Plan[None]:
            yield from self.take()
            (found,) = yield from send(state_command(self.state, self.thread_id))
            if not work.is_of(found):
                raise ChangedError

        return Asking(self.state, self.thread_id, self.user_id, model, self.seconds, self.name, go_on)

    def work(self) -> Plan[None]:
        """Do all that there is to do, with the lease. A failure of the model is logged, and lets all workers pause."""
        try:
            while (yield from self._stepped()) and not self.state.closed and monotonic() < self.until:
                yield from self.take()
        except (BadAnswer, ModelError) as error:
            self.error = str(error)
            _log.warning("thread %r: %s has failed: %s", self.thread_id, self.title, error)
            is_of_content = isinstance(error, BadAnswer) or is_refusal(error)
            yield from fail(
                self.state, self.thread_id, self.user_id, self.kind, self._token, counts=is_of_content, about=self.about
            )
        except Exception:
            with suppress(WorkingMemError):
                yield from give(self.state, self.thread_id, self.user_id, self.kind, self._token)
            raise
        else:
            yield from give(self.state, self.thread_id, self.user_id, self.kind, self._token)
