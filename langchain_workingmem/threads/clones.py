"""Plans that copy threads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from langchain_workingmem._redis.access import guarded_write, run_script
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.scripts import BRANCHES, DELETE, Script, in_steps
from langchain_workingmem._redis.sweeping import SWEEP_SIZE
from langchain_workingmem.errors import RedisReplyError, ThreadExistsError, ThreadNotFoundError, WorkingMemError
from langchain_workingmem.history import READ
from langchain_workingmem.models import ClonedThread
from langchain_workingmem.threads.operations import (
    delete,
    get_existing_thread,
    goes_on,
    metadata_of,
    read_existing_thread,
    thread_fields,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from langchain_workingmem._engine.effects import Argument, Command, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.history import MessageSelection

RESTORE = Script("threads/restore", *BRANCHES)


CLONE_BATCH = 200  # messages that one step of a clone carries


def anew(
    state: MemoryState, new_thread_id: str, resource_id: str | None, cloning: Callable[[], Plan[ClonedThread]]
) -> Plan[ClonedThread]:
    """Clone, and where a writer who died has left an unfinished copy under the id, take that away and begin anew."""
    try:
        return (yield from cloning())
    except RedisReplyError as error:
        if error.code != "WMUNFINISHED":
            raise
    yield from delete(state, new_thread_id, resource_id)
    return (yield from cloning())


def clone(
    state: MemoryState,
    source: str,
    new_thread_id: str,
    resource_id: str | None,
    title: str | None,
    metadata: Mapping[str, Any] | None,
    wanted: MessageSelection,
    message_ids: Collection[str] | None,
    new_id: Callable[[], str],
) -> Plan[ClonedThread]:
    """Copy a thread, vectors included, without the embedding model. One round trip, and two per 200 messages or 64 MiB.

    Source and copy may live in different slots of a cluster, so what is copied passes through here. Up to that size
    the copy appears in one step; a larger one grows, marked as `unfinished`, and is deleted again when an error ends it. A
    copy whose writer died stays `unfinished`; `anew` takes it away.
    """
    origin = yield from get_existing_thread(state, source, resource_id)
    keys = state.keys.of(source)
    check_id(new_thread_id, "new_thread_id")
    changed = metadata_of(metadata)
    merged = origin.metadata | dict(changed)
    kept = {key: value for key, value in merged.items() if value is not None or key not in changed}
    named = thread_fields(origin.title if title is None else title, kept)
    fields = [*named, "clone_of", encode(source), *state.ttl_fields]
    owner, tag = encode(origin.resource_id), encode(new_thread_id)
    renamed: dict[str, str] = {}
    token, has_begun, is_last = "", False, False
    yield from state.ready()
    try:
        while not is_last:
            present, reply = yield from run_script(
                source,
                resource_id,
                ("HEXISTS", keys.thread, "resource"),
                READ.call(keys.all, owner, *wanted.arguments(), "vectors", 1),
            )
            if not present:
                raise ThreadNotFoundError(source)
            rows = list(zip(*(reply[start::4] for start in range(1, 5)), strict=True))
            steps = list(in_steps(_copies(rows[::-1] if wanted.newest else rows, message_ids, renamed, new_id)))
            is_last = wanted.newest or len(rows) < CLONE_BATCH
            token = token or next(iter(renamed.values()), new_thread_id)
            for place, step in enumerate(steps):
                ends = is_last and place == len(steps) - 1
                mode = ("end" if ends else "more") if has_begun else ("new" if ends else "begin")
                header = [f"{mode}:{token}", owner, tag, *((0,) if has_begun else (len(fields), *fields))]
                thread = yield from restore_messages(
                    state, new_thread_id, origin.resource_id, [*header, *step], at_most_once=not step
                )
                has_begun = True
            wanted = replace(wanted, above=int(rows[-1][1])) if rows else wanted
    except ThreadExistsError:  # taken, or taken over
        raise
    except WorkingMemError as error:
        if has_begun:
            try:
                yield from delete(state, new_thread_id, origin.resource_id)
            except WorkingMemError:
                error.add_note(
                    f"a part of the copy is left, as an unfinished thread: threads.delete({new_thread_id!r}) takes it away, "
                    "threads.clone() with its id begins anew"
                )
        raise
    return ClonedThread(thread=read_existing_thread(new_thread_id, thread[-1]), message_ids=renamed)


def restore_messages(
    state: MemoryState, thread_id: str, resource_id: str, arguments: Sequence[Argument], *, at_most_once: bool = False
) -> Plan[list[Any]]:
    """Write a part of a copied thread, as `restore.lua` says. One round trip.

    The ids of its messages tell the script when a part was there before; a part without any must be sent `at_most_once`.
    """
    keys = state.keys.of(thread_id)

    def undo(reply: Any, _: str) -> Command:
        return DELETE.call(keys.all, encode(resource_id), SWEEP_SIZE, "undo", as_dict(reply[-1])[b"updated_at"])

    call = RESTORE.call(keys.all, *arguments)
    reply = yield from guarded_write(state, thread_id, [resource_id], call, undo, at_most_once=at_most_once)
    yield from goes_on(state, thread_id, reply[-1])
    return cast("list[Any]", reply)


def _copies(
    rows: Iterable[tuple[bytes, bytes, bytes, list[Any]]],
    chosen: Collection[str] | None,
    renamed: dict[str, str],
    new_id: Callable[[], str],
) -> Iterator[list[Argument]]:
    """Write messages and their vectors as `restore.lua` reads them, under new ids."""
    for id, _, value, vectors in rows:
        old = id.decode()
        if chosen is None or old in chosen:
            renamed[old] = new_id()
            copy: list[Argument] = [renamed[old], 0, value]
            for vector in vectors:
                pairs = [part for pair in as_dict(vector).items() for part in pair]
                copy += [len(pairs), *pairs]
            yield copy
