"""A run of the observer: it reads the oldest messages that are not covered, asks the model, and commits what it answers."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

from langchain_workingmem._engine.plan import Plan, Sleep, send
from langchain_workingmem._redis.access import continue_sweep, run_script
from langchain_workingmem._redis.codec import decode_message
from langchain_workingmem._redis.keys import decode, encode
from langchain_workingmem._redis.scripts import Script, note_covered
from langchain_workingmem._text.said import weight_of
from langchain_workingmem.errors import (
    OptionError,
    ThreadNotFoundError,
    ThreadOwnershipError,
)
from langchain_workingmem.observations.log import COVERAGE, MOST_SOURCES, note_coverage, sources_in, write_observation
from langchain_workingmem.observations.observer.batches import (
    Batch,
    Opened,
    batches_of,
    body_digest,
    groups_of,
    observation_of,
    read_ahead_of,
    unread,
)
from langchain_workingmem.observations.observer.questions import questions_before
from langchain_workingmem.observations.prompts import newest, observer_messages
from langchain_workingmem.observations.reading import WAITING, of_thread, read, recount, scope_of
from langchain_workingmem.observations.reflecting import ATTEMPTS, Usage, ask, counted, reading, reflect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.plan import Argument, Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import Observation, StoredMessage
    from langchain_workingmem.observations.answers import Line
    from langchain_workingmem.observations.reading import LogKey
    from langchain_workingmem.options import ObservationOptions

OPEN = Script("observations/open", *COVERAGE, "observations/tried")
MISSED = Script("observations/missed", *COVERAGE, "observations/tried")
COMMIT = Script("observations/commit", *COVERAGE, "observations/tried")
LEASE = Script("observations/lease", *COVERAGE)
ACTIVATE = Script("observations/activate", *COVERAGE)
FAIL = Script("observations/fail", *COVERAGE)

SPARE = 5.0  # seconds that a lease lasts longer than the call of a model may take
STALLS = 3  # answers in a row about messages that others change meanwhile
POLL = 0.25  # seconds between two looks at the lease of another process
PATIENT = 8  # looks before a line of the log says what a call waits for
FIRST_PAUSE, LONGEST_PAUSE = 60_000, 3_600_000  # ms after failures, doubled at each
OUTAGE = 4  # ranges in a row without a usable answer: the model fails, not what it is asked about
LOOK = 5  # times as many tokens are read as one call takes: what was halved is asked about after the others
ALLOWANCE, LEAST = 8, 200  # tokens that observations may take beyond those of each message, and in all
_log = logging.getLogger("langchain_workingmem")


@dataclass(slots=True)
class Run:
    """One run of the observer, with its lease."""

    state: MemoryState
    options: ObservationOptions
    where: LogKey
    token: str
    total: int  # tokens that are expected to be observed, for reports
    is_pressed: bool  # finished steps of the present turn are observed, however short it is
    failed: list[str] = field(default_factory=list)  # threads for which the model gave no usable answer
    covered: int = 0  # tokens
    streak: int = 0  # of failures before this run
    is_paused: bool = False  # the model is asked in a pause after failures
    batch: int | None = None  # tokens that have to wait so that one call may read ahead; None: it does not
    is_due: bool = False  # a goal was taken because enough waits, and not to read ahead
    has_ahead: bool = False  # something was read that is not shown yet
    answered: bool = False  # the model has given a usable answer
    pauses: bool = False  # it is not asked again for a while

    @property
    def _long(self) -> int:
        """Tokens of a present turn up to which its steps stay as they are."""
        return 0 if self.is_pressed else self.options.message_tokens

    @property
    def reads_ahead(self) -> bool:
        """Tell whether only whole calls are made, because nothing is due yet."""
        return self.batch is not None and not self.is_due

    @property
    def seconds(self) -> float:
        """Return how long a call of the model may take."""
        return self.options.timeout.total_seconds()

    def _lease(self, usage: Usage | None = None, thread_id: str | None = None, *, ends: bool = False) -> Command:
        """Take the lease for a time, or end it; `usage` is that of a good answer, which ends pauses.

        `thread_id` is the thread of a user that is observed next.
        """
        ends_pauses, used = ("", []) if usage is None else ("1", usage.arguments())
        tag = encode(thread_id) if thread_id is not None and self.where.thread_id is None else ""
        lasts = 0 if ends else int((self.seconds + SPARE) * 1000)
        return LEASE.call(self.where.keys, self.where.owner, self.token, lasts, ends_pauses, tag, *used)

    def renew(self) -> Plan[None]:
        """Extend the lease before a call of the model. One round trip."""
        yield from self.where.run(self._lease())

    def observe_waiting(self) -> Plan[bool]:
        """Observe all threads of a user that wait, again if more is due then; tell whether that succeeded.

        Of the newest thread `keep_tokens` and the present turn stay as they are, of others only a turn without an answer.
        """
        before = -1
        while True:
            fields = (("HGET", self.where.name, name) for name in ("newest", "waiting"))
            names, newest, waiting = yield from send(("HKEYS", self.where.name), *fields, in_order=True)
            is_due = before < 0 or (self.covered > before and int(waiting or 0) >= self.options.message_tokens)
            if self.pauses or not (is_due or (self.failed and self.answered)):  # the model works after all
                return not self.failed
            self.failed.clear()
            before = self.covered
            tags = [name.partition(b":")[2] for name in names if name.startswith(b"waiting:")]
            for tag in sorted(tags, key=lambda one: one == newest):
                if not (yield from self.observe_tag(tag, self.options.keep_tokens if tag == newest else None)):
                    return False

    def observe_tag(self, tag: bytes, keep: int | None) -> Plan[bool]:
        """Observe a thread of a user; tell whether no other process observes there."""
        thread_id = decode(tag)
        try:
            done = yield from self.observe_thread(thread_id, keep, wait=False)
        except (ThreadNotFoundError, ThreadOwnershipError):  # it was deleted meanwhile, or has another owner
            yield from self.where.run(WAITING.call(self.where.keys, tag, 0, "set", 0, ""))
        except OptionError as error:  # it has a log of its own, from before the scope was changed
            _log.warning("thread %r is not observed: %s", thread_id, error)
            yield from self.where.run(WAITING.call(self.where.keys, tag, 0, "set", 0, ""))
        else:
            return done or (thread_id in self.failed and not self.pauses)
        return True

    def observe_thread(self, thread_id: str, keep: int | None, *, wait: bool) -> Plan[bool]:
        """Observe a thread down to `keep`, again if more is due then; tell whether that succeeded."""
        due = 0 if wait or keep is None or self.where.thread_id is None else self.options.message_tokens
        self.batch = read_ahead_of(self.options) if due else None
        goal = stalls = looks = 0
        has_shown = not wait
        while wait or not self.state.closing:
            before = goal
            busy, goal, has_unread, batches = yield from self.open(thread_id, keep, goal, due)
            if busy and not wait:
                return False
            if self.has_ahead and not has_shown and not busy:
                has_shown = yield from self._activate(thread_id)
            if busy:
                looks += 1
                yield from self._look_again(thread_id, busy, looks)
            elif not batches and before and goal == before:  # what is left of it belongs to what follows
                goal = 0
            elif not batches or stalls == STALLS:
                if has_unread and (wait or self.answered):
                    yield from self._pass_over(thread_id)
                break
            else:
                result = yield from self.observe(thread_id, batches[0])
                stalls = stalls + 1 if result == 0 else 0
                self._note(thread_id, result)
                goal = 0 if self.reads_ahead else goal
            if self.pauses or thread_id in self.failed:
                break
        if self.has_ahead and self.is_due and not wait:
            yield from self._activate(thread_id)
        if self.where.thread_id is None and thread_id not in self.failed:
            yield from recount(self.state, self.where, [thread_id])
        return thread_id not in self.failed

    def open(
        self, thread_id: str, keep: int | None, goal: int, due: int, *, unread: bool = False
    ) -> Plan[tuple[int, int, bool, list[Batch]]]:
        """Take the lease and read the next messages. One round trip.

        `goal` is where the run ends, 0 at its beginning: then one is taken if `due` tokens wait at least. Returns how long
        another process has the lease (ms), the goal, whether there are messages about which the model is not asked any more,
        and the calls to be made, those first that were halved least. With `unread` those messages alone are read.
        """
        options, keys, owner = self.options, self.state.keys.of(thread_id), self.where.user_id
        most, kept = options.batch_tokens, "" if keep is None else keep
        limits = (self._long, LOOK * most, goal or "", due, ATTEMPTS, int(unread), self.batch or "")
        lease = self._lease(thread_id=thread_id)
        opening = OPEN.call(keys, self.where.owner, scope_of(self.state), kept, *limits)
        (busy, _, streak, pause), reply = yield from run_script(thread_id, owner, lease, opening, in_order=True)
        taken, turn_begins, rest, tried, has_unread, is_due, has_ahead, *found = reply
        opened = [
            Opened(decode_message(id, seq, value, thread_id), body_digest(value))
            for id, seq, value in zip(found[::3], found[1::3], found[2::3], strict=True)
        ]
        groups = groups_of(opened, int(turn_begins), is_cut=rest == 2)
        self.streak, self.is_paused = max(self.streak, int(streak)), pause > 0
        note_covered(keys.thread)  # the lease and what is counted are deleted with the thread
        self.is_due, self.has_ahead = self.is_due or bool(is_due), bool(has_ahead)
        batches = batches_of(groups, most, tried.decode(), is_whole=rest != 1, is_ahead=self.reads_ahead)
        return int(busy), int(taken), bool(has_unread), batches

    def _look_again(self, thread_id: str, busy: int, looks: int) -> Plan[None]:
        """Wait a while for another process; say once that this is so."""
        if looks == PATIENT:
            seen = "another process observes thread %r; this one waits: at most %d s if that was killed"
            _log.warning(seen, thread_id, -(-busy // 1000))
        yield Sleep(min(busy / 1000, POLL))

    def _activate(self, thread_id: str) -> Plan[Literal[True]]:
        """Show what was read ahead. One round trip."""
        call = ACTIVATE.call(self.state.keys.of(thread_id), self.where.owner, self._long)
        ((coverage, left),) = yield from run_script(thread_id, self.where.user_id, call)
        yield from self._changed(thread_id, coverage, left)
        return True

    def _changed(self, thread_id: str, coverage: bytes, left: int) -> Plan[None]:
        note_coverage(self.state, thread_id, coverage)
        yield from continue_sweep(self.state, thread_id, left)

    def _pass_over(self, thread_id: str) -> Plan[None]:
        """Cover messages that no model could read with a line that says so, once the model has answered about others.

        If there are no others, it is asked once more.
        """
        has_answered = self.answered
        _, _, _, batches = yield from self.open(thread_id, None, 0, 0, unread=True)
        for batch in batches:
            if has_answered:
                line = unread(batch.groups[0])
                _log.warning("thread %r, message %r: %s", thread_id, batch.opened[0].row.message.id, line.text)
                made = observation_of(line, [one.row for one in batch.opened])
                yield from self.commit(thread_id, batch, [made], Usage())
            else:
                result = yield from self.observe(thread_id, batch)
                self._note(thread_id, result)
                if result is None:
                    break

    def _note(self, thread_id: str, result: int | None) -> None:
        """Note whether a run ends here: the model has failed, and has not answered about other messages."""
        if result is None and (self.pauses or not self.answered):
            self.failed.append(thread_id)

    def observe(self, thread_id: str, batch: Batch) -> Plan[int | None]:
        """Ask the model about messages and commit the answer; return how many are covered, None if the model failed.

        Two round trips, three for the log of a user, one more where the messages begin inside a turn.
        """
        state, where, opened = self.state, self.where, batch.opened
        log = yield from read(state, where)
        known = newest(log.observations)
        rows = [one.row for one in opened]
        asked = () if batch.depth else (yield from questions_before(state, thread_id, where.user_id, rows))
        lines, usage = yield from self.ask(thread_id, rows, asked, known, batch.attempts)
        if lines is None:
            yield from self._miss(thread_id, batch, usage)
            return None
        observations = [observation_of(line, rows) for line in lines]
        covered = yield from self.commit(thread_id, batch, observations, usage, log.revision)
        if not self.answered and self.streak >= OUTAGE:  # what failed before was the model, not what it was asked about
            yield from run_script(thread_id, where.user_id, MISSED.call(state.keys.of(thread_id), where.owner, 0))
        self.answered = True
        self.covered += weight_of(one.row.message for one in opened)
        return covered

    def ask(
        self,
        thread_id: str,
        rows: Sequence[StoredMessage],
        questions: Sequence[StoredMessage],
        known: Sequence[Observation],
        attempts: int,
    ) -> Plan[tuple[list[Line] | None, Usage]]:
        """Ask the model about messages: without the questions once it has refused, because these may be why."""
        options, owner = self.options, self.where.user_id
        where = of_thread(self.state, thread_id, owner)
        zone, most_tokens = self.state.zone(thread_id, owner), options.batch_tokens
        shown = partial(observer_messages, rows, known, options.instructions, most_tokens, zone=zone)
        plain, messages = shown(), shown(questions)
        most = max(LEAST, weight_of(row.message for row in rows) + ALLOWANCE * len(rows))
        model, told, read = options.model, where.told("observer"), reading(len(rows), most, MOST_SOURCES)
        attempts = 1 if self.is_pressed and self.is_paused else attempts
        return (yield from ask(self.state, model, messages, read, self.seconds, self.renew, told, attempts, plain))

    def commit(
        self,
        thread_id: str,
        batch: Batch,
        observations: Sequence[Observation],
        usage: Usage,
        revision: int = 0,
    ) -> Plan[int]:
        """Let observations stand for messages; return how many are covered."""
        state, opened, where = self.state, batch.opened, of_thread(self.state, thread_id, self.where.user_id)
        digests = "".join(one.digest for one in opened)
        name = f"{revision}/{hashlib.sha1(digests.encode(), usedforsecurity=False).hexdigest()}"
        shown_at = self.options.message_tokens if self.batch else ""
        arguments: list[Argument] = [where.owner, scope_of(state), name, shown_at, len(opened)]
        for one in opened:
            arguments += [one.row.message.id or "", one.row.seq, one.digest]
        arguments.append(len(observations))
        for made in observations:
            arguments += [sources_in(made, thread_id), write_observation(made)]
        call = COMMIT.call(state.keys.of(thread_id), *arguments, *usage.arguments())
        ((covered, _, left, coverage),) = yield from counted(state, where, usage, call)
        yield from self._changed(thread_id, coverage, left)
        if self.where.thread_id is None:
            yield from self.where.run(self._lease(usage))
        return int(covered)

    def end(self, *, wait: bool) -> Plan[bool]:
        """Condense the log if it is too long, and give the lease back; tell whether that succeeded.

        Three round trips, and two for each call of the model.
        """
        ((_, pause, *_),) = yield from self.where.run(self._lease())
        usage = None if pause and not wait else (yield from reflect(self.state, self.options, self.where, self.renew))
        if usage is not None:
            (pause,) = yield from counted(self.state, self.where, usage, self.failure(usage, 1, is_reflector=True))
            self.warn("the log of %s stays as it is", usage, int(pause))
        yield from self.give_back()
        return usage is None

    def give_back(self) -> Plan[None]:
        """Give the lease back. One round trip."""
        yield from self.where.run(self._lease(ends=True))

    def _miss(self, thread_id: str, batch: Batch, usage: Usage) -> Plan[None]:
        """Note that the model gave no usable answer about messages. One round trip.

        What is about the messages counts against them: they are asked about in halves, at once if the model has answered
        about others. An outage counts against the model, which is not asked again before a pause is over.
        """
        is_outage = usage.failures > usage.refused
        calls = [self.failure(usage, 1 if is_outage else OUTAGE)]
        if usage.refused:
            failures = batch.failures + usage.refused
            arguments = (self.where.owner, failures, batch.first, batch.last, batch.most_failures, batch.middle or "")
            calls.append(MISSED.call(self.state.keys.of(thread_id), *arguments))
        own = of_thread(self.state, thread_id, self.where.user_id)
        pause, *_ = yield from counted(self.state, own, usage, *calls)
        self.pauses = self.pauses or is_outage or pause > 0
        self.warn("what is not observed of %s stays as it is", usage, int(pause))

    def failure(self, usage: Usage, least: int, *, is_reflector: bool = False) -> Command:
        """Count a failure; from the one numbered `least` on, in a row, nobody asks before a pause is over."""
        arguments = (self.token, int(is_reflector), FIRST_PAUSE, LONGEST_PAUSE, least, *usage.arguments())
        return FAIL.call(self.where.keys, self.where.owner, *arguments)

    def warn(self, what: str, usage: Usage, pause_ms: int) -> None:
        """Log that something stays as it is, and why."""
        thread_id, user_id = self.where.thread_id, self.where.user_id
        name = f"user {user_id!r}" if thread_id is None else f"thread {thread_id!r}"
        again = f", and its model is not asked again for {pause_ms // 1000} s" if pause_ms else ""
        _log.warning(f"{what}%s: %s", name, again, usage.last_error)
