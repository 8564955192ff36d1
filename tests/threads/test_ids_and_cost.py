from __future__ import annotations

from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

import pytest

from langchain_workingmem import IdError, Memory, ThreadOwnershipError
from tests.helpers.odd_ids import BAD_IDS
from tests.helpers.threads import append, thread_of
from tests.threads.test_threads import all_threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.trips import Trips

# ---------------------------------------------------------------------- ids and owners

CALLS: dict[str, Callable[[Memory, Any, Any], object]] = {
    "get": lambda memory, thread, owner: memory.threads.get(thread, user_id=owner),
    "update": lambda memory, thread, owner: memory.threads.update(thread, user_id=owner, title="new"),
    "delete": lambda memory, thread, owner: memory.threads.delete(thread, user_id=owner),
    "transfer": lambda memory, thread, owner: memory.threads.transfer(thread, user_id=owner, to="v"),
    "clone": lambda memory, thread, owner: memory.threads.clone(thread, user_id=owner),
    "lineage": lambda memory, thread, owner: memory.threads.lineage(thread, user_id=owner),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("owner", ["U", "u ", "*"])
def test_another_owner_is_refused_and_nothing_happens(plain: Memory, name: str, owner: str) -> None:
    append(plain, "a")
    before = thread_of(plain)
    with pytest.raises(ThreadOwnershipError, match=r"or hand the thread over with threads\.transfer\(\)") as caught:
        CALLS[name](plain, "t", owner)
    assert isinstance(caught.value, PermissionError)
    assert (caught.value.thread_id, caught.value.user_id) == ("t", owner)
    assert "'u'" not in str(caught.value)  # who owns it is not said
    assert (thread_of(plain), all_threads(plain)) == (before, ["t"])


@pytest.mark.parametrize("id", BAD_IDS)
def test_bad_ids_are_refused(plain: Memory, id: Any) -> None:
    append(plain, "a")
    with pytest.raises(IdError, match="user_id"):
        plain.threads.create(user_id=id)
    with pytest.raises(IdError, match="to "):
        plain.threads.transfer("t", user_id="u", to=id)
    for call in CALLS.values():
        with pytest.raises(IdError, match="thread_id"):
            call(plain, id, "u")
    if id is not None:  # a thread gets one, and an owner is not asked for
        for call in CALLS.values():
            with pytest.raises(IdError, match=r"user.id"):
                call(plain, "t", id)
        with pytest.raises(IdError, match=r"user.id"):
            plain.threads.list(user_id=id)
        with pytest.raises(IdError, match="thread_id"):
            plain.threads.create(user_id="u", thread_id=id)
        with pytest.raises(IdError, match="new_thread_id"):
            plain.threads.clone("t", new_thread_id=id)
    assert all_threads(plain) == ["t"]


def test_transfer_needs_to_know_the_present_owner(plain: Memory) -> None:
    append(plain, "a")
    with pytest.raises(IdError, match="user_id is missing"):
        plain.threads.transfer("t", user_id=None, to="v")  # type: ignore[arg-type]
    assert thread_of(plain).user_id == "u"


# ---------------------------------------------------------------------- cost


def test_each_operation_is_one_round_trip(memory: Memory, trips: Trips) -> None:
    fresh = count()
    for number in range(12):
        append(memory, "a", thread_id=f"t{number}")
    for source, copy in pairwise(["t0", "a", "b", "c"]):
        memory.threads.clone(source, new_thread_id=copy)
    names = iter([f"t{number}" for number in range(2, 12)])
    costs = {
        "create": trips.of(lambda: memory.threads.create(user_id="u", thread_id=f"n{next(fresh)}")),
        "get": trips.of(lambda: memory.threads.get("t0")),
        "list": trips.of(lambda: memory.threads.list(user_id="u", metadata={"k": 1}, limit=3)),
        "update": trips.of(lambda: memory.threads.update("t0", title="x", metadata={"k": None})),
        "delete": trips.of(lambda: memory.threads.delete(next(names))),
        "transfer": trips.of(lambda: memory.threads.transfer("t1", user_id="u", to="u")),
        "lineage": trips.of(lambda: memory.threads.lineage("c")),
        "clone": trips.of(lambda: memory.threads.clone("t0")),
    }
    assert costs == dict.fromkeys(costs, 1) | {"lineage": 4, "clone": 5}
