"""Fit hits and their windows into a budget of tokens. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.messages import AIMessage

from langchain_workingmem._text.chunks import CHARACTERS_PER_TOKEN, count_tokens
from langchain_workingmem._text.rendering import message_text
from langchain_workingmem.recall.hits import LEAST, most_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from langchain_workingmem.recall.hits import Fetched, Found, Position
    from langchain_workingmem.recall.query import Query

_WEIGHT = 3  # of a hit when the rest of a budget is shared out; the weight of another message is 1


def fits(query: Query, fetched: Fetched) -> bool:
    """Tell cheaply whether all fetched messages fit uncut, as they usually do."""
    total = longest = 0
    for row in fetched.rows.values():
        message = row.message
        if not isinstance(message.content, str) or (isinstance(message, AIMessage) and message.tool_calls):
            return False
        length = len(message.content)
        total += length + CHARACTERS_PER_TOKEN  # each is rounded up
        longest = max(longest, length)
    budget = (query.max_tokens or 0) * CHARACTERS_PER_TOKEN
    return total <= budget and longest <= most_of(query) // 2 * CHARACTERS_PER_TOKEN


class Sizes:
    """The number of tokens that each shown message may take."""

    def __init__(self, query: Query, hits: Sequence[Found], fetched: Fetched) -> None:
        self._most, self._fetched = most_of(query), fetched
        self._hits = {hit.position for hit in hits}
        self._tokens: dict[Position, int] = {}
        self.left = query.max_tokens or 0
        self.of: dict[Position, int] = {}

    def tokens(self, position: Position) -> int:
        """Count the tokens of a whole message, tool calls included."""
        if position not in self._tokens:
            self._tokens[position] = count_tokens(message_text(self._fetched.rows[position].message))
        return self._tokens[position]

    def most(self, position: Position) -> int:
        """Return the largest size of a message."""
        return min(self.tokens(position), self._most if position in self._hits else self._most // 2)

    def least(self, position: Position) -> int:
        """Return the size below which a message is not shown at all."""
        return min(self.tokens(position), LEAST if position in self._hits else LEAST // 2)

    def take(self, positions: Iterable[Position], size_of: Callable[[Position], int]) -> bool:
        """Reserve tokens for all of these messages, or for none of them."""
        new = {position: size_of(position) for position in positions if position not in self.of}
        if (size := sum(new.values())) > self.left:
            return False
        self.of |= new
        self.left -= size
        return True

    def share_out(self) -> None:
        """Share out what is left by weight; what a message does not need goes to the others."""
        weights = {position: _WEIGHT if position in self._hits else 1 for position in self.of}
        needs = {position: self.most(position) - size for position, size in self.of.items()}
        total = sum(weights.values())
        for position in sorted(needs, key=lambda position: needs[position] / weights[position]):
            given = min(needs[position], self.left * weights[position] // total)
            self.of[position] += given
            self.left -= given
            total -= weights[position]


def sized(query: Query, hits: Sequence[Found], fetched: Fetched) -> tuple[list[Found], Sizes]:
    """Choose what fits: a turn puts hits before windows and cuts all; a search takes a hit with its window or alone."""
    sizes = Sizes(query, hits, fetched)
    if query.turn:
        kept = [hit for hit in hits if sizes.take([hit.position], sizes.least)]
        for hit in kept:
            for side in hit.window(query, fetched):
                for position in side:
                    if not sizes.take([position], sizes.least):
                        break
        sizes.share_out()
        return kept, sizes
    kept = []
    for hit in hits:
        front, back = hit.window(query, fetched)
        if sizes.take([hit.position, *front, *back], sizes.most) or sizes.take([hit.position], sizes.most):
            kept.append(hit)
    return kept, sizes
