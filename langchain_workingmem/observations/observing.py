"""When the observer works: after a save in the background, or when it is asked for."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from os import getpid
from typing import TYPE_CHECKING, Literal

from langchain_workingmem._engine.plan import Plan, Spawn, send
from langchain_workingmem._redis.access import check_thread, owner_of
from langchain_workingmem._redis.keys import decode, encode
from langchain_workingmem.errors import ThreadNotFoundError, WorkingMemError
from langchain_workingmem.observations.log import Remembered
from langchain_workingmem.observations.observer.runs import Run
from langchain_workingmem.observations.reading import WAITING, log_key, observing, of_thread, read

if TYPE_CHECKING:
    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import ObservationLog
    from langchain_workingmem.observations.reading import LogKey

NEVER = 2**53  # tokens
_log = logging.getLogger("langchain_workingmem")


def observe_later(state: MemoryState, thread_id: str, user_id: str | None) -> Plan[None]:
    """Start the observer of a log in the background, unless it runs in this process."""
    where = log_key(state, thread_id, user_id)
    if (running := _running(where)) not in state.room(Remembered).observing:
        state.room(Remembered).observing.add(running)
        forget = partial(state.room(Remembered).observing.discard, running)
        yield Spawn(_in_background(state, where, thread_id), slow=True, lost=forget, task="observer")


def waiting_commands(
    state: MemoryState, thread_id: str, user_id: str | None, tokens: int, how: Literal["add", "set"] = "add"
) -> list[Command]:
    """Return what a save sends besides, in scope "user": the log counts what waits, and says whether its observer is due."""
    options = state.observations
    if options is None or options.scope == "thread" or user_id is None:
        return []
    log, due_at = state.keys.log_of_user(user_id), options.message_tokens if options.background else NEVER
    return [WAITING.call(log, encode(thread_id), tokens, how, due_at, state.ttl_ms or "")]


def count_later(state: MemoryState, thread_id: str, user_id: str | None) -> Plan[None]:
    """Tell the log of a user what waits in a thread, and start its observer if it is due. Two round trips."""
    tokens = yield from pending_tokens(state, thread_id, user_id)
    if calls := waiting_commands(state, thread_id, user_id, tokens, "set"):
        replies = yield from log_key(state, thread_id, user_id).run(*calls)
        if any(replies):
            yield from observe_later(state, thread_id, user_id)


def is_observing(state: MemoryState, where: LogKey) -> bool:
    """Tell whether the observer of a log runs in the background of this process."""
    return _running(where) in state.room(Remembered).observing


def _running(where: LogKey) -> str:
    """Name a log in this process: a forked one does not run the observers of its parent."""
    return f"{getpid()} {where.name}"


def _in_background(state: MemoryState, where: LogKey, thread_id: str) -> Plan[None]:
    try:
        keep = observing(state).keep_tokens
        yield from _observe(state, where, None if where.thread_id is None else thread_id, keep, wait=False)
    except ThreadNotFoundError:
        pass  # it was deleted meanwhile
    except WorkingMemError as error:
        _log.warning("thread %r is not observed now: %s", thread_id, error)
    finally:
        state.room(Remembered).observing.discard(_running(where))


def observe(state: MemoryState, thread_id: str, user_id: str | None) -> Plan[ObservationLog]:
    """Plan `Observations.observe`."""
    log, _ = yield from observe_now(state, thread_id, user_id)
    return log


def observe_now(
    state: MemoryState,
    thread_id: str,
    user_id: str | None,
    *,
    is_newest: bool | None = None,
    total: int = 0,
    is_pressed: bool = False,
) -> Plan[tuple[ObservationLog, bool]]:
    """Observe a thread, and tell whether the model failed: then `usage.last_error` of the log says why. Reports the tokens that are observed, of `total`.

    Of the newest thread of a log `keep_tokens` and the present turn stay as they are, of others only a turn without an answer.
    Without `is_newest`, the thread counts as the newest that was written last; in scope "user" this takes one round trip.
    With `is_pressed` the finished steps of the present turn are observed, too, however short it is.
    """
    options = observing(state)
    _, owner = yield from owner_of(state, thread_id, None)
    if user_id is not None and owner != user_id:
        yield from check_thread(state, thread_id, user_id)
    where = log_key(state, thread_id, user_id or owner)
    if is_newest is None and where.thread_id is None:
        (newest,) = yield from send(("HGET", where.name, "newest"))
        is_newest = newest is None or decode(newest) == thread_id
    keep = None if is_newest is False else options.keep_tokens
    done = yield from _observe(state, where, thread_id, keep, wait=True, total=total, is_pressed=is_pressed)
    return (yield from read(state, where)), not done


def pending_tokens(state: MemoryState, thread_id: str, user_id: str | None) -> Plan[int]:
    """Return the tokens of a thread that no observation covers yet. One round trip."""
    return (yield from read(state, of_thread(state, thread_id, user_id))).pending_tokens


def _observe(
    state: MemoryState,
    where: LogKey,
    thread_id: str | None,
    keep: int | None = None,
    *,
    wait: bool,
    total: int = 0,
    is_pressed: bool = False,
) -> Plan[bool]:
    """Observe a thread, or of a user (None) all threads that wait, then condense the log if it is too long.

    Two round trips for each call of the model, and two more. While another process observes, this one waits for it, or without
    `wait` leaves the work to it. Returns whether the work is done; the model may have failed.
    """
    run = Run(state, observing(state), where, f"{state.process}-{next(state.room(Remembered).runs)}", total, is_pressed)
    try:
        if thread_id is not None:
            done = yield from run.observe_thread(thread_id, keep, wait=wait)
        else:
            done = yield from run.observe_waiting()
        if not done:
            yield from run.give_back()
        return done and (yield from run.end(wait=wait))
    except WorkingMemError as error:
        with suppress(WorkingMemError):  # other processes need not wait until the lease is over
            yield from run.give_back()
        if wait and isinstance(error, ThreadNotFoundError):
            return True  # there is nothing to observe
        raise
