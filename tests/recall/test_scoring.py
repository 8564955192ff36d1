"""From candidates to ranked messages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem._redis.keys import encode
from langchain_workingmem._redis.queries import columns as columns_of
from langchain_workingmem._text.messages import STRIDE
from langchain_workingmem.options import HybridWeights
from langchain_workingmem.recall.ranking import Candidates, Ranked, Span, rank

Candidate: TypeAlias = tuple[
    bytes, int, int, bytes, float, bytes, int
]  # thread, sequence number, tokens, author, value, chunk, time

DEFAULT = HybridWeights()
NOTHING = HybridWeights(dense=1, neighbours=0, author=0, time=0, length=0)
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


both = pytest.mark.parametrize("hybrid", [False, True])


def one(
    seq: int, value: float, thread: bytes = b"t", tokens: int = 10, author: bytes = b"", chunk: int = 0, day: int = 0
) -> Candidate:
    return thread, seq, tokens, author, value, b"%d" % chunk, day * DAY


def columns(dense: Sequence[Candidate], words: Sequence[Candidate] = ()) -> Candidates:
    found = [*dense, *words]
    keys = [
        b"wm:vector:{%s}:%d:%s:%d:%s" % (thread, seq, chunk, tokens, author)
        for thread, seq, tokens, author, _, chunk, _ in found
    ]
    values, times = np.array([row[4] for row in found], np.float64), [row[-1] for row in found]
    return Candidates.read(keys, values, len(dense), times)


def ranked_by(
    dense: list[Candidate],
    words: list[Candidate] | None = None,
    *,
    weights: HybridWeights = DEFAULT,
    authors: Collection[bytes] = (),
    **more: Any,
) -> list[Ranked]:
    options = {"hybrid": True, "numbered": False, "times": (), "threshold": 0.0, **more}
    bonus = weights.author if authors else 0.0
    return [*rank(columns(dense, words or []), weights, authors=authors, bonus=bonus, **options)]


def seqs(ranked: list[Ranked]) -> list[int]:
    return [found.position[1] for found in ranked]


# ---------------------------------------------------------------------- steps


def test_an_answer_is_found_by_its_question() -> None:
    others = [one(STRIDE * 8, 0.1, b"%d" % number) for number in range(120)]
    between = one(STRIDE * 5 + 1, 0.15)  # a call of a tool
    dense = [one(STRIDE * 5, 1.0), one(STRIDE * 9, 0.3), one(STRIDE * 6, 0.2), between, *others]
    weights = HybridWeights(dense=1, neighbours=0.2, length=0)
    assert seqs(ranked_by(dense, weights=weights))[:2] == [STRIDE * 5, STRIDE * 6]
    assert seqs(ranked_by(dense, weights=NOTHING))[:2] == [STRIDE * 5, STRIDE * 9]


# ---------------------------------------------------------------------- what always holds


@both
def test_the_short_one_of_equals_comes_first(hybrid: bool) -> None:
    assert seqs(ranked_by([one(5, 0.9, tokens=4000), one(1, 0.9, tokens=40)], hybrid=hybrid)) == [1, 5]


@given(candidates, candidates, st.booleans())
def test_each_message_is_ranked_once_in_falling_order(
    dense: list[Candidate], words: list[Candidate], hybrid: bool
) -> None:
    ranked = ranked_by(dense, words, hybrid=hybrid, authors={b"ann"}, times=[Span(0, DAY)])
    assert sorted(found.position for found in ranked) == sorted({found[:2] for found in (*dense, *words)})
    scores = [found.score for found in ranked]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


@given(candidates, candidates, st.booleans())
def test_equal_values_in_another_order_are_ranked_alike(
    dense: list[Candidate], words: list[Candidate], hybrid: bool
) -> None:
    def alike(found: list[Candidate]) -> list[Candidate]:
        return [(thread, seq, 100, b"", 1.0, chunk, 0) for thread, seq, _, _, _, chunk, _ in found]

    near, worded = alike(dense), alike(words)
    ranked, turned = ranked_by(near, worded, hybrid=hybrid), ranked_by(near[::-1], worded[::-1], hybrid=hybrid)
    assert [one[:5] for one in turned] == [one[:5] for one in ranked]


@given(candidates, candidates, st.floats(0, 1), st.booleans())
def test_a_threshold_leaves_out_what_is_less_similar(
    dense: list[Candidate], words: list[Candidate], threshold: float, hybrid: bool
) -> None:
    expected = [found for found in ranked_by(dense, words, hybrid=hybrid) if found.similarity >= threshold]
    assert ranked_by(dense, words, threshold=threshold, hybrid=hybrid) == expected


KEYS = st.tuples(
    st.sampled_from(["a|b,{c}*", "t", "é:~\n"]),
    st.integers(0, 2**39),
    st.sampled_from(["0", "12"]),
    st.integers(0, 10**6),
    st.sampled_from(["", "!", "ann%3Ab"]),
)


@given(st.lists(KEYS, max_size=12))
def test_keys_are_read_as_they_were_written(parts: list[tuple[str, int, str, int, str]]) -> None:
    written = [
        f"wm:vector:{{{encode(thread)}}}:{seq}:{chunk}:{tokens}:{author}".encode()
        for thread, seq, chunk, tokens, author in parts
    ]
    found = Candidates.read(written, np.arange(len(parts), dtype=np.float64), 0)
    rows = zip(found.threads, found.seqs.tolist(), found.chunks, found.lengths.tolist(), found.authors, strict=True)
    assert [*rows] == [
        (f"{{{encode(thread)}}}".encode(), seq, chunk.encode(), tokens, author.encode())
        for thread, seq, chunk, tokens, author in parts
    ]


@given(
    st.lists(
        st.one_of(st.none(), st.floats(-2, 2), st.sampled_from([0.0, 5.9604644775390625e-08, -1.1920928955078125e-07]))
    )
)
def test_numbers_are_read_to_eleven_digits_and_small_ones_whole(values: list[float | None]) -> None:
    def read(ranks: list[bytes | None]) -> Any:
        return columns_of([0, *(part for rank in ranks for part in (b"key", rank))], None, content=False)[1].tolist()

    keys = [None if one is None else b"#%.17g" % one for one in values]
    expected = [float("nan") if one is None else one for one in values]
    assert read(keys) == pytest.approx(expected, abs=1e-10, rel=1e-10, nan_ok=True)
    scores: list[bytes | None] = [b"%.17g" % (50 + one) for one in values if one is not None]
    assert read(scores) == pytest.approx([50 + one for one in values if one is not None], abs=1e-9)


@pytest.mark.parametrize("numbered", [False, True])
def test_the_excerpt_of_a_question_with_a_number_is_the_chunk_that_has_its_words(numbered: bool) -> None:
    near, words = [one(1, 0.9, chunk=0), one(1, 0.5, chunk=1)], [one(1, 3.0, chunk=1)]
    assert [found.chunk for found in ranked_by(near, words, numbered=numbered)] == [int(numbered)]
