"""Plans that run side by side, and share what they send and what they embed."""

from __future__ import annotations

from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_workingmem._engine.calls import Texts
from langchain_workingmem._engine.plan import Call, Effect, Plan, Send, persist

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

T = TypeVar("T")


def together(plans: Iterable[Plan[T]]) -> Plan[list[T]]:
    """Run plans side by side: simultaneous commands share one round trip, simultaneous texts one call of the model.

    Embedding goes first, so that when the model fails, a plan that embeds before it writes has written nothing. The first
    error ends all plans.
    """
    running = list(plans)
    results: list[Any] = [None] * len(running)
    waiting: dict[int, Effect[object]] = {}

    def resume(number: int, outcome: Any) -> None:
        try:
            waiting[number] = running[number].send(outcome)
        except StopIteration as done:
            waiting.pop(number, None)
            results[number] = done.value

    try:
        for number in range(len(running)):
            resume(number, None)
        while waiting:
            merged, parts = _merge(waiting)
            reply: Any = (yield from persist(merged)) if isinstance(merged, Send) else (yield merged)
            for number, part in parts.items():
                resume(number, reply if part is None else reply[part])
    finally:
        for plan in running:
            plan.close()
    return results


def _merge(waiting: Mapping[int, Effect[object]]) -> tuple[Effect[object], dict[int, slice | None]]:
    """Join effects of one kind; return also which part of the reply belongs to which plan, None for all of it."""
    asked = {at: each.about for at, each in waiting.items() if isinstance(each, Call) and isinstance(each.about, Texts)}
    for query in (False, True):
        texts = {at: about.texts for at, about in asked.items() if about.query is query}
        if texts:
            embedder = asked[min(texts)].embedder
            return embedder.embed(list(chain(*texts.values())), query=query), _slices(texts)
    sends = {number: effect for number, effect in waiting.items() if isinstance(effect, Send) and not effect.node}
    if sends:
        commands = {number: effect.commands for number, effect in sends.items()}
        at_most_once = any(effect.at_most_once for effect in sends.values())
        in_order = any(effect.in_order for effect in sends.values())
        return Send(list(chain(*commands.values())), at_most_once, in_order), _slices(commands)
    number, effect = next(iter(waiting.items()))
    return effect, {number: None}


def _slices(shares: Mapping[int, Sequence[Any]]) -> dict[int, slice | None]:
    ends = accumulate(map(len, shares.values()), initial=0)
    return {number: slice(*span) for number, span in zip(shares, pairwise(ends), strict=True)}
