"""What files offer to the rooms below (`_redis/rooms.py`)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from langchain_workingmem._engine.effects import attempt, send
from langchain_workingmem._redis.rooms import HOOKS
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem.errors import RedisReplyError
from langchain_workingmem.files import archive
from langchain_workingmem.reports import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.rooms import Room
    from langchain_workingmem._redis.state import MemoryState

CHECK = Script("files/check", "files/tree")
MOST_COMPARED = 5000  # fields of an owner
TOGETHER = 100  # owners of one round trip
_RESTORE = "restore what is lost from a backup; users.export(), users.delete() and users.load() count the rest anew"

exported = archive.export
merged_into = archive.merge


def erased(state: MemoryState, owner: str) -> Plan[dict[str, int]]:
    """Delete all files of an owner with their revisions. One round trip; the server frees their memory in the background."""
    _, *keys = state.keys.files_of_resource(owner)
    number, _ = yield from send(("ZCARD", keys[0]), ("UNLINK", *keys), in_order=True)
    return {"files": number}


def checked(state: MemoryState, owners: Sequence[str], *, all_seen: bool) -> Plan[Finding]:
    """Compare what is stored of the files of owners: all contents of those with few files, of the others only numbers.

    A round trip per 100 owners.
    """
    total = [0] * 6
    for start in range(0, len(owners), TOGETHER):
        names = owners[start : start + TOGETHER]
        calls = [CHECK.call(state.keys.files_of_resource(name), MOST_COMPARED) for name in names]
        for reply in (yield from attempt(*calls)):
            row: list[Any] = [] if isinstance(reply, RedisReplyError) else reply
            total = [sum(pair) for pair in zip(total, row or [0] * 6, strict=True)]
    compared, files, size, lost, left, wrong = total
    is_whole = all_seen and compared == len(owners)
    seen = f"{files:,} files of {len(owners):,} owners, {size / 2**20:,.1f} MiB with their revisions"
    seen = f"{seen} ({'all were' if is_whole else f'{compared:,} owners were'} compared)"
    if lost or left or wrong:
        seen = f"{seen}: {lost:,} contents are lost, {left:,} belong to no file, {wrong:,} owners have wrong sums"
        return Finding(check="files", level="warning", message=seen, remedy=_RESTORE)
    return Finding(check="files", level="ok", message=seen)


HOOKS["files"] = cast("Room", sys.modules[__name__])
