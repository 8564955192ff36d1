"""Lines that were cleared do not come back from a process that was killed before it told anybody of its batch."""

from __future__ import annotations

from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import ObservationOptions
from langchain_workingmem.observations.api import Observations
from tests.helpers.crashes import ends_within
from tests.helpers.observers import Echo
from tests.helpers.plans import plan_of
from tests.helpers.threads import append
from tests.helpers.types import Make


def test_a_batch_of_a_killed_process_does_not_come_back_after_a_clear(make_memory: Make) -> None:
    options = ObservationOptions(model=Echo(), message_tokens=1, keep_tokens=0, background=False, scope="resource")
    killed, other = make_memory(observations=options), make_memory(observations=options)
    lengths, after, has_ended = set(), 0, False
    while not has_ended:
        after, user = after + 1, f"u{after}"
        turn = [HumanMessage("one"), AIMessage("two")]
        killed.save_turn(turn, thread_id=f"t{after}", resource_id=user)
        observe = plan_of(Observations.observe, killed.observations, thread_id=f"t{after}", resource_id=user)
        has_ended = ends_within(killed, observe, after)
        lengths.add(len(other.observations.get(resource_id=user)))
        other.observations.clear(resource_id=user)
        append(other, "three", thread_id=f"s{after}", resource_id=user)
        other.context("and now?", thread_id=f"s{after}", resource_id=user)
        assert len(other.observations.get(resource_id=user)) == 0
    assert lengths == {0, 2}
