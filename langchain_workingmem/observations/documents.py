"""Documents of recall: each observation has one beside the vectors of its first source, so that recall finds it."""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING

from langchain_workingmem._engine.effects import Embed, send
from langchain_workingmem._redis.access import run_script
from langchain_workingmem._redis.codec import decode_message, filters_of
from langchain_workingmem._redis.indexes import NO_VECTORS
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._text.searched import as_searched
from langchain_workingmem._text.unicode import to_utf8
from langchain_workingmem.observations.log import COVERAGE, read_observation, write_observation
from langchain_workingmem.observations.reading import of_thread, read_thread_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.effects import Argument, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import Observation, ObservationLog

INDEX = Script("observations/index", *COVERAGE)
DOCUMENTS = Script("observations/documents")
BATCH = 100  # documents that are embedded and written at a time
_log = logging.getLogger("langchain_workingmem")


def embed(
    state: MemoryState, observations: Sequence[Observation], messages: Sequence[BaseMessage]
) -> Plan[tuple[str, list[list[Argument]]]]:
    """Embed observations, whose first sources are `messages`, for recall.

    Returns the digest of the embedding settings, and the fields and values of each document: none where recall is off, or the
    model fails. `recall.reindex` makes up for that.
    """
    nothing: tuple[str, list[list[Argument]]] = ("", [[] for _ in observations])
    if state.recall is None or not observations:
        return nothing
    try:
        yield from state.indexes.ready()
        found = yield from Embed([to_utf8(one.text) for one in observations])
        yield from state.indexes.vectors_ready(found.shape[1])
        vectors = state.indexes.pack(found)
    except NO_VECTORS as error:
        _log.warning("%s; recall does not find %d observations until recall.reindex()", error, len(observations))
        return nothing
    options = state.recalling
    return state.indexes.index_digest(found.shape[1]), [
        [*filters_of(message, options), "text", as_searched(to_utf8(one.text)), "vector", vector]
        for one, message, vector in zip(observations, messages, vectors, strict=True)
    ]


def reindex_documents(
    state: MemoryState, thread_id: str, *, digest: str = "", force: bool = False, log: ObservationLog | None = None
) -> Plan[None]:
    """Make the documents that the observations of a thread lack, and those that are not of the settings `digest` anew.

    One round trip where there is no log or the caller has read it; else two or three. Then two for each `BATCH`, and a call of the
    embedding model. An observation that was condensed keeps its document. One that is condensed needs none where those that it
    stands for have theirs.
    """
    ((has_log, *rows),) = yield from send(DOCUMENTS.call(state.keys.of(thread_id)))
    if not has_log:
        return
    log = log or (yield from read_thread_log(state, of_thread(state, thread_id, None))).log
    wanted, known = [], []
    for made_for, seqs, value in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
        if value:
            one = read_observation(0, value)
            known.append((seqs.decode(), one.text))
            if force or (digest and made_for.decode() != digest):
                wanted.append(one)
    texts, sources = {*known}, [{*seqs.split(",")} for seqs, _ in known]
    for one in log.observations:
        own = sources_in(one, thread_id)
        if (own, one.text) in texts:
            continue
        if one.level == 0 or not any(found & {*own.split(",")} for found in sources):
            wanted.append(one)
    yield from index_documents(state, thread_id, wanted)


def index_documents(state: MemoryState, thread_id: str, added: Iterable[Observation]) -> Plan[None]:
    """Write documents of a thread. Two round trips for each `BATCH`, and a call of the embedding model."""
    rest = iter(added)
    while batch := [*islice(rest, BATCH)]:
        yield from _index(state, thread_id, batch)


def _index(state: MemoryState, thread_id: str, added: Sequence[Observation]) -> Plan[None]:
    """Write documents of a thread. Two round trips, and a call of the embedding model."""
    keys = state.keys.of(thread_id)
    ids = [one.sources[0][1] for one in added]
    (values,) = yield from send(("HMGET", keys.messages, *ids))
    rows = zip(ids, values, strict=True)
    messages = {id: decode_message(id.encode(), b"0", value, thread_id).message for id, value in rows if value}
    present = [one for one in added if one.sources[0][1] in messages]
    digest, documents = yield from embed(state, present, [messages[one.sources[0][1]] for one in present])
    new = [part for one, fields in zip(present, documents, strict=True) if fields for part in _new(one, fields)]
    if new:
        yield from run_script(thread_id, None, INDEX.call(keys, "", digest, *new))


def _new(one: Observation, fields: Sequence[Argument]) -> Iterator[Argument]:
    yield from (sources_in(one, one.positions[0][0]), write_observation(one), len(fields), *fields)


def sources_in(observation: Observation, thread_id: str) -> str:
    """Return the sequence numbers of the sources in a thread, as scripts take them."""
    return ",".join(str(seq) for thread, seq in observation.positions if thread == thread_id)
