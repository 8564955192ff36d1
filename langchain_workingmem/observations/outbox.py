"""The log of a resource lies in another slot than its threads, so it learns of their changes in a step of its own.

What is covered is decided in the thread. The thread keeps what the log has yet to learn, until it has: each process that writes
to the thread or observes it goes on with that. Before a message is deleted, the log forgets it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_workingmem._engine.effects import Plan, send
from langchain_workingmem._redis.access import run_script
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import decode, encode
from langchain_workingmem._redis.scripts import COVERAGE, Script
from langchain_workingmem._text.ranges import parse_ranges
from langchain_workingmem.errors import RedisReplyError
from langchain_workingmem.observations.log import read_observation
from langchain_workingmem.observations.reading import LogKey, recount

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem._text.ranges import Ranges
    from langchain_workingmem.models import Observation

OUTBOX = Script("observations/outbox", *COVERAGE)
PUBLISH = Script("observations/publish", *COVERAGE, "observations/expiry")
SETTLE = Script("observations/settle", *COVERAGE, "observations/expiry")
ATTEMPTS = 20  # to tell a log what others change meanwhile
T = TypeVar("T")


def publish(state: MemoryState, thread_id: str, *first: str | int) -> Plan[None]:
    """Tell the log of a resource what has changed in a thread; `first` is done in the thread before. Three round trips, or five.

    What is cited together with a forgotten message in another thread is taken out of what is covered there, three more each.
    """
    keys = state.keys.of(thread_id)
    arguments: Sequence[str | int] = first or ("read",)
    for _ in range(ATTEMPTS):
        ((owner, fields, *age),) = yield from send(OUTBOX.call(keys.all, *arguments))
        row = as_dict(fields)
        if b"unpublished" not in row:
            return
        arguments = ("read",)
        epoch, hidden = row.get(b"epoch", b"0"), row.get(b"hidden", b"")
        batches = _batches(row)
        told = [encode(thread_id), epoch, hidden, row.get(b"forget", b""), *age]
        told.append(int(_has_told(row)))
        for batch, (ranges, values) in batches:
            told += [batch, ranges, len(values), *values]
        resource_id = decode(owner)
        log = state.keys.log_of_resource(resource_id)
        ((status, *reply),) = yield from run_script(thread_id, resource_id, PUBLISH.call(log, *told))
        if status == 0:
            arguments = ("raise", reply[0])
        elif status < 0:
            arguments = ("reopen", "*")
        else:
            cited, expired = reply
            last = batches[-1][0] if batches else 0
            yield from send(OUTBOX.call(keys.all, "told", epoch, last, hidden))
            if b"forget" in row or not batches:  # more messages are shown as they are, or fewer
                yield from recount(state, LogKey(log, None, resource_id), [thread_id])
            cited += yield from _settle(state, log, resource_id, expired)
            yield from _reopen(state, cited)
            arguments = ("read",)


def _reopen(state: MemoryState, cited: Sequence[bytes]) -> Plan[None]:
    """Take what was cited together with forgotten messages out of what is covered: tag, seq, ... Three round trips a thread."""
    others: dict[str, list[str]] = defaultdict(list)
    for tag, seq in zip(cited[::2], cited[1::2], strict=True):
        others[decode(tag)].append(seq.decode())
    for other, seqs in others.items():
        yield from publish(state, other, "reopen", *seqs)


def _settle(state: MemoryState, log: tuple[str, str], resource_id: str, expired: Sequence[bytes]) -> Plan[list[bytes]]:
    """Forget the threads that have expired (tag, created_at, ...), and return what was cited together with their messages.

    Two round trips, none where no thread has expired as the log knows. A thread may have been renewed by a write that the log
    was not told of.
    """
    cited: list[bytes] = []
    if expired:
        threads = [state.keys.of(decode(tag)).all for tag in expired[::2]]
        rows = yield from send(*(OUTBOX.call(keys, "read") for keys in threads))
        for tag, born, (_, _, *age) in zip(expired[::2], expired[1::2], rows, strict=True):
            (more,) = yield from run_script("", resource_id, SETTLE.call(log, tag, born, *age))
            cited += more
    return cited


def _has_told(row: dict[bytes, bytes]) -> bool:
    """Tell whether some of what is covered was told to the log, given what observations cover."""
    waiting = sum(_length(ranges) for _, (ranges, _) in _batches(row))
    return _length(row.get(b"covered", b"")) > waiting


def is_lost(state: MemoryState, log: str, thread_id: str, waiting: Sequence[Any]) -> Plan[bool]:
    """Tell whether a log that seems empty is gone, although a thread has told it something; then the messages are raw again.

    It expires with the last of its threads as far as it knows them, and Redis may evict it. One round trip, three more if so.
    """
    if waiting and not _has_told(as_dict(list(waiting))):
        return False
    (is_there,) = yield from send(("HEXISTS", log, "revision"))
    if not is_there:
        yield from publish(state, thread_id, "reopen", "*")
    return True


def _length(ranges: bytes) -> int:
    return sum(last - first + 1 for first, last in parse_ranges(ranges.decode()))


def _batches(row: dict[bytes, bytes]) -> list[tuple[int, tuple[bytes, list[bytes]]]]:
    """Return the batches that wait, the oldest first: number, covered ranges, observations."""
    found: dict[int, tuple[bytes, list[bytes]]] = {}
    names = [name for name in row if name.startswith(b"out:")]
    for parts in sorted([int(part) for part in name.split(b":")[1:]] for name in names):
        value = row[b"out:" + b":".join(b"%d" % part for part in parts)]
        if len(parts) == 1:
            found[parts[0]] = value, []
        else:
            found[parts[0]][1].append(value)
    return list(found.items())


def waiting_ranges(waiting: Sequence[Any]) -> Ranges:
    """Return what a thread covers and the log of its resource does not know yet."""
    if not waiting:
        return ()
    return tuple(one for _, (ranges, _) in _batches(as_dict(list(waiting))) for one in parse_ranges(ranges.decode()))


def unpublished(waiting: Sequence[Any], last_batch: int) -> list[Observation]:
    """Return the observations of a thread that the log of its resource does not have yet, in order."""
    if not waiting:
        return []
    values = [
        value for batch, (_, values) in _batches(as_dict(list(waiting))) if batch > last_batch for value in values
    ]
    return [read_observation(0, value) for value in values]


def forgetting(state: MemoryState, thread_id: str, ids: Sequence[str] | None, plan: Callable[[], Plan[T]]) -> Plan[T]:
    """Run a plan that deletes messages (None: all); where the log of a resource knows them, it forgets them first."""
    for _ in range(ATTEMPTS):
        try:
            return (yield from plan())
        except RedisReplyError as error:
            if error.code != "WMOBSERVED":
                raise
        seqs: list[str] = ["*"]
        if ids is not None:
            keys = state.keys.of(thread_id)
            scores = yield from send(*(("ZMSCORE", key, *ids) for key in (keys.order, keys.superseded)))
            seqs = [
                str(int(score)) for row in scores for score in row if score is not None and float(score).is_integer()
            ]
        yield from publish(state, thread_id, "reopen", *seqs)
    return (yield from plan())
