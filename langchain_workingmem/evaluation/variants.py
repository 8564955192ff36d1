"""Options of recall that are compared, as people write them: `search=hybrid,embeddings=local,weights.length=0.2`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, TypeAlias

from langchain_workingmem.checks import check_range
from langchain_workingmem.errors import OptionError
from langchain_workingmem.options import HybridWeights, IndexOptions, RecallOptions

DEFAULTS = "defaults"  # a variant that changes nothing
_GROUPS = {"weights": HybridWeights, "index": IndexOptions}
# Options of RecallOptions that change nothing in a search over the threads of a resource, or that no text can name.
_WITHOUT_EFFECT = {
    *("scope", "max_tokens", "placement", "reranker", "embedding_timeout", "embedding_cache_size", "filterable"),
    *_GROUPS,
}
NAMES = (
    "embeddings",
    *(one.name for one in fields(RecallOptions) if one.name not in _WITHOUT_EFFECT),
    *(f"{group}.{one.name}" for group, kind in _GROUPS.items() for one in fields(kind)),
)
_BETWEEN = re.compile(r",(?![^\[]*\])")  # a comma outside of a list
TOGETHER, TOGETHER_NEAREST = 80, 45  # see `Variant.together`
_TOP_K = (1, 2, 3, 5, 8, 10, 15, 20, 30, 50, TOGETHER)
_DEEPER = (120, 200, 400, 800, 1600, 3200)
_RANGES = (0, 1, 2)
StoredAs: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Options of recall that are measured, and where."""

    label: str
    options: RecallOptions = field(default_factory=RecallOptions)
    embeddings: str = "local"
    top_k: tuple[int, ...] = _TOP_K
    ranges: tuple[tuple[int, int], ...] = tuple(map(check_range, _RANGES))
    limited: bool = False  # a larger top_k would return nothing more: it or a threshold is given

    @property
    def together(self) -> int:
        """Return up to which `top_k` a search ranks the same candidates, so that it has the hits of a smaller one."""
        return TOGETHER if self.options.search == "hybrid" else TOGETHER_NEAREST

    def stored_as(self) -> StoredAs:
        """Return what decides how messages are stored; variants with the same share them."""
        return self.embeddings, self.options.roles, self.options.chunk_tokens, self.options.index


def variant_of(text: str, *, budget: int = 0, tokens: float = 1.0, most: int = TOGETHER) -> Variant:
    """Read a variant. Its hits reach a budget of tokens where messages have so many on average, and `most` exist."""
    given: dict[str, Any] = {}
    for pair in _BETWEEN.split(text) if text not in {"", DEFAULTS} else ():
        name, equals, value = (part.strip() for part in pair.partition("="))
        if name not in NAMES:
            raise OptionError(
                f"{name!r} is no option that a search can be measured with", remedy=f"use {', '.join(NAMES)}"
            )
        if not equals or not value or name in given:
            raise OptionError(f"{pair!r} is not one value for one name", remedy=f"write {name}=VALUE once")
        given[name] = value if name == "embeddings" else _value(value)
    embeddings = given.pop("embeddings", "local")
    groups = {
        group: kind(**{name.partition(".")[2]: given.pop(name) for name in [*given] if name.startswith(f"{group}.")})
        for group, kind in _GROUPS.items()
    }
    options = RecallOptions(**given, **groups)
    steps = (*(step for step in (*_TOP_K, *_DEEPER) if step < options.top_k), options.top_k)
    return Variant(
        label=text or DEFAULTS,
        options=options,
        embeddings=embeddings,
        top_k=steps if "top_k" in given else _reaching(budget, tokens, most),
        ranges=tuple(map(check_range, (options.message_range,) if "message_range" in given else _RANGES)),
        limited=not given.keys().isdisjoint({"top_k", "threshold"}),
    )


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _reaching(budget: int, tokens: float, most: int) -> tuple[int, ...]:
    """Return the usual steps, and deeper ones while that many hits would not fill the budget."""
    deeper = pairwise((TOGETHER, *_DEEPER))
    return (*_TOP_K, *(step for before, step in deeper if before * tokens < budget and before < most))
