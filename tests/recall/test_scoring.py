"""From candidates to ranked messages."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem.options import HybridWeights
from langchain_workingmem.recall.ranking import (
    SHORT,
    Candidate,
    Floor,
    Ranked,
    best,
    floor_of,
    fuse,
    length_cost,
    lift_by_neighbours,
    rank_hybrid,
    rank_semantic,
    reaches,
    with_best_chunks,
)

DEFAULT = HybridWeights()

candidates = st.lists(
    st.tuples(
        st.sampled_from([b"s", b"t"]),  # thread
        st.integers(0, 8),  # sequence number
        st.integers(0, 2000),  # tokens
        st.sampled_from([b"", b"ann", b"ben"]),  # author
        st.floats(0, 50),  # value
        st.sampled_from([b"0", b"1"]),  # chunk
    ),
    max_size=20,
)


def one(
    seq: int, value: float, thread: bytes = b"t", tokens: int = 10, author: bytes = b"", chunk: int = 0
) -> Candidate:
    return thread, seq, tokens, author, value, b"%d" % chunk


def hybrid(
    dense: list[Candidate],
    words: list[Candidate],
    limit: int = 100,
    threshold: float = 0.0,
    weights: HybridWeights = DEFAULT,
    authors: Collection[bytes] = (),
) -> list[Ranked]:
    return rank_hybrid(dense, words, limit, threshold, weights, authors)


def test_the_best_piece_counts_for_the_message() -> None:
    assert best([one(1, 0.2), one(1, 0.9), one(1, 0.5), one(2, 0.1)]) == {b"t": {1: 0.9, 2: 0.1}}


def test_messages_of_two_threads_are_two_messages() -> None:
    assert best([one(1, 0.2, b"s"), one(1, 0.4, b"t")]) == {b"s": {1: 0.2}, b"t": {1: 0.4}}


def test_fusion_is_a_weighted_sum_of_shares_of_the_best() -> None:
    found = fuse({b"t": {1: 0.8, 2: 0.4}}, {b"t": {2: 10.0, 3: 5.0}}, 0.6)
    assert found[b"t"] == pytest.approx({1: 0.6, 2: 0.3 + 0.4, 3: 0.2})


def test_fusion_without_any_score_is_zero() -> None:
    assert fuse({}, {}, 0.6) == {}
    assert fuse({b"t": {1: 0.0}}, {}, 0.6) == {b"t": {1: 0.0}}


def test_neighbours_lift_within_their_thread_only() -> None:
    found = lift_by_neighbours({b"t": {1: 1.0, 2: 0.0, 4: 0.0}, b"s": {3: 0.0}}, 0.2)
    assert found == {b"t": {1: 1.0, 2: 0.2, 4: 0.0}, b"s": {3: 0.0}}


def test_both_neighbours_count() -> None:
    found = lift_by_neighbours({b"t": {1: 1.0, 2: 0.0, 3: 0.5}}, 0.2)
    assert found[b"t"][2] == pytest.approx(0.3)


@pytest.mark.parametrize("tokens", [0, 1, SHORT])
def test_short_messages_cost_nothing(tokens: int) -> None:
    assert length_cost(tokens, 0.1) == 0


def test_length_costs_by_its_logarithm() -> None:
    assert length_cost(2 * SHORT, 0.2) == pytest.approx(0.138629, abs=1e-6)
    assert length_cost(10 * SHORT, 0.2) == pytest.approx(0.460517, abs=1e-6)


def test_semantic_ranks_by_similarity_and_the_newer_of_equals_first() -> None:
    ranked = rank_semantic([one(3, 0.9), one(1, 0.5), one(2, 0.5), one(3, 0.1)], limit=2)
    assert [(found.seq, found.score, found.similarity) for found in ranked] == [
        (3, 0.9, 0.9),
        (2, 0.5, 0.5),
    ]


def test_hybrid_puts_what_both_sides_found_first() -> None:
    ranked = hybrid([one(1, 0.9), one(5, 0.85)], [one(5, 7.0), one(9, 2.0)], limit=9)
    assert [found.seq for found in ranked] == [5, 1, 9]


def test_hybrid_says_that_words_alone_have_no_similarity() -> None:
    (found,) = hybrid([], [one(1, 7.0)], limit=9)
    assert found.similarity == 0
    assert found.score == pytest.approx((1 - DEFAULT.dense) / (1 + 2 * DEFAULT.neighbours))


def test_hybrid_puts_the_short_one_of_equals_first() -> None:
    ranked = hybrid([one(1, 0.9, tokens=40), one(5, 0.9, tokens=4000)], [], limit=9)
    assert [found.seq for found in ranked] == [1, 5]


def test_the_author_who_is_meant_comes_first() -> None:
    dense = [one(1, 0.9, author=b"ben"), one(5, 0.8, author=b"ann"), one(9, 0.7)]
    assert [found.seq for found in hybrid(dense, [])] == [1, 5, 9]
    ranked = hybrid(dense, [], authors={b"ann"})
    assert [found.seq for found in ranked] == [5, 1, 9]
    assert all(0 <= found.score <= 1 for found in ranked)


def test_weights_of_nothing_leave_the_similarities() -> None:
    bare = HybridWeights(dense=1, neighbours=0, author=0, length=0)
    ranked = hybrid([one(1, 0.5), one(2, 1.0, tokens=4000), one(3, 0.25)], [one(1, 9.0)], weights=bare, authors={b""})
    assert [(found.seq, found.score) for found in ranked] == [(2, 1.0), (1, 0.5), (3, 0.25)]


def test_nothing_found_is_nothing_ranked() -> None:
    assert rank_semantic([], limit=9) == hybrid([], []) == []


@given(candidates)
def test_semantic_ranks_each_message_once_in_falling_order(dense: list[Candidate]) -> None:
    dense.sort(key=lambda found: -found[4])
    ranked = rank_semantic(dense, limit=100)
    places = [found[:2] for found in ranked]
    assert sorted(places) == sorted({found[:2] for found in dense})
    assert rank_semantic(dense, limit=3) == ranked[:3]
    scores = [found.score for found in ranked]
    assert scores == sorted(scores, reverse=True)


@given(candidates, candidates)
def test_hybrid_ranks_each_message_once_in_falling_order(dense: list[Candidate], words: list[Candidate]) -> None:
    ranked = hybrid(dense, words, limit=100)
    places = [found[:2] for found in ranked]
    assert sorted(places) == sorted({found[:2] for found in (*dense, *words)})
    assert hybrid(dense, words, limit=3) == ranked[:3]
    scores = [found.score for found in ranked]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


@given(candidates, candidates)
def test_ranking_does_not_depend_on_the_order_of_replies(dense: list[Candidate], words: list[Candidate]) -> None:
    same_tokens = [(thread, seq, 100, b"", value, chunk) for thread, seq, _, _, value, chunk in dense]
    same_words = [(thread, seq, 100, b"", value, chunk) for thread, seq, _, _, value, chunk in words]
    assert hybrid(same_tokens[::-1], same_words[::-1], 100) == hybrid(same_tokens, same_words, 100)


@given(candidates, candidates, st.floats(0, 1))
def test_a_threshold_is_applied_before_the_best_are_chosen(
    dense: list[Candidate], words: list[Candidate], threshold: float
) -> None:
    everything = hybrid(dense, words, limit=100)
    expected = [found for found in everything if found.similarity >= threshold]
    assert hybrid(dense, words, 3, threshold) == expected[:3]


def test_inner_products_above_one_are_ranked_by_their_size() -> None:
    ranked = rank_semantic([one(1, 9.0), one(2, 3.0), one(3, 1.5)], limit=2)
    assert [(found.seq, found.similarity) for found in ranked] == [(1, 1.0), (2, 1.0)]


# ---------------------------------------------------------------------- the floor of a model, and pieces


@pytest.mark.parametrize(
    "name",
    [
        "all-MiniLM-L6-v2",
        "sentence-transformers/all-MiniLM-L6-v2",
        "all-MiniLM-L6-v2.gguf2.f16.gguf",
        "/models/all-MiniLM-L6-v2",
        "all-minilm",
        "all-minilm:22m",
        "all-minilm:l6-v2",
        "wordllama-l2-supercat-256",
    ],
)
def test_known_models_have_a_floor(name: str) -> None:
    assert floor_of(name)


@pytest.mark.parametrize(
    "name", ["text-embedding-3-small", "all-MiniLM-L12-v2", "all-minilm:33m", "paraphrase-MiniLM-L6-v2", ""]
)
def test_other_models_have_none(name: str) -> None:
    assert floor_of(name) is None


def test_the_floor_is_higher_where_no_word_was_found() -> None:
    floor = Floor(0.2, 0.3)
    low, high = Ranked(b"t", 1, 1, 1, 0.25), Ranked(b"t", 2, 1, 1, 0.3)
    assert not reaches([low], floor, hybrid=True)
    assert reaches([low], floor, hybrid=False)
    assert reaches([low, low._replace(worded=True, similarity=0)], floor, hybrid=True)
    assert reaches([low, high], floor, hybrid=True)
    assert reaches([low], None, hybrid=True)


def test_the_piece_is_that_of_both_searches() -> None:
    ranked = [Ranked(b"t", 1, 900, 1, 1), Ranked(b"t", 2, 10, 1, 1)]
    dense = [one(1, 0.9, chunk=2), one(1, 0.8, chunk=1), one(2, 1.0)]
    assert [found.chunk for found in with_best_chunks(ranked, 400, dense, [], 0.7)] == [2, 0]
    assert [found.chunk for found in with_best_chunks(ranked, 400, dense, [one(1, 9, chunk=1)], 0.7)] == [1, 0]
    assert with_best_chunks(ranked, 1000, dense, [], 0.7) is ranked
