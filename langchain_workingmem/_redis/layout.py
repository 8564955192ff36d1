"""What is checked before the first command of a `Memory` or store: scripts, the storage layout, and Search when memory is full.

Slices of long work measure their time with `os.clock`, which Redis has since 7.4. It is asked for itself, because Valkey calls
itself Redis 7.2.4. The version of the layout is stored in a new database. Since Search 8.4, the setting `search-on-oom` is
`return` by default: on a full server a search finds nothing, or in a cluster a part, and only RESP3 says so. So over RESP2 such
an answer is asked for once more.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from langchain_workingmem._engine.effects import (
    ANSWER_WHEN_FULL,
    SEARCHES,
    Plan,
    Scan,
    Send,
    attempt,
    incomplete,
    scan,
    send,
    with_each,
)
from langchain_workingmem._redis.codec import as_dict, search_version
from langchain_workingmem._redis.queries import columns
from langchain_workingmem.errors import OptionError, RedisCapabilityError, RedisReplyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langchain_workingmem._engine.effects import Command, Effect
    from langchain_workingmem._redis.keys import Keys

_log = logging.getLogger("langchain_workingmem")
LAYOUT = "10"  # databases of layout 1 hold no version
HAS_CLOCK: Command = ("EVAL", "return os.clock and 1 or 0", 0)
NO_CLOCK, NEWER_REDIS = (
    "the scripts of this server have no os.clock, so no message could be saved",
    "use Redis 7.4 or newer",
)
SEARCH_ON_OOM: Command = ("CONFIG", "GET", "search-on-oom")
# What Search may answer when memory is full and the client cannot see it: what it always does, nothing, or a part.
WhenFull: TypeAlias = Literal["all", "nothing", "part"]
_CERTAIN = frozenset({"all", None})
_HIDING = 80_400  # the first version of Search that may hide what it finds
T = TypeVar("T")


class HasLayout(Protocol):
    """The state of a memory or of a store."""

    keys: Keys
    layout_known: bool
    when_full: WhenFull | None  # what Search may answer when memory is full; None: not asked yet


def with_layout(state: HasLayout, plan: Plan[T]) -> Plan[T]:
    """Return the plan with a check of the layout before its first command, until a check has succeeded.

    An error of the check is thrown into the plan, like an error of that command. Where a full server may hide what it finds,
    the answers of Search are checked as well. Background plans come without these checks; they do not search.
    """
    return plan if state.layout_known and state.when_full in _CERTAIN else _with_check(state, plan)


def _with_check(state: HasLayout, plan: Plan[T]) -> Plan[T]:
    def checked(effect: Effect[Any]) -> Plan[Any]:
        if isinstance(effect, Send) and not state.layout_known:
            yield from check_layout(state)
        outcome: Any = yield effect
        if isinstance(effect, Send):
            yield from search_again(state, effect.commands, outcome)
        return outcome

    return with_each(plan, checked)


def check_layout(state: HasLayout) -> Plan[None]:
    """Check the version in the database; write it into a new database, and where only its key was lost.

    One round trip, without the key four or five; it also asks about scripts, and what Search does when memory is full. Raises
    `OptionError` for another version and `RedisCapabilityError` for a server without `os.clock`, without any change.
    """
    read = ("HGET", state.keys.layout, "version")
    asked: tuple[Command, ...] = (read, HAS_CLOCK, SEARCH_ON_OOM, ("HELLO",)) if state.when_full is None else (read,)
    # A failed connection is not tried again here: the plan repeats its command, and this check with it. In a cluster each
    # command is sent alone: its pipelines take commands with a key only.
    stored, *settings = yield from Send(asked, in_order=True)
    if isinstance(stored, RedisReplyError):  # BUSY, for example
        stored, *settings = yield from attempt(*asked, in_order=True)
        if isinstance(stored, RedisReplyError):
            raise stored
    if settings:
        has_clock, setting, about = settings
        if has_clock == 0:
            raise RedisCapabilityError(NO_CLOCK, remedy=NEWER_REDIS)
        policy, is_first = oom_policy(setting, about), state.when_full is None
        state.when_full = when_full(policy, about)
        if is_first and policy in {"return", None}:  # several callers may ask at once
            _warn(policy, setting)
    if stored is None:
        stored = yield from _layout_of_a_thread(state.keys)
        if stored in {None, LAYOUT.encode()}:
            # HSETNX: another process may have written a version meanwhile
            _, stored = yield from attempt(("HSETNX", *read[1:], LAYOUT), read, in_order=True)
            if stored is None:  # the server takes no writes, or not from this user: reading does no harm
                return
    compare_layout(state.keys, stored)
    state.layout_known = True


# ---------------------------------------------------------------------- a full server


def oom_policy(setting: Any, about: Any) -> str | None:
    """Read search-on-oom from the replies to `SEARCH_ON_OOM` and HELLO.

    "return", "fail" or "ignore"; "" where there is no such setting, because Search always answers; None if nobody says.
    """
    version = search_version(about)
    if version is not None and version < _HIDING:
        return ""
    if isinstance(setting, RedisReplyError):
        return None
    # a hosted server may know the setting and not show it
    return as_dict(setting).get(b"search-on-oom", b"").decode() or ("" if version is None else None)


def when_full(policy: str | None, about: Any) -> WhenFull:
    """Return what a server of this policy may answer when memory is full; in a cluster each node may be full."""
    if policy not in {"return", None}:
        return "all"
    in_parts = not isinstance(about, RedisReplyError) and as_dict(about).get(b"mode") == b"cluster"
    return "part" if in_parts else "nothing"


def _warn(policy: str | None, setting: Any) -> None:
    if policy == "return":
        _log.warning("search-on-oom is 'return': when memory is full, searches fail; %s", ANSWER_WHEN_FULL)
        return
    _log.warning(
        "search-on-oom cannot be read (%s): if it is 'return', a full server answers searches with nothing, so each empty "
        "answer over RESP2 (in a cluster each answer) is asked for once more; grant +config|get, and CONFIG SET "
        "search-on-oom ignore",
        setting if isinstance(setting, RedisReplyError) else "the server does not show it",
    )


def search_again(state: HasLayout, commands: Sequence[Command], replies: list[Any]) -> Plan[None]:
    """Send searches whose answers may lack something again as FT.PROFILE, which says also over RESP2 whether they ran.

    One round trip if there are any: those that found nothing, in a cluster all. Their replies are replaced, by what they
    find now or by an error. RESP3 needs none: `attempt` reads the warnings there.
    """
    if state.when_full in _CERTAIN:
        return
    doubtful = [
        at
        for at, command in enumerate(commands)
        if command[0] in SEARCHES
        and isinstance(replies[at], list)
        and (replies[at] == [0] or state.when_full == "part")
    ]
    if not doubtful:
        return
    again = [_profile(*commands[at]) for at in doubtful]
    for at, reply in zip(doubtful, (yield from Send(again)), strict=True):
        if not isinstance(reply, RedisReplyError):
            found, profile = reply
            replies[at] = _failure(commands[at], list(_warnings(profile))) or found
        elif reply.code in {"NOPERM", "NOSEARCH"}:
            if state.when_full != "all":
                state.when_full = "all"  # there is no way to know
                _log.warning(
                    "an answer of Search cannot be told from that of a full server (%s): grant +ft.profile, or CONFIG SET "
                    "search-on-oom ignore",
                    reply,
                )
        else:
            replies[at] = reply


def _profile(search: Any, index: Any, *query: Any) -> Command:
    return ("FT.PROFILE", index, search.removeprefix("FT."), "LIMITED", "QUERY", *query)


def _failure(command: Command, warnings: list[Any]) -> RedisReplyError | None:
    if not warnings:  # a full coordinator of a cluster asks no shard, and has no report of its own
        warnings = [b"no shard was asked: the coordinator has no memory left"]
    return incomplete(command[1], [text for text in warnings if text != b"None"])


def _warnings(report: Any) -> Iterator[Any]:
    """Yield what the shards warn of: each says something, "None" if nothing is wrong."""
    for at, part in enumerate(report):
        if part == b"Warning":
            said = report[at + 1] if at + 1 < len(report) else b"None"  # up to 2.10 nothing follows
            yield from said if isinstance(said, list) else [said]
        elif isinstance(part, list):
            yield from _warnings(part)


# ---------------------------------------------------------------------- the layout


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
