"""What is checked before the first command of a `Memory` or store: Search when memory is full, and the storage layout.

The version of the layout is stored in a new database, beside the secret by which memories sign marks in messages.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from langchain_workingmem._engine.plan import ANSWER_WHEN_FULL, Plan, Send, attempt, with_each
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._text.sending import note_secret
from langchain_workingmem.errors import OptionError, RedisCapabilityError, RedisReplyError

if TYPE_CHECKING:
    from langchain_workingmem._engine.plan import Command, Effect
    from langchain_workingmem._redis.keys import Keys

LAYOUT = "13"
WHEN_FULL: Command = ("CONFIG", "GET", "search-on-oom", "maxmemory")
T = TypeVar("T")


class HasLayout(Protocol):
    """The state of a memory or of a store."""

    keys: Keys
    layout_known: bool
    secret: bytes | None


def with_layout(state: HasLayout, plan: Plan[T]) -> Plan[T]:
    """Return the plan with a check of the server before its first command, until a check has succeeded.

    An error of the check is thrown into the plan, like an error of that command.
    """

    def checked(effect: Effect[Any]) -> Plan[Any]:
        if isinstance(effect, Send) and not state.layout_known:
            yield from check_layout(state)
        return (yield effect)

    return with_each(plan, checked)


def check_layout(state: HasLayout) -> Plan[None]:
    """Check the server and the version in the database; write it into a new database. One round trip, without a version two.

    Raises `OptionError` for another version, and `RedisCapabilityError` for a server whose searches may find nothing when memory is
    full without saying so.
    """
    read = ("HMGET", state.keys.layout, "version", "secret")
    asked: tuple[Command, ...] = (read, WHEN_FULL)
    # A failed connection is not tried again here: the plan repeats its command, and this check with it. In a cluster each
    # command is sent alone: its pipelines take commands with a key only.
    stored, settings = yield from Send(asked, in_order=True)
    if isinstance(stored, RedisReplyError):  # BUSY, for example
        stored, settings = yield from attempt(*asked, in_order=True)
        if isinstance(stored, RedisReplyError):
            raise stored
    if hides_when_full(settings):
        raise RedisCapabilityError(
            "search-on-oom is 'return' and maxmemory is set: when memory is full, searches would find nothing",
            remedy=ANSWER_WHEN_FULL,
        )
    if None in stored:
        # HSETNX: another process may have written them meanwhile
        new = (
            ("HSETNX", state.keys.layout, *pair) for pair in (("version", LAYOUT), ("secret", secrets.token_hex(32)))
        )
        *_, stored = yield from attempt(*new, read, in_order=True)
        if stored[0] is None:  # the server takes no writes, or not from this user: reading does no harm
            return
    compare_layout(state.keys, stored[0])
    state.layout_known, state.secret = True, stored[1]
    if state.secret:
        note_secret(state.secret)


def hides_when_full(settings: Any) -> bool:
    """Tell from the reply to `WHEN_FULL` whether Search (8.4 and later) answers with nothing when memory is full.

    Over RESP3, which replies with a dict, each answer says so itself. Who may not read the settings is believed to have set them.
    """
    known = as_dict(settings) if isinstance(settings, list) else {}
    return known.get(b"search-on-oom") == b"return" and known.get(b"maxmemory", b"0") != b"0"


def compare_layout(keys: Keys, stored: bytes) -> None:
    """Raise `OptionError` for another version than ours."""
    version = stored.decode(errors="replace")
    if version != LAYOUT:
        raise OptionError(
            f"the keys under {keys.prefix!r} have storage layout {version}, this version of langchain-workingmem uses "
            f"{LAYOUT}; nothing was changed",
            remedy="export with the version that wrote them (`workingmem export`), then import under another "
            "key_prefix or into another database",
        )
