"""Plans over messages, driven by hand: what is asked of a server and of a model, and what becomes of the answers."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import (
    EmbeddingError,
    Memory,
    MessageNotFoundError,
    OptionError,
    RecallOptions,
    ThreadOwnershipError,
    UserDeletedError,
)
from langchain_workingmem.errors import RedisReplyError
from langchain_workingmem.options import IndexOptions
from tests.helpers.by_hand import KEYS, ByHand, stored

IDS: dict[str, Any] = {"thread_id": "t", "user_id": "u"}
WRITTEN = [[1, 1, 0, b"7", [b"a"], [], 0], None]  # one new message, none left behind, no tombstone
HELLO = HumanMessage("hello", id="a")


@pytest.fixture
def plain(by_hand: ByHand) -> Memory:
    return Memory()


@pytest.fixture
def memory(by_hand: ByHand) -> Memory:
    return Memory(embeddings=by_hand.model, recall=RecallOptions())


# ---------------------------------------------------------------------- writing


def test_an_append_is_one_call_of_the_model_and_one_request(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [[[2, 2, 0, b"7", [b"a", b"b"], [], 0], None]]
    memory.history.append([HELLO, AIMessage("good day", id="b")], **IDS)
    assert by_hand.steps == [("hello", "good day"), ["WRITE", "GET"]]


def test_without_recall_or_words_the_model_is_not_asked(plain: Memory, memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [WRITTEN, WRITTEN]
    plain.history.append([HELLO], **IDS)
    memory.history.append([HumanMessage("", id="a")], **IDS)
    assert by_hand.steps == [["WRITE", "GET"]] * 2


def test_a_model_that_fails_costs_the_vectors_and_not_the_message(memory: Memory, by_hand: ByHand) -> None:
    by_hand.model.broken = ValueError("overloaded")
    by_hand.answers = [WRITTEN]
    with pytest.raises(EmbeddingError, match="overloaded") as caught:
        memory.history.append([HELLO], **IDS)
    assert "recall.reindex(thread_id='t') adds them" in caught.value.__notes__[0]
    assert by_hand.steps[-1] == ["WRITE", "GET"]
    assert by_hand.request(-1)[0][-1] == 0  # pieces with vectors


def test_where_errors_are_logged_the_message_comes_back(by_hand: ByHand, caplog: pytest.LogCaptureFixture) -> None:
    memory = Memory(embeddings=by_hand.model, recall=RecallOptions(), on_error="log")
    by_hand.model.broken = ValueError("overloaded")
    by_hand.answers = [WRITTEN]
    with caplog.at_level(logging.WARNING):
        assert memory.history.append([HELLO], **IDS) == [HELLO]
    assert "stored without vectors" in caplog.text


def test_an_append_under_an_owner_who_is_deleted_is_taken_back(plain: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [[WRITTEN[0], b"a tombstone"], [[0, 0, 0, 0, [], 0]], [[0, 0]]]
    with pytest.raises(UserDeletedError):
        plain.history.append([HELLO], **IDS)
    assert by_hand.steps == [["WRITE", "GET"], ["DELETE"], ["SWEEP"], "Pause"]
    assert by_hand.request(1)[0][-3:] == ("undo", b"7", "a")


def test_an_append_is_not_taken_back_from_somebody_who_has_the_thread_by_now(plain: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [[WRITTEN[0], b"a tombstone"], [RedisReplyError("WMOWNER")], [[0, 0]]]
    with pytest.raises(UserDeletedError):
        plain.history.append([HELLO], **IDS)


def test_the_message_that_is_missing_is_named_by_its_own_id(plain: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [[RedisReplyError("WMNOMESSAGE 1")]]
    with pytest.raises(MessageNotFoundError, match="'b c'"):
        plain.history.update([HELLO, HumanMessage("x", id="b c")], thread_id="t")


def test_messages_that_are_on_the_branch_again_get_their_vectors_later(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [[[1, 3, 0, b"7", [b"a"], [b"old"], 0], None]]
    memory.history.append([HELLO], **IDS)
    (plan,) = by_hand.later
    by_hand.answers = [
        [[stored(HumanMessage("back again", id="old"))[2]]],
        [[0, 3, 0, b"8", [b"old"], [], 0]],
    ]
    by_hand.run(plan)
    assert by_hand.steps[2:] == [["HMGET"], ("back again",), ["WRITE"]]


def test_more_messages_than_one_step_may_hold_are_refused_before_anything_is_asked(by_hand: ByHand) -> None:
    memory = Memory(embeddings=by_hand.model, recall=RecallOptions(index=IndexOptions(algorithm="hnsw")))
    with pytest.raises(OptionError, match=r"10,002 messages and chunks"):
        memory.history.append([HumanMessage("x", id=str(at)) for at in range(5001)], **IDS)
    assert by_hand.steps == []


def test_a_truncation_goes_on_in_slices(plain: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [[[40, 1]], [[1, 0]], [[0, 0]]]
    assert plain.history.truncate("t", after="a") == 40
    assert by_hand.steps == [["TRUNCATE"], ["SWEEP"], ["SWEEP"]]


# ---------------------------------------------------------------------- reading


def test_the_cursor_of_a_page_is_its_last_position(plain: Memory, by_hand: ByHand) -> None:
    three = [HumanMessage(str(at), id=str(at)) for at in range(3)]
    by_hand.answers = [[[3, *stored(*three)]], [[3, *stored(*three)[6:]]]]
    page = plain.history.page("t", limit=2)
    assert ([row.message.id for row in page], page.total, page.next_cursor) == (["0", "1"], 3, "1")
    last = plain.history.page("t", limit=2, cursor=page.next_cursor)
    assert ([row.message.id for row in last], last.next_cursor) == (["2"], None)
    command = by_hand.request(-1)[0]
    assert command[(at := command.index("limit")) : at + 2] == ("limit", 3)  # one more than the page shows
    assert command[(at := command.index("above")) : at + 2] == ("above", 1)


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1:t"])
def test_a_cursor_that_is_none_of_ours_is_refused_before_anything_is_asked(
    plain: Memory, by_hand: ByHand, cursor: str
) -> None:
    with pytest.raises(OptionError, match="next_cursor"):
        plain.history.page("t", cursor=cursor)
    assert by_hand.steps == []


def test_superseded_messages_stand_where_they_were(plain: Memory, by_hand: ByHand) -> None:
    now, before = stored(HumanMessage("new", id="a"), AIMessage("yes", id="b")), stored(HumanMessage("old", id="older"))
    before[1] = b"-0.5"
    by_hand.answers = [[[-1, *now], [-1, *before]]]
    assert [message.text for message in plain.history.messages("t", superseded=True)] == ["old", "new", "yes"]
    assert by_hand.steps == [["READ", "READ"]]


# ---------------------------------------------------------------------- the messages of a user


def threads(*lasts: tuple[str, int, int]) -> list[Any]:
    """Answer with threads, their numbers of messages and the times of their last ones."""
    rows = [
        [
            b"__key",
            KEYS.of(name).thread.encode(),
            b"created_at",
            b"1",
            b"count",
            b"%d" % count,
            b"last_at",
            b"%d" % last,
        ]
        for name, count, last in lasts
    ]
    return [[len(rows), *rows]]


def test_a_page_over_threads_asks_for_their_times_and_reads_what_it_shows(plain: Memory, by_hand: ByHand) -> None:
    one, two = stored(HumanMessage("first", id="x"), at=10), stored(HumanMessage("second", id="y"), at=20)
    by_hand.answers = [
        threads(("a", 2, 30), ("empty", 0, 0), ("b", 1, 20)),
        [[-1, b"10", b"30"], [-1, b"20"]],
        [[-1, *one], [-1, *two]],
    ]
    page = plain.history.for_user("u", limit=2)
    assert [row.message.text for row in page] == ["first", "second"]
    assert (page.total, page.next_cursor) == (3, "20:b")
    assert by_hand.steps == [["FT.AGGREGATE"], ["READ", "READ"], ["READ", "READ"]]


def test_a_page_over_threads_goes_on_behind_its_cursor_without_the_threads_that_end_before(
    plain: Memory, by_hand: ByHand
) -> None:
    by_hand.answers = [
        threads(("a", 2, 30), ("b", 1, 20), ("c", 2, 25)),
        [[-1, b"30"], [-1, b"25"]],
        [[-1, *stored(HumanMessage("third", id="z"), at=25)], [-1, *stored(HumanMessage("fourth", id="x"), at=30)]],
    ]
    page = plain.history.for_user("u", limit=2, cursor="20:b")
    assert ([row.message.text for row in page], page.next_cursor) == (["third", "fourth"], None)
    starts = {command[3]: command[command.index("since") + 1] for command in by_hand.request(1)}
    # a's messages of the cursor's very time are in front of it, those of c behind
    assert starts == {KEYS.of("a").thread: 21, KEYS.of("c").thread: 20}


def test_a_thread_that_was_handed_over_meanwhile_has_nothing(plain: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [threads(("a", 1, 30)), [RedisReplyError("WMOWNER")]]
    assert plain.history.for_user("u").items == []
    by_hand.answers = [threads(("a", 1, 30)), [RedisReplyError("OOM")]]
    with pytest.raises(RedisReplyError, match="OOM"):
        plain.history.for_user("u")


def test_a_stranger_is_refused(plain: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [[RedisReplyError("WMOWNER")]]
    with pytest.raises(ThreadOwnershipError):
        plain.history.messages("t", user_id="v")
