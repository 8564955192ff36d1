"""Plans over threads, driven by hand: what is asked of a server, and what becomes of its answers."""

from __future__ import annotations

from typing import Any

import pytest

from langchain_workingmem import (
    Memory,
    OptionError,
    ResourceDeletedError,
    ThreadExistsError,
    ThreadNotFoundError,
    ThreadOwnershipError,
    WorkingMemError,
)
from langchain_workingmem.errors import OutcomeUnknownError, RedisConnectionError, RedisReplyError
from tests.helpers.by_hand import KEYS, ByHand, thread_row

LOST = RedisConnectionError("lost", repeats=3)


@pytest.fixture
def memory(by_hand: ByHand) -> Memory:
    return Memory()


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        ("WMOWNER", ThreadOwnershipError),
        ("WMEXISTS", ThreadExistsError),
        ("WMNOTHREAD", ThreadNotFoundError),
        ("WMDELETED", ResourceDeletedError),
        ("OOM command not allowed", RedisReplyError),
    ],
)
def test_a_refusal_is_a_typed_error(
    memory: Memory, by_hand: ByHand, refusal: str, error: type[WorkingMemError]
) -> None:
    by_hand.answers = [[RedisReplyError(refusal), None]]
    with pytest.raises(error):
        memory.threads.update("t", resource_id="u", title="x")
    assert by_hand.steps == [["CHANGE", "GET"]]


def test_reading_a_thread_is_one_request_and_refuses_strangers(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [[{}], [thread_row("u")], [thread_row("u")]]
    assert memory.threads.get("t") is None
    assert memory.threads.get("t", resource_id="u") is not None
    with pytest.raises(ThreadOwnershipError):
        memory.threads.get("t", resource_id="v")
    assert by_hand.steps == [["HGETALL"]] * 3


def test_a_forgotten_script_is_sent_again_with_its_source(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [[RedisReplyError("NOSCRIPT No matching script")], [[2, 2, 0, 0, 0]]]
    assert memory.threads.delete("t")
    assert by_hand.steps == [["DELETE"], ["DELETE!"]]


def test_a_read_is_repeated_after_a_lost_connection_and_a_deletion_is_not(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [LOST, [{}], OutcomeUnknownError("lost", repeats=3)]
    assert memory.threads.get("t") is None
    with pytest.raises(OutcomeUnknownError):
        memory.threads.delete("t")
    assert by_hand.steps == [["HGETALL"], "Pause", ["HGETALL"], ["DELETE"]]


def test_a_deletion_goes_on_in_slices_until_nothing_is_left(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [[[900, 500, 0, 0, 1]], [[1, 500]], [[0, 100]]]
    assert memory.threads.delete("t")
    assert by_hand.steps == [["DELETE"], ["SWEEP"], ["SWEEP"]]


def test_a_deletion_that_fails_between_slices_says_what_holds_already(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [[[900, 500, 0, 0, 1]], RedisConnectionError("gone")]
    with pytest.raises(RedisConnectionError) as caught:
        memory.threads.delete("t")
    assert "call threads.delete() again" in caught.value.__notes__[0]


# ---------------------------------------------------------------------- owners that are being deleted


def test_a_thread_that_is_made_while_its_owner_is_deleted_is_taken_away_again(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [[thread_row("u", at=7), b"a tombstone"], [[0, 0, 0, 0, [], 0]], [[0, 0]]]
    with pytest.raises(ResourceDeletedError):
        memory.threads.create(thread_id="t", resource_id="u")
    assert by_hand.steps == [["CREATE", "GET"], ["DELETE"], ["SWEEP"], "Pause"]
    assert by_hand.request(1)[0][-2:] == ("undo", b"7")  # nothing that was written later


@pytest.mark.parametrize(("deleted", "undone"), [("heir", "TRANSFER"), ("u", "DELETE")])
def test_a_thread_is_not_handed_over_from_or_to_an_owner_who_is_deleted(
    memory: Memory, by_hand: ByHand, deleted: str, undone: str
) -> None:
    tombstones = [b"a tombstone" if owner == deleted else None for owner in ("u", "heir")]
    by_hand.answers = [[thread_row("heir"), *tombstones], [[]], [[0, 0]]]
    with pytest.raises(ResourceDeletedError):
        memory.threads.transfer("t", resource_id="u", to="heir")
    assert by_hand.steps == [["TRANSFER", "GET", "GET"], [undone], ["SWEEP"], "Pause"]


# ---------------------------------------------------------------------- listings


def listing(*threads: tuple[str, int], total: int = 9) -> list[Any]:
    rows = [
        [b"__key", KEYS.of(name).thread.encode(), *(one for pair in thread_row("u", at).items() for one in pair)]
        for name, at in threads
    ]
    return [[len(rows), *rows], [total]]


def test_the_cursor_is_the_place_of_the_last_thread_and_goes_on_behind_it(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [listing(("a", 30), ("b b", 20), ("c", 10)), listing(("c", 10))]
    page = memory.threads.list(resource_id="u", limit=2)
    assert [thread.id for thread in page] == ["a", "b b"]
    assert (page.total, page.next_cursor) == (9, "20,b%20b")
    last = memory.threads.list(resource_id="u", limit=2, cursor=page.next_cursor)
    assert ([thread.id for thread in last], last.next_cursor) == (["c"], None)
    command = list(map(str, by_hand.request(-1)[0]))
    edge = KEYS.of("b b").thread
    assert f"exists(@__key) && (@updated_at != 20 || @__key > '{edge}')" in command
    assert "@updated_at:[-inf 20]" in command[2]
    assert by_hand.steps == [["FT.AGGREGATE", "FT.SEARCH"]] * 2


@pytest.mark.parametrize("cursor", ["", "20", "b,20", "20,b b", "20,b\n", 20])
def test_a_cursor_that_is_none_of_ours_is_refused_before_anything_is_asked(
    memory: Memory, by_hand: ByHand, cursor: Any
) -> None:
    with pytest.raises(OptionError, match="next_cursor"):
        memory.threads.list(cursor=cursor)
    assert by_hand.steps == []


GONE = RedisReplyError("wm:threads: no such index")


def test_a_listing_makes_an_index_that_is_gone_and_asks_again(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [[GONE, GONE], listing(("a", 30), total=1)]
    assert [thread.id for thread in memory.threads.list()] == ["a"]


def test_without_the_right_to_make_an_index_its_absence_is_an_error_with_the_remedy(by_hand: ByHand) -> None:
    by_hand.answers = [[GONE, GONE]] * 2
    with pytest.raises(OptionError, match=r"run setup\(\)"):
        Memory(create_index=False).threads.list()


# ---------------------------------------------------------------------- clones


def test_a_lineage_asks_once_for_each_generation(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [
        [thread_row("u", at=30, source_id="b")],
        [thread_row("u", at=20, source_id="a")],
        [thread_row("u", at=10)],
    ]
    assert [thread.id for thread in memory.threads.lineage("c")] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "before",
    [{}, thread_row("v", at=10), thread_row("u", at=40)],
    ids=["is gone", "belongs to somebody else", "has taken the id since"],
)
def test_a_lineage_ends_where_the_source(memory: Memory, by_hand: ByHand, before: Any) -> None:
    by_hand.answers = [[thread_row("u", at=30, source_id="b")], [before]]
    assert [thread.id for thread in memory.threads.lineage("c")] == ["c"]


def test_a_lineage_of_clones_of_each_other_ends(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [
        [thread_row("u", source_id="b")],
        [thread_row("u", source_id="c")],
        [thread_row("u", source_id="b")],
    ]
    assert [thread.id for thread in memory.threads.lineage("c")] == ["b", "c"]
