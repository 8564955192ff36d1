"""The plans of semantic recall: embed the question, search vectors and words in one round trip, rank, and fetch windows in another."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any

from langchain_workingmem._documents.filters import Filter
from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._engine.tracing import traced
from langchain_workingmem._redis.access import check_owner
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.indexes import search_with_repair
from langchain_workingmem._redis.keys import THE_USER, encode
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
from langchain_workingmem._text.chunks import keep_ends
from langchain_workingmem._text.unicode import to_utf8
from langchain_workingmem.models import RecallResult
from langchain_workingmem.recall.authors import Authors, apart, are_several
from langchain_workingmem.recall.hits import is_crowded
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
from langchain_workingmem.recall.times import named_times
from langchain_workingmem.recall.windows import fetch_hits
from langchain_workingmem.threads import find_threads, get_existing_thread, get_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.options import RecallOptions
    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.ranking import Numbers
    from langchain_workingmem.recall.times import Span


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
    return (yield from fetch_hits(state, query, ranked, with_media=True))


def among_threads(state: MemoryState, query: Query) -> Plan[Query]:
    """Look up the threads that a filter names. One round trip, none without such a filter."""
    if query.threads is None and not query.mixed:
        return query
    wanted = query.threads or Filter({})
    if query.scope == "user":
        return query.among((yield from find_threads(state, query.user_id or "", wanted, query.mixed)))
    thread = yield from get_thread(state, query.thread_id or "", query.user_id)
    return query.among({thread.id: thread.metadata} if thread and wanted.matches(thread.metadata) else {})


def find_candidates(
    state: MemoryState, query: Query, beside: Sequence[Command], *, spare: int = 0
) -> Plan[tuple[list[Ranked], list[Any]]]:
    """Embed the query, search and rank. One round trip, which returns the replies to the commands `beside` too.

    `spare` messages are searched beyond `top_k`, for a caller that drops some. Another search follows when the first one shows an
    author whom the question names and who was unknown before, or when a few messages of many chunks fill the list of candidates.
    """
    search = _Search(state, query, spare)
    vector = yield from search.embedded()
    replies = yield from search.sent(vector, beside)
    while True:
        number = search.count()
        ranked, again = search.ranked(replies[:number])
        if not again:
            return ranked, replies[number:]
        if again == "author":
            vector = yield from search.embedded()
        replies = [*(yield from search.sent(vector, ())), *replies[number:]]


@dataclass(slots=True)
class _Search:
    """One search: what is asked, and how deep."""

    state: MemoryState
    query: Query
    spare: int
    options: RecallOptions = field(init=False)
    depth: int = field(init=False)
    times: Sequence[Span] = field(init=False)
    question: str = field(init=False)
    known: frozenset[str] = field(init=False)  # authors
    put: tuple[frozenset[str], str, str] = field(init=False)  # authors that are meant, text to search, text to embed
    words: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.options = options = self.state.recalling
        query = self.query
        self.question = keep_ends(query.text, MAX_QUERY_CHARACTERS)
        self.times = named_times(self.question, query.now, options.when)
        self.depth = query.depth(self.spare, hybrid=options.search == "hybrid")
        self.known = self.state.room(Authors).get(self._owner) or frozenset()
        self._divide()

    @property
    def _owner(self) -> str:
        return self.query.user_id or f"\0{self.query.thread_id}"  # no id holds a NUL

    def _divide(self) -> None:
        self.put = apart(self.question, self.known)
        self.words = words_of(self.put[1], whole=True) if self.options.search == "hybrid" else []

    def embedded(self) -> Plan[np.ndarray[Any, Any]]:
        """Embed the question, and check that the index fits its vector. One call of the model."""
        found = yield from self.state.embedder.embed([to_utf8(self.put[2])], query=True)
        indexes = self.state.indexes
        if not indexes.threads_ready:
            yield from indexes.ready()
        if indexes.dims != found.shape[1]:
            yield from indexes.vectors_ready(found.shape[1])
        return found

    def count(self) -> int:
        """Return the number of commands that search."""
        return 1 + bool(self.times) + bool(self.words)

    def sent(self, vector: np.ndarray[Any, Any], beside: Sequence[Command]) -> Plan[list[Any]]:
        """Send the searches, and the commands `beside`; repair an index that was dropped or rebuilt. One round trip."""
        indexes, name = self.state.indexes, self.state.keys.vectors_index
        where, during, fields = self.query.filter(), self.query.during(self.times), self._fields()

        def search() -> Plan[list[Any]]:
            # packed anew after a repair, which may find an index of another number type
            packed = indexes.pack(vector)[0]
            near = [vector_search(name, packed, one, self.depth, fields) for one in (where, during) if one]
            worded = [word_search(name, self.words, where, self.depth, fields)] if self.words else []
            return send(*near, *worded, *beside)

        return search_with_repair(search, partial(indexes.refresh, vector.shape[1]), create=indexes.create)

    def _fields(self) -> list[str]:
        query = self.query
        needed = {"message": query.exclude, "created_at": self.times, "metadata": query.unsure is not None}
        return [name for name, is_needed in needed.items() if is_needed]

    def ranked(self, replies: Sequence[Any]) -> tuple[list[Ranked], str]:
        """Rank what was found; and tell why to search again: an "author" was unknown, or the list has to be longer ("depth")."""
        query, options = self.query, self.options
        is_hybrid, threshold, wanted = options.search == "hybrid", query.threshold or 0.0, query.top_k + self.spare
        near = 1 + bool(self.times)
        found, nearest = self._candidates(replies, near)
        seen = {author.decode().rstrip(THE_USER) for author in {*found.authors}}
        if not seen <= self.known:
            before = self.put
            self.known = self.state.room(Authors).note(self._owner, seen)
            self._divide()
            if self.put != before:
                return [], "author"
        best = found.values[found.near :][:STANDING_OUT].tolist()
        counts = (len(self.words), total_of(replies[-1]))
        meant = self.put[0]
        choose = partial(
            rank,
            found,
            threshold=threshold,
            weights=options.weights,
            trust=trust_in_words(best, *counts) if is_hybrid else None,
            lead=lead_of_words(best, *counts),
            # a name that all messages bear tells nothing
            authors={one.encode() for one in meant if len(meant) < len(self.known)} or USERS,
            several=are_several(self.known),
            times=self.times,
        )
        ranked = choose(wanted)
        is_enough = len(ranked) >= wanted or len(nearest) < self.depth or self.depth == DEEPEST
        if not is_enough and not nearest[-1] < threshold:
            self.depth = min(self.depth * 4, DEEPEST)
            return [], "depth"
        if is_crowded(ranked[:wanted]):
            ranked = choose(wanted + CANDIDATES)
        if query.max_tokens is not None:
            ranked = with_best_chunks(ranked, options.chunk_tokens, found, options.weights.dense)
        return ranked, ""

    def _candidates(self, replies: Sequence[Any], near: int) -> tuple[Candidates, Numbers]:
        """Read the replies, the first `near` of vectors, without what is excluded; return also the first's similarities."""
        import numpy as np

        query, metric, content = self.query, self.options.index.distance, bool(self._fields())
        keys, ranks, rows = columns(replies[0], "sortkey", content=content)
        values = nearest = similarities(numbers(ranks), metric)
        count = len(keys)
        for at, reply in enumerate(replies[1:], 1):
            more, scores, their_rows = columns(reply, "sortkey" if at < near else "score", content=content)
            theirs = numbers(scores)
            if at < near:
                theirs, count = similarities(theirs, metric), count + len(more)
            keys, values, rows = keys + more, np.concatenate((values, theirs)), rows + their_rows
        found, fields = Candidates.read(keys, values, count, rows, timed=bool(self.times))
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
