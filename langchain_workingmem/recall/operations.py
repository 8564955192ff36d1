"""The plans of semantic recall: search candidates, rank them, and fetch the messages around the best."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any

from langchain_workingmem._documents.filters import Filter
from langchain_workingmem._engine.plan import Plan, compute, send
from langchain_workingmem._engine.tracing import traced
from langchain_workingmem._redis.access import check_owner
from langchain_workingmem._redis.codec import as_dict, decode_message
from langchain_workingmem._redis.indexes import search_with_repair
from langchain_workingmem._redis.keys import THE_USER, decode, encode
from langchain_workingmem._redis.queries import (
    MAX_QUERY_CHARACTERS,
    columns,
    numbers,
    similarities,
    total_of,
    vector_search,
    word_search,
    words_of,
)
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._text.chunks import keep_ends
from langchain_workingmem._text.unicode import to_utf8
from langchain_workingmem.errors import RerankerError
from langchain_workingmem.history import result_with_media
from langchain_workingmem.models import RecallResult
from langchain_workingmem.recall.authors import Authors, apart, are_several
from langchain_workingmem.recall.hits import (
    Fetched,
    hits_of,
    is_crowded,
    near_enough,
    picked,
)
from langchain_workingmem.recall.query import DEEPEST
from langchain_workingmem.recall.ranking import (
    CANDIDATES,
    STANDING_OUT,
    USERS,
    Candidates,
    Ranked,
    lead_of_words,
    rank,
    trust_in_words,
    with_best_chunks,
)
from langchain_workingmem.recall.reindex import FEWEST, floor_for
from langchain_workingmem.recall.reranking import rerank
from langchain_workingmem.recall.shown import result_of
from langchain_workingmem.recall.times import named_times
from langchain_workingmem.threads import find_threads, get_existing_thread, get_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.options import OnError
    from langchain_workingmem.recall.hits import Found
    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.ranking import Numbers

_log = logging.getLogger("langchain_workingmem")

WINDOWS = Script("recall/windows", "header")


def search_as_run(state: MemoryState, query: Query) -> Plan[RecallResult]:
    """Search as a retriever run that callbacks and LangSmith record, with the hits as documents."""
    return traced("retriever", "semantic_recall", query.text, search_messages(state, query), RecallResult.to_documents)


def search_messages(state: MemoryState, query: Query) -> Plan[RecallResult]:
    """Find candidates and fetch the best with their windows. Two round trips; one more to look up a thread's owner."""
    if not query.text.strip():
        return RecallResult()
    if query.user_id is None and query.scope == "user":
        owned = yield from get_existing_thread(state, query.thread_id or "", None)
        query = replace(query, user_id=owned.user_id)
    query = query.in_zone(state.zone(query.thread_id, query.user_id, query.timezone))
    checks: list[Command] = []
    if query.thread_id is not None and query.user_id is not None:
        checks = [("HGET", state.keys.of(query.thread_id).thread, "user")]
    query = yield from among_threads(state, query)
    ranked, replies = yield from find_candidates(state, query, checks)
    if checks:
        check_owner(replies[0], query.thread_id or "", query.user_id)
    return (yield from fetch_hits(state, query, ranked))


def among_threads(state: MemoryState, query: Query) -> Plan[Query]:
    """Look up the threads that a filter names. One round trip, none without such a filter."""
    if query.threads is None and not query.mixed:
        return query
    wanted = query.threads or Filter({})
    if query.scope == "user":
        return query.among((yield from find_threads(state, query.user_id or "", wanted, query.mixed)))
    thread = yield from get_thread(state, query.thread_id or "", query.user_id)
    return query.among({thread.id: thread.metadata} if thread and wanted.matches(thread.metadata) else {})


def embed_query(state: MemoryState, text: str) -> Plan[np.ndarray[Any, Any]]:
    """Embed a query, and check that the index fits its vector."""
    found = yield from state.embedder.embed([to_utf8(text)], query=True)
    yield from state.indexes.ready()
    yield from state.indexes.vectors_ready(found.shape[1])
    return found


def find_candidates(
    state: MemoryState, query: Query, beside: Sequence[Command], *, spare: int = 0
) -> Plan[tuple[list[Ranked], list[Any]]]:
    """Embed the query, search and rank. One round trip, which returns the replies to the commands `beside` too.

    `spare` messages are searched beyond `top_k`, for a caller that drops some.
    The search is repeated deeper when a few messages of many chunks fill the list of candidates, with another
    embedding when the candidates show that the query names an author who was unknown before. A query about a
    time may resemble nothing that was said then, so that time is searched besides.
    """
    options, where = state.recalling, query.filter()
    hybrid, metric = options.search == "hybrid", options.index.distance
    question = keep_ends(query.text, MAX_QUERY_CHARACTERS)
    times = named_times(question, query.now, options.when)
    needed = {"message": query.exclude, "created_at": times, "metadata": query.unsure is not None}
    fields = [name for name, is_needed in needed.items() if is_needed]
    wanted, threshold = query.top_k + spare, query.threshold or 0.0
    name, depth, during = state.keys.vectors_index, query.depth(spare, hybrid=hybrid), query.during(times)
    filters = (where, during) if during else (where,)
    owner = query.user_id or f"\0{query.thread_id}"  # no id holds a NUL
    known = (names := state.room(Authors)).get(owner) or frozenset()
    meant, text, put = apart(question, known)
    vector = yield from embed_query(state, put)
    others: list[Any] | None = None

    while True:
        words = words_of(text, whole=True) if hybrid else []
        after = [word_search(name, words, where, depth, fields)] if words else []
        more = (*after, *beside) if others is None else after

        def search(vector: Any = vector, depth: int = depth, more: Sequence[Command] = more) -> Plan[list[Any]]:
            # packed anew after a repair, which may find an index of another number type
            packed = state.indexes.pack(vector)[0]
            return send(*(vector_search(name, packed, one, depth, fields) for one in filters), *more)

        heal = partial(state.indexes.refresh, vector.shape[1])
        replies = yield from search_with_repair(search, heal, create=state.indexes.create)
        searched = replies[: len(filters) + len(after)]
        found, nearest = _candidates(query, searched, len(filters), metric, content=bool(fields), timed=bool(times))
        others = replies[len(searched) :] if others is None else others
        seen = {author.decode().rstrip(THE_USER) for author in {*found.authors}}
        if not seen <= known and (now := apart(question, known := names.note(owner, seen))) != (meant, text, put):
            meant, text, put = now
            vector = yield from embed_query(state, put)
            continue
        best, counts = found.values[found.near :][:STANDING_OUT].tolist(), (len(words), total_of(searched[-1]))
        choose = partial(
            rank,
            found,
            threshold=threshold,
            weights=options.weights,
            trust=trust_in_words(best, *counts) if hybrid else None,
            lead=lead_of_words(best, *counts),
            # a name that all messages bear tells nothing
            authors={one.encode() for one in meant if len(meant) < len(known)} or USERS,
            several=are_several(known),
            times=times,
        )
        ranked = choose(wanted)
        if len(ranked) >= wanted or len(nearest) < depth or depth == DEEPEST or nearest[-1] < threshold:
            if is_crowded(ranked[:wanted]):
                ranked = choose(wanted + CANDIDATES)
            if query.max_tokens is not None:
                ranked = with_best_chunks(ranked, options.chunk_tokens, found, options.weights.dense)
            return ranked, others
        depth = min(depth * 4, DEEPEST)


def _candidates(
    query: Query,
    replies: Sequence[Any],
    near: int,
    metric: str,
    *,
    content: bool,
    timed: bool,
) -> tuple[Candidates, Numbers]:
    """Read the replies, the first `near` of vectors, without what is excluded; return also the first's similarities."""
    import numpy as np

    keys, ranks, rows = columns(replies[0], "sortkey", content=content)
    values = nearest = similarities(numbers(ranks), metric)
    count = len(keys)
    for at, reply in enumerate(replies[1:], 1):
        more, scores, their_rows = columns(reply, "sortkey" if at < near else "score", content=content)
        theirs = numbers(scores)
        if at < near:
            theirs, count = similarities(theirs, metric), count + len(more)
        keys, values, rows = keys + more, np.concatenate((values, theirs)), rows + their_rows
    found, fields = Candidates.read(keys, values, count, rows, timed=timed)
    if query.unsure is not None:
        sure = [
            query.passes(thread, as_dict(row or {}).get(b"metadata"))
            for (thread, *_), row in zip(found.messages(), fields, strict=True)
        ]
        found, fields = found.where(sure), [*compress(fields, sure)]
    if query.exclude:
        excluded = {id.encode() for id in query.exclude}
        there = None if query.exclude_in is None else encode(query.exclude_in).encode()
        found = found.where(
            there not in (None, thread) or as_dict(row or {}).get(b"message") not in excluded
            for (thread, *_), row in zip(found.messages(), fields, strict=True)
        )
    return found, nearest


def fetch_hits(
    state: MemoryState,
    query: Query,
    ranked: Sequence[Ranked],
    wanted: Callable[[Ranked], bool] = lambda _: True,
    *,
    on_error: OnError = "raise",
) -> Plan[RecallResult]:
    """Fetch the messages around the best. One round trip, none without hits. With on_error="log" a reranker may fail.

    A hit whose message is gone is dropped: vectors outlive a thread that expires, and are swept in slices after a deletion,
    a clearing or a transfer.
    """
    options = state.recalling
    # similarities by l2 are on another scale
    has_floor = query.turn and query.threshold is None and options.index.distance != "l2"
    floor = (yield from floor_for(state, learn=len(ranked) >= FEWEST)) if has_floor else None
    chosen = picked([*filter(wanted, ranked)], query)
    page = yield from fetch_windows(state, query, chosen)
    chosen = [one for one in chosen if one[:2] in page.found]

    def found() -> list[Found]:
        hits = hits_of(chosen, page)
        return near_enough(query, hits, page, floor) if has_floor else hits

    hits = yield from compute(found, page.size)
    if hits:
        try:
            hits = yield from rerank(options, query, hits[: query.top_k] if query.reranked else hits, page)
        except RerankerError as error:
            if on_error == "raise":
                raise
            _log.warning("%s; this turn goes on without it", error)
    result = yield from compute(
        partial(result_of, query, hits[: query.keep], page, options.chunk_tokens, ranked), page.size
    )
    return (yield from result_with_media(state, result)) if page.has_media else result


def fetch_windows(state: MemoryState, query: Query, ranked: Sequence[Ranked]) -> Plan[Fetched]:
    """Fetch candidates and what was said around them. One round trip, or none."""
    threads: dict[bytes, list[int | bytes]] = {}
    for one in ranked:
        threads.setdefault(one.thread, []).extend((one.seq, one.tokens))
    before, after = query.window
    ids = {thread: decode(thread) for thread in threads}
    calls = []
    for thread, wanted in threads.items():
        keys = state.keys.of(ids[thread])
        calls.append(WINDOWS.call(keys.all, encode(query.user_id or ""), before, after, *wanted))
    replies = (yield from send(*calls)) if calls else []
    size = sum(sum(map(len, reply[5::4])) for reply in replies)
    return (yield from compute(partial(_page, ids, replies, size), size))


def _page(ids: Mapping[bytes, str], replies: Sequence[Any], size: int) -> Fetched:
    """Read the replies."""
    page = Fetched(size=size)
    for (thread, thread_id), reply in zip(ids.items(), replies, strict=True):
        if not reply:
            continue
        title, found, *rows = reply
        page.titles[thread] = title.decode() or None
        for seq, before in zip(found[::2], found[1::2], strict=True):
            page.found.add(hit := (thread, int(seq)))
            page.ranks[hit] = before
        for number, seq, id, value in zip(rows[::4], rows[1::4], rows[2::4], rows[3::4], strict=True):
            at = (thread, int(seq))
            if number != b"":
                page.ranks[at] = number
                page.said[thread, number] = at
            if at not in page.rows:
                page.rows[at] = decode_message(id, seq, value, thread_id)
                page.has_media = page.has_media or value[-2:] == b"]}"
    return page
