"""What files offer to the rooms below (`_redis/rooms.py`)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from langchain_workingmem._engine.effects import send
from langchain_workingmem._redis.rooms import HOOKS
from langchain_workingmem.files import archive

if TYPE_CHECKING:
    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.rooms import Room
    from langchain_workingmem._redis.state import MemoryState

exported = archive.export


def merged_into(state: MemoryState, source: str, into: str) -> Plan[dict[str, Any]]:
    """Give the files of an owner to another one, and let recall find them there."""
    plan = archive.merge(state, source, into)
    return plan if state.beside is None else state.beside.indexed(state, into, "/", plan)


def erased(state: MemoryState, owner: str) -> Plan[dict[str, int]]:
    """Delete all files of an owner with their revisions. One round trip; the server frees their memory in the background."""
    _, *keys = state.keys.files_of_resource(owner)
    number, _ = yield from send(("ZCARD", keys[0]), ("UNLINK", *keys), in_order=True)
    return {"files": number}


HOOKS["files"] = cast("Room", sys.modules[__name__])
