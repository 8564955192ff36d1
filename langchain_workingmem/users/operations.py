"""The plan that deletes all data of a resource."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from langchain_workingmem._engine.effects import Pause, Plan, Pull, Scan, attempt, scan, send
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.queries import is_stale
from langchain_workingmem._redis.scripts import DELETE, Script
from langchain_workingmem._redis.sweeping import SWEEP_SIZE, sweep
from langchain_workingmem.errors import OptionError, RedisCapabilityError, RedisReplyError, WorkingMemError
from langchain_workingmem.observations import observation_count
from langchain_workingmem.recall import Authors
from langchain_workingmem.reports import DeletionReport
from langchain_workingmem.threads import list_threads
from langchain_workingmem.users import store_items
from langchain_workingmem.users.format import paths_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_workingmem._engine.effects import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.users.checkpoints import Checkpoints
    from langchain_workingmem.users.format import Namespace

LIFT = Script("users/lift")

BATCH = 100  # threads of one round trip
PASSES = 100  # passes over all keys at most; without parallel writers the first or second finds nothing
PAUSE = 0.05  # seconds between passes

Counts = Counter[str]


def delete(
    state: MemoryState,
    resource_id: str,
    deletion_id: str,
    namespaces: Iterable[Sequence[str]] = (),
    checkpoints: Checkpoints | None = None,
) -> Plan[DeletionReport]:
    """Delete threads, working memory and items of a resource, then look through all keys for what still names it.

    A tombstone with `deletion_id` refuses writers until a pass over all keys finds nothing. A deletion that is interrupted
    leaves it, and the next one takes over. A deletion that Redis refuses before it has deleted anything removes its own.
    """
    tombstone, *_ = state.keys.of_resource(check_id(resource_id, "resource_id"))
    paths = paths_of(namespaces, resource_id)
    counts: Counts = Counter()
    earlier, verified = None, False
    try:
        earlier, _ = yield from send(("GET", tombstone), ("SET", tombstone, deletion_id), in_order=True)
        yield from _delete_listed(state, resource_id, counts, checkpoints)
        yield from _delete_memory(state, resource_id, counts)
        for _ in range(PASSES):
            verified = not (yield from _delete_found(state, resource_id, paths, counts, checkpoints))
            if verified:
                yield from send(LIFT.call([tombstone], deletion_id))
                break
            yield Pause(PAUSE)
    except WorkingMemError as error:
        if isinstance(error, RedisReplyError) and earlier is None and not counts.total():
            yield from attempt(LIFT.call([tombstone], deletion_id))
        else:
            error.add_note(_unfinished(resource_id))
        raise
    state.room(Authors).pop(resource_id)
    outcome = "not asked" if checkpoints is None else checkpoints.outcome
    return DeletionReport(resource_id=resource_id, checkpoints=outcome, verified=verified, **counts)


def _unfinished(resource_id: str) -> str:
    return (
        f"the deletion of resource {resource_id!r} is not finished, and writes for it may be refused until it is: call "
        "delete_resource() again"
    )


def _delete_listed(state: MemoryState, resource_id: str, counts: Counts, checkpoints: Checkpoints | None) -> Plan[None]:
    """Delete the threads that the index lists. Without an index, the pass over all keys finds them."""
    cursor = None
    try:
        while True:
            page = yield from list_threads(state, resource_id, None, BATCH, cursor, "created_at", descending=False)
            yield from _delete_threads(state, resource_id, [thread.id for thread in page], counts, checkpoints)
            cursor = page.next_cursor
            if cursor is None:
                return
    except (OptionError, RedisCapabilityError):
        return
    except RedisReplyError as error:
        if not is_stale(error):
            raise


def _delete_threads(
    state: MemoryState, resource_id: str, ids: Sequence[str], counts: Counts, checkpoints: Checkpoints | None
) -> Plan[None]:
    """Delete threads, each in one atomic step, unless they have another owner by now.

    One round trip, one more with `checkpoints`, and those of the slices in which their vectors are deleted.
    """
    if not ids:
        return
    if checkpoints is not None:
        yield from _delete_checkpoints(state, resource_id, ids, checkpoints)
    most = max(1, SWEEP_SIZE // len(ids))
    calls = [DELETE.call(state.keys.of(id).all, encode(resource_id), most, "user") for id in ids]
    unfinished, refused = [], None
    for id, reply in zip(ids, (yield from attempt(*calls)), strict=True):
        if isinstance(reply, RedisReplyError):
            if reply.code == "WMOWNER":
                unfinished.append(id)  # after a transfer, some vectors may still name the former owner
            else:
                refused = refused or reply
            continue
        messages, vectors, memories, revisions, observations, left = reply
        if messages >= 0:
            counts.update(threads=1, messages=messages, vectors=vectors, working_memories=memories)
            counts.update(revisions=revisions, observations=observations)
        if left:
            unfinished.append(id)
    if refused is not None:
        raise refused
    counts["vectors"] += yield from sweep(state, *unfinished)


def _delete_checkpoints(
    state: MemoryState, resource_id: str, ids: Sequence[str], checkpoints: Checkpoints
) -> Plan[None]:
    """Delete the checkpoints of threads before the threads: a deletion that is called again still knows them."""
    names = [state.keys.of(id).thread.encode() for id in ids]
    ours = yield from _keys_of_owner(names, encode(resource_id).encode(), state.keys.trash_prefix.encode())
    source = checkpoints.delete([state.keys.thread_of(key) for key in ours], _unfinished(resource_id))
    while (yield from Pull(source)):
        pass


def _delete_memory(state: MemoryState, resource_id: str, counts: Counts) -> Plan[None]:
    """Delete working memory and observations of the resource. One round trip."""
    _, memory, revisions = state.keys.of_resource(resource_id)
    _, log = state.keys.log_of_resource(resource_id)
    commands: list[Command] = [("EXISTS", memory), ("XLEN", revisions), ("HGET", log, "present")]
    found, entries, present, _ = yield from send(*commands, ("DEL", memory, revisions, log), in_order=True)
    counts.update(working_memories=found, revisions=entries, observations=observation_count(present))


def _keys_of_owner(keys: Sequence[bytes], owner: bytes, trash: bytes) -> Plan[list[bytes]]:
    """Return the keys of threads, vectors and trash that name an owner. One round trip, none without keys."""
    calls: list[Command] = [("HGETALL", key) if key.startswith(trash) else ("HGET", key, "resource") for key in keys]
    replies = (yield from attempt(*calls)) if calls else []
    owners = [as_dict(reply).values() if isinstance(reply, dict | list) else (reply,) for reply in replies]
    return [key for key, named in zip(keys, owners, strict=True) if owner in named]


def _delete_found(
    state: MemoryState,
    resource_id: str,
    paths: Sequence[Namespace],
    counts: Counts,
    checkpoints: Checkpoints | None,
) -> Plan[int]:
    """Look at every key that may name the resource, delete those that do, and return their number.

    Independent of the indexes. Two round trips per 1,000 keys of the node, three with namespaces, and those that delete.
    """
    keys, owner = state.keys, encode(resource_id).encode()
    own = {key.encode() for key in (*keys.of_resource(resource_id)[1:], keys.log_of_resource(resource_id)[1])}
    thread, vector, trash = (name.encode() for name in (keys.thread_prefix, keys.vector_prefix, keys.trash_prefix))
    found = 0
    step: Scan | None = Scan(f"{keys.prefix}:*:{{*")
    while step is not None:
        seen, step = yield from scan(step)
        candidates = [
            key for key in seen if key.startswith((thread, vector)) or (key.startswith(trash) and key[-1:] == b"}")
        ]
        ours = yield from _keys_of_owner(candidates, owner, trash)
        yield from _delete_threads(state, resource_id, list({keys.thread_of(key) for key in ours}), counts, checkpoints)
        # an expired thread leaves its vectors for a while
        orphans = yield from _keys_of_owner([key for key in ours if key.startswith(vector)], owner, trash)
        if orphans:
            counts["vectors"] += sum((yield from send(*(("DEL", key) for key in orphans))))
        again = own.intersection(seen)
        if again:
            yield from _delete_memory(state, resource_id, counts)
        items = yield from store_items.items_below(state, paths, seen)
        if items:
            counts["items"] += yield from store_items.delete(state, items)
        found += len(ours) + len(again) + len(items)
    return found
