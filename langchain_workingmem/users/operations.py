"""Plan to delete everything of a resource."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from langchain_workingmem._engine.effects import Pause, Plan, Scan, attempt, scan, send
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.queries import is_stale
from langchain_workingmem._redis.scripts import DELETE, Script
from langchain_workingmem._redis.sweeping import SWEEP_SIZE, sweep
from langchain_workingmem.errors import OptionError, RedisCapabilityError, RedisReplyError, WorkingMemError
from langchain_workingmem.models import DeletionReport
from langchain_workingmem.threads import list_threads
from langchain_workingmem.users import store_items as belongings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_workingmem._engine.effects import Command
    from langchain_workingmem._redis.state import MemoryState

LIFT = Script("users/lift")

BATCH = 100  # threads of one round trip
PASSES = 100  # over all keys, until one finds nothing; with no refused writer at work the first does
PAUSE = 0.05  # seconds until the next pass

Counts = Counter[str]


def delete(
    state: MemoryState, resource_id: str, deletion_id: str, namespaces: Sequence[tuple[str, ...]] = ()
) -> Plan[DeletionReport]:
    """Delete threads, working memory and items of a resource, then look through all keys for what still names it.

    The tombstone, which holds `mark`, keeps writers out until a pass over all keys has found nothing. A deletion that ends
    early leaves it, and the next one takes over. One that is refused before it has deleted anything takes it away again,
    unless it has taken over itself.
    """
    tombstone, *_ = state.keys.of_resource(check_id(resource_id, "resource_id"))
    counts: Counts = Counter()
    earlier, verified = None, False
    try:
        earlier, _ = yield from send(("GET", tombstone), ("SET", tombstone, deletion_id), in_order=True)
        verified = yield from _all(state, resource_id, namespaces, counts)
        if verified:
            yield from send(LIFT.call([tombstone], deletion_id))
    except WorkingMemError as error:
        if isinstance(error, RedisReplyError) and earlier is None and not counts.total():
            yield from attempt(LIFT.call([tombstone], deletion_id))
        else:
            error.add_note(
                f"the deletion of resource {resource_id!r} is not finished, and if it has begun, every write for it is refused "
                "until it is: call delete_resource() again"
            )
        raise
    state.authors.pop(resource_id)
    return DeletionReport(resource_id=resource_id, verified=verified, **counts)


def _all(state: MemoryState, resource_id: str, namespaces: Sequence[tuple[str, ...]], counts: Counts) -> Plan[bool]:
    """Delete until a pass over all keys has found nothing; False when the last one still did."""
    yield from _threads(state, resource_id, counts)
    yield from _memory(state, resource_id, counts)
    for _ in range(PASSES):
        if not (yield from _sweep(state, resource_id, namespaces, counts)):
            return True
        yield Pause(PAUSE)
    return False


def _threads(state: MemoryState, resource_id: str, counts: Counts) -> Plan[None]:
    """Delete the threads that the index lists. Where there is no index, the pass over all keys finds them."""
    cursor = None
    try:
        while True:
            page = yield from list_threads(state, resource_id, None, BATCH, cursor, "created_at", descending=False)
            yield from _purge(state, resource_id, [thread.id for thread in page], counts)
            cursor = page.next_cursor
            if cursor is None:
                return
    except (OptionError, RedisCapabilityError):
        return
    except RedisReplyError as error:
        if not is_stale(error):
            raise


def _purge(state: MemoryState, resource_id: str, thread_ids: Iterable[str], counts: Counts) -> Plan[None]:
    """Delete threads, each in one atomic step, unless they belong to somebody else by now.

    One round trip, and those of the slices in which their vectors go; what others have left undone is done as well.
    """
    owner, ids = encode(resource_id), list(thread_ids)
    most = max(1, SWEEP_SIZE // max(1, len(ids)))
    calls = [DELETE.call(state.keys.of(id).all, owner, most, "thread") for id in ids]
    unfinished, refused = [], None
    for id, reply in zip(ids, (yield from attempt(*calls)) if calls else (), strict=True):
        if isinstance(reply, RedisReplyError):
            if reply.code == "WMOWNER":
                unfinished.append(id)  # transferred, perhaps, and some of its vectors still name the former owner
            else:
                refused = refused or reply
            continue
        messages, vectors, memories, revisions, left = reply
        if messages >= 0:
            counts.update(threads=1, messages=messages, vectors=vectors, working_memories=memories, revisions=revisions)
        if left:
            unfinished.append(id)
    if refused is not None:
        raise refused
    counts["vectors"] += yield from sweep(state, *unfinished)


def _memory(state: MemoryState, resource_id: str, counts: Counts) -> Plan[None]:
    """Delete the working memory of the resource. One round trip."""
    _, memory, revisions = state.keys.of_resource(resource_id)
    kept, entries, _ = yield from send(
        ("EXISTS", memory), ("XLEN", revisions), ("DEL", memory, revisions), in_order=True
    )
    counts.update(working_memories=kept, revisions=entries)


def _naming(keys: Sequence[bytes], owner: bytes, trash: bytes) -> Plan[list[bytes]]:
    """Tell which keys of threads, vectors and trash name an owner. One round trip, none without keys."""
    calls: list[Command] = [("HGETALL", key) if key.startswith(trash) else ("HGET", key, "resource") for key in keys]
    replies = (yield from attempt(*calls)) if calls else []
    named = [as_dict(reply).values() if isinstance(reply, dict | list) else (reply,) for reply in replies]
    return [key for key, owners in zip(keys, named, strict=True) if owner in owners]


def _sweep(state: MemoryState, resource_id: str, namespaces: Sequence[tuple[str, ...]], counts: Counts) -> Plan[int]:
    """Look at every key that may name the resource, delete what does, and return how many did.

    Independent of the indexes. Two round trips per 1,000 keys of the node, three with namespaces, and those that delete.
    """
    keys, owner = state.keys, encode(resource_id).encode()
    own = {key.encode() for key in keys.of_resource(resource_id)[1:]}
    thread, vector, trash = (name.encode() for name in (keys.thread_prefix, keys.vector_prefix, keys.trash_prefix))
    found = 0
    step: Scan | None = Scan(f"{keys.prefix}:*:{{*")
    while step is not None:
        seen, step = yield from scan(step)
        owned = [
            key for key in seen if key.startswith((thread, vector)) or (key.startswith(trash) and key[-1:] == b"}")
        ]
        ours = yield from _naming(owned, owner, trash)
        yield from _purge(state, resource_id, {keys.thread_of(key) for key in ours}, counts)
        # a thread that has expired leaves its vectors for a while
        loose = yield from _naming([key for key in ours if key.startswith(vector)], owner, trash)
        if loose:
            gone = yield from send(*(("DEL", key) for key in loose))
            counts.update(vectors=sum(gone))
        again = own.intersection(seen)
        if again:
            yield from _memory(state, resource_id, counts)
        items = yield from belongings.among(state, namespaces, seen)
        if items:
            counts["items"] += yield from belongings.delete(state, items)
        found += len(ours) + len(again) + len(items)
    return found
