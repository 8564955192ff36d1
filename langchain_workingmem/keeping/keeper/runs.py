"""A run of a keeper: it reads what was said since the last one, asks the model, and writes what follows for the document."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import HumanMessage, SystemMessage

from langchain_workingmem._counting import run_counted
from langchain_workingmem._engine.plan import Sleep, Spawn
from langchain_workingmem._redis.access import check_thread, owner_of
from langchain_workingmem._redis.keys import decode, encode, values_key
from langchain_workingmem._redis.scripts import Script, note_covered
from langchain_workingmem.errors import (
    OptionError,
    ThreadNotFoundError,
    ThreadOwnershipError,
    UserDeletedError,
    WorkingMemError,
)
from langchain_workingmem.keeping.keeper.answers import Answered, read_operations
from langchain_workingmem.keeping.keeper.asking import Question
from langchain_workingmem.keeping.keeper.reading import MOST_TOKENS, Waiting, read_waiting, seqs_of
from langchain_workingmem.keeping.store import VALUES, change_kept, keys_of, read_kept
from langchain_workingmem.observations import ATTEMPTS, Usage, ask, questions_before, shown_messages
from langchain_workingmem.reports import KeeperReport
from langchain_workingmem.working_memory import find_scope_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.plan import Argument, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.keeping.store import Kept
    from langchain_workingmem.options import WorkingMemoryOptions
    from langchain_workingmem.working_memory import ScopeKey

KEEPER = Script("keeping/keeper", *VALUES)

TIMEOUT = 120.0  # seconds for a call of the model, unless `ObservationOptions` say otherwise
SPARE = 5.0  # seconds that a lease lasts longer
POLL = 0.25  # seconds between two looks at the lease of another run
FIRST_PAUSE, LONGEST_PAUSE = 60_000, 3_600_000  # ms after failures, doubled at each
OUTAGE = 4  # parts in a row without a usable answer: the model fails, not what it is asked about
NEVER = 2**53  # tokens
COUNTERS = ("calls", "input_tokens", "output_tokens", "failures", "operations", "left_out", "last_error")
_log = logging.getLogger("langchain_workingmem")


@dataclass(slots=True)
class _Runs:
    """What keepers have in this process."""

    numbers: Iterator[int] = field(default_factory=count)


def keeping(state: MemoryState) -> WorkingMemoryOptions:
    """Return the options; `OptionError` without a keeper."""
    options = state.remembering
    if options.keeper is None:
        remedy = "pass WorkingMemoryOptions(keeper=...), the model that keeps working memory"
        raise OptionError("working memory has no keeper", remedy=remedy)
    return options


def keep_later(state: MemoryState, thread_id: str, user_id: str | None, tokens: int) -> Plan[None]:
    """Let the keeper know in the background that a thread has more messages; it works if enough waits."""
    options = state.working_memory
    if options is not None and options.background and options.keeper is not None:
        yield Spawn(_in_background(state, thread_id, user_id, tokens), slow=True, task="keeper")


def _in_background(state: MemoryState, thread_id: str, user_id: str | None, tokens: int) -> Plan[None]:
    try:
        run = yield from _run(state, thread_id, user_id)
        yield from run.go(thread_id, tokens, waits=False)
    except (UserDeletedError, ThreadNotFoundError, ThreadOwnershipError):
        pass  # it was deleted or transferred meanwhile
    except WorkingMemError as error:
        _log.warning("what thread %r says is not kept now: %s", thread_id, error)


def keep(state: MemoryState, thread_id: str, user_id: str | None) -> Plan[KeeperReport]:
    """Plan `WorkingMemory.keep`."""
    keeping(state)
    _, owner = yield from owner_of(state, thread_id, None)
    if user_id is not None and owner != user_id:
        yield from check_thread(state, thread_id, user_id)  # it may be missing
    run = yield from _run(state, thread_id, user_id or owner)
    with suppress(ThreadNotFoundError):  # nothing was said
        yield from run.go(thread_id, 0, waits=True)
    return report((yield from read_kept(state, run.where)), has_failed=run.failed)


def report(kept: Kept, *, has_failed: bool) -> KeeperReport:
    """Return a working memory with what its keeper has done."""
    found = {name: kept.fields.get(name, b"").decode(errors="replace") for name in COUNTERS}
    last_error = found.pop("last_error") or None
    numbers = {name: int(value or 0) for name, value in found.items()}
    return KeeperReport(memory=kept.state, has_failed=has_failed, last_error=last_error, **numbers)


def _run(state: MemoryState, thread_id: str, user_id: str | None) -> Plan[Run]:
    _, owner = yield from owner_of(state, thread_id, user_id)
    where = yield from find_scope_key(state, thread_id, owner)
    return Run(
        state, keeping(state), replace(where, user_id=owner), f"{state.process}-{next(state.room(_Runs).numbers)}"
    )


@dataclass(slots=True)
class Run:
    """One run of a keeper, with its lease: it works on one document."""

    state: MemoryState
    options: WorkingMemoryOptions
    where: ScopeKey
    token: str
    answered: bool = False  # the model has given a usable answer
    failed: bool = False  # it is not asked again before a pause is over

    @property
    def seconds(self) -> float:
        """Return how long a call of the model may take."""
        observations = self.state.observations
        return TIMEOUT if observations is None else observations.timeout.total_seconds()

    def _tell(
        self,
        what: str,
        tag: str = "",
        number: int = 0,
        least: int | str = "",
        usage: Usage | None = None,
        **counted: int,
    ) -> Plan[tuple[int, list[tuple[str, int]], int]]:
        """Tell the store what this run does (lua/keeper.lua). One round trip.

        Returns ms for which another run has the lease (0: this one has it, -1: nothing is to be done), the threads that wait, each
        with how often that was told, and ms of a pause.
        """
        lasts = int((self.seconds + SPARE) * 1000)
        used: list[Argument] = [] if usage is None else usage.arguments()
        for name, number_of in counted.items():
            used += [name, number_of]
        owner = encode(self.where.user_id or "")
        call = KEEPER.call(
            keys_of(self.where), owner, self.token, what, lasts, tag, number, least, FIRST_PAUSE, LONGEST_PAUSE, *used
        )
        taken = (usage or Usage()).taken
        where, own_key = self.where, values_key(self.where.key)
        ((busy, due, pause),) = yield from run_counted(
            self.state, where.thread_id, where.user_id, taken, call, own_key=own_key
        )
        if self.where.thread_id is not None:
            note_covered(self.where.keys[0])
        waiting = [part.split("/") for part in due.decode().split(";") if part]
        return int(busy), [(tag, int(times)) for tag, times, _ in waiting], int(pause)

    def renew(self) -> Plan[None]:
        """Extend the lease before a call of the model."""
        yield from self._tell("renew")

    def go(self, thread_id: str, tokens: int, *, waits: bool) -> Plan[None]:
        """Read what waits, if it is enough and no other run works on the document; with `waits`, wait for that one, and read all."""
        least: int | str = "" if waits else self.options.keep_after
        busy, due, _ = yield from self._tell("start", encode(thread_id), tokens, least)
        while busy > 0 and waits:
            yield Sleep(min(busy / 1000, POLL))
            busy, due, _ = yield from self._tell("look", "", 0, least)
        try:
            while busy == 0 and due and not self.failed and (waits or not self.state.closing):
                tag, times = due[0]
                yield from self._keep_thread(decode(tag), goes_on=not (waits and decode(tag) == thread_id))
                if not self.failed:
                    busy, due, _ = yield from self._tell("end", tag, times, 0)
        except WorkingMemError:
            with suppress(WorkingMemError):  # other runs need not wait until the lease is over
                yield from self._give_back()
            raise
        if busy == 0 and not self.failed:  # there is more, but the memory is being closed
            yield from self._give_back()

    def _give_back(self) -> Plan[None]:
        yield from self._tell("end", "", 0, NEVER)

    def _keep_thread(self, thread_id: str, *, goes_on: bool) -> Plan[None]:
        """Read a thread to its end."""
        owner, scope = self.where.user_id, self.options.scope
        try:
            while not self.failed:
                kept = yield from read_kept(self.state, self.where, opens=True)
                waiting = yield from read_waiting(self.state, thread_id, owner, kept, scope, goes_on=goes_on)
                if not waiting.groups:
                    break
                yield from self._keep(thread_id, kept, waiting)
                if not waiting.has_more:
                    break
        except (ThreadNotFoundError, ThreadOwnershipError):
            if self.where.thread_id is not None:
                raise  # else it was deleted, or has another owner now

    def _keep(self, thread_id: str, kept: Kept, waiting: Waiting) -> Plan[None]:
        """Ask about messages; in halves where the model gives nothing usable, past what it cannot read once it has answered others."""
        parts, attempts, streak = [waiting], ATTEMPTS, 0
        skipped: Waiting | None = None
        while parts and not self.failed:
            part = parts.pop(0)
            is_kept, usage = yield from self._ask(thread_id, kept, part, attempts)
            if is_kept:
                skipped, streak = None, 0
                continue
            streak += 1
            if usage.failures > usage.refused or (streak >= OUTAGE and not self.answered):
                yield from self._fail(usage)
            elif len(part.groups) > 1:
                parts[:0] = part.halves()
                attempts = 1
                yield from self._tell("renew", usage=usage)
            elif self.answered:
                yield from self._pass_over(thread_id, kept, part, usage)
            else:
                skipped = part  # an answer about what follows tells that the model works
                yield from self._tell("renew", usage=usage)
        if skipped is not None and not self.failed:
            yield from self._fail(Usage(last_error="the model gave no usable answer"))

    def _fail(self, usage: Usage) -> Plan[None]:
        self.failed = True
        _, _, pause = yield from self._tell("fail", usage=usage)
        again = f", and its model is not asked again for {pause // 1000} s" if pause else ""
        _log.warning("working memory %r stays as it is%s: %s", self.where.key, again, usage.last_error)

    def _pass_over(self, thread_id: str, kept: Kept, part: Waiting, usage: Usage) -> Plan[None]:
        last, reread = seqs_of(part.opened, kept.again(thread_id))
        _log.warning(
            "thread %r, message %r: the keeper of working memory cannot read it (%s)",
            *(thread_id, part.opened[0].row.message.id, usage.last_error),
        )
        yield from self._tell("renew", usage=usage)
        yield from change_kept(
            self.state, self.where, lambda _: ((), None), "keeper", cursor=(thread_id, last), reread=reread, was=kept
        )

    def _ask(self, thread_id: str, kept: Kept, part: Waiting, attempts: int) -> Plan[tuple[bool, Usage]]:
        """Ask the model about messages, and write what it answers; tell whether it gave a usable answer."""
        state, owner, opened = self.state, self.where.user_id, part.opened
        rows = [one.row for one in opened if not one.row.refused]
        questions = yield from questions_before(state, thread_id, owner, [*part.earlier, *rows])
        last, reread = seqs_of(opened, kept.again(thread_id))
        cursor = (thread_id, last)
        if not rows:
            yield from change_kept(
                state, self.where, lambda _: ((), None), "keeper", cursor=cursor, reread=reread, was=kept
            )
            return True, Usage()
        zone = state.zone(thread_id, owner)
        question = Question(state, self.where, kept, opened, rows, zone)
        shown = shown_messages(rows, MOST_TOKENS, questions, part.earlier, zone=zone)
        messages: list[BaseMessage] = [
            SystemMessage(question.rules()),
            HumanMessage("\n".join([question.document, *shown])),
        ]

        def read(answer: BaseMessage, *, is_last: bool) -> Answered:
            return question.accepted(read_operations(answer), is_last=is_last)

        told = {"run_name": "keeper", "metadata": {"thread_id": thread_id, "user_id": owner}}
        yield from self.renew()
        answered, usage = yield from ask(
            state, cast("Any", self.options.keeper), messages, read, self.seconds, self.renew, told, attempts
        )
        if answered is None:
            return False, usage
        yield from question.write(answered, cursor, reread)
        self.answered = True
        yield from self._tell("good", usage=usage, operations=question.taken, left_out=question.left_out)
        return True, usage
