"""What models have taken for a user in the background: counted in the round trip that stores what they have made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._engine.plan import attempt, send
from langchain_workingmem._redis.access import run_script
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import check_id, decode, encode
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._text.said import weight_of
from langchain_workingmem.checks import LARGEST
from langchain_workingmem.errors import RedisConnectionError, WorkingMemError
from langchain_workingmem.usage import UserUsage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.plan import Argument, Command, Plan
    from langchain_workingmem._redis.state import MemoryState

COUNT = Script("count_usage", "header")


class Taken(NamedTuple):
    """What calls of a model have taken."""

    calls: int
    input_tokens: int
    output_tokens: int


def tokens_of_call(messages: Iterable[BaseMessage], answer: BaseMessage) -> tuple[int, int]:
    """Return the tokens that a call has read and written: as the provider says, else estimated."""
    said = getattr(answer, "usage_metadata", None) or {}
    return (
        _number(said.get("input_tokens")) or weight_of(messages),
        _number(said.get("output_tokens")) or weight_of([answer]),
    )


def _number(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value <= LARGEST else 0


def run_counted(
    state: MemoryState,
    thread_id: str,
    user_id: str | None,
    taken: Taken,
    *commands: Command,
) -> Plan[list[Any]]:
    """Send calls of scripts as `run_script` does, and count in the same round trip what their results have taken.

    The counters are in another slot, and the user may be gone since the model was asked. So the thread is
    looked at behind the counting; if it is gone, or has another owner, the count is taken back. One round trip more then,
    and where the caller does not know the owner of the thread.
    """

    def count(owner: str, sign: int = 1) -> Command:
        numbers = [part for name, value in taken._asdict().items() if value for part in (name, sign * value)]
        return count_command(state, owner, numbers)

    alive: Command = ("HGET", state.keys.of(thread_id).thread, "user")
    added = [] if user_id is None else [count(user_id)]
    try:
        *replies, found = yield from run_script(thread_id, user_id, *commands, *added, alive)
    except WorkingMemError as error:
        if user_id is not None and not isinstance(error, RedisConnectionError):
            yield from attempt(count(user_id, -1))
        raise
    if user_id is None:
        if found:
            yield from send(count(decode(found)))
    elif found != encode(user_id).encode():
        yield from send(count(user_id, -1))
    return replies[: len(commands)]


def count_command(state: MemoryState, user_id: str, numbers: list[Argument]) -> Command:
    """Return the command that adds pairs of a counter and a number."""
    return COUNT.call(state.keys.usage_of_user(user_id), state.ttl_ms or "", *numbers)


def read_usage(state: MemoryState, user_id: str) -> Plan[UserUsage]:
    """Plan `Users.usage`."""
    _, key = state.keys.usage_of_user(check_id(user_id, "user_id"))
    row = as_dict((yield from send(("HGETALL", key)))[0])
    return UserUsage(**{name: int(row.get(name.encode(), 0)) for name in Taken._fields})
