"""What the observer is shown besides messages: the user's question of their turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.messages import HumanMessage

from langchain_workingmem._redis.access import owner_tag, run_script
from langchain_workingmem._redis.codec import decode_message
from langchain_workingmem._redis.scripts import Script

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import StoredMessage

QUESTIONS = Script("observations/questions", "header")


def questions_before(
    state: MemoryState, thread_id: str, user_id: str | None, rows: Sequence[StoredMessage]
) -> Plan[list[StoredMessage]]:
    """Return the questions of turns that begin before the messages of a batch, or between them without being in it.

    One round trip, none where each message follows its question.
    """
    heads = [
        row.seq
        for before, row in zip((None, *rows), rows, strict=False)
        if not isinstance(row.message, HumanMessage) and (before is None or before.seq + 1 < row.seq)
    ]
    if not heads:
        return []
    call = QUESTIONS.call(state.keys.of(thread_id).all, owner_tag(user_id), *heads)
    (reply,) = yield from run_script(thread_id, user_id, call)
    found = [decode_message(*one, thread_id) for one in zip(reply[::3], reply[1::3], reply[2::3], strict=True)]
    given = {row.seq for row in rows}
    return [one for one in found if one.seq not in given and not one.refused]
