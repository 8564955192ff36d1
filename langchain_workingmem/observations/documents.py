"""Documents of recall: each observation has one beside the vectors of its first source, so that recall finds it."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_workingmem._engine.effects import Embed, send
from langchain_workingmem._redis.access import run_script
from langchain_workingmem._redis.codec import decode_message, filters_of
from langchain_workingmem._redis.indexes import NO_VECTORS
from langchain_workingmem._redis.keys import decode
from langchain_workingmem._redis.scripts import COVERAGE, Script
from langchain_workingmem._text.unicode import to_utf8
from langchain_workingmem.observations.log import KnownLog, known_log, learn, read_observation, write_observation
from langchain_workingmem.observations.reading import READ_RESOURCE, LogKey, read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.effects import Argument, Command, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import Observation

INDEX = Script("observations/index", *COVERAGE)
DOCUMENTS = Script("observations/documents")
BATCH = 100  # documents that are embedded and written at a time
_log = logging.getLogger("langchain_workingmem")
T = TypeVar("T")


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
        [*filters_of(message, options), "text", to_utf8(one.text), "vector", vector]
        for one, message, vector in zip(observations, messages, vectors, strict=True)
    ]


def list_documents(state: MemoryState, thread_id: str) -> Command:
    """Return the command whose reply `reindex_documents` takes."""
    return DOCUMENTS.call(state.keys.of(thread_id).all)


def reindex_documents(
    state: MemoryState, thread_id: str, reply: Sequence[Any] | None = None, *, digest: str = "", force: bool = False
) -> Plan[None]:
    """Make the documents that the observations of a thread lack, and those that are not of the settings `digest` anew.

    No round trip where there is no log, given the reply to `list_documents`; else one or two, two for each `BATCH`, and a
    call of the embedding model for each. An observation that was condensed keeps its document. One that is condensed needs none
    where those that it stands for have theirs.
    """
    if reply is None:
        (reply,) = yield from send(list_documents(state, thread_id))
    owner, scope, *rows = reply
    if not scope:
        return
    where = LogKey(state.keys.of(thread_id).all, thread_id, None)
    if scope == b"r":
        where = LogKey(state.keys.log_of_resource(decode(owner)), None, decode(owner))
    log = (yield from read(state, where)).log
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
        if one.positions[0][0] != thread_id or (own, one.text) in texts:
            continue
        if one.level == 0 or not any(found <= {*own.split(",")} for found in sources):
            wanted.append(one)
    rest = iter(wanted)
    while batch := [*islice(rest, BATCH)]:
        yield from _index(state, thread_id, [], batch)


def change_documents(state: MemoryState, before: Sequence[Observation], after: Sequence[Observation]) -> Plan[None]:
    """Follow a change of a log by a person: documents of observations that it does not list any more go, new ones are made.

    With a condensed observation the documents of those that it stood for go. No round trip where both list the same, else one or
    two for each thread.
    """
    kept, old = {one.number for one in after}, {one.number for one in before}
    removed: dict[str, list[Argument]] = {}
    for one in before:
        if one.number not in kept:
            for thread_id in {thread for thread, _ in one.positions}:
                removed.setdefault(thread_id, []).extend((sources_in(one, thread_id), "" if one.level else one.text))
    added: dict[str, list[Observation]] = {}
    for one in after:
        if one.number not in old:
            added.setdefault(one.positions[0][0], []).append(one)
    for thread_id in dict.fromkeys((*removed, *added)):
        new = added.get(thread_id, [])
        yield from _index(state, thread_id, removed.get(thread_id, []), new[:BATCH])
        for start in range(BATCH, len(new), BATCH):
            yield from _index(state, thread_id, [], new[start : start + BATCH])


def known_log_of(state: MemoryState, resource_id: str) -> KnownLog:
    """Return what this process knows of the log of a resource."""
    return known_log(state, state.keys.log_of_resource(resource_id)[1])


def ids_command(state: MemoryState, resource_id: str, known: KnownLog) -> Command:
    """Return the command whose reply `with_ids` takes."""
    log = state.keys.log_of_resource(resource_id)
    return READ_RESOURCE.call(log, "", known.version, known.next_number)


def with_ids(
    state: MemoryState, resource_id: str, found: Mapping[T, Observation], reply: Sequence[Any], known: KnownLog
) -> dict[T, Observation]:
    """Set the ids that observations have got in the log of a resource since their documents were written.

    What the log does not list any more has none.
    """
    log = learn(state, state.keys.log_of_resource(resource_id)[1], reply[0], known)
    ids = {(one.text, one.positions): one.id for one in log.observations.values()}
    return {
        key: one if one.id else replace(one, id=ids.get((one.text, one.positions), "")) for key, one in found.items()
    }


def _index(state: MemoryState, thread_id: str, removed: Sequence[Argument], added: Sequence[Observation]) -> Plan[None]:
    """Delete and write documents of a thread. One round trip; with new ones two, and a call of the embedding model."""
    keys = state.keys.of(thread_id)
    messages: Mapping[str, BaseMessage] = {}
    if added and state.recall is not None:
        ids = [one.sources[0][1] for one in added]
        (values,) = yield from send(("HMGET", keys.messages, *ids))
        rows = zip(ids, values, strict=True)
        messages = {id: decode_message(id.encode(), b"0", value, thread_id).message for id, value in rows if value}
    present = [one for one in added if one.sources[0][1] in messages]
    digest, documents = yield from embed(state, present, [messages[one.sources[0][1]] for one in present])
    arguments: list[Argument] = ["", len(removed) // 2, *removed, digest]
    arguments += [part for one, fields in zip(present, documents, strict=True) if fields for part in _new(one, fields)]
    if removed or any(documents):
        yield from run_script(thread_id, None, INDEX.call(keys.all, *arguments))


def _new(one: Observation, fields: Sequence[Argument]) -> Iterator[Argument]:
    yield from (sources_in(one, one.positions[0][0]), write_observation(one), to_utf8(one.text), len(fields), *fields)


def sources_in(observation: Observation, thread_id: str) -> str:
    """Return the sequence numbers of the sources in a thread, as scripts take them."""
    return ",".join(str(seq) for thread, seq in observation.positions if thread == thread_id)
