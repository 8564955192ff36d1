"""What models have taken for a user in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from langchain_workingmem._engine.plan import send
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import check_id, decode
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._text.said import weight_of
from langchain_workingmem.checks import LARGEST
from langchain_workingmem.usage import UserUsage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.plan import Argument, Command, Plan
    from langchain_workingmem._redis.state import MemoryState

COUNT = Script("count")


class Taken(NamedTuple):
    """What calls of a model have taken."""

    calls: int
    input_tokens: int
    output_tokens: int


def tokens_of_call(messages: Iterable[BaseMessage], answer: BaseMessage) -> tuple[int, int]:
    """Return the tokens that a call has read and written: as the provider says, else estimated."""

    def number(name: str) -> int:
        value = (getattr(answer, "usage_metadata", None) or {}).get(name)
        return value if isinstance(value, int) and 0 <= value <= LARGEST else 0

    return number("input_tokens") or weight_of(messages), number("output_tokens") or weight_of([answer])


def count_taken(state: MemoryState, thread_id: str, user_id: str | None, taken: Taken) -> Plan[None]:
    """Count for the owner of a thread, unless another one than `user_id` has it by now, what a model has taken. Two round trips.

    The counters are in another slot. So the thread is looked at again behind the counting: if it is gone by then, and its owner
    perhaps with it, or has another owner, the count is taken back.
    """
    owned: Command = ("HGET", state.keys.of(thread_id).thread, "user")
    (owner,) = yield from send(owned)
    if owner is None or (user_id is not None and decode(owner) != user_id):
        return
    numbers = {name: value for name, value in taken._asdict().items() if value}
    _, now = yield from send(count_command(state, decode(owner), numbers), owned, at_most_once=True, in_order=True)
    if now != owner:
        back = {name: -value for name, value in numbers.items()}
        yield from send(count_command(state, decode(owner), back), at_most_once=True)


def count_command(state: MemoryState, user_id: str, numbers: dict[str, int]) -> Command:
    """Return the command that adds to counters."""
    pairs: list[Argument] = [part for pair in numbers.items() for part in pair]
    return COUNT.call(state.keys.usage_of_user(user_id), state.ttl_ms or "", *pairs)


def read_usage(state: MemoryState, user_id: str) -> Plan[UserUsage]:
    """Plan `Users.usage`."""
    _, key = state.keys.usage_of_user(check_id(user_id, "user_id"))
    row = as_dict((yield from send(("HGETALL", key)))[0])
    return UserUsage(**{name: int(row.get(name.encode(), 0)) for name in Taken._fields})
