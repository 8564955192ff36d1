from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from langchain_workingmem import (
    HistoryOptions,
    IndexOptions,
    Memory,
    ObservationOptions,
    OptionError,
    RecallOptions,
    WorkingMemError,
)
from langchain_workingmem.checks import at_least, check_range, check_roles, check_threshold, one_of
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import Scripted

if TYPE_CHECKING:
    from collections.abc import Callable


def observing(**fields: Any) -> ObservationOptions:
    return ObservationOptions(**{"model": "openai:x", **fields})


def test_the_defaults_are_those_of_the_contract() -> None:
    history, recall, index = HistoryOptions(), RecallOptions(), IndexOptions()
    assert (history.last_messages, history.max_tokens, history.token_counter) == (10, None, "approximate")
    assert (history.exclude_tools, history.roles) == ("memory", None)
    assert (recall.top_k, recall.message_range, recall.scope, recall.threshold) == (4, 1, "user", None)
    assert (recall.roles, recall.embedding_cache_size, recall.filterable) == (("human", "ai"), 1000, ())
    assert (index.algorithm, index.distance, index.dtype, index.m, index.ef_construction) == (
        *("flat", "cosine", None, 16, 200),
    )
    assert recall.index == index
    assert recall.reranker is None


def test_recall_searches_hybrid_unless_told_otherwise() -> None:
    # the contract lists "hybrid" first, as it does every default
    assert RecallOptions().search == "hybrid"


def test_observation_waits_for_tokens_and_keeps_the_newest_raw() -> None:
    options = ObservationOptions(model="openai:x")
    assert (options.scope, options.message_tokens, options.keep_tokens) == ("thread", 30_000, 6_000)
    assert (options.batch_tokens, options.observation_tokens) == (10_000, 40_000)
    assert (options.reflector, options.instructions, options.placement) == (None, None, None)
    assert (options.background, options.timeout) == (True, timedelta(minutes=2))


def test_observation_takes_models_and_their_names() -> None:
    model = Scripted.says("- [1] noted")
    options = ObservationOptions(model=model, reflector="openai:x")
    assert options.model is model
    assert options.reflector == "openai:x"


def test_observation_may_keep_nothing_raw_but_the_present_turn() -> None:
    assert ObservationOptions(model="openai:x", message_tokens=1, keep_tokens=0).keep_tokens == 0


@pytest.mark.parametrize(
    "options", [HistoryOptions(), RecallOptions(), IndexOptions(), ObservationOptions(model="openai:x")]
)
def test_options_are_frozen_and_take_no_attribute_more(options: Any) -> None:
    field = dataclasses.fields(options)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(options, field, 1)
    assert not hasattr(options, "__dict__")


@pytest.mark.parametrize("options", [HistoryOptions, RecallOptions, IndexOptions, ObservationOptions])
def test_options_are_given_by_name(options: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match="positional"):
        options(5)


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
        (lambda: observing(model=5), ["model is of type int", "a chat model, or its name"]),
        (lambda: observing(model=None), ["model is of type NoneType", "a chat model, or its name"]),
        (lambda: observing(reflector=5), ["reflector is of type int", "a chat model, or its name"]),
        (lambda: observing(scope="resource"), ["scope='resource'", "'user'", "'thread'"]),
        (lambda: observing(message_tokens=0, keep_tokens=0), ["message_tokens=0", "int of at least 1"]),
        (lambda: observing(keep_tokens=-1), ["keep_tokens=-1", "int of at least 0"]),
        (lambda: observing(keep_tokens=30_000), ["keep_tokens=30000 with message_tokens=30000", "keep fewer tokens"]),
        (lambda: observing(batch_tokens=0), ["batch_tokens=0", "int of at least 1"]),
        (lambda: observing(batch_tokens=True), ["batch_tokens=True", "int of at least 1"]),
        (lambda: observing(observation_tokens=1.5), ["observation_tokens=1.5", "int of at least 1"]),
        (lambda: observing(instructions=["x"]), ["instructions is of type list", "pass a str, or None"]),
        (lambda: observing(background="no"), ["background is of type str", "True or False"]),
        (lambda: observing(timeout=120), ["timeout=120", "positive timedelta"]),
        (lambda: observing(placement="end"), ["placement='end'", "'question'", "'system'"]),
        (lambda: Memory(history="x"), ["history is of type str", "HistoryOptions(...)"]),  # type: ignore[arg-type]
        (lambda: Memory(recall={"top_k": 3}), ["recall is of type dict", "RecallOptions(...)"]),  # type: ignore[arg-type]
        (lambda: Memory(recall=RecallOptions), ["recall is of type type", "RecallOptions(...)"]),  # type: ignore[arg-type]
        (lambda: Memory(working_memory=True), ["working_memory is of type bool", "WorkingMemoryOptions(...)"]),  # type: ignore[arg-type]
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


@pytest.mark.parametrize("message_range", ["12", "ab", None, 1.5, [1, "2"], True])
def test_a_message_range_that_is_no_range_is_refused(message_range: Any) -> None:
    with pytest.raises(OptionError, match="message_range="):
        RecallOptions(message_range=message_range)


@pytest.mark.parametrize("threshold", [True, False])
def test_a_threshold_is_a_number_and_no_switch(threshold: bool) -> None:
    with pytest.raises(OptionError, match="threshold="):
        RecallOptions(threshold=threshold)


@pytest.mark.parametrize("roles", [[["ai"]], [5], 5])
def test_roles_that_are_no_texts_are_refused(roles: Any) -> None:
    with pytest.raises(OptionError, match="roles"):
        HistoryOptions(roles=roles)


def test_roles_are_understood_by_both_of_their_names() -> None:
    assert check_roles(["user", "assistant", "human", "ai", "tool"]) == ("human", "ai", "human", "ai", "tool")
    assert check_roles("user") == ("human",)
    assert HistoryOptions(roles=["user"]).roles == ("human",)
    assert RecallOptions(roles="assistant").roles == ("ai",)


def test_a_range_is_one_number_or_two() -> None:
    assert check_range(2) == (2, 2)
    assert check_range((0, 3)) == (0, 3)


@pytest.mark.parametrize("threshold", [None, 0, 1, 0.5])
def test_a_similarity_is_a_threshold(threshold: float | None) -> None:
    assert RecallOptions(threshold=threshold).threshold == threshold
    check_threshold(threshold)


def test_what_is_allowed_passes() -> None:
    at_least(0, 0, "x")
    one_of("a", ("a", "b"), "x")
    assert HistoryOptions(last_messages=None, token_counter=len, exclude_tools=["f"]).last_messages is None


def test_options_do_not_change_with_the_lists_they_were_made_from() -> None:
    roles, filterable, tools = ["ai"], ["topic"], ["search"]
    history = HistoryOptions(roles=roles, exclude_tools=tools)
    recall = RecallOptions(roles=roles, filterable=filterable)
    for given in (roles, filterable, tools):
        given.append("human")
    assert (history.roles, recall.roles, recall.filterable) == (("ai",), ("ai",), ("topic",))
    assert history.exclude_tools in (["search"], ("search",))


def test_index_options_describe_the_vector_field() -> None:
    assert IndexOptions(dtype="float16", distance="ip").attributes(8) == {
        "dims": 8,
        "algorithm": "flat",
        "distance_metric": "ip",
        "datatype": "float16",
    }
    assert IndexOptions().attributes(8)["datatype"] == "float16"
    assert IndexOptions().attributes(8, "int8")["datatype"] == "int8"
    assert IndexOptions(dtype="float32").attributes(8, "int8")["datatype"] == "float32"
    hnsw = IndexOptions(algorithm="hnsw", m=4, ef_construction=5, ef_runtime=6).attributes(8)
    assert (hnsw["m"], hnsw["ef_construction"], hnsw["ef_runtime"]) == (4, 5, 6)
