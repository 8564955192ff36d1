"""What background models take, counted for the user whom they work for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.calls import ask
from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import check_id, decode
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._text.messages import weight_of
from langchain_workingmem.errors import ModelError
from langchain_workingmem.usage import UserUsage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState

COUNT = Script("usage/count")


def ask_counted(
    state: MemoryState,
    thread_id: str,
    user_id: str | None,
    model: BaseChatModel,
    messages: Sequence[BaseMessage],
    seconds: float | None = None,
    run: Mapping[str, Any] | None = None,
) -> Plan[Any]:
    """Ask a model as `ask` does, and count for the owner of a thread what the call takes, also if it fails."""
    try:
        answer = yield from ask(model, messages, seconds, run)
    except ModelError:
        yield from _count(state, thread_id, user_id, {"calls": 1})
        raise
    raw: BaseMessage = answer["raw"] if isinstance(answer, dict) else answer
    usage: Any = getattr(raw, "usage_metadata", None) or {}  # by the provider, else it is estimated
    numbers = {
        "calls": 1,
        "input_tokens": usage.get("input_tokens") or weight_of(messages),
        "output_tokens": usage.get("output_tokens") or weight_of([raw]),
    }
    yield from _count(state, thread_id, user_id, numbers)
    return answer


def _count(state: MemoryState, thread_id: str, user_id: str | None, numbers: dict[str, int]) -> Plan[None]:
    """Add to the counters of the owner of a thread, unless another one than `user_id` has it by now. Two round trips.

    The counters are in another slot. So the thread is looked at again behind the counting: if it is gone by then, and its
    owner perhaps with it, or has another owner, the count is taken back.
    """
    read_owner: Command = ("HGET", state.keys.of(thread_id).thread, "user")
    (owner,) = yield from send(read_owner)
    if owner is None or (user_id is not None and decode(owner) != user_id):
        return
    _, owner_now = yield from send(count_command(state, decode(owner), numbers), read_owner, in_order=True)
    if owner_now != owner:
        yield from send(count_command(state, decode(owner), {name: -value for name, value in numbers.items()}))


def count_command(state: MemoryState, user_id: str, numbers: dict[str, int]) -> Command:
    """Return the command that adds to the counters of a user."""
    keys, pairs = state.keys.of_user(user_id), [part for pair in numbers.items() for part in pair]
    return COUNT.call((keys.tombstone, keys.usage), state.ttl_ms or "", *pairs)


def read_usage(state: MemoryState, user_id: str) -> Plan[UserUsage]:
    """Plan `Users.usage`."""
    key = state.keys.of_user(check_id(user_id, "user_id")).usage
    row = as_dict((yield from send(("HGETALL", key)))[0])
    return UserUsage(**{name.decode(): int(value) for name, value in row.items()})
