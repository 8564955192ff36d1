"""Figures of recall: the share of the evidence at equal numbers of tokens, and intervals by bootstrap. Pure functions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Array: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

ANY, SHARE, ALL, TOKENS = range(4)  # what is noted of a recall, in the last dimension of an array
SAMPLES = 1000  # of the bootstrap
_AT_ONCE = 50  # samples
_PERCENT = (2.5, 97.5)  # 95 % lie between


def short(value: float, *, sign: bool = False) -> str:
    """Write a share as .702, a gain as +.012; nothing for NaN."""
    if math.isnan(value):
        return ""
    text = f"{value:+.3f}" if sign else f"{value:.3f}"
    return text.replace("0.", ".", 1)


def between(bounds: tuple[float, float], *, sign: bool = False) -> str:
    """Write an interval as [.680, .724]."""
    return f"[{short(bounds[0], sign=sign)}, {short(bounds[1], sign=sign)}]"


@dataclass(frozen=True, slots=True)
class Updates:
    """What a search with the options as they are makes of questions about something that changed."""

    questions: int  # with two pieces of evidence or more, of categories whose name has "update"
    missing: int  # of them, those whose newest evidence does not come back
    outranked: int  # those whose newest evidence stands behind an older piece


def updates(ranks: Iterable[Sequence[float]]) -> Updates:
    """Count questions, from the ranks at which their pieces of evidence come back, in order of time; infinity: not at all."""
    found = [(older, newest) for *older, newest in ranks]
    missing = sum(math.isinf(newest) for _, newest in found)
    return Updates(len(found), missing, sum(newest > min(older) for older, newest in found if not math.isinf(newest)))


@dataclass(frozen=True, slots=True)
class Measured:
    """What one variant found: an array of questions x top_k x message_range x (ANY, SHARE, ALL, TOKENS)."""

    rows: Array
    top_k: tuple[int, ...]
    ends: bool = False  # nothing more comes back beyond the last top_k

    def share(self, mean: Array, budget: int) -> float:
        """Interpolate the share at a number of tokens; of the message ranges, the best. NaN outside of the curves."""
        return max((share for share, _, _ in self._points(mean, budget)), default=math.nan)

    def point(self, budget: int) -> tuple[int, int] | None:
        """Return the best top_k at a number of tokens, and the position of its message range."""
        best = max(self._points(self.rows.mean(0), budget), default=None)
        return best and best[1:]

    def _points(self, mean: Array, budget: int) -> Iterator[tuple[float, int, int]]:
        for position in range(mean.shape[1]):
            tokens, share = mean[:, position, TOKENS], mean[:, position, SHARE]
            if tokens[0] <= budget and (budget <= tokens[-1] or self.ends):
                hits = np.interp(budget, tokens, self.top_k)
                yield float(np.interp(budget, tokens, share)), max(1, round(float(hits))), position


@dataclass(frozen=True, slots=True)
class Cell:
    """One variant at one budget; NaN and None where no curve reaches it."""

    share: float
    interval: tuple[float, float]
    gain: float  # over the first variant
    gain_interval: tuple[float, float]
    top_k: int | None
    message_range: int | None  # its position


def compare(found: Sequence[Measured], budgets: Sequence[int], seed: int = 0) -> list[list[Cell]]:
    """Return the cells of each variant, one for each budget. All variants are measured with the same samples."""
    shares = [np.array([[one.share(mean, each) for each in budgets] for mean in _means(one, seed)]) for one in found]
    return [
        [_cell(one, budget, own[:, at], own[:, at] - shares[0][:, at]) for at, budget in enumerate(budgets)]
        for one, own in zip(found, shares, strict=True)
    ]


def _cell(one: Measured, budget: int, shares: Array, gains: Array) -> Cell:
    best = one.point(budget) or (None, None)
    return Cell(float(shares[0]), _interval(shares[1:]), float(gains[0]), _interval(gains[1:]), *best)


def _means(one: Measured, seed: int) -> Iterator[Array]:
    """Yield the mean of all questions, then those of random samples of them."""
    yield one.rows.mean(0)
    rng = np.random.default_rng(seed)
    number, shape = len(one.rows), one.rows.shape[1:]
    flat = one.rows.reshape(number, -1)
    for _ in range(SAMPLES // _AT_ONCE):
        counts = [np.bincount(rng.integers(0, number, number), minlength=number) for _ in range(_AT_ONCE)]
        yield from (np.array(counts, float) @ flat / number).reshape(_AT_ONCE, *shape)


def _interval(values: Array) -> tuple[float, float]:
    if np.isnan(values).all():
        return math.nan, math.nan
    low, high = np.nanpercentile(values, _PERCENT)
    return float(low), float(high)
