"""Plans, and the effects that they yield.

An operation is a plan, written once: a generator that yields what it needs from outside, and returns a record. Only
`Runner` and `AsyncRunner` in `run.py` touch a socket or a model. They throw errors into it at its `yield`.

    def recent(thread: str) -> Plan[list[bytes]]:
        (ids,) = yield from send(("ZRANGE", thread, -10, -1))
        return ids

Each effect names the type of its result: `vectors = yield from embedder.embed(texts)` is an array.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from langchain_workingmem import errors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

Argument: TypeAlias = "bytes | str | int | float"
Command: TypeAlias = "tuple[Argument, ...]"
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Effect(Generic[T_co]):
    """What a plan asks a runner to do. `yield from effect` gives its result."""

    __slots__ = ()

    def __iter__(self) -> Plan[T_co]:
        return (yield self)  # type: ignore[return-value]  # the runner gives what the effect says


Plan: TypeAlias = Generator[Effect[object], object, T]


@dataclass(slots=True)
class Send(Effect["list[Any]"]):
    """One round trip to Redis. The result is one reply per command; a refused command gives a `RedisReplyError`.

    `node="*"`: each master of a cluster gets the commands; the result is a dict from host:port ("" without a cluster)
    to its replies or its `RedisConnectionError`; if none answers, the first error is raised.
    """

    commands: Sequence[Command]
    at_most_once: bool = False  # do not repeat after a lost reply: a second run does harm or gives another answer
    in_order: bool = False  # keep the order in a cluster too, with one trip per command: its nodes work in parallel
    node: str = ""  # "*", or the name of a master, as the result of "*" has it; "": wherever the keys are


@dataclass(slots=True)
class Call(Effect[T]):
    """One call of a model, a reranker, a long computation. Async callers await `acall`, else run `call` in a thread."""

    call: Callable[[], T]
    acall: Callable[[], Awaitable[T]] | None = None
    about: object = None  # the `AskedModel` of a chat model, for telemetry


@dataclass(slots=True)
class Sleep(Effect[None]):
    """Wait before the next effect."""

    seconds: float


def jittered(seconds: float) -> Sleep:
    """Wait for a random part of a time, so that competing writers do not meet again."""
    return Sleep(random.uniform(0, seconds))  # noqa: S311 - no secret


@dataclass(slots=True)
class Spawn(Effect[None]):
    """Run a plan in the background; only `settled` and `close` wait for it. `lost` is called if its loop ends first."""

    plan: Plan[Any]
    task: str  # its name for telemetry
    slow: bool = False  # it calls a chat model for long: others do not wait for it, nor does the process at its end
    lost: Callable[[], object] = lambda: None


PAUSES = (0.05, 0.25, 1.0)  # seconds before each repeat: a Redis server restarts within their sum
SCRIPT_SOURCES: dict[Argument, str] = {}  # by digest
ANSWER_WHEN_FULL = "raise maxmemory, or CONFIG SET search-on-oom ignore: then a full server still answers searches"
_NO_SEARCH = (
    "use Redis 8 (docker run -p 6379:6379 redis:8), Redis Stack or Redis Cloud; or "
    "pip install 'langchain-workingmem[embedded]' and Memory.embedded(); or, for history without recall and without "
    "listings, pass create_index=False"
)


def send(
    *commands: Command, at_most_once: bool = False, in_order: bool = False, node: str = "", refusals: bool = False
) -> Plan[list[Any]]:
    """Send commands in one round trip, and return their replies; raise the first refusal, unless `refusals` are wanted.

    After a failed connection they are sent again, with pauses, where it does no harm; scripts that a restarted server
    has lost, as source. An incomplete answer of Search becomes a refusal. `RedisCapabilityError` without Search.
    """
    effect, failures = Send(commands, at_most_once, in_order, node), 0
    while True:
        try:
            replies = cast("list[Any]", (yield effect))
            break
        except errors.RedisConnectionError as error:
            if failures >= min(error.repeats, len(PAUSES)) or isinstance(error, errors.OutcomeUnknownError):
                raise
        yield Sleep(PAUSES[failures])
        failures += 1
    for reply in replies:
        if reply.__class__ is errors.RedisReplyError or (reply.__class__ is dict and b"warning" in reply):
            return (yield from _mended(effect, replies, refusals))
    return replies


def attempt(*commands: Command, in_order: bool = False) -> Plan[list[Any]]:
    """Send commands as `send` does, and return every reply, refusals included."""
    return send(*commands, in_order=in_order, refusals=True)


def everywhere(*commands: Command) -> Plan[Mapping[str, list[Any] | errors.RedisConnectionError]]:
    """Send commands to every master, as `Send` says, and again if none answers."""
    return cast("Plan[Any]", send(*commands, node="*"))


def scan(pattern: str, cursors: Mapping[str, int] | None = None) -> Plan[tuple[list[bytes], dict[str, int]]]:
    """Return about 1,000 keys of a pattern from each master, and the next `cursors`. One round trip to each."""
    by_node: dict[str, Any] = {}
    if cursors is None:
        by_node.update((yield from everywhere(("SCAN", 0, "MATCH", pattern, "COUNT", 1000))))
    for node, cursor in (cursors or {}).items():
        by_node[node] = yield from send(("SCAN", cursor, "MATCH", pattern, "COUNT", 1000), node=node)
    keys: list[bytes] = []
    next_cursors: dict[str, int] = {}
    for node, replies in by_node.items():
        reply = replies[0] if isinstance(replies, list) else replies
        if isinstance(reply, Exception):
            raise reply
        keys += reply[1]
        if int(reply[0]):
            next_cursors[node] = int(reply[0])
    return keys, next_cursors


def _mended(effect: Send, replies: list[Any], refusals: bool) -> Plan[list[Any]]:  # noqa: FBT001 - as `send` has it
    """Return the replies of a `Send`, whose forgotten scripts are sent as source; what lacks data becomes a refusal."""
    commands = list(effect.commands)
    undone = [index for index, reply in enumerate(replies) if getattr(reply, "code", None) == "NOSCRIPT"]
    if undone:
        for index in undone:
            commands[index] = ("EVAL", SCRIPT_SOURCES[commands[index][1]], *commands[index][2:])
        indexes = range(undone[0], len(commands)) if effect.in_order else undone
        repeated = [commands[index] for index in indexes]
        results = yield from send(
            *repeated, at_most_once=effect.at_most_once, in_order=effect.in_order, node=effect.node, refusals=True
        )
        for index, reply in zip(indexes, results, strict=True):
            replies[index] = reply
    for index, reply in enumerate(replies):
        if isinstance(reply, dict) and commands[index][0] in {"FT.SEARCH", "FT.AGGREGATE"}:
            replies[index] = _incomplete(commands[index][1], reply.get(b"warning") or ()) or reply
        elif isinstance(reply, errors.RedisReplyError) and reply.code == "NOSEARCH":
            raise errors.RedisCapabilityError(f"this Redis has no Search ({reply})", remedy=_NO_SEARCH)
        if isinstance(replies[index], errors.RedisReplyError) and not refusals:
            raise replies[index]
    return replies


def _incomplete(name: object, warnings: bytes | Sequence[bytes]) -> errors.RedisReplyError | None:
    """Return the error for an answer that lacks something, by the warnings of Search; None if it is whole."""
    # A cluster may send one warning without a list, or many equal ones. Search 8.10 also warns of limits not reached.
    lines = [warnings] if isinstance(warnings, bytes) else warnings
    texts = dict.fromkeys(text for line in lines if "timeout was capped" not in (text := line.decode(errors="replace")))
    if not texts:
        return None
    problem = "; ".join(texts)
    if any("memory" in text and "partial data" not in text for text in texts):
        return errors.RedisReplyError(f"OOM {problem}", remedy=ANSWER_WHEN_FULL)
    remedy = "search again; if this stays, the log of Redis may say why"
    if "partial data" in problem:
        remedy = f"raise maxmemory, then FT.DROPINDEX {name} and setup(): documents stay, and are indexed again"
    elif "timeout" in problem.lower():  # of the server: searches set none
        remedy = "search in one thread instead of all, or set search-workers above 0, which lifts it"
    return errors.RedisReplyError(f"INCOMPLETE {problem}", remedy=remedy)


LONG = 100_000  # characters or bytes that take some milliseconds of work; a thread costs 0.1 ms


def compute(call: Callable[[], T], size: int) -> Plan[T]:
    """Do work on `size` characters or bytes: at once if they are few, else without blocking an event loop."""
    if size > LONG:
        return (yield from Call(call))
    return call()


def with_each(plan: Plan[T], perform: Callable[[Any], Plan[Any]]) -> Plan[T]:
    """Run a plan, each of its effects by `perform`, which passes it on."""
    try:
        effect = next(plan)
        while True:
            try:
                result = yield from perform(effect)
            except Exception as error:  # noqa: BLE001 - raised in the plan
                effect = plan.throw(error)
            else:
                effect = plan.send(result)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        plan.close()
