"""What files offer to the rooms below (`_redis/rooms.py`)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from langchain_workingmem._engine.effects import attempt, send
from langchain_workingmem._redis.rooms import HOOKS
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem.errors import RedisReplyError
from langchain_workingmem.files import archive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.rooms import Room
    from langchain_workingmem._redis.state import MemoryState

CHECK = Script("files/check", "files/tree")
MOST_COMPARED = 5000  # fields of an owner
TOGETHER = 100  # owners of one round trip

exported = archive.export
merged_into = archive.merge


def erased(state: MemoryState, owner: str) -> Plan[dict[str, int]]:
    """Delete all files of an owner with their revisions. One round trip; the server frees their memory in the background."""
    _, *keys = state.keys.files_of_resource(owner)
    number, _ = yield from send(("ZCARD", keys[0]), ("UNLINK", *keys), in_order=True)
    return {"files": number}


def checked(state: MemoryState, owners: Sequence[str]) -> Plan[list[int]]:
    """Compare what is stored of the files of owners. A round trip per 100 owners.

    Return the numbers of owners that were compared, of files, of bytes, of lost contents, of contents without a file, and of owners
    whose files or bytes are counted wrongly.
    """
    total = [0] * 6
    for start in range(0, len(owners), TOGETHER):
        names = owners[start : start + TOGETHER]
        calls = [CHECK.call(state.keys.files_of_resource(name), MOST_COMPARED) for name in names]
        for reply in (yield from attempt(*calls)):
            row: list[Any] = [] if isinstance(reply, RedisReplyError) else reply
            total = [sum(pair) for pair in zip(total, row or [0] * 6, strict=True)]
    return total


HOOKS["files"] = cast("Room", sys.modules[__name__])
