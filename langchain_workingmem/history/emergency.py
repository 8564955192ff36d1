"""The last limit of a prompt with observations: what is left out when neither the observer nor anything else keeps it small."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from langchain_workingmem._text.said import weight_of
from langchain_workingmem.history.provider_valid import headed_groups

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem.options import HistoryOptions


def within_limit(
    past: Sequence[BaseMessage],
    present: Sequence[BaseMessage],
    limit: int,
    options: HistoryOptions,
    stored: Container[str | None],
) -> tuple[list[BaseMessage], list[BaseMessage], int]:
    """Leave out the oldest groups of messages that have more than `limit` tokens together, and count these messages.

    Of the `present` turn tool calls with their results go, but never the newest ones, and of all only what is in `stored` as
    well. What goes is as long as a whole number of thirds of the limit, so that the next prompts begin with the same messages.
    """
    count = weight_of if options.token_counter == "approximate" else options.token_counter
    excess = count([*past, *present]) - limit
    if excess <= 0:
        return [*past], [*present], 0
    groups = [group for _, group in headed_groups([*past, *present])]
    fresh = {id(one) for one in present}
    steps = [at for at, group in enumerate(groups) if len(group) > 1 and fresh & {*map(id, group)}]
    kept = {at for at, group in enumerate(groups) if len(group) == 1 and id(group[0]) in fresh} | {*steps[-1:]}
    third, gone = max(limit / 3, 1), set[int]()
    goal = ceil(excess / third) * third
    for at, group in enumerate(groups):
        if goal <= 0:
            break
        if at not in kept and all(one.id in stored for one in group):
            gone.update(map(id, group))
            goal -= count(group)
    shown = [[one for one in part if id(one) not in gone] for part in (past, present)]
    return shown[0], shown[1], len(past) + len(present) - sum(map(len, shown))
