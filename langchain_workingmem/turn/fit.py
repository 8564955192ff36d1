"""How much of a history fits into `HistoryOptions.max_tokens`: pure functions."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from langchain_workingmem._text.provider_valid import headed_groups
from langchain_workingmem._text.said import is_said, weight_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem.options import HistoryOptions


def fit(
    past: Sequence[BaseMessage],
    present: Sequence[BaseMessage],
    uptos: Mapping[str, int],
    options: HistoryOptions,
    cut: int = 0,
    *,
    is_cut: bool = False,
) -> tuple[list[BaseMessage], int]:
    """Cut a history to `max_tokens`, and count the messages left out, with the `cut` ones, which the store left out.

    `is_cut`: the limit has left out some before.

    Tool traffic is cut first, then turns, the oldest first. The last question and its answer stay, and so does the `present`
    turn, which does not count. The history begins where the tokens of the thread (`uptos`, by id) pass a multiple of a third of
    the limit. So its beginning, which providers cache, stays until the limit is reached; then about two thirds are left.
    """
    if options.max_tokens is None:
        return list(past), 0
    limit = options.max_tokens
    count = weight_of if options.token_counter == "approximate" else options.token_counter
    fresh = {id(message) for message in present}
    together = headed_groups([*past, *present])
    headed = [(head, group) for head, group in together if id(head) not in fresh]
    grouped = [[message for message in group if id(message) not in fresh] for _, group in headed]
    wanted = {id(one) for _, group in together if fresh & set(map(id, group)) for one in group}
    sizes = [0 if wanted & set(map(id, group)) else count(group) for group in grouped]
    said = [at for at, (head, _) in enumerate(headed) if is_said(head) or (head.id or "") in uptos]
    begin = 0
    if said and (cut or is_cut or sum(sizes[at] for at in said) > limit):
        begin = _begin(grouped, sizes, said, uptos, limit)
    room = limit - sum(sizes[at] for at in said if at >= begin)
    kept: list[list[BaseMessage]] = []
    for at in range(len(grouped) - 1, -1, -1):
        if at in said:
            if at >= begin:
                kept.append(grouped[at])
        elif cut and len(headed[at][1]) == 1 and headed[at][0] is not headed[at][1][0]:
            continue  # the copy of a call whose result the store left out
        elif sizes[at] == 0 or (at >= begin and room >= 0 and (room := room - sizes[at]) >= 0):
            kept.append(grouped[at])
    shown = [*chain(*reversed(kept))]
    return shown, cut + len(past) - len(shown)


def _begin(
    grouped: list[list[BaseMessage]], sizes: list[int], said: list[int], uptos: Mapping[str, int], limit: int
) -> int:
    """Find the first question from which on all fits, if possible one where a third of the limit ends; else the last."""
    third = max(limit / 3, 1)
    left = sum(sizes[at] for at in said)
    exact = None
    before = uptos.get(grouped[said[0]][0].id or "", 0) // third
    last = said[-1]
    for at in said:
        if grouped[at][0].type == "human":
            step = uptos.get(grouped[at][0].id or "", 0) // third
            if left <= limit:
                exact = at if exact is None else exact
                if step > before:
                    return at
            before, last = step, at
        left -= sizes[at]
    return last if exact is None else exact


def fit_present(present: Sequence[BaseMessage], options: HistoryOptions) -> tuple[list[BaseMessage], int]:
    """Leave out the oldest finished tool calls of the running turn, if the program has named a limit; never the newest ones."""
    count = weight_of if options.token_counter == "approximate" else options.token_counter
    excess, gone = count(present) - (options.max_tokens or 0), set[int]()
    groups = [group for _, group in headed_groups(present) if len(group) > 1]
    for group in groups[:-1] if excess > 0 else ():
        if excess <= 0:
            break
        gone.update(map(id, group))
        excess -= count(group)
    return [one for one in present if id(one) not in gone], len(gone)
