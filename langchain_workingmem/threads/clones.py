"""The plan that copies a thread, and the plan that writes a part of a copied or imported thread."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from langchain_workingmem._documents.media import digests_in
from langchain_workingmem._engine.effects import send
from langchain_workingmem._redis.access import (
    SWEEP_SIZE,
    check_owner,
    continue_sweep,
    guarded_write,
    owner_tag,
    run_script,
    sweep_left,
)
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.rooms import load
from langchain_workingmem._redis.scripts import COMMON, DELETE, Script, in_steps
from langchain_workingmem._text.telling import as_searched
from langchain_workingmem.errors import (
    ThreadExistsError,
    ThreadNotFoundError,
    WorkingMemError,
)
from langchain_workingmem.history import READ, MessageSelection, media_of
from langchain_workingmem.models import ClonedThread
from langchain_workingmem.threads.operations import (
    check_new_metadata,
    delete,
    read_existing_thread,
    thread_fields,
)
from langchain_workingmem.working_memory import NOTHING, find_scope_key, read_working_memory, write_revision_into

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from langchain_workingmem._engine.effects import Argument, Command, Plan
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import Thread

RESTORE = Script("threads/restore", *COMMON, "said")
_PLACE = re.compile(rb"forgotten:([qa]):(\d+)")
CLONE_BATCH = 200  # messages of one step


def copy_messages(
    core: Core,
    source: str,
    new_thread_id: str,
    resource_id: str | None,
    to: str | None,
    title: str | None,
    metadata: Mapping[str, Any] | None,
    wanted: MessageSelection,
    message_ids: Collection[str] | None,
) -> Plan[tuple[ClonedThread, str, Any, bytes | None, str]]:
    """Copy a thread without working memory and log, for its owner or for `to`.

    Return also the owner of the source, what observations covered of it before, whose values it has, and the token with which
    `finish_copy` ends the copy if it is still `unfinished`, because more is to be copied. One round trip, and two per 200 messages or
    64 MiB.

    Source and copy may be in different slots of a cluster, so the messages pass through this process. A copy of one step is
    atomic. A larger one grows as `unfinished`, and is deleted after an error.
    """
    state, keys = core.state, core.state.keys.of(check_id(source, "thread_id"))
    owner_tag(resource_id)
    (row,) = yield from send(("HGETALL", keys.thread))
    check_owner(as_dict(row).get(b"resource"), source, resource_id)
    origin, has_log = read_existing_thread(source, row), b"covered" in as_dict(row)
    changes = check_new_metadata(metadata)
    merged = {**origin.metadata, **changes}
    kept = {key: value for key, value in merged.items() if value is not None or key not in changes}
    fields: list[Argument] = [*thread_fields(title, kept), "clone_of", encode(source), *state.ttl_fields]
    new_owner = origin.resource_id if to is None else check_id(to, "to")
    owner, tag = encode(origin.resource_id), encode(new_thread_id)
    new_ids, reserved = dict[str, str](), dict[str, str]()
    token, has_begun, is_last = "", False, False
    log: Any = None  # what a room says of the thread, if it has to be told of changes
    yield from state.indexes.ready()
    try:
        while not is_last:
            is_first = wanted.above is None
            (owned, stored_title, title_from), ids, others, reply, *logs = yield from run_script(
                source,
                resource_id,
                ("HMGET", keys.thread, "resource", "title", "title_from"),
                *forgotten_commands(keys.aliases),
                READ.call(keys.all, owner, *wanted.arguments(), "vectors", 1),
                *([load("observations").copying(state, source, origin.resource_id)] if has_log and is_first else []),
            )
            rows = list(zip(*(reply[start::4] for start in range(1, 5)), strict=True))
            media = yield from media_of(state, zip(reply[1::4], reply[3::4], strict=True), source)
            if media is None:  # some were deleted meanwhile
                continue
            if owned is None:
                raise ThreadNotFoundError(source)
            log = logs[0] if logs else log
            if title is None and is_first:
                fields += _title_fields(core, stored_title, title_from, reserved)
            is_last = wanted.newest or len(rows) < CLONE_BATCH
            gaps = [one for one in gaps_in(others) if one[0] > _before(wanted, rows)]
            copies = _copies(core, rows[::-1] if wanted.newest else rows, message_ids, new_ids, reserved, media, gaps)
            steps = list(in_steps(chain(copies, _forgotten(gaps, ids) if is_last else ())))
            token = token or next(iter(new_ids.values()), new_thread_id)
            for step in steps:
                ends = is_last and step is steps[-1] and not _has_more(state, as_dict(row))
                mode = ("end" if ends else "more") if has_begun else ("new" if ends else "begin")
                header = [f"{mode}:{token}", encode(new_owner), tag, *((0,) if has_begun else (len(fields), *fields))]
                reply = yield from restore_messages(
                    state, new_thread_id, new_owner, [*header, *step], origin.resource_id, at_most_once=not rows
                )
                has_begun = True
            wanted = replace(wanted, above=int(rows[-1][1])) if rows else wanted
    except ThreadExistsError:  # so the copy under this id is not ours
        raise
    except WorkingMemError as error:
        if has_begun:
            try:
                yield from delete(state, new_thread_id, new_owner)
            except WorkingMemError:
                error.add_note(
                    f"an unfinished copy is left: threads.delete({new_thread_id!r}) deletes it, threads.clone() with its id "
                    "replaces it"
                )
        raise
    return (
        ClonedThread(thread=read_existing_thread(new_thread_id, reply[-1]), message_ids=new_ids),
        origin.resource_id,
        log,
        as_dict(row).get(b"kept"),
        token,
    )


def _has_more(state: MemoryState, row: Mapping[bytes, bytes]) -> bool:
    """Tell whether a log, values or working memory of a thread are copied behind its messages, given its HGETALL."""
    is_own = state.working_memory is not None and state.working_memory.scope == "thread"
    return is_own or b"covered" in row or b"kept" in row


def finish_copy(state: MemoryState, copy: ClonedThread, token: str) -> Plan[ClonedThread]:
    """Say that all of a thread is copied, if it is not said yet. One round trip, or none."""
    if not copy.thread.unfinished:
        return copy
    owner = encode(copy.thread.resource_id)
    header: list[Argument] = [f"end:{token}", owner, encode(copy.thread.id), 0]
    reply = yield from restore_messages(state, copy.thread.id, copy.thread.resource_id, header, at_most_once=True)
    return replace(copy, thread=read_existing_thread(copy.thread.id, reply[-1]))


def _title_fields(
    core: Core, title: bytes | None, title_from: bytes | None, reserved: dict[str, str]
) -> list[Argument]:
    """Return the title of a copy, and reserve the id of the message that a model made it from.

    If that message is not copied, the last step of the copy removes the title.
    """
    if title is None or title_from is None:
        return [] if title is None else ["title", title]
    words, _, id = title_from.decode().partition("/")
    reserved[id] = core.new_id()
    return ["title", title, "title_from", f"{words}/{reserved[id]}"]


def _copies(
    core: Core,
    rows: Iterable[tuple[bytes, bytes, bytes, list[Any]]],
    chosen: Collection[str] | None,
    new_ids: dict[str, str],
    reserved: Mapping[str, str],
    media: Mapping[str, bytes],
    gaps: list[tuple[int, str]],
) -> Iterator[list[Argument]]:
    """Yield messages with media and vectors as arguments of `restore.lua`; add their new ids, some `reserved`, to `new_ids`.

    Before a message come the `gaps` of those that were forgotten before it: they are taken out of the list.
    """
    for id, seq, value, vectors in rows:
        before = sum(gap < int(seq) for gap, _ in gaps)
        yield from _forgotten(gaps[:before])
        del gaps[:before]
        old = id.decode()
        if chosen is None or old in chosen:
            new_ids[old] = reserved.get(old) or core.new_id()
            copy: list[Argument] = [new_ids[old], 0, value]
            for digest in digests_in(value):
                copy += [digest, media[digest]]
            for vector in vectors:
                pairs = [part for pair in as_dict(vector).items() for part in pair]
                copy += [len(pairs), *pairs]
            yield copy


def forgotten_commands(aliases: str) -> list[Command]:
    """Return the commands that read what was forgotten of a thread: ids, and the aliases, which have the gaps (`gaps_in`)."""
    return [("ZRANGE", aliases, -1, -1, "BYSCORE"), ("ZRANGE", aliases, 0, "+inf", "BYSCORE")]


def _before(wanted: MessageSelection, rows: Sequence[tuple[bytes, bytes, bytes, list[Any]]]) -> int:
    """Return the sequence number behind which a batch of messages begins."""
    if wanted.newest and rows:
        return int(rows[-1][1])
    return -1 if wanted.above is None else wanted.above


def gaps_in(aliases: Iterable[bytes]) -> list[tuple[int, str]]:
    """Return the gaps of forgotten messages in order: a sequence number, and q (question) or a (answer)."""
    return [(int(found[2]), found[1].decode()) for one in aliases if (found := _PLACE.fullmatch(one))]


def _forgotten(gaps: Iterable[tuple[int, str]], ids: Iterable[bytes] = ()) -> Iterator[list[Argument]]:
    """Yield gaps and ids of forgotten messages as arguments of `restore.lua`."""
    for _, kind in gaps:
        yield [kind, 3, ""]
    for id in ids:
        yield [id, 4, ""]


def as_restored(draft: Any, kind: int, header: bytes, vectors: Sequence[bytes]) -> list[Argument]:
    """Return a draft as arguments of `restore.lua`, with the vectors of its chunks."""
    arguments: list[Argument] = [draft.id, kind, header + draft.body]
    for one in draft.media:
        arguments += one
    for text, vector in zip(draft.chunks, vectors, strict=False):
        fields: list[Argument] = [
            "role",
            draft.role,
            "name",
            draft.name,
            "labels",
            draft.labels,
            *(("metadata", draft.metadata) if draft.metadata else ()),
            "text",
            as_searched(text),
            "vector",
            vector,
        ]
        arguments += [len(fields), *fields]
    return arguments


def header_of(draft: Any, stored_at: int, digest: str, chunks: int, state: str, *, refused: bool = False) -> bytes:
    """Return the header of a draft that scripts read: when it was stored, and how many vectors of which settings it has."""
    said = f"{draft.words}/{draft.weight}/0{'!' if refused else ''}"
    return f'{{"stored_at":{stored_at},"vectors":"{digest}/{draft.size}/{chunks}","said":"{said}","state":"{state}",'.encode()


def restore_messages(
    state: MemoryState,
    thread_id: str,
    resource_id: str,
    arguments: Sequence[Argument],
    source_owner: str | None = None,
    *,
    at_most_once: bool = False,
) -> Plan[list[Any]]:
    """Run `restore.lua`, and return its reply; no owner may be under deletion, also not that of what is copied. One round trip.

    The ids of the messages tell the script whether it has run before; without messages it must be sent `at_most_once`.
    """
    keys = state.keys.of(thread_id)

    def undo(reply: Any, _: str) -> Command:
        return DELETE.call(keys.all, encode(resource_id), SWEEP_SIZE, "undo", as_dict(reply[-1])[b"updated_at"])

    call = RESTORE.call(keys.all, *arguments)
    owners = [*dict.fromkeys(one for one in (resource_id, source_owner) if one is not None)]
    reply: list[Any] = yield from guarded_write(state, thread_id, owners, call, undo, at_most_once=at_most_once)
    yield from continue_sweep(state, thread_id, sweep_left(as_dict(reply[-1])))
    return reply


def copy_working_memory(state: MemoryState, source: str, owner: str, copy: Thread) -> Plan[None]:
    """Copy working memory if its scope is the thread. Two round trips, one if it is empty, else none.

    `write_revision_into` does not create the copy again if it was deleted meanwhile.
    """
    if state.working_memory is None or state.working_memory.scope != "thread":
        return
    current = yield from read_working_memory(state, source, owner)
    if current.text:
        scope_key = yield from find_scope_key(state, copy.id, copy.resource_id)
        yield from write_revision_into(state, scope_key, NOTHING, "clone", "write", current.text)
