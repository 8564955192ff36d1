from __future__ import annotations

import re
from dataclasses import fields
from pydoc import render_doc
from typing import TYPE_CHECKING, Any

import pytest

from langchain_workingmem import (
    FileOptions,
    HistoryOptions,
    HybridWeights,
    IndexOptions,
    Memory,
    ObservationOptions,
    OptionError,
    PerCall,
    RecallOptions,
    TitleOptions,
    WorkingMemError,
    WorkingMemoryOptions,
)
from langchain_workingmem.checks import check_roles
from langchain_workingmem.middleware import MemoryMiddleware

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_defaults_are_those_of_the_contract() -> None:
    history, recall, index = HistoryOptions(), RecallOptions(), IndexOptions()
    assert (history.last_messages, history.max_tokens, history.token_counter) == (10, 32_000, "approximate")
    assert (history.exclude_tools, history.roles) == ("memory", None)
    assert (recall.top_k, recall.message_range, recall.scope, recall.threshold) == (4, 1, "user", None)
    assert (recall.roles, recall.embedding_cache_size, recall.filterable) == (("human", "ai"), 1000, ())
    assert (index.algorithm, index.distance, index.dtype, index.m, index.ef_construction) == (
        *("flat", "cosine", None, 16, 200),
    )
    assert recall.index == index
    assert recall.reranker is None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: HistoryOptions(last_messages=-1), ["last_messages=-1", "int of at least 0"]),
        (lambda: HistoryOptions(last_messages=True), ["last_messages=True", "int of at least 0"]),
        (lambda: HistoryOptions(last_messages=1.5), ["last_messages=1.5", "int of at least 0"]),  # type: ignore[arg-type]
        (lambda: HistoryOptions(max_tokens=0), ["max_tokens=0", "int of at least 1"]),
        (lambda: HistoryOptions(token_counter="exact"), ["token_counter='exact'", "'approximate'"]),  # type: ignore[arg-type]
        (lambda: HistoryOptions(exclude_tools="search"), ["exclude_tools='search'", "list of tool names"]),
        (lambda: HistoryOptions(roles=["robot"]), ["roles='robot'", "'human'", "'ai'", "'tool'"]),
        (lambda: HistoryOptions(roles=[]), ["roles is empty", "at least one role, or leave it out"]),
        (lambda: RecallOptions(top_k=0), ["top_k=0", "int of at least 1"]),
        (lambda: RecallOptions(message_range=-1), ["message_range=-1", "int of at least 0"]),
        (lambda: RecallOptions(message_range=(1, 2, 3)), ["message_range=(1, 2, 3)", "pair (before, after)"]),  # type: ignore[arg-type]
        (lambda: RecallOptions(message_range=(0, -2)), ["message_range=-2", "int of at least 0"]),
        (lambda: RecallOptions(scope="resource"), ["scope='resource'", "'user'", "'thread'"]),  # type: ignore[arg-type]
        (lambda: RecallOptions(threshold=1.01), ["threshold=1.01", "0 to 1"]),
        (lambda: RecallOptions(threshold=float("nan")), ["threshold=nan", "0 to 1"]),
        (lambda: RecallOptions(threshold="0.5"), ["threshold='0.5'", "0 to 1"]),  # type: ignore[arg-type]
        (lambda: RecallOptions(search="bm25"), ["search='bm25'", "'semantic'", "'hybrid'"]),  # type: ignore[arg-type]
        (lambda: RecallOptions(roles=["system"]), ["roles='system'", "'human'"]),
        (lambda: RecallOptions(embedding_cache_size=-1), ["embedding_cache_size=-1", "int of at least 0"]),
        (lambda: RecallOptions(embedding_timeout=30), ["embedding_timeout=30", "positive timedelta"]),  # type: ignore[arg-type]
        (lambda: RecallOptions(chunk_tokens=0), ["chunk_tokens=0", "int of at least 1"]),
        (lambda: RecallOptions(index={"m": 4}), ["index is of type dict", "IndexOptions(...)"]),  # type: ignore[arg-type]
        (lambda: RecallOptions(weights=None), ["weights is of type NoneType", "HybridWeights(...)"]),  # type: ignore[arg-type]
        (lambda: Memory(history="x"), ["history is of type str", "HistoryOptions(...)"]),  # type: ignore[arg-type]
        (lambda: Memory(recall={"top_k": 3}), ["recall is of type dict", "RecallOptions(...)"]),  # type: ignore[arg-type]
        (lambda: Memory(recall=RecallOptions), ["recall is of type type", "RecallOptions(...)"]),  # type: ignore[arg-type]
        (lambda: Memory(working_memory="x"), ["working_memory is of type str", "WorkingMemoryOptions(...)"]),  # type: ignore[arg-type]
        (lambda: Memory(title="x"), ["title is of type str", "TitleOptions(...)"]),  # type: ignore[arg-type]
        (lambda: Memory(embeddings=5, recall=RecallOptions()), ["embeddings is of type int", "'local'"]),  # type: ignore[arg-type]
        (lambda: MemoryMiddleware("x"), ["memory is of type str", "Memory(...)"]),  # type: ignore[arg-type]
        (lambda: RecallOptions(filterable="topic"), ["filterable='topic'", "list of metadata keys"]),
        (lambda: IndexOptions(algorithm="svs"), ["algorithm='svs'", "'flat'", "'hnsw'"]),  # type: ignore[arg-type]
        (lambda: IndexOptions(distance="dot"), ["distance='dot'", "'cosine'"]),  # type: ignore[arg-type]
        (lambda: IndexOptions(dtype="int4"), ["dtype='int4'", "'float32'", "'int8'"]),  # type: ignore[arg-type]
        (lambda: IndexOptions(dtype="int8", distance="ip"), ["dtype='int8'", "distance='cosine'"]),
        (lambda: IndexOptions(m=0), ["m=0", "int of at least 1"]),
        (lambda: IndexOptions(ef_runtime=1.5), ["ef_runtime=1.5", "int of at least 1"]),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_cannot_work_is_refused_with_what_was_seen_and_the_remedy(
    make: Callable[[], object], words: list[str]
) -> None:
    with pytest.raises(OptionError) as caught:
        make()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, WorkingMemError)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "kind",
    [
        *(FileOptions, HistoryOptions, HybridWeights, IndexOptions, ObservationOptions, PerCall, RecallOptions),
        *(TitleOptions, WorkingMemoryOptions),
    ],
)
def test_help_describes_every_field(kind: Any) -> None:
    told = render_doc(kind)
    for field in fields(kind):
        assert re.search(rf"^ \|  +{field.name}: \w|^ \|  +{field.name}: \"", told, re.MULTILINE), field.name


def test_working_memory_is_turned_on_by_true() -> None:
    assert Memory(working_memory=True).working_memory.format == "markdown"
    assert "working memory" not in repr(Memory(working_memory=False))


def test_roles_are_understood_by_both_of_their_names() -> None:
    assert check_roles(["user", "assistant", "human", "ai", "tool"]) == ("human", "ai", "human", "ai", "tool")
    assert check_roles("user") == ("human",)
    assert HistoryOptions(roles=["user"]).roles == ("human",)
    assert RecallOptions(roles="assistant").roles == ("ai",)


def test_options_do_not_change_with_the_lists_they_were_made_from() -> None:
    roles, filterable, tools = ["ai"], ["topic"], ["search"]
    history = HistoryOptions(roles=roles, exclude_tools=tools)
    recall = RecallOptions(roles=roles, filterable=filterable)
    for given in (roles, filterable, tools):
        given.append("human")
    assert (history.roles, recall.roles, recall.filterable) == (("ai",), ("ai",), ("topic",))
    assert history.exclude_tools in (["search"], ("search",))
