"""The messages behind an observation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.effects import send
from langchain_workingmem._redis.codec import decode_message
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem.checks import check_range
from langchain_workingmem.errors import ObservationNotFoundError
from langchain_workingmem.models import RecallHit, RecallResult, StoredMessage
from langchain_workingmem.observations.reading import find_log_key, read

if TYPE_CHECKING:
    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import Observation

SOURCES = Script("observations/sources", "header")


def sources(
    state: MemoryState,
    observation_id: str,
    thread_id: str | None,
    resource_id: str | None,
    message_range: int | tuple[int, int],
) -> Plan[RecallResult]:
    """Plan `Observations.sources`."""
    window = check_range(message_range)
    where = yield from find_log_key(state, thread_id, resource_id)
    log = (yield from read(state, where)).log
    found = next((one for one in log.observations if one.id == observation_id), None)
    if found is None:
        raise ObservationNotFoundError(observation_id)
    return (yield from read_sources(state, found, where.owner, window))


def read_sources(
    state: MemoryState, observation: Observation, owner: str, window: tuple[int, int]
) -> Plan[RecallResult]:
    """Read the messages behind an observation, with those around them. One round trip."""
    seqs: dict[str, list[int]] = {}
    for thread, seq in observation.positions:
        seqs.setdefault(thread, []).append(seq)
    calls = [SOURCES.call(state.keys.of(id).all, owner, *window, *sorted(own)) for id, own in seqs.items()]
    hits: list[RecallHit] = []
    rows: dict[tuple[str, int], StoredMessage] = {}
    for id, reply in zip(seqs, (yield from send(*calls)), strict=True):
        title, parts = (reply[0].decode() or None, reply[1:]) if reply else (None, [])
        for front, own, back in zip(parts[1::4], parts[2::4], parts[3::4], strict=True):
            before, (row,), after = (_rows(some, id) for some in (front, own, back))
            rows |= {(id, one.seq): one for one in (*before, row, *after)}
            hits.append(
                RecallHit(
                    message=row.message,
                    thread_id=id,
                    score=1.0,
                    similarity=1.0,
                    before=[one.message for one in reversed(before)],
                    after=[one.message for one in after],
                    stored_at=row.stored_at,
                    thread_title=title,
                )
            )
    hits.sort(key=lambda hit: hit.stored_at)
    return RecallResult(hits=hits, rows=sorted(rows.values(), key=lambda row: (row.stored_at, row.thread_id)))


def _rows(reply: list[Any], thread_id: str) -> list[StoredMessage]:
    columns = (reply[start::3] for start in range(3))
    return [decode_message(id, seq, value, thread_id) for id, seq, value in zip(*columns, strict=True)]
