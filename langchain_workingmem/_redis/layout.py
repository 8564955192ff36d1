"""The version of the storage layout: stored in a new database, and checked before the first command of a `Memory` or store."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from langchain_workingmem._engine.effects import Plan, Scan, Send, advance, attempt, scan, send
from langchain_workingmem._redis.queries import columns
from langchain_workingmem.errors import OptionError, RedisCapabilityError, RedisReplyError, WorkingMemError

if TYPE_CHECKING:
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
    outcome: Any = None
    try:
        while True:
            effect = advance(plan, outcome)
            try:
                if isinstance(effect, Send | Scan) and not state.layout_known:
                    yield from check_layout(state)
                outcome = yield effect
            except WorkingMemError as error:
                outcome = error
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        plan.close()


def check_layout(state: HasLayout) -> Plan[None]:
    """Check the version in the database; write it into a new database, and where only its key was lost.

    One round trip, without the key four or five. Raises `OptionError` for another version, without any change.
    """
    read = ("HGET", state.keys.layout, "version")
    # A failed connection is not tried again here: the plan repeats its command, and this check with it.
    (stored,) = yield Send((read,))
    if isinstance(stored, RedisReplyError):  # BUSY, for example
        (stored,) = yield from send(read)
    if stored is None:
        stored = yield from _layout_of_a_thread(state.keys)
        if stored in {None, LAYOUT.encode()}:
            # HSETNX: another process may have written a version meanwhile
            _, stored = yield from attempt(("HSETNX", *read[1:], LAYOUT), read, in_order=True)
            if stored is None:  # the server takes no writes, or not from this user: reading does no harm
                return
    compare_layout(state.keys, stored)
    state.layout_known = True


def compare_layout(keys: Keys, stored: bytes | None) -> None:
    """Raise `OptionError` for another version than ours; without a version it is 1."""
    version = "1" if stored is None else stored.decode(errors="replace")
    if version != LAYOUT:
        raise OptionError(
            f"the keys under {keys.prefix!r} have storage layout {version}, this version of langchain-workingmem uses "
            f"{LAYOUT}; nothing was changed",
            remedy="export with the version that wrote them (`workingmem export`), then import under another "
            "key_prefix or into another database",
        )


def _layout_of_a_thread(keys: Keys) -> Plan[bytes | None]:
    """Return the version that a stored thread names, "1" if it names none; None if no thread is found.

    The index finds a thread, or else one step of SCAN. Two or three round trips.
    """
    found: list[bytes] = []
    with suppress(RedisCapabilityError):  # a server without Search
        (reply,) = yield from attempt(("FT.SEARCH", keys.threads_index, "*", "NOCONTENT", "LIMIT", 0, 1))
        found = [] if isinstance(reply, RedisReplyError) else columns(reply, content=False)[0]
    with suppress(RedisReplyError):  # a user without the right to SCAN
        found = found or (yield from scan(Scan(f"{keys.thread_prefix}*")))[0]
    if not found:
        return None
    ((owner, layout),) = yield from send(("HMGET", found[0], "resource", "layout"))
    return None if owner is None else layout or b"1"  # None: it has expired meanwhile
