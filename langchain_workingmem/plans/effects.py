"""The effects of a storage plan, and `send`, the way that plans reach Redis.

A plan is a generator: it yields effects, is sent their results, and returns a model. `io.runners` performs the
effects, once for sync and once for async callers, so the operation itself is written a single time. One `Send`
is one round trip; an error of the connection or of the embedding model is thrown into the plan at its `yield`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from langchain_workingmem.errors import RedisCapabilityError, RedisReplyError
from langchain_workingmem.plans.scripts import as_eval

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage

Argument: TypeAlias = "bytes | str | int | float"
Command: TypeAlias = "tuple[Argument, ...]"


@dataclass(frozen=True, slots=True)
class Send:
    """One pipeline to Redis. Its result holds a reply per command; a refused command's is a `RedisReplyError`."""

    commands: Sequence[Command]
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


Effect: TypeAlias = "Send | Scan | Embed | Pause | Progress | Pull | Emit | Ask | Later | Enter | Leave"
_NO_SEARCH = (
    "this Redis has no Search ({}). Use Redis 8 (docker run -p 6379:6379 redis:8), Redis Stack or Redis Cloud; or "
    "pip install 'langchain-workingmem[embedded]' and Memory.embedded(); or, for history without recall and without "
    "listings, pass create_index=False"
)

T = TypeVar("T")
Plan: TypeAlias = Generator[Effect, Any, T]


def attempt(*commands: Command, in_order: bool = False) -> Plan[list[Any]]:
    """Send commands in one round trip and return every reply, refusals included.

    A server that was restarted has forgotten our scripts; those calls are repeated with their source, and where the
    order counts, what stands behind them. A server without Search raises `RedisCapabilityError`.
    """
    replies: list[Any] = list((yield Send(commands, in_order)))
    lost = [
        place for place, reply in enumerate(replies) if isinstance(reply, RedisReplyError) and reply.code == "NOSCRIPT"
    ]
    if lost:
        places = range(lost[0], len(commands)) if in_order else lost
        again = [as_eval(commands[place]) if place in lost else commands[place] for place in places]
        for place, reply in zip(places, (yield Send(again, in_order)), strict=True):
            replies[place] = reply
    for reply in replies:
        if isinstance(reply, RedisReplyError) and "unknown command 'ft." in str(reply).lower():
            raise RedisCapabilityError(_NO_SEARCH.format(reply))
    return replies


def send(*commands: Command, in_order: bool = False) -> Plan[list[Any]]:
    """Send commands in one round trip; raise the first refusal."""
    replies = yield from attempt(*commands, in_order=in_order)
    for reply in replies:
        if isinstance(reply, RedisReplyError):
            raise reply
    return replies


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
