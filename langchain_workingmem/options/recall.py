"""Semantic recall: its scope, limits, ranking and index."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence  # noqa: TC003 - for who resolves `RecallArguments`
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta  # noqa: TC003 - likewise
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from langchain_workingmem._documents.filters import is_named
from langchain_workingmem._text.nesting import shown
from langchain_workingmem.checks import (
    at_least,
    check_keys,
    check_range,
    check_roles,
    check_threshold,
    check_time,
    check_type,
    one_of,
    wrong_type,
)
from langchain_workingmem.errors import OptionError
from langchain_workingmem.options.base import EMBEDDING_TIMEOUT, NumberType, Placement, Scope

if TYPE_CHECKING:
    from langchain_core.documents import BaseDocumentCompressor

MOST_HITS = 100_000  # of one recall: the server refuses far larger numbers
# Search 2.10 accepts larger numbers, but some of them, such as m=1_000_000, crash the server
MOST_LINKS, MOST_CANDIDATES = 512, 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexOptions:
    """How vectors are indexed. A change needs `memory.recall.reindex()`.

    "flat" compares with every message of the user. It is exact, writes at a sixteenth of the cost of "hnsw", and is
    faster up to about 100,000 messages of one user (0.21 against 0.34 ms at 50,000 messages of 100 users).
    "float16" takes half the bytes of "float32", "int8" a quarter; docs/recall-measured.md says what they find. "int8" needs Redis 8
    (else `RedisCapabilityError`) and distance="cosine": it keeps the direction of a vector, not its length.
    """

    algorithm: Literal["flat", "hnsw"] = "flat"
    distance: Literal["cosine", "ip", "l2"] = "cosine"
    dtype: NumberType | None = None  # None: keep the number type of the index; float16 for a new one
    m: int = 16  # hnsw: links of a node
    ef_construction: int = 200  # hnsw: candidates while building
    ef_runtime: int = 10  # hnsw: candidates while searching

    def __post_init__(self) -> None:
        one_of(self.algorithm, ("flat", "hnsw"), "algorithm")
        one_of(self.distance, ("cosine", "ip", "l2"), "distance")
        if self.dtype is not None:
            one_of(self.dtype, get_args(NumberType), "dtype")
        if self.dtype == "int8" and self.distance != "cosine":
            raise OptionError(f"dtype='int8' with distance={self.distance!r}", remedy="use distance='cosine'")
        for name, most in (("m", MOST_LINKS), ("ef_construction", MOST_CANDIDATES), ("ef_runtime", MOST_CANDIDATES)):
            at_least(getattr(self, name), 1, name, most)

    def attributes(self, dims: int, existing: NumberType = "float16") -> dict[str, Any]:
        """Describe the vector field in the terms of redisvl; the number type is the `existing` one unless one was passed."""
        own = ("m", "ef_construction", "ef_runtime") if self.algorithm == "hnsw" else ()
        found = {"dims": dims, "algorithm": self.algorithm, "distance_metric": self.distance}
        return found | {"datatype": self.dtype or existing} | {name: getattr(self, name) for name in own}


@dataclass(frozen=True, kw_only=True, slots=True)
class HybridWeights:
    """Weights of hybrid recall, 0 to 1; the defaults were tuned on the development data of docs/recall-measured.md."""

    dense: float = 0.7  # of similarity; the rest is for the words of the question (BM25)
    neighbours: float = 0.2  # share of the evidence for the messages before and after it that is added to a message
    author: float = 0.3  # added to the messages of an author that the question names
    time: float = 0.8  # added to messages at a time that the question names, less of it to those near
    length: float = 0.17  # subtracted per ln(tokens / 64) of longer messages

    def __post_init__(self) -> None:
        for weight in fields(self):
            value = getattr(self, weight.name)
            if not isinstance(value, int | float) or not 0 <= value <= 1:
                raise OptionError(f"{weight.name}={shown(value)}", remedy="use a weight from 0 to 1")


class RecallArguments(TypedDict, total=False):
    """The arguments of one recall beside the ids. `RecallOptions` gives the others.

    `since` and `until` are inclusive. `metadata` is a filter with `$eq $ne $in $nin $gt $gte $lt $lte $exists $and $or $not`, of keys
    that `RecallOptions(filterable=...)` names, which are read from a message's `additional_kwargs`, `additional_kwargs["metadata"]`
    and `response_metadata`, and of keys of threads that `Memory(thread_filters=...)` names. A missing key is None.
    It holds at most 32 conditions, 1,000 values and 8 levels.
    """

    scope: Scope | None  # "user": all threads of the user; "thread": this thread only
    top_k: int | None  # hits at most
    # what was said around a hit, or before and after it: questions, and answers without tool calls
    message_range: int | tuple[int, int] | None
    threshold: float | None  # the least similarity, 0 to 1
    max_tokens: int | None  # of all that comes back, estimated
    since: datetime | None
    until: datetime | None
    roles: Sequence[str] | str | None
    metadata: Mapping[str, Any] | None
    now: datetime | None  # the time of the question, to which "yesterday" refers; aware. None: the clock
    exclude_message_ids: Collection[str]


class ContextArguments(RecallArguments, total=False):
    """The arguments of `Memory.context` beside the messages and the ids; the others limit recall."""

    read_only: (
        bool  # working memory comes without the instructions to update it, and no branch is noted; default: False
    )
    recall: Literal[False] | None  # False: nothing is recalled
    last_messages: int | None  # instead of `HistoryOptions.last_messages`; 0: no history


@dataclass(frozen=True, kw_only=True, slots=True)
class RecallOptions:
    """Scope, limits and ranking of semantic recall."""

    top_k: int = 4  # hits
    # around a hit, n on each side, or (before, after): questions, and answers without tool calls
    message_range: int | tuple[int, int] = 1
    scope: Scope = "user"  # all threads of the user, or the one thread
    # least similarity of a hit, 0 to 1; None: in a turn, the floor of the model, known or learned (docs/recall.md)
    threshold: float | None = None
    max_tokens: int | None = 2_000  # that a turn shows of recall, long messages as excerpts; None: no limit
    search: Literal["hybrid", "semantic"] = "hybrid"  # vectors fused with BM25 (docs/recall.md), or vectors alone
    weights: HybridWeights = field(default_factory=HybridWeights)  # of hybrid recall
    roles: Sequence[str] = ("human", "ai")  # messages of these roles are embedded
    index: IndexOptions = field(default_factory=IndexOptions)
    placement: Placement = "question"  # a turn shows it before the user's words; "system": after your system prompt
    # Orders four times as many hits again, from which the best are shown (docs/recall.md)
    reranker: BaseDocumentCompressor | None = None
    # of an async call of the model or of the reranker, plus a second for each text
    embedding_timeout: timedelta = EMBEDDING_TIMEOUT
    embedding_cache_size: int = 1000  # texts kept in memory with their vectors, at most 64 MiB in all; 0: none
    chunk_tokens: int = 400  # longer texts are embedded in chunks; a hit on any chunk is a hit on the message
    filterable: Sequence[str] = ()  # keys of message metadata that filters may name
    # finds times that a question names, beside numbers and English: of its text and now, from and until when
    when: Callable[[str, datetime], Iterable[tuple[datetime, datetime]]] | None = None

    def __post_init__(self) -> None:
        at_least(self.top_k, 1, "top_k", MOST_HITS)
        check_range(self.message_range)
        one_of(self.scope, get_args(Scope), "scope")
        check_threshold(self.threshold)
        if self.max_tokens is not None:
            at_least(self.max_tokens, 1, "max_tokens")
        one_of(self.search, ("semantic", "hybrid"), "search")
        check_type(self.weights, HybridWeights, "weights")
        check_type(self.index, IndexOptions, "index")
        object.__setattr__(self, "roles", check_roles(self.roles))
        one_of(self.placement, get_args(Placement), "placement")
        if not (self.reranker is None or hasattr(self.reranker, "compress_documents")):
            raise wrong_type(self.reranker, "reranker", "pass a document compressor of LangChain")
        if not (self.when is None or callable(self.when)):
            raise wrong_type(self.when, "when", "pass a function of a text and the time now")
        check_time(self.embedding_timeout, "embedding_timeout")
        at_least(self.embedding_cache_size, 0, "embedding_cache_size")
        at_least(self.chunk_tokens, 1, "chunk_tokens")
        object.__setattr__(self, "filterable", check_keys(self.filterable, "filterable"))


def thread_filter_keys(keys: Any, recall: RecallOptions) -> tuple[str, ...]:
    """Return the keys of thread metadata that filters may name; none is one of messages, too."""
    found = check_keys(keys, "thread_filters")
    if twice := [
        key for key in (*found, *recall.filterable) if is_named(key, found) and is_named(key, recall.filterable)
    ]:
        raise OptionError(
            f"thread_filters and RecallOptions(filterable=...) both name {sorted({*twice})}",
            remedy="name each key once, because a filter has to know whether it means threads or messages",
        )
    return found
