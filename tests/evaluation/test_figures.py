"""Shares at equal tokens, and how sure they are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from langchain_workingmem.evaluation import SHARE, TOKENS, Array, Measured, between, compare, short
from langchain_workingmem.evaluation.figures import Updates, updates


def curves() -> Array:
    mean = np.zeros((2, 2, 4))  # top_k x message_range x (any, share, all, tokens)
    mean[:, 0, SHARE], mean[:, 0, TOKENS] = [0.2, 0.4], [100, 300]
    mean[:, 1, SHARE], mean[:, 1, TOKENS] = [0.5, 0.7], [280, 900]
    return mean


def test_the_share_at_a_budget_is_interpolated_and_nan_outside() -> None:
    one = Measured(np.stack([curves(), curves()]), (1, 5))
    assert one.share(curves(), 200) == pytest.approx(0.3)
    assert one.share(curves(), 290) == pytest.approx(0.5 + 0.2 * 10 / 620)  # the better of both ranges
    assert math.isnan(one.share(curves(), 50))
    assert math.isnan(one.share(curves(), 1000))
    assert one.point(200) == (3, 0)
    assert one.point(290) == (1, 1)
    assert one.point(50) is None


def test_where_nothing_more_comes_back_the_last_share_holds() -> None:
    one = Measured(np.stack([curves()]), (1, 5), ends=True)
    assert one.share(curves(), 5000) == 0.7
    assert one.point(5000) == (5, 1)
    assert math.isnan(one.share(curves(), 50))


def found(shares: list[float]) -> Measured:
    """Make questions with these shares of one hit of 100 tokens, and of two of 300."""
    rows = np.zeros((len(shares), 2, 1, 4))
    rows[:, :, 0, SHARE] = np.array(shares)[:, None]
    rows[:, :, 0, TOKENS] = [100, 300]
    return Measured(rows, (1, 2))


def test_options_gain_exactly_nothing_over_themselves() -> None:
    shares = [0.0, 1.0, 0.5, 1.0, 0.25]
    (_, (cell,)) = compare([found(shares), found(shares)], [200])
    assert (cell.gain, cell.gain_interval) == (0.0, (0.0, 0.0))


def test_an_interval_holds_the_share_and_narrows_with_more_questions() -> None:
    few, many = [0.0, 1.0] * 5, [0.0, 1.0] * 500
    ((narrow,),), ((wide,),) = compare([found(many)], [200]), compare([found(few)], [200])
    for cell in (narrow, wide):
        assert cell.interval[0] < cell.share == 0.5 < cell.interval[1]
    assert narrow.interval[1] - narrow.interval[0] == pytest.approx(2 * 1.96 * 0.5 / math.sqrt(1000), rel=0.15)
    assert wide.interval[1] - wide.interval[0] > 5 * (narrow.interval[1] - narrow.interval[0])


def test_a_gain_is_measured_question_by_question() -> None:
    """The same gain for every question is certain, however much the questions differ."""
    base = [0.0, 0.9, 0.1, 0.5]
    (_, (cell,)) = compare([found(base), found([share + 0.1 for share in base])], [200])
    assert cell.gain == pytest.approx(0.1)
    assert cell.gain_interval == pytest.approx((0.1, 0.1))


def test_a_budget_that_no_curve_reaches_has_no_figures() -> None:
    ((cell,),) = compare([found([1.0])], [50])
    assert math.isnan(cell.share)
    assert math.isnan(cell.interval[0])
    assert (cell.top_k, cell.message_range) == (None, None)


def test_figures_are_written_without_the_zero() -> None:
    assert [short(0.7024), short(1.0), short(-0.0123, sign=True), short(math.nan)] == [".702", "1.000", "-.012", ""]
    assert between((-0.01, 0.2), sign=True) == "[-.010, +.200]"


def test_updates_count_where_the_newest_evidence_is_missing_or_outranked() -> None:
    never = math.inf
    assert updates([[2, 0], [0, 1], [0, never], [never, never], [never, 3], [1, 0, 1]]) == Updates(6, 2, 2)
    assert updates([]) == Updates(0, 0, 0)
