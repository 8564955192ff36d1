"""From ranked messages to the result of a search: which of them are hits, what was said around them, what fits in."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from itertools import chain, takewhile
from math import inf, isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage

from langchain_workingmem._engine.plan import Plan, compute, send
from langchain_workingmem._redis.codec import PLAIN, is_readable, read_rows
from langchain_workingmem._redis.keys import decode, encode
from langchain_workingmem._redis.queries import distinct_words
from langchain_workingmem._text.messages import STRIDE, message_text, row_text
from langchain_workingmem._text.sending import as_shown, with_calls
from langchain_workingmem._text.unicode import count_tokens, excerpt, spans
from langchain_workingmem.errors import ModelError
from langchain_workingmem.models import RecallHit, RecallResult, StoredMessage
from langchain_workingmem.recall.question import LEAST_TOKENS, RERANK_FACTOR
from langchain_workingmem.recall.ranking import Position, Ranked

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from langchain_core.documents.compressor import BaseDocumentCompressor

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.options import RecallOptions
    from langchain_workingmem.recall.question import Query

_log = logging.getLogger("langchain_workingmem")
SECONDS_A_HIT = 1.0  # that an async call of a reranker may take longer for each
_WEIGHT = 3  # of a hit when the rest of a budget is shared out; the weight of another message is 1
_COMMON = 3  # characters of words that are everywhere


# ---------------------------------------------------------------------- reading


def read_hits(
    state: MemoryState, query: Query, *rankings: Iterable[Ranked], at_least: int = 0
) -> Plan[tuple[list[list[Ranked]], Windows]]:
    """Read the best of each ranking, and what stands around it. One round trip, two more for expired threads."""
    alive: set[bytes] | None = None
    while True:
        lives = ((hit for hit in ranking if alive is None or hit.position[0] in alive) for ranking in rankings)
        picks = [picked(ranking, query, at_least) for ranking in lives]
        windows = yield from read_windows(state, [*chain(*picks)], query.window, query.user_id)
        if alive is not None or {hit.position[0] for hit in chain(*picks)} <= windows.titles.keys():
            return [hits_of(pick, windows) for pick in picks], windows
        threads = [*{hit.position[0]: None for hit in chain(*rankings)}]
        replies = yield from send(*(("HEXISTS", state.keys.of(decode(thread)).thread, "user") for thread in threads))
        alive = {thread for thread, exists in zip(threads, replies, strict=True) if exists}


def picked(candidates: Iterable[Ranked], query: Query, at_least: int = 0) -> list[Ranked]:
    """Take the best candidates until hits or budget suffice; copies (same similarity and length) count once."""
    taken, fingerprints = list[Ranked](), set[object]()
    budget = inf if query.max_tokens is None else query.max_tokens * (RERANK_FACTOR if query.reranked else 1)
    limit = LEAST_TOKENS if query.turn else query.most_of_a_hit
    for candidate in candidates:
        # Redis 8 rounds what it computes in float16, so that half of the candidates have the similarity of another text
        fingerprint = (candidate.similarity, candidate.tokens) if candidate.similarity else candidate.position
        if fingerprint not in fingerprints:
            if len(fingerprints) >= max(query.sought, at_least):
                break  # here, so that copies of the last one are taken, too
            size = min(candidate.tokens, limit)
            if size > budget:
                continue
            fingerprints.add(fingerprint)
            budget -= size
        taken.append(candidate)
    return taken


def hits_of(candidates: Sequence[Ranked], windows: Windows) -> list[Ranked]:
    """Return all hits, the best first; of messages with one text the newest, or one of a time that is asked for."""
    hits: dict[object, Ranked] = {}
    for candidate in candidates:
        row = windows.rows.get(candidate.position)
        # a vector outlives its message (deletion is a step later, expiry a ttl later): compare the lengths
        if row is None or count_tokens(text := row_text(row, searched=True)) != candidate.tokens:
            continue
        key = row.record["type"], text.strip()
        hit = hits.setdefault(key, candidate)
        is_newer = windows.rows[hit.position].record["at"] < row.record["at"]
        if not hit.timely and (candidate.timely or is_newer):
            hits[key] = hit._replace(position=candidate.position, timely=candidate.timely)
    return list(hits.values())


@dataclass(slots=True)
class Windows:
    """Messages that were found, with those around them, by thread (encoded as in keys) and seq."""

    titles: dict[bytes, str | None] = field(default_factory=dict)  # of the threads
    rows: dict[Position, StoredMessage] = field(default_factory=dict)
    around: dict[Position, list[list[Position]]] = field(default_factory=dict)  # what was said before, and after


def read_windows(
    state: MemoryState, candidates: Sequence[Ranked], window: tuple[int, int], user_id: str | None
) -> Plan[Windows]:
    """Read messages and what stands around them. One round trip, none without any."""
    windows, talk, commands = Windows(), set[Position](), list["Command"]()
    owner = None if user_id is None else encode(user_id).encode()
    before, after = window
    sides, wanted = dict[Position, tuple[range, range]](), dict[bytes, set[int]]()
    for thread, seq in (candidate.position for candidate in candidates):
        # the seqs of what was said before and after it, the nearest first
        base, end = seq - seq % STRIDE, -(-seq // STRIDE) * STRIDE
        front = range(end - STRIDE, max(end - (before + 1) * STRIDE, -1), -STRIDE)
        back = range(base + STRIDE, base + (after + 1) * STRIDE, STRIDE)
        sides[thread, seq] = front, back
        wanted.setdefault(thread, set()).update((seq,), front, back)
    for thread, seqs in wanted.items():
        keys = state.keys.of(decode(thread))
        commands += [("HMGET", keys.thread, "user", "title"), ("HMGET", keys.messages, *seqs)]
    replies = (yield from send(*commands)) if commands else []
    for (thread, seqs), (user, title), bodies in zip(wanted.items(), replies[::2], replies[1::2], strict=True):
        if user is None or owner not in (None, user):  # a thread that Redis has evicted in part belongs to nobody
            continue
        windows.titles[thread] = title.decode() if title else None
        # - stands in front of a superseded message, ! of one that a provider has refused: no model is shown these
        shown = [(seq, 0, body) for seq, body in zip(seqs, bodies, strict=True) if body and body[:1] not in b"-!"]
        for row in read_rows(shown, decode(thread)):
            if row.record["data"].keys() <= PLAIN or is_readable(row):
                windows.rows[thread, row.place] = row
                if row.record["kind"]:  # no tool traffic
                    talk.add((thread, row.place))
    for (thread, middle), pair in sides.items():
        if (thread, middle) in windows.rows:
            windows.around[thread, middle] = [[(thread, seq) for seq in side if (thread, seq) in talk] for side in pair]
    return windows


def _reranked(
    options: RecallOptions, reranker: BaseDocumentCompressor, query: Query, hits: Sequence[Ranked], windows: Windows
) -> Plan[list[Ranked]]:
    """Let the reranker order hits and drop some. No round trip; `ModelError` if it fails or returns other hits."""
    from langchain_workingmem._engine import calls

    # with what was said before: an answer is understood with its question
    fronts = replace(windows, around={position: [sides[0], []] for position, sides in windows.around.items()})
    recalled = in_windows(hits, fronts, windows.rows, windows.rows)
    size = sum(len(str(row.record["data"]["content"])) for row in windows.rows.values())
    documents = yield from compute(recalled.to_documents, size)
    seconds = options.embedding_timeout.total_seconds() + SECONDS_A_HIT * len(documents)
    returned = yield from calls.rerank(reranker, query.text, documents, seconds)
    by_id = {(recall_hit.thread_id, recall_hit.message.id): hit for recall_hit, hit in zip(recalled, hits, strict=True)}
    scores: dict[Any, Any] = {}
    for document in returned:
        metadata = getattr(document, "metadata", {})
        id = (metadata.get("thread_id", ""), metadata.get("message_id"))
        if id not in by_id:
            remedy = "return some of the documents that it was given, with their metadata"
            raise ModelError("the reranker returned what is no hit", remedy=remedy)
        scores.setdefault(id, metadata.get("relevance_score"))  # most rerankers of LangChain use this name
    if all(isinstance(score, Real) and isfinite(score) for score in scores.values()):
        return [by_id[id]._replace(score=float(score)) for id, score in scores.items()]
    return [by_id[id] for id in scores]


# ---------------------------------------------------------------------- the result


def result_of(
    options: RecallOptions, query: Query, hits: Sequence[Ranked], windows: Windows, *, forgives: bool = False
) -> Plan[RecallResult]:
    """Build the result: hits with windows, perhaps reranked, within the budget. `forgives` a failing reranker."""
    if options.reranker is not None and hits:
        try:
            hits = yield from _reranked(options, options.reranker, query, hits[: query.sought], windows)
        except ModelError as error:
            if not forgives:
                raise
            _log.warning("%s; this turn goes on without it", error)
    hits = hits[: query.top_k]
    if query.max_tokens is None:
        return in_windows(hits, windows, windows.rows, windows.rows)
    sizes, cuts = sized(query, hits, windows)
    hits = [hit for hit in hits if hit.position in sizes]
    shown = _shortened(query, hits, windows, cuts, options.chunk_tokens) if cuts else windows.rows
    return in_windows(hits, windows, shown, sizes)


def in_windows(
    hits: Sequence[Ranked], windows: Windows, shown: Mapping[Position, StoredMessage], kept: Collection[Position]
) -> RecallResult:
    """Build the result of hits with what is `kept` of their windows; `shown` are the messages, some as excerpts."""
    rows = windows.rows
    texts = {position: (row.record["type"], str(row.record["data"]["content"])) for position, row in rows.items()}
    by_text = {texts[hit.position]: hit.position for hit in hits}
    # a message beside a hit repeats no other hit
    repeats = {position for position, text in texts.items() if by_text.get(text, position) != position}
    recalled, positions = list[RecallHit](), set[Position]()
    for hit in hits:
        sides = ([position for position in side if position not in repeats] for side in windows.around[hit.position])
        front, back = ([*takewhile(kept.__contains__, side)] for side in sides)
        recalled.append(
            RecallHit(
                thread_id=shown[hit.position].thread_id,
                score=hit.score,
                similarity=min(hit.similarity, 1.0),  # long vectors by "ip" have more
                words=hit.words,
                thread_title=windows.titles[hit.position[0]],
                rows=[shown[position] for position in (*reversed(front), hit.position, *back)],
                at=len(front),
            )
        )
        positions.update((hit.position,), front, back)
    ordered = sorted((rows[position].record["at"], position) for position in positions)
    return RecallResult(hits=recalled, rows=[shown[position] for _, position in ordered])


# ---------------------------------------------------------------------- the budget


def sized(query: Query, hits: Sequence[Ranked], windows: Windows) -> tuple[dict[Position, int], dict[Position, int]]:
    """Return how many tokens each message gets, until nothing more fits; and the same of those that must be cut.

    A hit, at most a quarter of the budget, then what stands beside it, at most an eighth, then the next. A turn takes
    all hits first, as short as may be, then what stands beside them; of the rest three parts for a hit, one for others.
    """
    budget = query.max_tokens or 0
    shares = {hit.position: _WEIGHT for hit in hits}
    sizes, needs, lengths = dict[Position, int](), dict[Position, int](), dict[Position, int]()
    # a hit, or what was said before or after it, nearest first; each with its hit
    runs = [(position, [position]) for position in shares]
    runs += [(position, side) for position in shares for side in windows.around[position]]
    if not query.turn:
        order = {position: rank for rank, position in enumerate(shares)}
        runs.sort(key=lambda pair: order[pair[0]])
    for hit_position, run in runs:
        if run != [hit_position] and hit_position not in sizes:
            continue
        for position in run:
            if position in sizes:
                continue
            divisor = 1 if position in shares else 2
            lengths[position] = count_tokens(row_text(windows.rows[position]))
            wanted = min(lengths[position], query.most_of_a_hit // divisor)
            size = min(wanted, LEAST_TOKENS // divisor) if query.turn else wanted
            if size > budget:
                break
            sizes[position], budget = size, budget - size
            if wanted > size:
                needs[position] = wanted - size
    total = sum(shares.get(position, 1) for position in needs)
    for _, position in sorted((need / shares.get(position, 1), position) for position, need in needs.items()):
        share = shares.get(position, 1)
        extra = min(needs[position], budget * share // total)  # what a message does not need goes to the others
        sizes[position], budget, total = sizes[position] + extra, budget - extra, total - share
    return sizes, {position: size for position, size in sizes.items() if size < lengths[position]}


def _shortened(
    query: Query, hits: Sequence[Ranked], windows: Windows, cuts: Mapping[Position, int], chunk_tokens: int
) -> dict[Position, StoredMessage]:
    """Cut what is too long, in marked copies: a hit around its best chunk; before it the end stays, then the start."""
    shown = dict(windows.rows)
    by_position = {hit.position: hit for hit in hits}
    fronts = {position for hit in hits for position in windows.around[hit.position][0]}
    words = [word for word in distinct_words(query.text) if len(word) > _COMMON or not word.isascii()]
    for position, size in cuts.items():
        row = shown[position]
        start = end = len(row_text(row)) if position in fronts else 0
        if hit := by_position.get(position):
            chunks = [*spans(row_text(row, searched=True), chunk_tokens)] or [(0, 0)]
            start, end = chunks[hit.chunk if hit.chunk < len(chunks) else 0]  # the text may have fewer chunks now
        message = row.message
        text = excerpt(message_text(message), size, start, end, words)
        lean = with_calls(message) if isinstance(message, AIMessage) else message
        copy = as_shown(lean, {"thread_id": row.thread_id, "excerpt": True}, text)
        shown[position] = replace(row, record=row.record | {"data": dict(copy)})
    return shown
