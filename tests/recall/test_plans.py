"""The plan of recall, driven by hand: what is embedded and searched, how deep, and what is done about what is gone."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from langchain_workingmem import (
    EmbeddingSizeError,
    Memory,
    RecallOptions,
    ThreadNotFoundError,
    ThreadOwnershipError,
)
from langchain_workingmem._redis.codec import drafts
from langchain_workingmem._redis.keys import THE_USER
from langchain_workingmem.errors import RedisReplyError
from langchain_workingmem.recall.ranking import NEAREST
from tests.helpers.by_hand import ByHand, found, stored, thread_row, vector_key
from tests.helpers.embeddings import WordEmbeddings

STALE = RedisReplyError("wm:vectors: no such index")


def recalling(by_hand: ByHand, **options: Any) -> Memory:
    return Memory(embeddings=by_hand.model, recall=RecallOptions(**{"message_range": 0, **options}))


@pytest.fixture
def memory(by_hand: ByHand) -> Memory:
    return recalling(by_hand, search="semantic")


def window(*said: tuple[int, str], title: bytes = b"") -> list[Any]:
    """Answer with the messages at these places of a thread, each a hit by itself."""
    reply: list[Any] = [
        title,
        [part for place, (seq, _) in enumerate(said) for part in (str(seq).encode(), place)],
    ]
    for place, (seq, text) in enumerate(said):
        reply += [place, str(seq).encode(), text.encode(), stored(HumanMessage(text, id=text))[2]]
    return reply


def texts(result: Any) -> list[str]:
    return [hit.message.text for hit in result.hits]


def test_a_search_is_one_embedding_and_two_requests(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [
        [found((vector_key("t", 3), 0.1), (vector_key("s", 1), 0.3))],
        [window((3, "near"), title=b"Dogs"), window((1, "far"))],
    ]
    result = memory.recall.search("dog", user_id="u", top_k=2)
    assert texts(result) == ["near", "far"]
    assert [hit.thread_title for hit in result.hits] == ["Dogs", None]
    assert by_hand.steps == [("dog",), ["FT.SEARCH"], ["WINDOWS", "WINDOWS"]]


def test_nothing_found_is_one_request(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [[found()]]
    assert memory.recall.search("dog", user_id="u").hits == []
    assert by_hand.steps == [("dog",), ["FT.SEARCH"]]


def test_the_better_piece_of_a_message_decides_and_it_comes_back_once(memory: Memory, by_hand: ByHand) -> None:
    pieces = [(vector_key("t", 3, 1), 0.1), (vector_key("t", 4), 0.2), (vector_key("t", 3, 0), 0.5)]
    by_hand.answers = [[found(*pieces)], [window((3, "long"), (4, "short"))]]
    result = memory.recall.search("dog", user_id="u")
    assert texts(result) == ["long", "short"]
    assert result.hits[0].similarity == pytest.approx(0.9)


def test_a_threshold_leaves_out_what_is_further_away(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [[found((vector_key("t", 3), 0.1), (vector_key("t", 4), 0.6))], [window((3, "near"))]]
    assert texts(memory.recall.search("dog", user_id="u", threshold=0.5)) == ["near"]
    assert 4 not in by_hand.request(-1)[0]


# ---------------------------------------------------------------------- how deep


def limit_of(by_hand: ByHand, number: int) -> Any:
    command = by_hand.request(number)[0]
    return command[command.index("LIMIT") + 2]


def test_a_list_that_is_full_of_the_pieces_of_one_message_is_asked_for_deeper(memory: Memory, by_hand: ByHand) -> None:
    pieces = [(vector_key("t", 3, chunk), 0.1) for chunk in range(NEAREST)]
    by_hand.answers = [
        [found(*pieces)],
        [found(*pieces, (vector_key("t", 4), 0.2))],
        [window((3, "long"), (4, "short"))],
    ]
    assert texts(memory.recall.search("dog", user_id="u", top_k=2)) == ["long", "short"]
    assert limit_of(by_hand, 1) == 4 * limit_of(by_hand, 0)
    assert by_hand.steps == [("dog",), ["FT.SEARCH"], ["FT.SEARCH"], ["WINDOWS"]]


# ---------------------------------------------------------------------- authors


def test_what_a_user_without_a_name_said_comes_before_an_answer_as_near(by_hand: ByHand) -> None:
    memory = recalling(by_hand, search="hybrid")
    near = found((vector_key("t", 1), 0.2), (vector_key("t", 0, author=THE_USER), 0.22))
    by_hand.answers = [[near, [0]], [window((0, "my dog"), (1, "your dog"))]]
    assert texts(memory.recall.search("dog", user_id="u")) == ["my dog", "your dog"]
    assert drafts([HumanMessage("a", id="1")], None, str)[0].size.endswith(f"~{THE_USER}")
    assert drafts([HumanMessage("a", id="1", name=" Ann")], None, str)[0].size.endswith("~ann")


def test_a_name_that_candidates_bear_is_left_out_and_searched_again_once(by_hand: ByHand) -> None:
    memory = recalling(by_hand, search="hybrid")
    here = [found((vector_key("t", 0, author="caroline"), 0.8), (vector_key("t", 1), 0.9)), [0]]
    by_hand.answers = [here, here, [window((0, "my dog"), (1, "nice"))]] * 2
    by_hand.answers.pop(-3)  # the second time the author is known
    for _ in range(2):
        assert texts(memory.recall.search("Caroline's dog", user_id="u"))[0] == "my dog"
    search = ["FT.SEARCH", "FT.SEARCH"]
    assert by_hand.steps == [
        *[("Caroline's dog",), search, ("  dog",), search, ["WINDOWS"]],
        *[("  dog",), search, ["WINDOWS"]],
    ]


# ---------------------------------------------------------------------- whose


def test_with_a_thread_alone_its_owner_is_looked_up_first(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [[thread_row("u")], [found(), b"u"], [{}]]
    memory.recall.search("dog", thread_id="t")
    assert by_hand.steps == [["HGETALL"], ("dog",), ["FT.SEARCH", "HGET"]]
    assert "@user:{u}" in str(by_hand.request(1)[0][2])
    with pytest.raises(ThreadNotFoundError):
        memory.recall.search("dog", thread_id="t")


def test_a_stranger_learns_nothing_of_what_was_found(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [[found((vector_key("t", 3), 0.1)), b"u"]]
    with pytest.raises(ThreadOwnershipError):
        memory.recall.search("dog", thread_id="t", user_id="v", scope="thread")
    assert by_hand.steps[-1] == ["FT.SEARCH", "HGET"]


# ---------------------------------------------------------------------- what is gone


def test_a_hit_that_is_gone_is_dropped(memory: Memory, by_hand: ByHand) -> None:
    first = found((vector_key("t", 3), 0.1), (vector_key("s", 1), 0.3))
    by_hand.answers = [[first], [window(), window((1, "there"))]]
    assert texts(memory.recall.search("dog", user_id="u", top_k=2)) == ["there"]
    assert by_hand.steps == [("dog",), ["FT.SEARCH"], ["WINDOWS", "WINDOWS"]]


# ---------------------------------------------------------------------- the index and the model


def test_an_index_that_is_gone_is_made_and_asked_again(memory: Memory, by_hand: ByHand) -> None:
    by_hand.answers = [[STALE], [found()]]
    assert memory.recall.search("dog", user_id="u").hits == []
    assert by_hand.steps == [("dog",), ["FT.SEARCH"], ["FT.SEARCH"]]


def test_a_model_of_another_size_is_refused_before_anything_is_searched(by_hand: ByHand) -> None:
    memory = recalling(by_hand, search="semantic")
    by_hand.answers = [[found()]]
    memory.recall.search("dog", user_id="u")
    by_hand.model = WordEmbeddings(8)
    with pytest.raises(EmbeddingSizeError, match=r"4 dimensions.* 8"):
        memory.recall.search("dog", user_id="u")
