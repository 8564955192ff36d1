"""Several short conversations of a user in one call of the model: read together, committed thread by thread.

A conversation that is long, or about which the model has given no usable answer before, is observed in calls of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from langchain_workingmem._engine.effects import Emit, send
from langchain_workingmem._redis.keys import decode
from langchain_workingmem._text.said import weight_of
from langchain_workingmem.errors import OptionError, ThreadNotFoundError, ThreadOwnershipError
from langchain_workingmem.observations.observer.batches import observation_of
from langchain_workingmem.observations.observer.questions import questions_before
from langchain_workingmem.observations.observer.runs import OUTAGE
from langchain_workingmem.observations.prompts import newest
from langchain_workingmem.observations.reading import WAITING, read, recount
from langchain_workingmem.observations.reflecting import ATTEMPTS, Usage, counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem.models import Observation, StoredMessage
    from langchain_workingmem.observations.answers import Line
    from langchain_workingmem.observations.observer.batches import Batch
    from langchain_workingmem.observations.observer.runs import Run

MOST = 100  # conversations in one call
_GONE = (ThreadNotFoundError, ThreadOwnershipError)


class Part(NamedTuple):
    """All that is to be observed of a short conversation."""

    tag: bytes  # of the thread
    keep: int | None
    batch: Batch
    last_number: int  # of the observations of the thread when its messages were read

    @property
    def thread_id(self) -> str:
        """Return the id of the thread."""
        return decode(self.tag)

    @property
    def tokens(self) -> int:
        """Return the weight of the messages."""
        return weight_of(one.row.message for one in self.batch.opened)


def observe_waiting(run: Run) -> Plan[bool]:
    """Observe all threads of a resource that wait, again if more is due then; tell whether that succeeded.

    Of the newest thread `keep_tokens` and the present turn stay as they are, of others only a turn without an answer.
    """
    before = -1
    while True:
        fields = (("HGET", run.where.name, name) for name in ("newest", "waiting"))
        names, newest, waiting = yield from send(("HKEYS", run.where.name), *fields, in_order=True)
        is_due = before < 0 or (run.covered > before and int(waiting or 0) >= run.options.message_tokens)
        if run.pauses or not (is_due or (run.failed and run.answered)):  # the model works after all
            return not run.failed
        run.failed.clear()
        before = run.covered
        tags = [name.partition(b":")[2] for name in names if name.startswith(b"waiting:")]
        keep = run.options.keep_tokens
        each = [(tag, keep if tag == newest else None) for tag in sorted(tags, key=lambda one: one == newest)]
        if not (yield from observe_together(run, each)):
            return False


def observe_together(run: Run, tags: Iterable[tuple[bytes, int | None]]) -> Plan[bool]:
    """Observe threads of a user, each given with the tokens that stay; tell whether no other process observes there."""
    parts: list[Part] = []
    size, most = 0, run.options.batch_tokens
    for tag, keep in tags:
        part = yield from _short(run, tag, keep)
        if part is None:
            if not (yield from run.observe_tag(tag, keep)):
                return False
            continue
        if parts and (size + part.tokens > most or len(parts) == MOST):
            yield from _observe(run, parts)
            parts, size = [], 0
        parts.append(part)
        size += part.tokens
        if run.pauses:
            return False
    if parts:
        yield from _observe(run, parts)
    return not run.pauses


def _short(run: Run, tag: bytes, keep: int | None) -> Plan[Part | None]:
    """Read a thread; None if it is to be observed alone, or cannot be. One round trip."""
    kept = run.state.working_memory
    if kept is not None and kept.keeper == "observer" and kept.scope == "thread":
        return None  # each conversation has a document of its own
    try:
        busy, _, has_unread, batches = yield from run.open(decode(tag), keep, 0, 0)
    except (*_GONE, OptionError):
        return None
    if busy or has_unread or len(batches) != 1:
        return None
    part = Part(tag, keep, batches[0], run.last_number)
    is_short = part.tokens <= run.options.batch_tokens // 2
    return part if is_short and not part.batch.failures and not part.batch.depth else None


def _observe(run: Run, parts: Sequence[Part], attempts: int = ATTEMPTS) -> Plan[None]:
    """Ask the model about conversations; in halves, and each alone, as long as there is no usable answer.

    Three round trips, and two for each conversation.
    """
    if len(parts) == 1:
        yield from run.observe_tag(parts[0].tag, parts[0].keep)
        return
    log = yield from read(run.state, run.where)
    known = newest(log.observations)
    rows: list[StoredMessage] = []
    questions: list[StoredMessage] = []
    owned = [[one.row for one in part.batch.opened] for part in parts]
    for part, own in zip(parts, owned, strict=True):
        rows += own
        questions += yield from questions_before(run.state, part.thread_id, run.where.resource_id, own)
    opened = [one for part in parts for one in part.batch.opened]
    lines, usage = yield from run.ask(None, opened, rows, questions, known, attempts)
    if lines is None:
        yield from _miss(run, parts, usage)
        for half in (parts[: len(parts) // 2], parts[len(parts) // 2 :]) if not run.pauses else ():
            yield from _observe(run, half, 1)
        return
    first = 0
    for part, own in zip(parts, owned, strict=True):
        made = [observation_of(line, own) for line in _lines_about(lines, first, len(own))]
        first += len(own)
        usage = yield from _commit(run, part, made, usage, log.revision)
    run.answered = True
    yield from recount(run.state, run.where, [part.thread_id for part in parts])
    yield Emit([(run.covered, max(run.covered, run.total))])


def _lines_about(lines: Sequence[Line], before: int, count: int) -> list[Line]:
    """Return the lines that cite some of `count` messages after the first `before` ones, and cite only these, numbered from 1."""
    cited = ((line, [one - before for one in line.numbers if before < one <= before + count]) for line in lines)
    return [line._replace(numbers=tuple(own)) for line, own in cited if own]


def _commit(run: Run, part: Part, made: Sequence[Observation], usage: Usage, revision: int) -> Plan[Usage]:
    """Commit what was made of a conversation, unless it is gone; return the usage that is still to be counted."""
    run.last_number = part.last_number
    try:
        yield from run.commit(part.thread_id, part.batch, made, usage, revision)
    except _GONE:
        yield from run.where.run(WAITING.call(run.where.keys, part.tag, 0, "set", 0, ""))
        return usage
    run.covered += part.tokens
    return Usage()


def _miss(run: Run, parts: Sequence[Part], usage: Usage) -> Plan[None]:
    """Note that the model gave no usable answer about conversations; an outage counts against the model. One round trip."""
    is_outage = usage.failures > usage.refused
    failed = run.failure(usage, 1 if is_outage else OUTAGE)
    (pause,) = yield from counted(run.state, run.where, usage, failed)
    run.pauses = run.pauses or is_outage or int(pause) > 0
    if run.pauses:
        run.failed += [part.thread_id for part in parts]
    run.warn(f"what is not observed of {len(parts)} conversations of %s stays as it is", usage, int(pause))
