"""Plans of semantic recall."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_workingmem.errors import (
    IdError,
    OptionError,
    ThreadNotFoundError,
)
from langchain_workingmem.models import RecallResult
from langchain_workingmem.options import (
    MOST_HITS,
    Scope,
    as_tuple,
    at_least,
    at_most,
    check_range,
    check_roles,
    check_threshold,
    one_of,
)
from langchain_workingmem.plans.access import check_owner
from langchain_workingmem.plans.authors import in_first_person, named, without
from langchain_workingmem.plans.codec import as_dict, to_micros
from langchain_workingmem.plans.effects import Embed, Plan, send, traced, worked
from langchain_workingmem.plans.fetching import windows
from langchain_workingmem.plans.hits import Fetched, hits_of, is_crowded, picked, result_of, says
from langchain_workingmem.plans.keys import FROM_WHERE, check_id, decode, encode
from langchain_workingmem.plans.scoring import (
    CANDIDATES,
    Candidate,
    Ranked,
    floor_of,
    rank_hybrid,
    rank_semantic,
    reaches,
    with_pieces,
)
from langchain_workingmem.plans.search import (
    MAX_QUERY_CHARACTERS,
    columns,
    matching,
    nearest,
    pack,
    similarity,
    size_of,
    wordy,
)
from langchain_workingmem.plans.space import searched
from langchain_workingmem.plans.threads import get
from langchain_workingmem.text.chunks import ends
from langchain_workingmem.text.nesting import shown
from langchain_workingmem.text.unicode import to_utf8

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime

    from redisvl.query.filter import FilterExpression

    from langchain_workingmem.options import RecallOptions
    from langchain_workingmem.plans.effects import Command
    from langchain_workingmem.plans.scoring import Floor
    from langchain_workingmem.plans.space import Space


DEEPEST = 1_000_000  # candidates that Search returns at once
MOST_TURNS = 4  # of looking for other hits, before a thread that is in the way is left out
Place: TypeAlias = tuple[bytes, int, int]  # of a message as its vectors name it: thread, sequence number, tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A checked question to recall."""

    text: str
    thread_id: str | None
    resource_id: str | None
    scope: Scope
    top_k: int
    window: tuple[int, int]
    threshold: float | None
    max_tokens: int | None  # of all that comes back
    where: Mapping[str, Any]  # filters beside the scope
    exclude: frozenset[str]  # message ids
    exclude_in: str | None = None  # the thread whose messages they are; None: of any thread
    turn: bool = False  # for what a model is shown: under a floor, and without the question itself
    apart: bool = False  # a hit in a better one's window is part of that one

    @classmethod
    def of(
        cls,
        options: RecallOptions,
        text: str,
        *,
        thread_id: str | None = None,
        resource_id: str | None = None,
        scope: Scope | None = None,
        top_k: int | None = None,
        message_range: int | tuple[int, int] | None = None,
        threshold: float | None = None,
        max_tokens: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        roles: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        exclude_message_ids: Collection[str] = (),
    ) -> Query:
        """Check a caller's arguments, and fill in what the options say."""
        if not isinstance(text, str):
            raise OptionError(f"query is of type {type(text).__name__}", remedy="pass a str")
        scope = options.scope if scope is None else scope
        one_of(scope, ("resource", "thread"), "scope")
        if thread_id is not None:
            check_id(thread_id, "thread_id")
        if resource_id is not None:
            check_id(resource_id, "resource_id")
        if thread_id is None and (scope == "thread" or resource_id is None):
            missing = "thread_id" if scope == "thread" else "resource_id"
            raise IdError(f"recall over a {scope} needs a {missing}", remedy=f"{FROM_WHERE.format(missing)}")
        one = isinstance(exclude_message_ids, str)
        excluded = (
            (exclude_message_ids,) if one else as_tuple(exclude_message_ids, "exclude_message_ids", "message ids")
        )
        if max_tokens is not None:
            at_least(max_tokens, 1, "max_tokens")
        if top_k is None:
            top_k = options.top_k if max_tokens is None else CANDIDATES
        at_least(top_k, 1, "top_k")
        at_most(top_k, MOST_HITS, "top_k")
        check_threshold(threshold)
        if metadata is not None and not isinstance(metadata, Mapping):
            raise OptionError(f"metadata={shown(metadata)}", remedy="use a dict")
        if unknown := [key for key in metadata or () if key not in options.filterable]:
            raise OptionError(
                f"metadata {shown(unknown)} cannot be filtered on, {list(options.filterable)} can",
                remedy="name the keys in RecallOptions(filterable=...) and run memory.recall.reindex()",
            )
        return cls(
            text=text,
            thread_id=thread_id,
            resource_id=resource_id,
            scope=scope,
            top_k=top_k,
            window=check_range(options.message_range if message_range is None else message_range),
            threshold=options.threshold if threshold is None else threshold,
            max_tokens=max_tokens,
            where={
                "roles": () if roles is None else check_roles(roles),
                "since": None if since is None else to_micros(since),
                "until": None if until is None else to_micros(until),
                "metadata": metadata,
            },
            exclude=frozenset(check_id(id, "message id") for id in excluded),
        )

    @classmethod
    def of_turn(
        cls,
        options: RecallOptions,
        text: str,
        *,
        top_k: int | None = None,
        max_tokens: int | None = None,
        **arguments: Any,
    ) -> Query:
        """Check the arguments of a turn, whose hits are limited both in number and in tokens."""
        top_k = options.top_k if top_k is None else top_k
        max_tokens = options.max_tokens if max_tokens is None else max_tokens
        return replace(cls.of(options, text, top_k=top_k, max_tokens=max_tokens, **arguments), turn=True)

    def without(self, thread_ids: Collection[str]) -> Query:
        """Leave threads out."""
        known = self.where.get("not_thread_ids", ())
        return replace(self, where={**self.where, "not_thread_ids": [*known, *thread_ids]})

    def filter(self) -> FilterExpression:
        """Build the filter: the tenant first, always."""
        return matching(
            resource_id=self.resource_id,
            thread_id=self.thread_id if self.scope == "thread" else None,
            **self.where,
        )


def traced_search(space: Space, query: Query) -> Plan[RecallResult]:
    """Search as a retriever run that callbacks and LangSmith see, with the hits as documents."""
    found = traced("retriever", "semantic_recall", query.text, search(space, query), RecallResult.to_documents)
    return (yield from found)


def search(space: Space, query: Query) -> Plan[RecallResult]:
    """Embed the query, find candidates, fetch the windows of the best. Two round trips.

    One more when only a thread is known and its owner must be looked up, and one more when the pieces of a few long
    messages fill the whole list of candidates.
    """
    if not query.text.strip():
        return RecallResult()
    if query.resource_id is None and query.scope == "resource":
        thread = yield from get(space, query.thread_id or "", None)
        if thread is None:
            raise ThreadNotFoundError(query.thread_id or "")
        query = replace(query, resource_id=thread.resource_id)
    checks = ownership(space, query)
    ranked, replies = yield from candidates(space, query, checks)
    if checks:
        check_owner(replies[0], query.thread_id or "", query.resource_id)
    return (yield from fetched(space, query, ranked))


def embed_query(space: Space, text: str) -> Plan[bytes]:
    """Embed a query as the index wants it."""
    found = yield Embed([to_utf8(text)], query=True)
    yield from space.ready()
    yield from space.vectors_ready(found.shape[1])
    return pack(found, space.index.dtype)[0]


def ownership(space: Space, query: Query) -> list[Command]:
    """Ask for the owner of a thread that is named beside a resource."""
    if query.thread_id is None or query.resource_id is None:
        return []
    return [("HGET", space.keys.of(query.thread_id).thread, "resource")]


def candidates(
    space: Space, query: Query, beside: Sequence[Command], *, spare: int = 0, gone: Collection[Place] = ()
) -> Plan[tuple[list[Ranked], list[Any]]]:
    """Embed the query, search, and rank what is found. One round trip, which also carries the commands of `beside`.

    `spare` messages more than `top_k` are looked for, because the caller may drop some. A message has as many
    candidates as pieces: when the list is full and yet holds too few messages, it is asked for again, deeper. It is
    asked for again, too, when it shows that the query names an author of whom nobody knew. What is `gone` does not
    count.
    """
    options = space.recalling
    where = query.filter()
    wanted = query.top_k + spare
    rank: Callable[[int], list[Ranked]]
    least = query.threshold or 0.0
    excluded = {id.encode() for id in query.exclude}
    where_excluded = None if query.exclude_in is None else encode(query.exclude_in).encode()
    hybrid = options.search == "hybrid"
    name, fields = space.keys.vectors_index, ["message"] if query.exclude else []
    depth = wanted + len(excluded) + query.top_k * (3 if query.apart else 1) + 8
    depth = min(max(CANDIDATES, depth) if hybrid else depth, DEEPEST)
    others: list[Any] | None = None
    owner = query.resource_id or f"\0{query.thread_id}"  # no id holds a NUL
    known = space.authors.get(owner) or frozenset()
    question = ends(query.text, MAX_QUERY_CHARACTERS)
    meant = named(question, known) if hybrid else frozenset()
    vector = yield from embed_query(space, in_first_person(question, meant))
    dims = len(vector) // (2 if options.index.dtype == "float16" else 4)

    while True:
        words = wordy(name, without(question, meant), where, depth, fields) if hybrid else None
        near_call = nearest(name, vector, where, depth, options.index.dtype, fields)
        searches = [near_call, *([words] if words else [])]
        search = partial(send, *searches, *(beside if others is None else ()))
        replies = yield from searched(search, partial(space.renewed, dims), create=space.create)
        others = replies[len(searches) :] if others is None else others
        distance = options.index.distance
        keys, _, rows = columns(replies[0])
        worded: list[Candidate] = []
        near = _candidates(keys, [similarity(row, distance) for row in rows], rows, excluded, where_excluded, gone)
        if hybrid:
            found = columns(replies[1], scores=True, content=bool(fields)) if words else ([], [], [])
            worded = _candidates(*found, excluded, where_excluded, gone)
            known = space.note_authors(owner, {author.decode() for author in {one[3] for one in (*near, *worded)}})
            if (now := named(question, known)) != meant:
                meant = now
                vector = yield from embed_query(space, in_first_person(question, meant))
                continue
            authors = {one.encode() for one in meant}
            rank = partial(rank_hybrid, near, worded, threshold=least, weights=options.weights, authors=authors)
        else:
            rank = partial(rank_semantic, near, threshold=least)
        ranked = rank(wanted)
        is_all = size_of(replies[0]) < depth or depth == DEEPEST
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
    gone: Collection[Place],
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


def fetched(
    space: Space,
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
    options = space.recalling
    # similarities by l2 are of another scale
    has_floor = query.turn and query.threshold is None and options.index.distance != "l2"
    floor = floor_of(space.model) if has_floor else None
    hybrid = options.search == "hybrid"
    gone: set[Place] = set()
    turn = 0
    while True:
        turn += 1
        fresh = [*filter(wanted, ranked)]
        # where none is near, those that have the question's words may count all the same
        chosen = picked(fresh if reaches(fresh, floor, hybrid=hybrid) else [one for one in fresh if one.worded], query)
        page, expired = yield from windows(space, query, chosen)
        # deleted, changed, handed over, or expired
        lost = {one[:3] for one in chosen if one[:2] not in page.found}
        if not lost:
            shown = partial(_shown, query, fresh, chosen, page, wanted, floor, options)
            return (yield from worked(shown, page.size))
        crowded = {one.thread for one in chosen if one[:3] in lost}
        if turn == MOST_TURNS:
            expired = [decode(thread) for thread in crowded]
        else:
            others = [one for one in ranked if one.thread in crowded and one not in chosen]
            page, _ = yield from windows(space, replace(query, window=(0, 0)), others)
            lost |= {one[:3] for one in others if one[:2] not in page.found}
        gone |= lost
        query = query.without(expired)
        ranked, _ = yield from candidates(space, query, (), spare=spare, gone=gone)


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
