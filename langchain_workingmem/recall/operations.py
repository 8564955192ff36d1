"""Plans of semantic recall."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_workingmem._engine.effects import Embed, Plan, compute, send, traced
from langchain_workingmem._redis.access import check_owner
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import decode, encode
from langchain_workingmem._redis.queries import (
    MAX_QUERY_CHARACTERS,
    columns,
    documents_in,
    pack,
    similarity,
    vector_search,
    word_search,
)
from langchain_workingmem._redis.state import search_with_repair
from langchain_workingmem._text.chunks import keep_ends
from langchain_workingmem._text.unicode import to_utf8
from langchain_workingmem.errors import (
    ThreadNotFoundError,
)
from langchain_workingmem.models import RecallResult
from langchain_workingmem.recall.authors import in_first_person, named, without
from langchain_workingmem.recall.fetching import fetch_windows
from langchain_workingmem.recall.hits import Fetched, hits_of, is_crowded, picked, result_of, says
from langchain_workingmem.recall.ranking import (
    CANDIDATES,
    Candidate,
    Ranked,
    floor_of,
    rank_hybrid,
    rank_semantic,
    reaches,
    with_pieces,
)
from langchain_workingmem.threads import get_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from langchain_workingmem._engine.effects import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.options import RecallOptions
    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.ranking import Floor


DEEPEST = 1_000_000  # candidates that Search returns at once
MOST_TURNS = 4  # of looking for other hits, before a thread that is in the way is left out
MessagePosition: TypeAlias = tuple[
    bytes, int, int
]  # of a message as its vectors name it: thread, sequence number, tokens


def search_as_run(state: MemoryState, query: Query) -> Plan[RecallResult]:
    """Search as a retriever run that callbacks and LangSmith see, with the hits as documents."""
    found = traced("retriever", "semantic_recall", query.text, search_messages(state, query), RecallResult.to_documents)
    return (yield from found)


def search_messages(state: MemoryState, query: Query) -> Plan[RecallResult]:
    """Embed the query, find candidates, fetch the windows of the best. Two round trips.

    One more when only a thread is known and its owner must be looked up, and one more when the pieces of a few long
    messages fill the whole list of candidates.
    """
    if not query.text.strip():
        return RecallResult()
    if query.resource_id is None and query.scope == "resource":
        thread = yield from get_thread(state, query.thread_id or "", None)
        if thread is None:
            raise ThreadNotFoundError(query.thread_id or "")
        query = replace(query, resource_id=thread.resource_id)
    checks = ownership(state, query)
    ranked, replies = yield from find_candidates(state, query, checks)
    if checks:
        check_owner(replies[0], query.thread_id or "", query.resource_id)
    return (yield from fetch_hits(state, query, ranked))


def embed_query(state: MemoryState, text: str) -> Plan[bytes]:
    """Embed a query as the index wants it."""
    found = yield Embed([to_utf8(text)], query=True)
    yield from state.ready()
    yield from state.vectors_ready(found.shape[1])
    return pack(found, state.index.dtype)[0]


def ownership(state: MemoryState, query: Query) -> list[Command]:
    """Ask for the owner of a thread that is named beside a resource."""
    if query.thread_id is None or query.resource_id is None:
        return []
    return [("HGET", state.keys.of(query.thread_id).thread, "resource")]


def find_candidates(
    state: MemoryState,
    query: Query,
    beside: Sequence[Command],
    *,
    spare: int = 0,
    gone: Collection[MessagePosition] = (),
) -> Plan[tuple[list[Ranked], list[Any]]]:
    """Embed the query, search, and rank what is found. One round trip, which also carries the commands of `beside`.

    `spare` messages more than `top_k` are looked for, because the caller may drop some. A message has as many
    candidates as pieces: when the list is full and yet holds too few messages, it is asked for again, deeper. It is
    asked for again, too, when it shows that the query names an author of whom nobody knew. What is `gone` does not
    count.
    """
    options = state.recalling
    where = query.filter()
    wanted = query.top_k + spare
    rank: Callable[[int], list[Ranked]]
    least = query.threshold or 0.0
    excluded = {id.encode() for id in query.exclude}
    where_excluded = None if query.exclude_in is None else encode(query.exclude_in).encode()
    hybrid = options.search == "hybrid"
    name, fields = state.keys.vectors_index, ["message"] if query.exclude else []
    depth = wanted + len(excluded) + query.top_k * (3 if query.apart else 1) + 8
    depth = min(max(CANDIDATES, depth) if hybrid else depth, DEEPEST)
    others: list[Any] | None = None
    owner = query.resource_id or f"\0{query.thread_id}"  # no id holds a NUL
    known = state.authors.get(owner) or frozenset()
    question = keep_ends(query.text, MAX_QUERY_CHARACTERS)
    meant = named(question, known) if hybrid else frozenset()
    vector = yield from embed_query(state, in_first_person(question, meant))
    dims = len(vector) // (2 if options.index.dtype == "float16" else 4)

    while True:
        words = word_search(name, without(question, meant), where, depth, fields) if hybrid else None
        near_call = vector_search(name, vector, where, depth, options.index.dtype, fields)
        searches = [near_call, *([words] if words else [])]
        search_messages = partial(send, *searches, *(beside if others is None else ()))
        replies = yield from search_with_repair(search_messages, partial(state.refresh, dims), create=state.create)
        others = replies[len(searches) :] if others is None else others
        distance = options.index.distance
        keys, _, rows = columns(replies[0])
        worded: list[Candidate] = []
        near = _candidates(keys, [similarity(row, distance) for row in rows], rows, excluded, where_excluded, gone)
        if hybrid:
            found = columns(replies[1], scores=True, content=bool(fields)) if words else ([], [], [])
            worded = _candidates(*found, excluded, where_excluded, gone)
            known = state.note_authors(owner, {author.decode() for author in {one[3] for one in (*near, *worded)}})
            if (now := named(question, known)) != meant:
                meant = now
                vector = yield from embed_query(state, in_first_person(question, meant))
                continue
            authors = {one.encode() for one in meant}
            rank = partial(rank_hybrid, near, worded, threshold=least, weights=options.weights, authors=authors)
        else:
            rank = partial(rank_semantic, near, threshold=least)
        ranked = rank(wanted)
        is_all = documents_in(replies[0]) < depth or depth == DEEPEST
        if len(ranked) >= wanted or is_all or similarity(rows[-1], distance) < least:
            if is_crowded(ranked, query):
                ranked = rank(wanted + CANDIDATES)
            if query.max_tokens is not None:
                ranked = with_pieces(ranked, options.chunk_tokens, near, worded, options.weights.dense)
            return ranked, others
        depth = min(depth * 4, DEEPEST)


# wm:vector:{thread}:seq:chunk:tokens~author, and none of them can hold a newline
_VECTOR_KEY = re.compile(rb"\{([^}]*)\}:(\d+):(\d+):(\d+)~?(.*)")


def _candidates(
    keys: list[bytes],
    values: list[float],
    fields: list[Any],
    excluded: Collection[bytes],
    where_excluded: bytes | None,
    gone: Collection[MessagePosition],
) -> list[Candidate]:
    """Read which messages the keys of vectors stand for, and leave out what does not count."""
    places = _VECTOR_KEY.findall(b"\n".join(keys))  # all at once: three times as fast as one by one
    if len(places) < len(keys):  # somebody has put other keys there
        ours = [bool(_VECTOR_KEY.search(key)) for key in keys]
        values, fields = list(compress(values, ours)), list(compress(fields, ours))
    found = [
        (thread, int(seq), int(tokens), author, value, chunk)
        for (thread, seq, chunk, tokens, author), value in zip(places, values, strict=True)
    ]
    if excluded:
        found = [
            one
            for one, row in zip(found, fields, strict=True)
            if where_excluded not in (None, one[0]) or as_dict(row or {}).get(b"message") not in excluded
        ]
    return [one for one in found if one[:3] not in gone] if gone else found


def fetch_hits(
    state: MemoryState,
    query: Query,
    ranked: Sequence[Ranked],
    wanted: Callable[[Ranked], bool] = lambda _: True,
    *,
    spare: int = 0,
) -> Plan[RecallResult]:
    """Fetch the messages around the best. One round trip, none without hits.

    Two more each time that some of them are gone: the vectors of a thread outlive it for a while when it expires, and follow
    in slices when it is deleted, cleared or transferred. From then on all candidates of such a thread are looked up, and after a few times
    the thread is left out.
    """
    options = state.recalling
    # similarities by l2 are of another scale
    has_floor = query.turn and query.threshold is None and options.index.distance != "l2"
    floor = floor_of(state.model) if has_floor else None
    hybrid = options.search == "hybrid"
    gone: set[MessagePosition] = set()
    turn = 0
    while True:
        turn += 1
        fresh = [*filter(wanted, ranked)]
        # where none is near, those that have the question's words may count all the same
        chosen = picked(fresh if reaches(fresh, floor, hybrid=hybrid) else [one for one in fresh if one.worded], query)
        page, expired = yield from fetch_windows(state, query, chosen)
        # deleted, changed, handed over, or expired
        lost = {one[:3] for one in chosen if one[:2] not in page.found}
        if not lost:
            shown = partial(_shown, query, fresh, chosen, page, wanted, floor, options)
            return (yield from compute(shown, page.size))
        crowded = {one.thread for one in chosen if one[:3] in lost}
        if turn == MOST_TURNS:
            expired = [decode(thread) for thread in crowded]
        else:
            others = [one for one in ranked if one.thread in crowded and one not in chosen]
            page, _ = yield from fetch_windows(state, replace(query, window=(0, 0)), others)
            lost |= {one[:3] for one in others if one[:2] not in page.found}
        gone |= lost
        query = query.without(expired)
        ranked, _ = yield from find_candidates(state, query, (), spare=spare, gone=gone)


def _shown(
    query: Query,
    fresh: Sequence[Ranked],
    chosen: Sequence[Ranked],
    page: Fetched,
    wanted: Callable[[Ranked], bool],
    floor: Floor | None,
    options: RecallOptions,
) -> RecallResult:
    """Choose among the candidates whose messages are there, and put the result together."""
    hits, repeated = hits_of(query, chosen, page, wanted)
    others = [one for one in fresh if one[:2] not in repeated] if repeated else fresh
    if not reaches(others, floor, hybrid=options.search == "hybrid"):
        hits = [hit for hit in hits if hit.asked or says(hit, query, page, options.chunk_tokens)]
    return result_of(query, hits, page, options.chunk_tokens)
