"""The last limit of a prompt: whole groups leave, the oldest first; never a question, the newest step, or what is not stored."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, HumanMessage

from langchain_workingmem._text.said import weight_of
from langchain_workingmem.history.emergency import within_limit
from langchain_workingmem.history.provider_valid import headed_groups, provider_valid
from langchain_workingmem.options import HistoryOptions
from langchain_workingmem.turn import turn_of
from tests.helpers.conversations import accept, ai, any_messages, order_kept, result, stored
from tests.helpers.examples import examples

OPTIONS = HistoryOptions()


def steps(count: int, size: int = 400) -> list[BaseMessage]:
    found: list[BaseMessage] = [HumanMessage("go", id="q")]
    for at in range(count):
        found += [ai("x" * size, f"c{at}", id=f"a{at}"), result(f"c{at}", f"r{at}")]
    return found


def ids(messages: list[BaseMessage]) -> set[str | None]:
    return {one.id for one in messages}


def test_what_fits_stays_as_it_is() -> None:
    past, present = steps(3), steps(4)
    limit = weight_of(past) + weight_of(present)
    assert within_limit(past, present, limit, OPTIONS, ids(past)) == (past, present, 0)


def test_a_running_turn_keeps_its_beginning_until_a_third_of_the_limit_has_come() -> None:
    step = weight_of(steps(1)) - weight_of(steps(0))
    limit = 30 * step
    begins = []
    for count in range(1, 200):
        present = steps(count)
        past, shown, omitted = within_limit([], present, limit, OPTIONS, ids(present))
        assert (past, omitted) == ([], len(present) - len(shown))
        assert shown[0].id == "q"
        assert shown[1:] == present[1 + omitted :]
        assert weight_of(shown) <= limit
        assert not omitted or weight_of(shown) >= limit / 2
        begins.append(omitted)
    assert sum(one != other for one, other in pairwise(begins)) <= 200 // 10


def test_the_conversation_before_leaves_first() -> None:
    past, present = [*steps(6), HumanMessage("so?", id="q1")], [HumanMessage("on", id="q2"), *steps(6)[1:]]
    present = [one.model_copy(update={"id": f"p{one.id}"}) for one in present]
    limit = weight_of(present) + 10
    kept, shown, omitted = within_limit(past, present, limit, OPTIONS, ids([*past, *present]))
    assert shown == present or not kept
    assert omitted == len(past) - len(kept) + len(present) - len(shown)
    assert kept == past[len(past) - len(kept) :]


@given(any_messages.map(stored), st.integers(0, 60), st.floats(0, 1))
@examples(200)
def test_any_prompt_stays_valid_and_keeps_what_must_stay(messages: list[BaseMessage], limit: int, share: float) -> None:
    present = turn_of(messages)
    past = messages[: len(messages) - len(present)]
    known = ids(messages[: round(share * len(messages))])
    before, shown, omitted = within_limit(past, present, limit, OPTIONS, known)
    left = [*before, *shown]
    assert omitted == len(messages) - len(left)
    assert order_kept(messages, left)
    accept(provider_valid(left))
    assert ids(messages) - ids(left) <= known
    assert [one for one in shown if isinstance(one, HumanMessage)] == [
        one for one in present if isinstance(one, HumanMessage)
    ]
    fresh = {id(one) for one in present}
    groups = [group for _, group in headed_groups(messages)]
    calls = [group for group in groups if len(group) > 1 and fresh & {*map(id, group)}]
    must = [one for group in calls[-1:] for one in group]
    must += [one for group in groups if len(group) == 1 for one in group if id(one) in fresh]
    assert {id(one) for one in must if id(one) in {*map(id, messages)}} <= {*map(id, left)}
    may_go = [group for group in groups if not {*map(id, group)} & {*map(id, must)} and ids(group) <= known]
    assert weight_of(left) <= limit or not any({*map(id, group)} <= {*map(id, left)} for group in may_go)
