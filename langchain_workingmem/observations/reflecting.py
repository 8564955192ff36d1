"""Ask the models, with objections to what cannot be used; and the reflector, which condenses the oldest half of a long log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from langchain_workingmem._counting import Taken, run_counted, tokens_of_call
from langchain_workingmem._engine import models
from langchain_workingmem._engine.plan import Sleep
from langchain_workingmem._text.observed import tokens_of
from langchain_workingmem._text.ranges import numbers_in, ranges_of, write_ranges
from langchain_workingmem.errors import ModelError
from langchain_workingmem.history import is_refusal
from langchain_workingmem.models import Observation
from langchain_workingmem.observations.answers import BadAnswer, read_answer
from langchain_workingmem.observations.changing import NEW, change
from langchain_workingmem.observations.log import MOST_SOURCES, parse_manifest
from langchain_workingmem.observations.prompts import reflector_messages, with_objection
from langchain_workingmem.observations.reading import of_thread, read_thread_log, read_user

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage

    from langchain_workingmem._engine.plan import Argument, Command, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.observations.answers import Line
    from langchain_workingmem.observations.reading import LogKey, Read
    from langchain_workingmem.options import ObservationOptions

ATTEMPTS = 3  # before a pause
FIRST_WAIT = 0.2  # seconds after a model has failed, doubled at each attempt
ROUNDS = 4  # parts of a log that are condensed in one run at most
THREADS = 40  # likewise, of the log of a user
# in the errors of providers that have no status
_ABOUT_INPUT = re.compile(
    r"(?i)refus|content.{0,9}(filter|policy|management)|filtered|safety|moderation|blocked.?(prompt|by|reason)"
    r"|(prompt|response|candidate).{0,9}blocked|length|too long|context.?(window|overflow)"
)
T = TypeVar("T")
SHRINK = 0.9  # of the tokens that are condensed may be left: else each run would pay for nothing


@dataclass(slots=True)
class Usage:
    """What the calls of one question have taken."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    failures: int = 0
    refused: int = 0  # failures that are about what the model was asked, and no outage
    last_error: str = ""

    def add(self, messages: Sequence[BaseMessage], answer: AIMessage) -> None:
        """Count a call: as the provider says, else estimated."""
        read, written = tokens_of_call(messages, answer)
        self.input_tokens += read
        self.output_tokens += written

    def fail(self, error: str, *, refused: bool = True) -> None:
        """Count a failure."""
        self.failures += 1
        self.refused += refused
        self.last_error = error

    @property
    def taken(self) -> Taken:
        """Return what the counters of the user grow by."""
        return Taken(self.calls, self.input_tokens, self.output_tokens)

    def arguments(self) -> list[Argument]:
        """Return the counters as scripts take them."""
        names = ("calls", "input_tokens", "output_tokens", "failures", "last_error")
        return [part for name in names for part in (name, getattr(self, name))]


def counted(state: MemoryState, where: LogKey, usage: Usage, *calls: Command) -> Plan[list[Any]]:
    """Send calls of scripts for a log, and count for its user what a model has taken. One round trip."""
    taken = usage.taken
    return run_counted(state, where.thread_id, where.user_id, taken, *calls, own_key=where.name)


def ask(
    state: MemoryState,
    model: BaseChatModel | str,
    messages: list[BaseMessage],
    read: Callable[..., T],
    seconds: float,
    renew: Callable[[], Plan[None]],
    run: Mapping[str, Any],
    attempts: int = ATTEMPTS,
    instead: list[BaseMessage] | None = None,
) -> Plan[tuple[T | None, Usage]]:
    """Ask until an answer can be used, and return what `read` makes of it; None after `attempts` calls, or one while closing.

    `read` takes the answer, and `is_last` for the last attempt; it raises `BadAnswer` for what cannot be used. `renew` extends the lease before each call after the first, `run` is what callbacks are told. `instead` is sent once the
    model has refused `messages`, which hold more.
    """
    usage, conversation = Usage(), messages
    for attempt in range(attempts):
        if attempt and state.closing:
            break
        if attempt:
            yield from renew()
        usage.calls += 1
        try:
            answer = yield from models.ask(cast("BaseChatModel", model), conversation, seconds, run)
        except ModelError as error:
            refused = _is_about_input(error.__cause__)
            usage.fail(_problem(error), refused=refused)
            if refused and instead is not None:
                messages = conversation = instead
            if attempt < attempts - 1 and not state.closing:
                yield Sleep(FIRST_WAIT * 2**attempt, jitter=True)
            continue
        try:
            usage.add(conversation, answer)
            return read(answer, is_last=attempt == attempts - 1), usage
        except BadAnswer as error:
            usage.fail(error.problem)
            conversation = with_objection(messages, answer, error.objection)
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:  # it is no message with text
            usage.fail(f"the answer cannot be read ({type(error).__name__})")
    return None, usage


def reading(count: int, most_tokens: int, most_cited: int | None = None) -> Callable[..., list[Line]]:
    """Return what reads an answer about `count` numbered elements, of at most so many tokens, with so many numbers a line."""
    return partial(read_answer, count=count, most_tokens=most_tokens, most_cited=most_cited)


def _problem(error: ModelError) -> str:
    """Say what has failed without the words of a provider, who may quote messages."""
    cause = error.__cause__
    if cause is None:
        return str(error)
    status = getattr(cause, "status_code", None)
    known = f", status {status}" if isinstance(status, int) else ""
    return f"the chat model failed ({type(cause).__name__}{known}); {error.remedy}"


def _is_about_input(cause: BaseException | None) -> bool:
    """Tell whether a model failed because of what it was asked: a bad request, a filter, a refusal, a limit of length."""
    if cause is None or isinstance(cause, OSError):  # too slow, or no connection
        return False
    has_status = isinstance(getattr(cause, "status_code", None), int)
    return is_refusal(cause) or (not has_status and bool(_ABOUT_INPUT.search(f"{type(cause).__name__} {cause}")))


def reflect(
    state: MemoryState, options: ObservationOptions, where: LogKey, renew: Callable[[], Plan[None]]
) -> Plan[Usage | None]:
    """Condense a log as long as it is too long; return what a failed call has taken, None without one.

    Of the log of a thread its oldest half; of that of a user whole threads, those first that were not condensed yet, the oldest
    first. Low lines are left out first, without a model; high lines stay as they are. One round trip where the log is not too long,
    else two for each call of the model and for each time that lines are left out, three for a user.
    """
    condensed: set[str] = set()
    calls, most_calls = 0, ROUNDS if where.thread_id is not None else THREADS
    for _ in range(2 * most_calls):  # others may change the log meanwhile
        size, own = (yield from _next_thread(state, where, condensed)) if where.thread_id is None else (0, where)
        if own is None or (where.thread_id is None and size <= options.observation_tokens):
            return None
        found = yield from read_thread_log(state, own)
        most = options.observation_tokens if own is where else 2 * found.log.tokens + 1
        if (own is where and found.log.tokens <= most) or state.closing:
            return None
        chunks, taken = _oldest_half(found, most)
        expected = ";".join(found.known.present.split(";")[:chunks])
        if low := [one for one in taken if one.priority == "low"]:
            yield from change(own, "reflect", expected, _manifest(found, chunks, low, ""), whole=False)
            continue
        if calls == most_calls:
            return None
        condensed.add(own.thread_id or "")
        given = [one for one in taken if one.priority == "normal"]
        if len(given) < 2:
            if own is where:
                return None
            continue
        calls, size = calls + 1, tokens_of(given)
        zone = state.zone(own.thread_id, own.user_id)
        messages = reflector_messages(given, options.instructions, size // 2, zone=zone)
        model = options.reflector or options.model
        seconds = options.timeout.total_seconds()
        lines, usage = yield from ask(
            state, model, messages, reading(len(given), int(size * SHRINK)), seconds, renew, own.told("reflector")
        )
        if lines is None:
            return usage
        made = sorted((_condensed(line, given) for line in lines), key=lambda one: one.said_at)
        manifest = _manifest(found, chunks, given, NEW)
        run = partial(counted, state, own, usage)
        yield from change(own, "reflect", expected, manifest, made, usage.arguments(), whole=False, run=run)
    return None


def _next_thread(state: MemoryState, where: LogKey, condensed: set[str]) -> Plan[tuple[int, LogKey | None]]:
    """Return the tokens of a user's log, and the thread whose log is condensed next. One round trip, two in a cluster."""
    user = yield from read_user(state, where.user_id or "")
    waiting = [
        (max(one.level for one in shown), max(one.said_at for one in shown), part.thread_id)
        for part in user.parts
        if len(shown := part.shown()) > 1 and part.thread_id not in condensed
    ]
    own = of_thread(state, min(waiting)[2], where.user_id) if waiting else None
    return sum(tokens_of(part.shown()) for part in user.parts), own


def _oldest_half(found: Read, most_tokens: int) -> tuple[int, list[Observation]]:
    """Return how many chunks make up the oldest half of what is not high, or half of `most_tokens`, and the lines in them."""
    rest = {one.number: one for one in found.log.observations if one.priority != "high"}
    half = min(tokens_of(rest.values()), most_tokens) / 2
    taken: list[Observation] = []
    count = size = 0
    for chunk in parse_manifest(found.known.present):
        own = [rest[number] for number in numbers_in(chunk.numbers) if number in rest]
        if size >= half and len(taken) > 1:
            break
        taken += own
        size += tokens_of(own)
        count += 1
    return count, taken


def _condensed(line: Line, given: Sequence[Observation]) -> Observation:
    """Return the observation of a line: it stands for those that it cites, and names some of their messages."""
    cited = [given[number - 1] for number in line.numbers]
    share = max(1, MOST_SOURCES // len(cited))
    if sum(len(one.sources) for one in cited) <= MOST_SOURCES:
        share = MOST_SOURCES
    sources = {
        position: source
        for one in cited
        for source, position in [*zip(one.sources, one.positions, strict=True)][:share]
    }
    return Observation(
        id="",
        text=line.text,
        said_at=min(one.said_at for one in cited),
        priority=line.priority,
        sources=[*sources.values()],
        level=1 + max(one.level for one in cited),
        positions=(*sources,),
        parts=write_ranges(ranges_of(one.number for one in cited)),
    )


def _manifest(found: Read, chunks: int, replaced: Sequence[Observation], new: str) -> str:
    """Return what stands for the oldest chunks now: new observations, and others as they are: high and hidden ones."""
    before = parse_manifest(found.known.present)[:chunks]
    level = 1 + max(one.level for one in replaced)
    seqs = ranges_of(seq for chunk in before for seq in numbers_in(chunk.seqs))
    gone = {one.number for one in replaced}
    kept = ranges_of(number for chunk in before for number in numbers_in(chunk.numbers) if number not in gone)
    parts = [f"{before[0].thread}/{write_ranges(seqs)}/{new}/{level if new else 0}"] if new or seqs else []
    if kept:
        parts.append(f"{before[0].thread}//{write_ranges(kept)}/0")
    return ";".join(parts)
