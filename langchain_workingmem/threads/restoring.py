"""The writing of parts of a copied, imported or backfilled thread: what it says, and what it has forgotten."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from langchain_workingmem._redis.access import SWEEP_SIZE, continue_sweep, guarded_write, sweep_left
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import encode
from langchain_workingmem._redis.scripts import COMMON, DELETE, Script
from langchain_workingmem._text.searched import as_searched

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from langchain_workingmem._engine.effects import Argument, Command, Plan
    from langchain_workingmem._redis.state import MemoryState

RESTORE = Script("threads/restore", *COMMON, "said")
_PLACE = re.compile(rb"forgotten:([qa]):(\d+)")


def restore_messages(
    state: MemoryState,
    thread_id: str,
    resource_id: str,
    mode: str,
    fields: Sequence[Argument] = (),
    messages: Sequence[Argument] = (),
    source_owner: str | None = None,
    *,
    at_most_once: bool = False,
) -> Plan[list[Any]]:
    """Run `restore.lua`, and return its reply; no owner may be under deletion, also not that of what is copied. One round trip.

    `fields` are those of a new thread. The ids of the messages tell the script whether it has run before; without messages a part
    of a copy must be sent `at_most_once`.
    """
    keys, owner = state.keys.of(thread_id), encode(resource_id)

    def undo(reply: Any, _: str) -> Command:
        return DELETE.call(keys.all, owner, SWEEP_SIZE, "undo", as_dict(reply[-1])[b"updated_at"])

    call = RESTORE.call(keys.all, mode, owner, encode(thread_id), len(fields), *fields, *messages)
    owners = [*dict.fromkeys(one for one in (resource_id, source_owner) if one is not None)]
    reply: list[Any] = yield from guarded_write(state, thread_id, owners, call, undo, at_most_once=at_most_once)
    yield from continue_sweep(state, thread_id, sweep_left(as_dict(reply[-1])))
    return reply


def as_restored(draft: Any, kind: int, header: bytes, vectors: Sequence[bytes]) -> list[Argument]:
    """Return a draft as arguments of `restore.lua`, with the vectors of its chunks."""
    arguments: list[Argument] = [draft.id, kind, header + draft.body]
    for one in draft.media:
        arguments += one
    for text, vector in zip(draft.chunks, vectors, strict=False):
        fields: list[Argument] = ["role", draft.role, "name", draft.name, "labels", draft.labels]
        fields += ["metadata", draft.metadata] if draft.metadata else []
        fields += ["text", as_searched(text), "vector", vector]
        arguments += [len(fields), *fields]
    return arguments


def header_of(draft: Any, stored_at: int, digest: str, chunks: int, state: str, *, refused: bool = False) -> bytes:
    """Return the header of a draft that scripts read: when it was stored, and how many vectors of which settings it has."""
    said = f"{draft.words}/{draft.weight}/0{'!' if refused else ''}"
    return f'{{"stored_at":{stored_at},"vectors":"{digest}/{draft.size}/{chunks}","said":"{said}","state":"{state}",'.encode()


def forgotten_commands(aliases: str) -> list[Command]:
    """Return the commands that read what was forgotten of a thread: ids, and the aliases, which have the gaps (`gaps_in`)."""
    return [("ZRANGE", aliases, -2, -1, "BYSCORE"), ("ZRANGE", aliases, 0, "+inf", "BYSCORE")]


def gaps_in(aliases: Iterable[bytes]) -> list[tuple[int, str]]:
    """Return the gaps of forgotten messages in order: a sequence number, and q (question) or a (answer)."""
    return [(int(found[2]), found[1].decode()) for one in aliases if (found := _PLACE.fullmatch(one))]


def forgotten(gaps: Iterable[str], ids: Iterable[str | bytes] = ()) -> Iterator[list[Argument]]:
    """Yield gaps (q or a) and ids of forgotten messages as arguments of `restore.lua`."""
    for kind in gaps:
        yield [kind, 3, ""]
    for id in ids:
        yield [id, 4, ""]
