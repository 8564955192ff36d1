"""From candidates to ranked messages."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem._redis.keys import encode
from langchain_workingmem._redis.queries import numbers, similarities
from langchain_workingmem.options import HybridWeights
from langchain_workingmem.recall.ranking import (
    Candidates,
    Ranked,
    rank,
    trust_in_words,
)
from langchain_workingmem.recall.reindex import floor_of
from langchain_workingmem.recall.times import Span

Candidate: TypeAlias = tuple[
    bytes, int, int, bytes, float, bytes, int
]  # thread, sequence number, tokens, author, value, chunk, time

DEFAULT = HybridWeights()
NOTHING = HybridWeights(dense=1, neighbours=0, thread=0, author=0, time=0, length=0)
DAY = 86_400_000_000

candidates = st.lists(
    st.tuples(
        st.sampled_from([b"s", b"t"]),  # thread
        st.integers(0, 8),  # sequence number
        st.integers(0, 2000),  # tokens
        st.sampled_from([b"", b"ann", b"ben"]),  # author
        st.floats(0, 50),  # value
        st.sampled_from([b"0", b"1"]),  # chunk
        st.sampled_from([0, DAY, 40 * DAY]),  # when it was stored
    ),
    max_size=20,
).map(lambda found: sorted(found, key=lambda one: -one[4]))
trusts = st.sampled_from([None, 0.0, 0.4, 1.0])


def one(
    seq: int, value: float, thread: bytes = b"t", tokens: int = 10, author: bytes = b"", chunk: int = 0, day: int = 0
) -> Candidate:
    return thread, seq, tokens, author, value, b"%d" % chunk, day * DAY


def columns(dense: Sequence[Candidate], words: Sequence[Candidate] = ()) -> Candidates:
    found = [*dense, *words]
    keys = [
        b"wm:vector:{%s}:%d:%s:%d~%s" % (thread, seq, chunk, tokens, author)
        for thread, seq, tokens, author, _, chunk, _ in found
    ]
    rows = [[b"created_at", b"%d" % row[-1]] for row in found]
    return Candidates.read(keys, np.array([row[4] for row in found], np.float64), len(dense), rows, timed=True)[0]


def ranked_by(
    dense: list[Candidate],
    words: list[Candidate] | None = None,
    limit: int = 100,
    *,
    threshold: float = 0.0,
    weights: HybridWeights = DEFAULT,
    trust: float | None = 1.0,
    authors: Collection[bytes] = (),
    times: Collection[Span] = (),
) -> list[Ranked]:
    return rank(
        columns(dense, words or []),
        limit,
        threshold=threshold,
        weights=weights,
        trust=trust,
        authors=authors,
        times=times,
    )


def seqs(ranked: list[Ranked]) -> list[int]:
    return [found.seq for found in ranked]


# ---------------------------------------------------------------------- steps


def test_the_best_chunk_counts_for_the_message() -> None:
    ranked = ranked_by([one(1, 0.9), one(1, 0.5), one(2, 0.4)], weights=NOTHING)
    assert [(found.seq, found.similarity) for found in ranked] == [(1, 0.9), (2, 0.4)]


def test_words_and_meaning_are_added_as_shares_of_their_best() -> None:
    weights = HybridWeights(dense=0.6, neighbours=0, thread=0, author=0, time=0, length=0)
    ranked = ranked_by([one(1, 0.8), one(3, 0.4)], [one(3, 10.0), one(5, 5.0)], weights=weights)
    assert {found.seq: found.score for found in ranked} == pytest.approx({1: 0.6, 3: 0.3 + 0.4, 5: 0.2})


def test_a_thread_with_good_evidence_lifts_its_messages() -> None:
    weights = HybridWeights(dense=1, neighbours=0, thread=0.2, length=0)
    others = [one(5, 0.1, b"%d" % number) for number in range(16)]
    ranked = ranked_by([one(1, 1.0), one(5, 0.55, b"s"), one(9, 0.5), *others], weights=weights)
    assert [(found.thread, found.seq) for found in ranked][:3] == [(b"t", 1), (b"t", 9), (b"s", 5)]
    alone = ranked_by([one(1, 1.0), one(5, 0.5)], weights=weights)  # all candidates are of the thread
    assert [found.score for found in alone] == pytest.approx([1 / 1.2, 0.5 / 1.2])


@pytest.mark.parametrize("trust", [None, 1.0])
def test_the_short_one_of_equals_comes_first(trust: float | None) -> None:
    assert seqs(ranked_by([one(5, 0.9, tokens=4000), one(1, 0.9, tokens=40)], trust=trust)) == [1, 5]


def test_vectors_alone_rank_by_similarity_and_the_newer_of_equals_first() -> None:
    ranked = ranked_by([one(3, 0.9), one(2, 0.5), one(1, 0.5), one(3, 0.1)], limit=2, trust=None)
    assert [(found.seq, found.score, found.similarity) for found in ranked] == [(3, 0.9, 0.9), (2, 0.5, 0.5)]


def test_words_alone_have_no_similarity() -> None:
    (found,) = ranked_by([], [one(1, 7.0)], weights=HybridWeights(thread=0, neighbours=0))
    assert (found.similarity, found.worded) == (0, True)
    assert found.score == pytest.approx(1 - DEFAULT.dense)


@pytest.mark.parametrize("trust", [None, 1.0])
def test_the_author_who_is_meant_comes_first(trust: float | None) -> None:
    dense = [one(1, 0.9, author=b"ben"), one(5, 0.8, author=b"ann"), one(9, 0.7)]
    assert seqs(ranked_by(dense, trust=trust)) == [1, 5, 9]
    ranked = ranked_by(dense, trust=trust, authors={b"ann"})
    assert seqs(ranked) == [5, 1, 9]
    assert all(0 <= found.score <= 1 for found in ranked)


@pytest.mark.parametrize("trust", [None, 0.0, 1.0])
def test_a_message_at_the_time_that_is_meant_comes_first(trust: float | None) -> None:
    dense = [one(1, 0.9, day=100), one(5, 0.8, day=10), one(9, 0.7, day=12)]
    assert seqs(ranked_by(dense, trust=trust)) == [1, 5, 9]
    assert seqs(ranked_by(dense, trust=trust, times=[Span(9 * DAY, 11 * DAY)])) == [5, 9, 1]


# ---------------------------------------------------------------------- what always holds


@given(candidates, candidates, trusts)
def test_each_message_is_ranked_once_in_falling_order(
    dense: list[Candidate], words: list[Candidate], trust: float | None
) -> None:
    ranked = ranked_by(dense, words, trust=trust, authors={b"ann"}, times=[Span(0, DAY)])
    assert sorted(found[:2] for found in ranked) == sorted({found[:2] for found in (*dense, *words)})
    assert ranked_by(dense, words, 3, trust=trust, authors={b"ann"}, times=[Span(0, DAY)]) == ranked[:3]
    scores = [found.score for found in ranked]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


@given(candidates, candidates, trusts)
def test_equal_values_in_another_order_are_ranked_alike(
    dense: list[Candidate], words: list[Candidate], trust: float | None
) -> None:
    def alike(found: list[Candidate]) -> list[Candidate]:
        return [(thread, seq, 100, b"", 1.0, chunk, 0) for thread, seq, _, _, _, chunk, _ in found]

    near, worded = alike(dense), alike(words)
    assert ranked_by(near[::-1], worded[::-1], trust=trust) == ranked_by(near, worded, trust=trust)


@given(candidates, candidates, st.floats(0, 1), trusts)
def test_a_threshold_is_applied_before_the_best_are_chosen(
    dense: list[Candidate], words: list[Candidate], threshold: float, trust: float | None
) -> None:
    expected = [found for found in ranked_by(dense, words, trust=trust) if found.similarity >= threshold]
    assert ranked_by(dense, words, 3, threshold=threshold, trust=trust) == expected[:3]


# ---------------------------------------------------------------------- how much words tell


def trust(best: float, number: int, matching: int) -> float:
    """Tell how much words tell if twenty messages match equally well."""
    return trust_in_words([best] * 20, number, matching)


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


# ---------------------------------------------------------------------- from replies to columns

FOREIGN = [
    b"wm:vector:{t}",
    b"wm:vector:{t}:1:0",
    b"wm:vector:{t}:1:0:9:8",
    b"wm:vector:{t}:x:0:9",
    b"wm:vector:{t}:1:0:~a",
    b"wm:vector:{:1:0:9",
    b"wm:vector:{t}:99999999999999999999:0:9",
]


@given(
    st.lists(
        st.one_of(
            st.sampled_from(FOREIGN),
            st.tuples(
                st.sampled_from(["a|b,{c}*", "t", "é:~\n"]),
                st.integers(0, 2**39),
                st.sampled_from(["0", "12", "o3"]),
                st.integers(0, 10**6),
                st.sampled_from(["", "~!", "~ann%3Ab"]),
            ).map(lambda one: f"wm:vector:{{{encode(one[0])}}}:{one[1]}:{one[2]}:{one[3]}{one[4]}".encode()),
        ),
        max_size=12,
    )
)
def test_keys_are_read_as_one_expression_reads_them(keys: list[bytes]) -> None:
    form = re.compile(rb"wm:vector:\{([^:}]*)\}:(\d{1,18}):(\d+):(\d+)(?:~([^:]*))?")
    ours = [(at, match.groups(default=b"")) for at, key in enumerate(keys) if (match := form.fullmatch(key))]
    found, rows = Candidates.read(
        keys,
        np.arange(len(keys), dtype=np.float64),
        len(keys) // 2,
        [[b"created_at", b"%d" % at] for at in range(len(keys))],
        timed=True,
    )
    assert [*found.messages()] == [(thread, int(seq), int(tokens)) for _, (thread, seq, _, tokens, _) in ours]
    assert [*zip(found.chunks, found.authors, strict=True)] == [(chunk, author) for _, (_, _, chunk, _, author) in ours]
    assert found.values.tolist() == [*found.times] == [at for at, _ in ours] == [int(row[1]) for row in rows]
    odd = [at % 2 == 1 for at in range(len(found.threads))]
    assert [*found.where(odd).messages()] == [*found.messages()][1::2]


@given(
    st.lists(
        st.one_of(st.none(), st.floats(-2, 2), st.sampled_from([0.0, 5.9604644775390625e-08, -1.1920928955078125e-07]))
    )
)
def test_numbers_are_read_to_eleven_digits_and_small_ones_whole(values: list[float | None]) -> None:
    keys = [None if one is None else b"#%.17g" % one for one in values]
    expected = [float("nan") if one is None else one for one in values]
    assert numbers(keys).tolist() == pytest.approx(expected, abs=1e-10, rel=1e-10, nan_ok=True)
    scores = [b"%.17g" % (50 + one) for one in values if one is not None]
    assert numbers(scores).tolist() == pytest.approx([50 + one for one in values if one is not None], abs=1e-9)


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_what_is_not_a_number_is_similar_to_nothing(metric: str) -> None:
    assert similarities(numbers([b"#-0.25", None, b"#nan"]), metric).tolist()[1:] == [0, 0]
