"""The version of the storage layout: stored in a new database, and checked before the first command of a `Memory` or store."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from langchain_workingmem._engine.effects import Effect, Plan, Scan, Send, attempt, scan, send
from langchain_workingmem.errors import OptionError, RedisCapabilityError, RedisReplyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workingmem._redis.keys import Keys

LAYOUT = "2"  # databases of layout 1 hold no version
T = TypeVar("T")


class HasLayout(Protocol):
    """The state of a memory or of a store."""

    keys: Keys
    layout_known: bool


def with_layout(state: HasLayout, plan: Plan[T]) -> Plan[T]:
    """Return the plan with a check of the layout before its first command, until a check has succeeded.

    An error of the check is thrown into the plan, like an error of that command.
    """
    return plan if state.layout_known else _with_check(state, plan)


def _with_check(state: HasLayout, plan: Plan[T]) -> Plan[T]:
    step: Callable[[], Effect] = partial(next, plan)
    try:
        while True:
            try:
                effect = step()
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            try:
                if isinstance(effect, Send | Scan) and not state.layout_known:
                    yield from check_layout(state)
                step = partial(plan.send, (yield effect))
            except Exception as error:  # noqa: BLE001 - the plan decides
                step = partial(plan.throw, error)
    finally:
        plan.close()


def check_layout(state: HasLayout) -> Plan[None]:
    """Check the version in the database; write it into a new database.

    One round trip, in a new database four. Raises `OptionError` for another version, without any change.
    """
    read = ("HGET", state.keys.layout, "version")
    # A failed connection is not tried again here: the plan repeats its command, and this check with it.
    (stored,) = yield Send((read,))
    if isinstance(stored, RedisReplyError):  # BUSY, for example
        (stored,) = yield from send(read)
    if stored is None and (yield from _is_new(state.keys)):
        # HSETNX: another process may have written a version meanwhile
        written, stored = yield from attempt(("HSETNX", *read[1:], LAYOUT), read, in_order=True)
        if isinstance(written, RedisReplyError) and stored is None:
            return  # a user who may only read, and there is nothing to read
    elif stored is None:
        (stored,) = yield from send(read)
    compare_layout(state.keys, stored)
    state.layout_known = True


def compare_layout(keys: Keys, stored: bytes | None) -> None:
    """Raise `OptionError` for another version than ours; without a version it is 1."""
    version = "1" if stored is None else stored.decode()
    if version != LAYOUT:
        raise OptionError(
            f"the keys under {keys.prefix!r} have storage layout {version}, this version of langchain-workingmem uses "
            f"{LAYOUT}; nothing was changed",
            remedy="export with the version that wrote them (`workingmem export`), then import under another key_prefix or into "
            f"another database; if only the key {keys.layout!r} is lost, write it again: HSET {keys.layout} version {LAYOUT}",
        )


def _is_new(keys: Keys) -> Plan[bool]:
    """Tell whether there is no index of ours, and no thread in one step of SCAN. Two round trips."""
    try:
        replies = yield from attempt(("FT.INFO", keys.threads_index), ("FT.INFO", keys.items_index))
    except RedisCapabilityError:  # a server without Search has no indexes
        replies = []
    if any(not isinstance(reply, RedisReplyError) for reply in replies):
        return False
    try:
        found, _ = yield from scan(Scan(f"{keys.thread_prefix}*"))
    except RedisReplyError:  # a user without the right to SCAN
        return True
    return not found
