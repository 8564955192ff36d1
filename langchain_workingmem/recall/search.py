"""The plans of semantic recall: embed the question, search vectors and words at once, rank, and fetch windows."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.calls import traced
from langchain_workingmem._engine.plan import Plan, compute, send
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.indexes import search_with_repair
from langchain_workingmem._redis.keys import THE_USER, encode
from langchain_workingmem._redis.queries import (
    MAX_QUERY_CHARACTERS,
    columns,
    numbers,
    pack,
    similarities,
    vector_search,
    word_search,
    words_of,
)
from langchain_workingmem._redis.scripts import check_owner
from langchain_workingmem._text.unicode import keep_ends, to_utf8
from langchain_workingmem._text.values import in_zone
from langchain_workingmem.models import RecallResult
from langchain_workingmem.recall.hits import fetch_hits
from langchain_workingmem.recall.question import Authors, apart, named_times
from langchain_workingmem.recall.ranking import BY_USER, CANDIDATES, USERS, Candidates, rank
from langchain_workingmem.threads import find_threads, get_existing_thread, get_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.filters import Filter
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.recall.question import Query
    from langchain_workingmem.recall.ranking import Ranking, Span

NEAREST = 100  # candidates of a search by vectors alone; 200 cost it another fifth of its time
CHECKED = 1_000  # candidates of each search whose metadata is checked here
FEW = 10  # different messages that a search should rank at least
DEEPER, DEEPEST = 20, 1_000_000  # times as many candidates; as many as Search returns at once


def search_as_run(state: MemoryState, query: Query) -> Plan[RecallResult]:
    """Search as a retriever run that callbacks and LangSmith record, with the hits as documents."""
    return traced(search_messages(state, query), query.text)


def search_messages(state: MemoryState, query: Query) -> Plan[RecallResult]:
    """Find candidates and fetch the best with their windows. Two round trips; one more to look up a thread's owner."""
    if not query.text.strip():
        return RecallResult()
    if query.user_id is None and query.scope == "user":
        owned = yield from get_existing_thread(state, query.thread_id or "", None)
        query = replace(query, user_id=owned.user_id)
    if (zone := state.zone(query.thread_id, query.user_id, query.timezone)) is not None:
        query = replace(query, now=in_zone(query.now, zone))
    checks: list[Command] = []
    if query.thread_id is not None and query.user_id is not None:
        checks = [("HGET", state.keys.of(query.thread_id).thread, "user")]
    ranking, replies = yield from search(state, query, checks)
    if checks:
        check_owner(replies[0], query.thread_id or "", query.user_id)
    return (yield from fetch_hits(state, query, ranking))


def _among_threads(state: MemoryState, query: Query, wanted: Filter) -> Plan[Query]:
    """Look up the threads that a filter names. One round trip."""
    if query.scope == "user":
        ids = yield from find_threads(state, query.user_id or "", wanted)
    else:
        thread = yield from get_thread(state, query.thread_id or "", query.user_id)
        ids = [thread.id] if thread and wanted.matches(thread.metadata) else []
    return replace(query, where={**query.where, "thread_ids": ids})


def search(
    state: MemoryState, query: Query, beside: Sequence[Command] = (), *, spare: int = 0
) -> Plan[tuple[Ranking, list[Any]]]:
    """Embed the question, search, rank, with `spare` messages for callers that drop some; return replies `beside`, too.

    One round trip. One more where it shows an author whom the question names and who was unknown, and where the chunks
    of a few messages, copies of a text, or messages that a filter leaves out, take all places.
    """
    if query.threads is not None:
        query = yield from _among_threads(state, query, query.threads)
    options, authors = state.recalling, state.room(Authors)
    owner = query.user_id or f"\0{query.thread_id}"  # no id holds a NUL
    known, is_hybrid = authors.get(owner) or frozenset(), options.search == "hybrid"
    usual = CHECKED if query.unsure else CANDIDATES if is_hybrid else NEAREST
    depth = min(max(usual, query.fetched * 2 + spare + len(query.exclude) + 8), DEEPEST)
    asked = Asked.of(state, query, known)
    vector = yield from state.embedder.embed([asked.text], query=True)
    found, replies = yield from _candidates(state, query, asked, vector, depth, beside)
    if not known >= (seen := {author.decode().rstrip(THE_USER) for author in {*found.authors}}):
        known = authors.note(owner, seen)
        before, asked = asked, Asked.of(state, query, known)
        if (asked.text, asked.words) != (before.text, before.words):
            vector = yield from state.embedder.embed([asked.text], query=True)
            found, _ = yield from _candidates(state, query, asked, vector, depth)
    is_named = 0 < len(asked.authors) < len(known)  # a name that all messages bear tells nothing
    ranked = partial(
        rank,
        weights=options.weights,
        hybrid=is_hybrid,
        numbered=any(map(str.isdigit, asked.text)),
        authors={one.encode() for one in asked.authors} if is_named else USERS,
        bonus=options.weights.author if is_named else BY_USER,
        times=asked.times,
        threshold=query.threshold or 0.0,
    )
    ranking = ranked(found)
    different = len({*ranking.similarities.tolist()})  # copies of a text have the same
    is_crowded = len(ranking) < query.fetched + spare or min(len(ranking), different) < max(FEW, query.fetched)
    if found.has_more and is_crowded and depth < DEEPEST:
        depth = DEEPEST if query.unsure else min(depth * DEEPER, DEEPEST)
        found, _ = yield from _candidates(state, query, asked, vector, depth)
        ranking = ranked(found)
    return ranking, replies


@dataclass(frozen=True, slots=True)
class Asked:
    """What is searched for."""

    authors: frozenset[str]  # whom the question names
    text: str  # to embed
    words: list[str]
    times: Sequence[Span]

    @classmethod
    def of(cls, state: MemoryState, query: Query, known: frozenset[str]) -> Asked:
        """Divide the question; `known` are the authors of the user."""
        options = state.recalling
        question = keep_ends(query.text, MAX_QUERY_CHARACTERS)
        whole = keep_ends(f"{query.before}\n{query.text}", MAX_QUERY_CHARACTERS) if query.before else question
        authors, text, embedded = apart(whole, known)
        words = words_of(text, whole=True) if options.search == "hybrid" else []
        return cls(authors, to_utf8(embedded), words, named_times(question, query.now, options.when))


def _candidates(
    state: MemoryState,
    query: Query,
    asked: Asked,
    vector: np.ndarray[Any, Any],
    depth: int,
    beside: Sequence[Command] = (),
) -> Plan[tuple[Candidates, list[Any]]]:
    """Search with the commands `beside`; repair an index that was dropped or rebuilt. One round trip."""
    import numpy as np

    indexes, name, dims = state.indexes, state.keys.vectors_index, vector.shape[1]
    if not indexes.threads_ready:
        yield from indexes.ready()
    if indexes.dims != dims:
        yield from indexes.vectors_ready(dims)
    where = query.filter()
    near = [where, query.filter(asked.times)] if asked.times else [where]
    needed = {"message": query.exclude, "created_at": asked.times, "metadata": query.unsure is not None}
    fields = [name for name, is_needed in needed.items() if is_needed]

    def commands() -> Plan[list[Any]]:
        # anew after a repair, which may find an index of another number type
        packed = pack(vector, indexes.dtype, state.recalling.index.distance)[0]
        searches = [vector_search(name, packed, one, depth, fields) for one in near]
        if asked.words:
            searches.append(word_search(name, asked.words, where, depth, fields))
        return send(*searches, *beside)

    replies = yield from search_with_repair(commands, partial(indexes.refresh, dims), create=indexes.create)
    keys, values, rows, count = list[bytes](), list[Any](), list[Any](), 0
    searches = len(near) + bool(asked.words)
    for at, reply in enumerate(replies[:searches]):
        is_near = at < len(near)
        some, ranks, their_rows = columns(reply, "sortkey" if is_near else "score", content=bool(fields))
        found = numbers(ranks)
        values.append(similarities(found, state.recalling.index.distance) if is_near else found)
        keys, rows, count = keys + some, rows + their_rows, count + len(some) * is_near
    has_more = bool(len(values[0]) >= depth and values[0][-1] >= (query.threshold or 0))
    scores, times = np.concatenate(values), list[int]()
    if fields:
        work = (query.unsure.work + 1_000) * len(keys) if query.unsure else len(keys)  # what a metadata is, about
        kept, details = yield from compute(partial(_passing, query, keys, rows), work)
        times = [int(row.get(b"created_at", 0)) for row in compress(details, kept)]
        keys, scores, count = [*compress(keys, kept)], scores[kept], sum(kept[:count])
    return Candidates.read(keys, scores, count, times, has_more=has_more), replies[searches:]


def _passing(query: Query, keys: Sequence[bytes], rows: Sequence[Any]) -> tuple[list[bool], list[dict[bytes, Any]]]:
    """Tell of each candidate whether it is not excluded, and has the metadata that the index leaves to be checked."""
    excluded = {id.encode() for id in query.exclude}
    there = b":{%s}:" % encode(query.exclude_in).encode() if query.exclude_in else b""
    details = [as_dict(row or {}) for row in rows]  # nothing of a document that was deleted during the search
    return [
        not (row.get(b"message") in excluded and there in key)
        and (query.unsure is None or query.unsure.matches(json.loads(row.get(b"metadata") or b"{}")))
        for key, row in zip(keys, details, strict=True)
    ], details
