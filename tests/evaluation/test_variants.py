"""Options as people write them."""

from __future__ import annotations

import pytest

from langchain_workingmem.errors import OptionError
from langchain_workingmem.evaluation import DEFAULTS, TOGETHER, variant_of
from langchain_workingmem.options import HybridWeights, IndexOptions, RecallOptions


def test_a_variant_names_options_of_recall_weights_index_and_model() -> None:
    variant = variant_of('search=semantic, weights.length=0.2,index.dtype=float16,embeddings=openai:m,roles=["human"]')
    assert variant.options == RecallOptions(
        search="semantic",
        weights=HybridWeights(length=0.2),
        index=IndexOptions(dtype="float16"),
        roles=["human"],
    )
    assert variant.embeddings == "openai:m"


@pytest.mark.parametrize("text", ["", DEFAULTS])
def test_the_defaults_are_a_variant(text: str) -> None:
    variant = variant_of(text)
    assert (variant.label, variant.options, variant.embeddings) == (DEFAULTS, RecallOptions(), "local")
    assert variant.ranges == ((0, 0), (1, 1), (2, 2))
    assert variant.top_k[-1] == TOGETHER
    assert not variant.limited


def test_a_given_top_k_and_range_are_what_is_measured() -> None:
    variant = variant_of("top_k=4,message_range=[0, 2]")
    assert variant.top_k == (1, 2, 3, 4)
    assert variant.ranges == ((0, 2),)
    assert variant.limited
    assert variant_of("top_k=130").top_k[-2:] == (120, 130)


def test_more_hits_are_asked_for_where_short_messages_do_not_fill_the_budget() -> None:
    assert variant_of("", budget=2000, tokens=30, most=5000).top_k[-1] == TOGETHER
    assert variant_of("", budget=2000, tokens=8, most=5000).top_k[-2:] == (200, 400)
    assert variant_of("", budget=2000, tokens=8, most=60).top_k[-1] == TOGETHER


def test_variants_share_messages_unless_they_are_stored_in_another_way() -> None:
    base = variant_of("").stored_as()
    assert variant_of("search=semantic,weights.dense=1,top_k=3").stored_as() == base
    for other in ("chunk_tokens=100", "index.algorithm=hnsw", "roles=user", "embeddings=openai:m"):
        assert variant_of(other).stored_as() != base


@pytest.mark.parametrize(
    ("text", "seen", "remedy"),
    [
        ("max_tokens=500", "'max_tokens' is no option that a search", "use embeddings, top_k"),
        ("weights=1", "'weights' is no option", "weights.dense"),
        ("search", "'search' is not one value", "write search=VALUE once"),
        ("top_k=3,top_k=4", "'top_k=4' is not one value", "write top_k=VALUE once"),
        ("search=fuzzy", "search='fuzzy'", "use one of 'semantic', 'hybrid'"),
        ("weights.length=2", "length=2", "use a weight from 0 to 1"),
        ("top_k=many", "top_k='many'", "use an int of at least 1"),
    ],
)
def test_an_option_that_cannot_be_measured_is_refused(text: str, seen: str, remedy: str) -> None:
    with pytest.raises(OptionError) as caught:
        variant_of(text)
    assert seen in str(caught.value)
    assert remedy in str(caught.value.remedy)
