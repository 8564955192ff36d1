"""The plan that deletes a user, driven by hand: the order of its steps, when it ends, and what a failure leaves."""

from __future__ import annotations

from typing import Any

import pytest

from langchain_workingmem import Memory
from langchain_workingmem.errors import RedisConnectionError, RedisReplyError
from tests.helpers.by_hand import KEYS, ByHand, thread_row

FREE = [None]  # nobody else deletes this user; the tombstone stands
# of working memory, observations and files
OWN = ["EXISTS", "XLEN", "DEL", "EXISTS", "EXISTS"]
NONE: list[Any] = [0, 0]  # of the last two
NOTHING: list[Any] = [[[0], [0]], [0, 0, 0, *NONE]]  # no threads are listed, and there is no working memory
END: list[Any] = [[b"0", []]]  # of a pass over all keys


@pytest.fixture
def memory(by_hand: ByHand) -> Memory:
    return Memory()


def listing(*names: str) -> list[Any]:
    rows = [[b"__key", KEYS.of(n).thread.encode(), *(x for row in thread_row("u").items() for x in row)] for n in names]
    return [[len(rows), *rows], [len(rows)]]


def test_a_tombstone_stands_before_anything_is_deleted_and_goes_when_nothing_is_found(
    memory: Memory, by_hand: ByHand
) -> None:
    by_hand.answers = [
        FREE,
        listing("a", "b"),
        [[3, 4, 0, 0, [5, b""], 0], [1, 0, 0, 0, [], 0]],
        [1, 2, 2, *NONE],
        END,
        [1],
    ]
    report = memory.users.delete("u")
    assert (report.threads, report.messages, report.vectors) == (2, 4, 4)
    assert (report.working_memories, report.revisions, report.observations, report.verified) == (1, 2, 5, True)
    assert by_hand.steps == [
        ["CLAIM"],
        ["FT.AGGREGATE", "FT.SEARCH"],
        ["DELETE", "DELETE"],
        OWN,
        ["SCAN"],
        ["LIFT"],
    ]


def test_what_an_optional_room_keeps_of_a_user_is_deleted_when_it_is_met(memory: Memory, by_hand: ByHand) -> None:
    keys = [b"wm:observations:r:{v}", b"wm:x:observations:r:{u}", b"wm:observations:r:{u}"]  # of others: the first two
    by_hand.answers = [FREE, *NOTHING, [[b"0", keys]], [1], END, [1]]
    report = memory.users.delete("u")
    assert report.verified
    assert by_hand.steps[3:] == [["SCAN"], ["DEL"], "Pause", ["SCAN"], ["LIFT"]]


def test_a_pass_that_finds_something_is_followed_by_another(memory: Memory, by_hand: ByHand) -> None:
    thread = KEYS.of("late").thread.encode()
    by_hand.answers = [FREE, *NOTHING, [[b"0", [thread]]], [b"u"], [[1, 0, 0, 0, [], 0]], END, [1]]
    report = memory.users.delete("u")
    assert (report.threads, report.verified) == (1, True)
    assert by_hand.steps[3:] == [["SCAN"], ["HGET"], ["DELETE"], "Pause", ["SCAN"], ["LIFT"]]


def test_keys_of_others_are_looked_at_and_left_alone(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [FREE, *NOTHING, [[b"0", [KEYS.of("theirs").thread.encode(), b"wm:item:{x}"]]], [b"v"], [1]]
    assert memory.users.delete("u").verified
    assert by_hand.steps[3:] == [["SCAN"], ["HGET"], ["LIFT"]]


def test_a_writer_who_never_rests_leaves_the_deletion_unverified_and_the_tombstone(
    memory: Memory, by_hand: ByHand
) -> None:
    again = [[[b"0", [KEYS.of("late").thread.encode()]]], [b"u"], [[1, 0, 0, 0, [], 0]]]
    by_hand.answers = [FREE, *NOTHING, *again * 100]
    report = memory.users.delete("u")
    assert (report.threads, report.verified) == (100, False)
    assert ["LIFT"] not in by_hand.steps


def test_without_an_index_the_pass_over_all_keys_finds_the_threads(by_hand: ByHand) -> None:
    gone = RedisReplyError("wm:threads: no such index")
    by_hand.answers = [FREE, [gone, gone], [gone, gone], [0, 0, 0, *NONE], END, [1]]
    assert Memory(create_index=False).users.delete("u").verified


def test_a_thread_that_was_handed_over_meanwhile_stays(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [FREE, listing("a"), [RedisReplyError("WMOWNER")], [[0, 0]], [0, 0, 0, *NONE], END, [1]]
    report = memory.users.delete("u")
    assert (report.threads, report.verified) == (0, True)
    assert by_hand.steps[2:4] == [["DELETE"], ["SWEEP"]]  # vectors that still name the former owner


# ---------------------------------------------------------------------- failures

DENIED = RedisReplyError("NOPERM no permissions")


def test_a_deletion_that_is_refused_before_it_has_deleted_anything_locks_nobody_out(
    memory: Memory, by_hand: ByHand
) -> None:
    by_hand.answers = [FREE, listing("a"), [DENIED], [1]]
    with pytest.raises(RedisReplyError) as caught:
        memory.users.delete("u")
    assert by_hand.steps[-1] == ["LIFT"]
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize(
    "answers",
    [
        [[b"of another"], listing("a"), [DENIED]],  # another deletion may be at work
        [FREE, listing("a", "b"), [[1, 0, 0, 0, [], 0], RedisReplyError("MISCONF")]],
        [FREE, listing("a"), RedisConnectionError("gone")],
    ],
    ids=["that has taken over", "that has deleted something", "whose connection fails"],
)
def test_the_tombstone_of_a_deletion_stays_and_the_error_says_how_to_go_on(
    memory: Memory, by_hand: ByHand, answers: list[Any]
) -> None:
    by_hand.answers = answers
    with pytest.raises((RedisReplyError, RedisConnectionError)) as caught:
        memory.users.delete("u")
    assert ["LIFT"] not in by_hand.steps
    assert "call users.delete() again" in caught.value.__notes__[0]
