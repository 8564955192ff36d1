"""Prices of models, as the command line has them."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

_FORM = "write NAME=INPUT/OUTPUT or NAME=INPUT/OUTPUT/CACHED, per million tokens, such as small=0.25/2/0.025"
_LEAST, _MOST = 2, 3  # numbers of a price


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a model costs for a million tokens, in any currency."""

    name: str
    input: float
    output: float
    cached: float  # of input that the provider's cache has

    def of(self, input_tokens: int, output_tokens: int = 0, cached_tokens: int = 0) -> float:
        """Return what these tokens cost; `cached_tokens` are a part of the input."""
        fresh = input_tokens - cached_tokens
        return (fresh * self.input + cached_tokens * self.cached + output_tokens * self.output) / 1_000_000


def prices_of(given: Iterable[str]) -> list[Price]:
    """Read prices as the command line has them."""
    found = []
    for one in given:
        name, _, rest = one.rpartition("=")
        try:
            numbers = [float(part) for part in rest.split("/")]
        except ValueError:
            numbers = []
        right = all(isfinite(one) and one >= 0 for one in numbers) and _LEAST <= len(numbers) <= _MOST
        if not name.strip() or not right:
            raise OptionError(f"the price {one!r}", remedy=_FORM)
        read, written, *cached = numbers
        found.append(Price(name=name.strip(), input=read, output=written, cached=cached[0] if cached else read))
    return found


def money(amount: float) -> str:
    """Write an amount; a small one with the digits that tell something."""
    if amount >= 0.1:
        return f"{amount:,.2f}"
    return f"{amount:.2g}" if amount >= 1e-4 else f"{amount:.6f}".rstrip("0").rstrip(".")
