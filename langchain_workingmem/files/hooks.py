"""What files offer to the rooms below (`_redis.state.wing`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_workingmem._engine.plan import send
from langchain_workingmem.files import archive

if TYPE_CHECKING:
    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.state import MemoryState

exported = archive.export
merged_into = archive.merge


def erased(state: MemoryState, owner: str) -> Plan[dict[str, int]]:
    """Delete all files of an owner with their revisions. One round trip; the server frees their memory in the background."""
    _, *keys = state.keys.files_of_user(owner)
    number, _ = yield from send(("ZCARD", keys[0]), ("UNLINK", *keys), in_order=True)
    return {"files": number}
