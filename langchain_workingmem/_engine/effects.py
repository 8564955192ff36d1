"""The effects that plans yield, and `send`, with which plans call Redis.

A plan is a generator: it yields effects, receives their results, and returns a record. `runners` performs the effects for
sync and for async callers, so each operation is written once. One `Send` is one round trip. Errors of Redis and of the
models are thrown into the plan at its `yield`.

Each effect names the type of its result: `found = yield from Embed(texts)` is an array. A plain `yield` is for effects
without a result, and for what passes on the effects of another plan.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from langchain_workingmem.errors import (
    OutcomeUnknownError,
    RedisCapabilityError,
    RedisConnectionError,
    RedisReplyError,
    WorkingMemError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    import numpy as np
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage

Argument: TypeAlias = "bytes | str | int | float"
Command: TypeAlias = "tuple[Argument, ...]"
Vectors: TypeAlias = "np.ndarray[Any, Any]"
Answer: TypeAlias = "AIMessage"
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Effect(Generic[T_co]):
    """What a plan asks a runner to do. `yield from effect` gives its result."""

    __slots__ = ()

    def __iter__(self) -> Plan[T_co]:
        return (yield self)  # type: ignore[return-value]  # the runner gives what the effect says


Plan: TypeAlias = Generator[Effect[object], object, T]


@dataclass(frozen=True, slots=True)
class Send(Effect["list[Any]"]):
    """One pipeline to Redis. The result is one reply per command; a refused command gives a `RedisReplyError`."""

    commands: Sequence[Command]
    at_most_once: bool = False  # do not repeat after a lost reply: a second run does harm or gives another answer
    in_order: bool = False  # keep the order in a cluster too, with one trip per command: its nodes work in parallel
    master: str = ""  # that the commands are for, as `Masters` names it


@dataclass(frozen=True, slots=True)
class Masters(Effect["tuple[str, ...]"]):
    """The masters of a cluster, each as host:port; one "" without a cluster."""


@dataclass(frozen=True, slots=True)
class Embed(Effect[Vectors]):
    """One call of the embedding model. The result is a float array of shape (texts, dimensions)."""

    texts: Sequence[str]
    query: bool = False  # the texts are questions, which some models embed differently
    fresh: bool = False  # do not read the cache


@dataclass(frozen=True, slots=True)
class Pause(Effect[None]):
    """Wait before the next effect."""

    seconds: float
    jitter: bool = False  # wait for a random part of the time, so that competing writers do not meet again


@dataclass(frozen=True, slots=True)
class Emit(Effect[None]):
    """Give items to the caller while the plan continues: `stream` yields them, `run` calls its watcher with each."""

    items: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Pull(Effect[tuple[T, ...]]):
    """Take the next item of an iterator of the caller. The result is (item,), or () at the end."""

    source: Iterator[T] | AsyncIterator[T]


@dataclass(frozen=True, slots=True)
class Ask(Effect[Answer]):
    """One call of a chat model. The result is its answer."""

    model: BaseChatModel
    messages: Sequence[BaseMessage]
    seconds: float | None = None  # that the call may take
    run: Mapping[str, Any] = field(default_factory=dict)  # `run_name` and `metadata` for callbacks: who pays for what


@dataclass(frozen=True, slots=True)
class Rerank(Effect["list[Any]"]):
    """One call of the caller's reranker. The result is the list of documents that it returns."""

    reranker: BaseDocumentCompressor
    question: str
    documents: Sequence[Document]
    seconds: float  # that an async call may take


@dataclass(frozen=True, slots=True)
class Later(Effect[None]):
    """Run a plan in the background; only `settled` and `close` wait for it.

    `lost` is called if the plan ends unfinished, or never begins, because its event loop has ended.
    """

    plan: Plan[None]
    slow: bool = False  # it calls a chat model for long: others do not wait for it, nor does the process at its end
    lost: Callable[[], object] = lambda: None
    task: str = "upkeep"  # its name for telemetry


@dataclass(frozen=True, slots=True)
class Work(Effect[T]):
    """A long computation without I/O. The result is what the call returns; the async runner uses a thread."""

    call: Callable[[], T]


PAUSES = (0.05, 0.25, 1.0)  # seconds before each repeat: a Redis server restarts within their sum
FEW = 2  # repeats for a caller that can go on without memory
IMPATIENT = 0.3  # seconds of failures, after which nothing is repeated for such a caller
LONG = 100_000  # characters or bytes that take some milliseconds of work; a thread costs 0.1 ms
_NO_SEARCH = (
    "use Redis 8 (docker run -p 6379:6379 redis:8), Redis Stack or Redis Cloud; or "
    "pip install 'langchain-workingmem[embedded]' and Memory.embedded(); or, for history without recall and without "
    "listings, pass create_index=False"
)
SCRIPT_SOURCES: dict[Argument, str] = {}  # by digest
# By the code of a refusal which says that nothing was done: how the command is changed before it is sent again
RESEND: dict[str, Callable[[Command], Command]] = {}
# By the code of a refusal which says that something has to be done first: the plan that does it, sends the commands again of which
# the first was refused, and returns their replies
FIRST: dict[str, Callable[[RedisReplyError, Send], Plan[list[Any]]]] = {}
SEARCHES = frozenset({"FT.SEARCH", "FT.AGGREGATE"})
ANSWER_WHEN_FULL = "raise maxmemory, or CONFIG SET search-on-oom ignore: then a full server still answers searches"


def as_eval(command: Command) -> Command:
    """Replace the digest of a script call by its source, for a server that does not know the script."""
    return ("EVAL", SCRIPT_SOURCES[command[1]], *command[2:])


RESEND |= {"NOSCRIPT": as_eval, "BUSY": lambda command: command}


def advance(plan: Plan[Any], outcome: Any) -> Effect[object]:
    """Give a plan the outcome of its effect, a result or an error, and return its next effect."""
    return plan.throw(outcome) if isinstance(outcome, WorkingMemError) else plan.send(outcome)


def with_each(plan: Plan[T], perform: Callable[[Any], Plan[Any]]) -> Plan[T]:
    """Run a plan, each of its effects by `perform`, which passes it on."""
    outcome: Any = None
    try:
        while True:
            effect = advance(plan, outcome)
            try:
                outcome = yield from perform(effect)
            except WorkingMemError as error:
                outcome = error
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        plan.close()


def persist(effect: Effect[T]) -> Plan[T]:
    """Perform an effect, and repeat it after pauses while the error allows it and a repeat does no harm."""
    failures = 0
    while True:
        try:
            return (yield effect)  # type: ignore[return-value]  # one frame less than `yield from`, in each round trip
        except RedisConnectionError as error:
            if failures >= min(error.repeats, len(PAUSES)) or isinstance(error, OutcomeUnknownError):
                raise
        yield Pause(PAUSES[failures])
        failures += 1


@dataclass(frozen=True, slots=True)
class Scan:
    """The next step through all keys of a pattern: on the first of these masters, then on the others."""

    pattern: str
    masters: tuple[str, ...] = ()  # empty: all, which are not known yet
    cursor: int = 0


def scan(step: Scan) -> Plan[tuple[list[bytes], Scan | None]]:
    """Take one step through the keys, with repeats; return the keys and the next step, None at the end."""
    masters = step.masters or (yield from persist(Masters()))
    command = ("SCAN", step.cursor, "MATCH", step.pattern, "COUNT", 1000)
    ((cursor, keys),) = _accepted((yield from persist(Send((command,), master=masters[0]))))
    if not int(cursor):
        masters = masters[1:]
    return keys, Scan(step.pattern, masters, int(cursor)) if masters else None


def survey(command: Command) -> Plan[list[tuple[str, Any]]]:
    """Send a command to every master, one after another; return the name of each and its reply.

    The reply of a master that is down is a `RedisConnectionError`. If none answers, the first one's is raised.
    """
    rows: list[tuple[str, Any]] = []
    for master in (yield from Masters()):
        try:
            (reply,) = yield from Send((command,), master=master)
        except RedisConnectionError as error:
            rows.append((master, error))
        else:
            rows.append((master, reply))
    if all(isinstance(reply, RedisConnectionError) for _, reply in rows):
        raise rows[0][1]
    return rows


def _accepted(replies: list[Any]) -> list[Any]:
    """Return the replies; raise the first refusal."""
    for reply in replies:
        if isinstance(reply, RedisReplyError):
            raise reply
    return replies


def _resend(replies: list[Any], code: str, effect: Send, change: Callable[[Command], Command]) -> Plan[Send]:
    """Send the commands that were refused with this code again, changed, and replace their replies; return all commands.

    With `in_order`, all commands after the first refused one are sent again too.
    """
    refused = [at for at, reply in enumerate(replies) if isinstance(reply, RedisReplyError) and reply.code == code]
    commands = [change(one) if at in refused else one for at, one in enumerate(effect.commands)]
    positions = range(refused[0], len(commands)) if effect.in_order else refused
    again = replace(effect, commands=[commands[at] for at in positions])
    for at, reply in zip(positions, (yield from persist(again)), strict=True):
        replies[at] = reply
    return replace(effect, commands=commands)


def _after_that(replies: list[Any], at: int, effect: Send) -> Plan[None]:
    """Do what has to be done before a command, send it again, and replace its reply; with `in_order` read again what follows it."""
    commands = effect.commands
    positions = [
        at,
        *(later for later in range(at + 1, len(commands)) if effect.in_order and commands[later][0] == "GET"),
    ]
    again = replace(effect, commands=[commands[one] for one in positions])
    for one, reply in zip(positions, (yield from FIRST[replies[at].code](replies[at], again)), strict=True):
        replies[one] = reply


def with_few_repeats(plan: Plan[T], clock: Callable[[], float]) -> Plan[T]:
    """Run a plan for a caller that can go on without memory: few repeats, and none after a timeout.

    The few that are left replace a connection that the server closed while it was idle.
    """
    spent = 0.0
    outcome: Any = None
    try:
        while True:
            effect = advance(plan, outcome)
            began = clock()
            try:
                outcome = yield effect
            except WorkingMemError as error:
                outcome = error
                if isinstance(error, RedisConnectionError):
                    spent += clock() - began
                    error.repeats = 0 if error.timed_out or spent > IMPATIENT else min(error.repeats, FEW)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        plan.close()


def attempt(
    *commands: Command, at_most_once: bool = False, in_order: bool = False, accept_refusals: bool = True
) -> Plan[list[Any]]:
    """Send commands in one round trip and return every reply, refusals included.

    When the connection fails, they are sent again, except with `at_most_once`. Some refusals mean that nothing was done, so
    these commands are always sent again: NOSCRIPT (a restarted server has lost our scripts; they are sent as source), those
    of `RESEND`, and BUSY (the server runs a long script of another client). An answer of Search that is not whole becomes a refusal.
    `RedisCapabilityError` if the server has no Search.
    """
    effect = Send(commands, at_most_once, in_order)
    replies: list[Any] = list((yield from persist(effect)))
    waits = iter(PAUSES)
    while code := next((one.code for one in replies if isinstance(one, RedisReplyError) and one.code in RESEND), None):
        if code == "BUSY":
            if (seconds := next(waits, None)) is None:
                break
            yield Pause(seconds)
        effect = yield from _resend(replies, code, effect, RESEND[code])
    for at, reply in enumerate(replies):
        if isinstance(reply, dict):  # RESP3; not only Search replies with maps
            if commands[at][0] in SEARCHES and (warnings := reply.get(b"warning")):
                replies[at] = incomplete(commands[at][1], warnings) or reply
        elif isinstance(reply, RedisReplyError):
            if reply.code == "NOSEARCH":
                raise RedisCapabilityError(f"this Redis has no Search ({reply})", remedy=_NO_SEARCH)
            if reply.code in FIRST:
                yield from _after_that(replies, at, effect)
    return replies if accept_refusals else _accepted(replies)


def incomplete(index: Any, warnings: bytes | Sequence[bytes]) -> RedisReplyError | None:
    """Return the error for an answer that lacks something, by the warnings of Search; None if it is whole.

    Its code is OOM if memory is full, else INCOMPLETE.
    """
    # A cluster may send one warning without a list. Search 8.10 also warns of a limit that it did not reach.
    found = [warnings] if isinstance(warnings, bytes) else warnings
    decoded = dict.fromkeys(one.decode(errors="replace") for one in found)  # each shard may say the same
    texts = [text for text in decoded if "timeout was capped" not in text]
    if not texts:
        return None
    seen = "; ".join(texts)
    if any("memory" in text and "partial data" not in text for text in texts):
        return RedisReplyError(f"OOM {seen}", remedy=ANSWER_WHEN_FULL)
    remedy = "search again; if this stays, the log of Redis may say why"
    if "partial data" in seen:
        remedy = f"raise maxmemory, then FT.DROPINDEX {index} and setup(): documents stay, and are indexed again"
    elif "timeout" in seen.lower():
        # searches set no limit; Search 8.10 has one of its own
        remedy = (
            "search in one thread instead of all, or set search-workers above 0, which lifts the limit of the server"
        )
    return RedisReplyError(f"INCOMPLETE {seen}", remedy=remedy)


def send(*commands: Command, at_most_once: bool = False, in_order: bool = False) -> Plan[list[Any]]:
    """Send commands in one round trip, as `attempt` does; raise the first refusal."""
    return attempt(*commands, at_most_once=at_most_once, in_order=in_order, accept_refusals=False)


def compute(call: Callable[[], T], size: int) -> Plan[T]:
    """Do work on `size` characters or bytes: at once if they are few, else without blocking an event loop."""
    if size > LONG:
        return (yield from Work(call))
    return call()
