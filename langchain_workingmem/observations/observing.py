"""The observer at work: it reads the oldest messages that are not covered, asks the model, and commits what it answers."""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from os import getpid
from typing import TYPE_CHECKING, Literal

from langchain_workingmem._engine.effects import Emit, Later, Pause, Plan, send
from langchain_workingmem._redis.access import check_thread, continue_sweep, owner_of, run_script
from langchain_workingmem._redis.codec import decode_message
from langchain_workingmem._redis.keys import decode, encode
from langchain_workingmem._redis.redacting import redacted
from langchain_workingmem._redis.scripts import Script, note_covered
from langchain_workingmem._text.said import weight_of
from langchain_workingmem.errors import (
    ModelError,
    OptionError,
    ThreadNotFoundError,
    ThreadOwnershipError,
    WorkingMemError,
)
from langchain_workingmem.observations.batches import Opened, body_digest, first_of, groups_of, observation_of
from langchain_workingmem.observations.documents import embed, sources_in
from langchain_workingmem.observations.log import COVERAGE, Remembered, note_coverage, write_observation
from langchain_workingmem.observations.prompts import observer_messages
from langchain_workingmem.observations.reading import WAITING, log_key, observing, of_thread, read, recount, scope_of
from langchain_workingmem.observations.reflecting import Usage, ask, reflect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.effects import Argument, Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import ObservationLog, StoredMessage
    from langchain_workingmem.observations.answers import Line
    from langchain_workingmem.observations.reading import LogKey
    from langchain_workingmem.options import ObservationOptions

OPEN = Script("observations/open", *COVERAGE)
COMMIT = Script("observations/commit", *COVERAGE)
LEASE = Script("observations/lease", *COVERAGE)
FAIL = Script("observations/fail", *COVERAGE)

SPARE = 5.0  # seconds that a lease lasts longer than the call of a model may take
NEVER = 2**53  # tokens
STALLS = 3  # answers in a row about messages that others change meanwhile
POLL = 0.25  # seconds between two looks at the lease of another process
PATIENT = 8  # looks before a line of the log says what a call waits for
FIRST_PAUSE, LONGEST_PAUSE = 60_000, 3_600_000  # ms after failures, doubled at each
ALLOWANCE, LEAST = 8, 200  # tokens that observations may take beyond those of each message, and in all
_log = logging.getLogger("langchain_workingmem")


def observe_later(state: MemoryState, thread_id: str, resource_id: str | None) -> Plan[None]:
    """Start the observer of a log in the background, unless it runs in this process."""
    where = log_key(state, thread_id, resource_id)
    if (running := _running(where)) not in state.room(Remembered).observing:
        state.room(Remembered).observing.add(running)
        forget = partial(state.room(Remembered).observing.discard, running)
        yield Later(_in_background(state, where, thread_id), slow=True, lost=forget)


def waiting_commands(
    state: MemoryState, thread_id: str, resource_id: str | None, tokens: int, how: Literal["add", "set"] = "add"
) -> list[Command]:
    """Return what a save sends besides, in scope "resource": the log counts what waits, and says whether its observer is due."""
    options = state.observations
    if options is None or options.scope == "thread" or resource_id is None:
        return []
    log, due_at = state.keys.log_of_resource(resource_id), options.message_tokens if options.background else NEVER
    return [WAITING.call(log, encode(thread_id), tokens, how, due_at, state.ttl_ms or "")]


def count_later(state: MemoryState, thread_id: str, resource_id: str | None, tokens: int) -> Plan[None]:
    """Tell the log of a user what waits in a thread, and start its observer if it is due. One round trip."""
    if calls := waiting_commands(state, thread_id, resource_id, tokens, "set"):
        replies = yield from log_key(state, thread_id, resource_id).run(*calls)
        if any(replies):
            yield from observe_later(state, thread_id, resource_id)


def _running(where: LogKey) -> str:
    """Name a log in this process: a forked one does not run the observers of its parent."""
    return f"{getpid()} {where.name}"


def _in_background(state: MemoryState, where: LogKey, thread_id: str) -> Plan[None]:
    try:
        keep = observing(state).keep_tokens
        yield from _observe(state, where, None if where.thread_id is None else thread_id, keep, wait=False)
    except ThreadNotFoundError:
        pass  # it was deleted meanwhile
    except WorkingMemError as error:
        _log.warning("thread %r is not observed now: %s", thread_id, error)
    finally:
        state.room(Remembered).observing.discard(_running(where))


def observe(state: MemoryState, thread_id: str, resource_id: str | None) -> Plan[ObservationLog]:
    """Plan `Observations.observe`."""
    log, _ = yield from observe_now(state, thread_id, resource_id)
    return log


def observe_now(
    state: MemoryState,
    thread_id: str,
    resource_id: str | None,
    *,
    is_newest: bool = True,
    total: int = 0,
    is_pressed: bool = False,
) -> Plan[tuple[ObservationLog, bool]]:
    """Observe a thread, and tell whether the model failed: then `usage.last_error` of the log says why. Reports the tokens that are observed, of `total`.

    Of the newest thread of a log `keep_tokens` and the present turn stay as they are, of others only a turn without an answer.
    With `is_pressed` the finished steps of the present turn are observed, too, however short it is.
    """
    options = observing(state)
    _, owner = yield from owner_of(state, thread_id, None)
    if resource_id is not None and owner != resource_id:
        yield from check_thread(state, thread_id, resource_id)
    where = log_key(state, thread_id, resource_id or owner)
    keep = options.keep_tokens if is_newest else None
    done = yield from _observe(state, where, thread_id, keep, wait=True, total=total, is_pressed=is_pressed)
    return (yield from read(state, where)), not done


def pending_tokens(state: MemoryState, thread_id: str, resource_id: str | None) -> Plan[int]:
    """Return the tokens of a thread that no observation covers yet. One round trip."""
    return (yield from read(state, of_thread(state, thread_id, resource_id))).pending_tokens


def _observe(
    state: MemoryState,
    where: LogKey,
    thread_id: str | None,
    keep: int | None = None,
    *,
    wait: bool,
    total: int = 0,
    is_pressed: bool = False,
) -> Plan[bool]:
    """Observe a thread, or all that wait in a resource (None), then condense the log if it is too long.

    Two round trips for each call of the model, and two more. While another process observes, this one waits for it, or without
    `wait` leaves the work to it. Returns whether the work is done; the model may have failed.
    """
    run = _Run(
        state, observing(state), where, f"{state.process}-{next(state.room(Remembered).runs)}", total, is_pressed
    )
    try:
        if thread_id is not None:
            done = yield from run.observe_thread(thread_id, keep, wait=wait)
        else:
            done = yield from run.observe_waiting()
        return done and (yield from run.end(wait=wait))
    except WorkingMemError as error:
        with suppress(WorkingMemError):  # other processes need not wait until the lease is over
            yield from run.give_back()
        if wait and isinstance(error, ThreadNotFoundError):
            return True  # there is nothing to observe
        raise


@dataclass(slots=True)
class _Run:
    """One run of the observer, with its lease."""

    state: MemoryState
    options: ObservationOptions
    where: LogKey
    token: str
    total: int  # tokens that are expected to be observed, for reports
    is_pressed: bool  # finished steps of the present turn are observed, however short it is
    failed: list[str] = field(default_factory=list)  # threads for which the model gave no usable answer
    covered: int = 0  # tokens

    @property
    def seconds(self) -> float:
        return self.options.timeout.total_seconds()

    @property
    def _lease_ms(self) -> int:
        return int((self.seconds + SPARE) * 1000)

    def _lease(self, milliseconds: int, usage: Usage | None = None, thread_id: str | None = None) -> Command:
        """Take the lease for a time; `usage` is that of a good answer, which ends pauses unless another thread has failed.

        `thread_id` is the thread of a user that is observed next.
        """
        ends_pauses = "1" if usage is not None and not self.failed else ""
        used = () if usage is None else usage.arguments()
        tag = encode(thread_id) if thread_id is not None and self.where.thread_id is None else ""
        return LEASE.call(self.where.keys, self.where.owner, self.token, milliseconds, ends_pauses, tag, *used)

    def renew(self) -> Plan[None]:
        """Extend the lease before a call of the model. One round trip."""
        yield from self.where.run(self._lease(self._lease_ms))

    def observe_waiting(self) -> Plan[bool]:
        """Observe all threads of a resource that wait; tell whether that succeeded.

        Of the newest thread `keep_tokens` and the present turn stay as they are, of others only a turn without an answer.
        """
        before = -1
        while True:
            fields = (("HGET", self.where.name, name) for name in ("newest", "waiting"))
            names, newest, waiting = yield from send(("HKEYS", self.where.name), *fields, in_order=True)
            is_due = before < 0 or (self.covered > before and int(waiting or 0) >= self.options.message_tokens)
            if self.failed or not is_due:
                return not self.failed
            before = self.covered
            tags = [name.partition(b":")[2] for name in names if name.startswith(b"waiting:")]
            for tag in sorted(tags, key=lambda one: one == newest):
                if not (yield from self._observe_tag(tag, self.options.keep_tokens if tag == newest else None)):
                    return False

    def _observe_tag(self, tag: bytes, keep: int | None) -> Plan[bool]:
        """Observe a thread of a resource; tell whether no other process observes there."""
        thread_id = decode(tag)
        try:
            done = yield from self.observe_thread(thread_id, keep, wait=False)
        except (ThreadNotFoundError, ThreadOwnershipError):  # it was deleted meanwhile, or has another owner
            yield from self.where.run(WAITING.call(self.where.keys, tag, 0, "set", 0, ""))
        except OptionError as error:  # it has a log of its own, from before the scope was changed
            _log.warning("thread %r is not observed: %s", thread_id, error)
            yield from self.where.run(WAITING.call(self.where.keys, tag, 0, "set", 0, ""))
        else:
            return done or thread_id in self.failed
        return True

    def observe_thread(self, thread_id: str, keep: int | None, *, wait: bool) -> Plan[bool]:
        """Observe a thread down to `keep`, again if more is due then; tell whether that succeeded."""
        due = 0 if wait or keep is None or self.where.thread_id is None else self.options.message_tokens
        goal = tokens = stalls = looks = 0
        while wait or not self.state.closing:
            before = goal
            busy, goal, opened = yield from self.open(thread_id, keep, goal, due)
            if busy and not wait:
                return False
            if busy:
                looks += 1
                if looks == PATIENT:
                    seen = "another process observes thread %r; this one waits: at most %d s if that was killed"
                    _log.warning(seen, thread_id, -(-busy // 1000))
                yield Pause(min(busy / 1000, POLL))
            elif not opened and before and goal == before:  # what is left of it belongs to what follows
                goal = 0
            elif not opened or stalls == STALLS:
                break
            elif (covered := (yield from self.observe(thread_id, opened))) is None:
                self.failed.append(thread_id)
                return False
            else:
                stalls = 0 if covered else stalls + 1
                tokens += weight_of(one.row.message for one in opened)
                yield Emit([(tokens, max(tokens, self.total))])
        self.covered += tokens
        if self.where.thread_id is None:
            yield from recount(self.state, self.where, [thread_id])
        return True

    def open(self, thread_id: str, keep: int | None, goal: int, due: int) -> Plan[tuple[int, int, list[Opened]]]:
        """Take the lease and read the next messages. One round trip.

        `goal` is where the run ends, 0 at its beginning: then one is taken if `due` tokens wait at least. Returns how long
        another process has the lease (ms), the goal, and the messages of one call of the model.
        """
        options, state = self.options, self.state
        most, kept = options.batch_tokens, "" if keep is None else keep
        long = 0 if self.is_pressed else options.message_tokens
        arguments = (self.where.owner, scope_of(state), kept, long, 2 * most, goal or "", due)
        lease = self._lease(self._lease_ms, thread_id=thread_id)
        opening = OPEN.call(state.keys.of(thread_id), *arguments)
        (busy, _), reply = yield from run_script(thread_id, self.where.resource_id, lease, opening, in_order=True)
        note_covered(state.keys.of(thread_id).thread)  # the lease and what is counted are deleted with the thread
        taken, turn_begins, rest, *found = reply
        opened = [
            Opened(decode_message(id, seq, value, thread_id), body_digest(value))
            for id, seq, value in zip(found[::3], found[1::3], found[2::3], strict=True)
        ]
        groups = groups_of(opened, int(turn_begins), is_cut=rest == 2)
        return int(busy), int(taken), [one for group in first_of(groups, most) for one in group]

    def observe(self, thread_id: str, opened: Sequence[Opened]) -> Plan[int | None]:
        """Ask the model about messages and commit the answer; return how many are covered, None if the model failed.

        Two round trips, three for the log of a user. With recall the observations are embedded first.
        """
        options, state, where = self.options, self.state, self.where
        known = yield from read(state, where)
        try:
            rows = yield from self.readable(thread_id, [one.row for one in opened])
        except ModelError as error:  # of the user's hook
            yield from self.fail(Usage(failures=1, last_error=str(error)))
            return None
        lines: list[Line] | None = []
        usage = Usage()
        if rows:
            messages = observer_messages(rows, known.observations, options.instructions, options.batch_tokens)
            most = max(LEAST, weight_of(row.message for row in rows) + ALLOWANCE * len(rows))
            told = of_thread(state, thread_id, where.resource_id).told("observer")
            lines, usage = yield from ask(
                state, options.model, messages, len(rows), most, self.seconds, self.renew, told
            )
        if lines is None:
            yield from self.fail(usage)
            return None
        digests = "".join(one.digest for one in opened)
        name = f"{known.revision}/{hashlib.sha1(digests.encode(), usedforsecurity=False).hexdigest()}"
        arguments: list[Argument] = [where.owner, scope_of(state), name, len(opened)]
        for one in opened:
            arguments += [one.row.message.id or "", one.row.seq, one.digest]
        arguments.append(len(lines))
        observations = [observation_of(line, rows) for line in lines]
        stored = {one.row.seq: one.row.message for one in opened}
        cited = [stored[one.positions[0][1]] for one in observations]
        digest, documents = yield from embed(state, observations, cited)
        for made, fields in zip(observations, documents, strict=True):
            arguments += [sources_in(made, thread_id), write_observation(made), len(fields), *fields]
        arguments.append(digest)
        call = COMMIT.call(state.keys.of(thread_id), *arguments, *usage.arguments())
        ((covered, _, left, coverage),) = yield from run_script(thread_id, where.resource_id, call)
        note_coverage(state, thread_id, coverage)
        yield from continue_sweep(state, thread_id, left)
        if where.thread_id is None:
            yield from where.run(self._lease(self._lease_ms, usage))
        return int(covered)

    def readable(self, thread_id: str, rows: Sequence[StoredMessage]) -> Plan[list[StoredMessage]]:
        """Return what the observer may read, as the user's hook leaves it."""
        kept = yield from redacted(self.state, [row.message for row in rows], thread_id, self.where.resource_id)
        messages = {one.id: one for one in kept}
        return [replace(row, message=messages[row.message.id]) for row in rows if row.message.id in messages]

    def end(self, *, wait: bool) -> Plan[bool]:
        """Condense the log if it is too long, and give the lease back; tell whether that succeeded.

        Three round trips, and two for each call of the model.
        """
        ((_, pause),) = yield from self.where.run(self._lease(self._lease_ms))
        usage = None if pause and not wait else (yield from reflect(self.state, self.options, self.where, self.renew))
        if usage is not None:
            yield from self.fail(usage, is_reflector=True)
        else:
            yield from self.give_back()
        return usage is None

    def give_back(self) -> Plan[None]:
        """Give the lease back. One round trip."""
        yield from self.where.run(self._lease(0))

    def fail(self, usage: Usage, *, is_reflector: bool = False) -> Plan[None]:
        """Note that the model gave no usable answer, and end the lease. One round trip."""
        arguments = (self.token, int(is_reflector), FIRST_PAUSE, LONGEST_PAUSE, *usage.arguments())
        (pause,) = yield from self.where.run(FAIL.call(self.where.keys, self.where.owner, *arguments))
        _log.warning(
            "%s of %s %r stays as it is, and its model is not asked again for %d s: %s",
            "the log" if is_reflector else "what is not observed",
            "resource" if self.where.thread_id is None else "thread",
            self.where.resource_id if self.where.thread_id is None else self.where.thread_id,
            int(pause) // 1000,
            usage.last_error,
        )
