"""Ask the models, with objections to what cannot be used; and the reflector, which condenses the oldest half of a long log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages.utils import count_tokens_approximately

from langchain_workingmem._engine.effects import Ask, Pause, send
from langchain_workingmem._text.observed import tokens_of
from langchain_workingmem._text.ranges import numbers_in, ranges_of, write_ranges
from langchain_workingmem.checks import LARGEST
from langchain_workingmem.errors import ModelError
from langchain_workingmem.models import Observation
from langchain_workingmem.observations.answers import BadAnswer, read_answer
from langchain_workingmem.observations.changing import NEW, change
from langchain_workingmem.observations.log import parse_manifest
from langchain_workingmem.observations.outbox import OUTBOX
from langchain_workingmem.observations.prompts import reflector_messages, with_objection
from langchain_workingmem.observations.reading import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage

    from langchain_workingmem._engine.effects import Argument, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.observations.answers import Line
    from langchain_workingmem.observations.reading import LogKey, Read
    from langchain_workingmem.options import ObservationOptions

ATTEMPTS = 3  # before a pause
FIRST_WAIT = 0.2  # seconds after a model has failed, doubled at each attempt
ROUNDS = 4  # parts of a log that are condensed in one run at most
SHRINK = 0.9  # of the tokens that are condensed may be left: else each run would pay for nothing


@dataclass(slots=True)
class Usage:
    """What the calls of one question have taken."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    failures: int = 0
    last_error: str = ""

    def add(self, messages: Sequence[BaseMessage], answer: AIMessage) -> None:
        """Count a call: as the provider says, else estimated."""
        said = getattr(answer, "usage_metadata", None) or {}
        self.input_tokens += _number(said.get("input_tokens")) or count_tokens_approximately(messages)
        self.output_tokens += _number(said.get("output_tokens")) or count_tokens_approximately([answer])

    def fail(self, error: str) -> None:
        """Count a failure."""
        self.failures += 1
        self.last_error = error

    def arguments(self) -> list[Argument]:
        """Return the counters as scripts take them."""
        names = ("calls", "input_tokens", "output_tokens", "failures", "last_error")
        return [part for name in names for part in (name, getattr(self, name))]


def _number(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value <= LARGEST else 0


def ask(
    state: MemoryState,
    model: BaseChatModel | str,
    messages: list[BaseMessage],
    count: int,
    most_tokens: int,
    seconds: float,
    renew: Callable[[], Plan[None]],
) -> Plan[tuple[list[Line] | None, Usage]]:
    """Ask until an answer about `count` numbered elements can be used; None after `ATTEMPTS` calls, or one while closing.

    `renew` extends the lease before each call after the first.
    """
    usage, conversation = Usage(), messages
    for attempt in range(ATTEMPTS):
        if attempt and state.closing:
            break
        if attempt:
            yield from renew()
        usage.calls += 1
        try:
            answer = yield from Ask(cast("BaseChatModel", model), conversation, seconds)
        except ModelError as error:
            usage.fail(_problem(error))
            if attempt < ATTEMPTS - 1 and not state.closing:
                yield Pause(FIRST_WAIT * 2**attempt, jitter=True)
            continue
        try:
            usage.add(conversation, answer)
            return read_answer(answer, count, most_tokens), usage
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


def _problem(error: ModelError) -> str:
    """Say what has failed without the words of a provider, who may quote messages."""
    cause = error.__cause__
    if cause is None:
        return str(error)
    status = getattr(cause, "status_code", None)
    known = f", status {status}" if isinstance(status, int) else ""
    return f"the chat model failed ({type(cause).__name__}{known}); {error.remedy}"


def reflect(
    state: MemoryState, options: ObservationOptions, where: LogKey, renew: Callable[[], Plan[None]]
) -> Plan[Usage | None]:
    """Condense the oldest half of a log as long as it is too long; return what a failed call has taken, None without one.

    One round trip where it is not too long, else two for each call of the model.
    """
    for _ in range(ROUNDS):
        found = yield from read(state, where)
        if found.log.tokens <= options.observation_tokens or state.closing:
            return None
        chunks, given = _oldest_half(found, options.observation_tokens)
        if len(given) < 2:
            return None
        size = tokens_of(given)
        messages = reflector_messages(given, options.instructions, size // 2)
        model = options.reflector or options.model
        seconds = options.timeout.total_seconds()
        lines, usage = yield from ask(state, model, messages, len(given), int(size * SHRINK), seconds, renew)
        if lines is None:
            return usage
        made = sorted((one for line in lines for one in _condensed(line, given)), key=lambda one: one.said_at)
        expected = ";".join(found.known.present.split(";")[:chunks])
        manifest = _manifest(found, chunks, given)
        done, _ = yield from change(where, "reflect", expected, manifest, made, usage.arguments(), whole=False)
        if done and where.thread_id is None:
            yield from _group(state, made)
    return None


def _oldest_half(found: Read, most_tokens: int) -> tuple[int, list[Observation]]:
    """Return how many chunks make up the oldest half of the log, or half of `most_tokens`, and their observations."""
    shown = {one.number: one for one in found.log.observations}
    taken: list[Observation] = []
    count = size = 0
    for chunk in parse_manifest(found.known.present):
        own = [shown[number] for number in numbers_in(chunk.numbers) if number in shown]
        if size >= min(found.log.tokens, most_tokens) / 2 and len(taken) > 1:
            break
        taken += own
        size += tokens_of(own)
        count += 1
    return count, taken


def _condensed(line: Line, given: Sequence[Observation]) -> Iterator[Observation]:
    """Yield the observation of a line, for each thread that it cites one: what hides it there must not hide it elsewhere.

    Each mentions what the text tells of the other threads: what is deleted there must not stay here.
    """
    cited = [given[number - 1] for number in line.numbers]
    sources: dict[str, dict[tuple[tuple[str, str], tuple[str, int]], None]] = {}
    for one in cited:
        for source, position in zip(one.sources, one.positions, strict=True):
            sources.setdefault(position[0], {})[source, position] = None
    told = {mention for one in cited for mention in one.mentions}
    told |= {(*source, position[1]) for found in sources.values() for source, position in found}
    for thread_id, found in sources.items():
        yield Observation(
            id="",
            text=line.text,
            said_at=min(one.said_at for one in cited if any(thread == thread_id for thread, _ in one.positions)),
            priority=line.priority,
            sources=[source for source, _ in found],
            level=1 + max(one.level for one in cited),
            positions=tuple(position for _, position in found),
            mentions=tuple(sorted(mention for mention in told if mention[0] != thread_id)),
        )


def _manifest(found: Read, chunks: int, given: Sequence[Observation]) -> str:
    """Return what stands for the oldest chunks now: new observations, and those that are hidden at present as they are."""
    replaced = parse_manifest(found.known.present)[:chunks]
    level = 1 + max(one.level for one in given)
    seqs: dict[str, set[int]] = {}
    for chunk in replaced:
        seqs.setdefault(chunk.thread, set()).update(numbers_in(chunk.seqs))
    condensed = {one.number for one in given}
    kept = ranges_of(number for chunk in replaced for number in numbers_in(chunk.numbers) if number not in condensed)
    numbers = [NEW, *[""] * (len(seqs) - 1)]
    parts = [
        f"{tag}/{write_ranges(ranges_of(own))}/{new}/{level}"
        for (tag, own), new in zip(seqs.items(), numbers, strict=True)
    ]
    if kept:
        parts.append(f"{replaced[0].thread}//{write_ranges(kept)}/0")
    return ";".join(parts)


def _group(state: MemoryState, made: Sequence[Observation]) -> Plan[None]:
    """Tell the threads of a resource what is cited together now. One round trip."""
    groups: dict[str, list[str]] = {}
    for one in made:
        by_thread: dict[str, list[str]] = {}
        for thread_id, seq in one.positions:
            by_thread.setdefault(thread_id, []).append(str(seq))
        for thread_id, seqs in by_thread.items():
            if len(seqs) > 1:
                groups.setdefault(thread_id, []).append(",".join(seqs))
    calls = [OUTBOX.call(state.keys.of(id).all, "group", ";".join(found)) for id, found in groups.items()]
    if calls:
        yield from send(*calls)
