"""The version of the storage layout: written into a new database, and compared before the first command of a process."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from langchain_workingmem._engine.effects import Effect, Plan, Scan, Send, attempt, scan, send
from langchain_workingmem.errors import OptionError, RedisCapabilityError, RedisReplyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workingmem._redis.keys import Keys

LAYOUT = "2"  # 1 was never published, and did not write its version
T = TypeVar("T")


class HasLayout(Protocol):
    """The state of a memory or of a store."""

    keys: Keys
    layout_known: bool


def with_layout(state: HasLayout, plan: Plan[T]) -> Plan[T]:
    """Return the plan, with a check of the layout in front of its first command as long as none has succeeded.

    An error of the check is thrown into the plan, where one of that command would be: what handles the one handles the other.
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
    """Compare the version in the database with ours; a new database is given ours.

    One round trip, in a new database four. Raises `OptionError` for another version, and changes nothing then.
    """
    read = ("HGET", state.keys.layout, "version")
    (stored,) = yield from send(read)
    if stored is None and (yield from _is_new(state.keys)):
        # Another process may have begun meanwhile: its version counts.
        _, stored = yield from send(("HSETNX", *read[1:], LAYOUT), read, in_order=True)
    elif stored is None:
        (stored,) = yield from send(read)
    compare_layout(state.keys, stored)
    state.layout_known = True


def compare_layout(keys: Keys, stored: bytes | None) -> None:
    """Raise `OptionError` for another version than ours; data without a version has the first."""
    version = "1" if stored is None else stored.decode()
    if version != LAYOUT:
        raise OptionError(
            f"the keys under {keys.prefix!r} have storage layout {version}, this version of langchain-workingmem uses {LAYOUT}; nothing was changed",
            remedy="export with the version that wrote them (`workingmem export`), then import under another key_prefix or into another database",
        )


def _is_new(keys: Keys) -> Plan[bool]:
    """Tell whether nothing of ours is stored: no index, and no thread among the keys of one SCAN step. Two round trips."""
    indexes = (keys.threads_index, keys.items_index)
    try:
        replies = yield from attempt(*(("FT.INFO", index) for index in indexes))
    except RedisCapabilityError:  # a server without Search has no indexes
        replies = []
    if any(not isinstance(reply, RedisReplyError) for reply in replies):
        return False
    try:
        found, _ = yield from scan(Scan(f"{keys.thread_prefix}*"))
    except RedisReplyError:  # a user without the right to SCAN
        return True
    return not found
