"""The effects of a storage plan, and `send`, the way that plans reach Redis.

A plan is a generator: it yields effects, is sent their results, and returns a model. `io.runners` performs the
effects, once for sync and once for async callers, so the operation itself is written a single time. One `Send`
is one round trip; an error of the connection or of the embedding model is thrown into the plan at its `yield`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from langchain_workingmem.errors import (
    OutcomeUnknownError,
    RedisCapabilityError,
    RedisConnectionError,
    RedisReplyError,
    WorkingMemError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage

Argument: TypeAlias = "bytes | str | int | float"
Command: TypeAlias = "tuple[Argument, ...]"


@dataclass(frozen=True, slots=True)
class Send:
    """One pipeline to Redis. Its result holds a reply per command; a refused command's is a `RedisReplyError`."""

    commands: Sequence[Command]
    at_most_once: bool = False  # not again after a lost reply: to do it twice would do harm, or give another answer
    in_order: bool = False  # also in a cluster, whose nodes work at the same time: there one trip per command


@dataclass(frozen=True, slots=True)
class Scan:
    """One step through all keys of a pattern, on every node. Its result: the keys, and the next step, None at the end."""

    pattern: str
    node: int = 0
    cursor: int = 0


@dataclass(frozen=True, slots=True)
class Embed:
    """One call of the embedding model. Its result is a float array of shape (texts, dimensions)."""

    texts: Sequence[str]
    query: bool = False  # models may embed a question otherwise than a document
    fresh: bool = False  # ask the model, whatever is remembered


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before the next effect."""

    seconds: float
    jitter: bool = False  # wait for a random part of that time, so that rivals do not meet again


@dataclass(frozen=True, slots=True)
class Progress:
    """Tell whoever watches how far a long operation has come."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Pull:
    """Take the next item of what the caller has passed, an iterator or an async one. Its result is (item,), () at the end."""

    source: Iterator[Any] | AsyncIterator[Any]


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand items to the caller of `stream` while the plan goes on."""

    items: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """One call of a chat model. Its result is the answer, an AIMessage."""

    model: BaseChatModel
    messages: Sequence[BaseMessage]


@dataclass(frozen=True, slots=True)
class Later:
    """Run a plan in the background; nobody waits for it but `close`."""

    plan: Generator[Any, Any, None]


@dataclass(frozen=True, slots=True)
class Work:
    """Something long to do that needs no server. Its result is what the call returns; no event loop waits for it."""

    call: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Enter:
    """Begin a run that callbacks and LangSmith see. Its result is for `Leave`."""

    kind: Literal["chain", "retriever"]
    name: str
    input: Any


@dataclass(frozen=True, slots=True)
class Leave:
    """End a run, with what came out of it or with the error that ended it."""

    run: Any
    output: Any = None
    error: Exception | None = None


Effect: TypeAlias = "Send | Scan | Embed | Pause | Progress | Pull | Emit | Ask | Later | Work | Enter | Leave"
_NO_SEARCH = (
    "use Redis 8 (docker run -p 6379:6379 redis:8), Redis Stack or Redis Cloud; or "
    "pip install 'langchain-workingmem[embedded]' and Memory.embedded(); or, for history without recall and without "
    "listings, pass create_index=False"
)

T = TypeVar("T")
Plan: TypeAlias = Generator[Effect, Any, T]


PAUSES = (0.05, 0.25, 1.0)  # seconds before a `Send` is repeated: a restart takes no longer, a caller may wait as long
FEW = 2  # repeats for a caller who can do without
LONG = 100_000  # characters or bytes that are worked on for some milliseconds; a thread of its own costs 0.1
IMPATIENT = 0.3  # seconds that failing may take him: behind that nothing is repeated


def _persist(effect: Send | Scan) -> Plan[Any]:
    """Perform an effect, and again after a pause, as often as the error says that this makes sense and does no harm."""
    for failures, seconds in enumerate(PAUSES):
        try:
            return (yield effect)
        except RedisConnectionError as error:
            if failures >= error.repeats or isinstance(error, OutcomeUnknownError):
                raise
        yield Pause(seconds)
    return (yield effect)


def scan(step: Scan) -> Plan[tuple[list[bytes], Scan | None]]:
    """Take a step through the keys, again when the connection fails: return the keys, and the next step."""
    return (yield from _persist(step))  # type: ignore[no-any-return]


def _resend(replies: list[Any], code: str, effect: Send, change: Callable[[Command], Command]) -> Plan[None]:
    """Send what was refused with a code again, changed, and where the order counts what stands behind it.

    The replies take the places of the old ones.
    """
    lost = [place for place, reply in enumerate(replies) if isinstance(reply, RedisReplyError) and reply.code == code]
    if not lost:
        return
    commands = effect.commands
    places = range(lost[0], len(commands)) if effect.in_order else lost
    again = [change(commands[place]) if place in lost else commands[place] for place in places]
    for place, reply in zip(places, (yield from _persist(replace(effect, commands=again))), strict=True):
        replies[place] = reply


def with_few_repeats(plan: Plan[T], clock: Callable[[], float]) -> Plan[T]:
    """Run a plan for somebody who can do without it: little is repeated, and nothing after a timeout.

    What is left of the pauses mends a connection that the server closed while it was idle.
    """
    spent = 0.0
    step: Callable[[], Effect] = partial(next, plan)
    try:
        while True:
            try:
                effect = step()
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            began = clock()
            try:
                step = partial(plan.send, (yield effect))
            except RedisConnectionError as error:
                spent += clock() - began
                error.repeats = 0 if error.timed_out or spent > IMPATIENT else min(error.repeats, FEW)
                step = partial(plan.throw, error)
            except WorkingMemError as error:
                step = partial(plan.throw, error)
    finally:
        plan.close()


def attempt(*commands: Command, at_most_once: bool = False, in_order: bool = False) -> Plan[list[Any]]:
    """Send commands in one round trip and return every reply, refusals included.

    When the connection fails they are sent again, unless they are sent `at_most_once`. A server that was restarted has
    forgotten our scripts; those calls are repeated with their source, and where the order counts, what stands behind
    them. A server that runs somebody's script for too long refuses everything as BUSY, and has done nothing of it: that is
    sent again as well. A server without Search raises `RedisCapabilityError`.
    """
    effect = Send(commands, at_most_once, in_order)
    replies: list[Any] = list((yield from _persist(effect)))
    yield from _resend(replies, "NOSCRIPT", effect, as_eval)
    for seconds in PAUSES:
        if not any(isinstance(reply, RedisReplyError) and reply.code == "BUSY" for reply in replies):
            break
        yield Pause(seconds)
        yield from _resend(replies, "BUSY", effect, lambda command: command)
        yield from _resend(replies, "NOSCRIPT", effect, as_eval)
    for reply in replies:
        if isinstance(reply, RedisReplyError) and "unknown command 'ft." in str(reply).lower():
            raise RedisCapabilityError(f"this Redis has no Search ({reply})", remedy=_NO_SEARCH)
    return replies


def send(*commands: Command, at_most_once: bool = False, in_order: bool = False) -> Plan[list[Any]]:
    """Send commands in one round trip, as `attempt` does; raise the first refusal."""
    replies = yield from attempt(*commands, at_most_once=at_most_once, in_order=in_order)
    for reply in replies:
        if isinstance(reply, RedisReplyError):
            raise reply
    return replies


def compute(call: Callable[[], T], size: int) -> Plan[T]:
    """Work on so many characters or bytes: at once if they are few, else where an event loop does not wait for it."""
    if size > LONG:
        return (yield Work(call))  # type: ignore[no-any-return]
    return call()


def together(plans: Iterable[Plan[T]]) -> Plan[list[T]]:
    """Run plans side by side: what they send at once is one round trip, what they embed at once one call.

    Embedding goes first, so a plan that embeds before it writes has written nothing when the model fails for another
    one. The first error ends them all.
    """
    running = list(plans)
    results: list[Any] = [None] * len(running)
    waiting: dict[int, Effect] = {}

    def go_on(place: int, step: Callable[[], Effect]) -> None:
        try:
            waiting[place] = step()
        except StopIteration as done:
            waiting.pop(place, None)
            results[place] = done.value

    try:
        for place, plan in enumerate(running):
            go_on(place, partial(next, plan))
        while waiting:
            merged, parts = _merged(waiting)
            reply = (yield from _persist(merged)) if isinstance(merged, Send) else (yield merged)
            for place, part in parts.items():
                go_on(place, partial(running[place].send, reply if part is None else reply[part]))
    finally:
        for plan in running:
            plan.close()
    return results


def _merged(waiting: Mapping[int, Effect]) -> tuple[Effect, dict[int, slice | None]]:
    """Join the effects of one kind, and say which part of the reply goes to which plan; None: all of it."""
    for query in (False, True):
        texts = {
            place: effect.texts
            for place, effect in waiting.items()
            if isinstance(effect, Embed) and effect.query is query
        }
        if texts:
            return Embed(list(chain(*texts.values())), query), _parts(texts)
    sends = {place: effect for place, effect in waiting.items() if isinstance(effect, Send)}
    if sends:
        commands = {place: effect.commands for place, effect in sends.items()}
        at_most_once = any(effect.at_most_once for effect in sends.values())
        in_order = any(effect.in_order for effect in sends.values())
        return Send(list(chain(*commands.values())), at_most_once, in_order), _parts(commands)
    place, effect = next(iter(waiting.items()))
    return effect, {place: None}


def _parts(shares: Mapping[int, Sequence[Any]]) -> dict[int, slice | None]:
    ends = list(accumulate(map(len, shares.values()), initial=0))
    return {place: slice(*span) for place, span in zip(shares, pairwise(ends), strict=True)}


def traced(
    kind: Literal["chain", "retriever"], name: str, input: Any, plan: Plan[T], output: Callable[[T], Any]
) -> Plan[T]:
    """Let callbacks and LangSmith see a plan as a run; it costs nothing where nobody looks."""
    run = yield Enter(kind, name, input)
    try:
        result = yield from plan
    except Exception as error:
        yield Leave(run, error=error)
        raise
    if run is not None:
        yield Leave(run, output(result))
    return result


SCRIPT_SOURCES: dict[Argument, str] = {}


def as_eval(command: Command) -> Command:
    """Turn a call by digest into a call by source, for a server that does not know the script."""
    return ("EVAL", SCRIPT_SOURCES[command[1]], *command[2:])
