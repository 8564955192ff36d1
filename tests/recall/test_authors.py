"""Recall in chats between persons who have names."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_workingmem import Memory
from langchain_workingmem.recall.question import Authors
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.trips import Trips

CHAT = [
    ("ann", "my dog had its birthday"),
    ("ben", "ann said so, what a lovely thing for the dog of ann"),
    ("ben", "my dog likes the birthday of ann"),
    ("ann", "we ate cake"),
]


def say(memory: Memory, *, user_id: str = "u", thread_id: str = "t") -> None:
    messages = [HumanMessage(text, id=f"{thread_id}{at}", name=name) for at, (name, text) in enumerate(CHAT)]
    memory.history.append(messages, thread_id=thread_id, user_id=user_id)


def test_a_question_that_names_a_person_finds_what_that_person_said(memory: Memory, embeddings: WordEmbeddings) -> None:
    say(memory)
    found = memory.recall.search("my birthday dog, Ann's?", user_id="u", top_k=1)
    assert [hit.message.id for hit in found.hits] == ["t0"]
    assert embeddings.calls[-1] == ["my birthday dog,  ?"]
    assert memory.recall.search("What is Ben's dog?", user_id="u", top_k=1).hits[0].message.name == "ben"


def test_a_question_that_names_all_favours_none(memory: Memory, embeddings: WordEmbeddings) -> None:
    say(memory)
    both = memory.recall.search("What is the dog of Ann and Ben?", user_id="u", top_k=4)
    assert embeddings.calls[-1] == ["What is the dog of   and  ?"]
    assert both.hits[0].score > memory.recall.search("What is the dog of Ann?", user_id="u").hits[0].score


def test_a_name_that_all_messages_bear_tells_nothing(memory: Memory) -> None:
    messages = [HumanMessage(text, name="ann") for text in ("my dog had cake", "we ate cake")]
    memory.history.append(messages, thread_id="t", user_id="u")
    scores = [
        [hit.score for hit in memory.recall.search(text, user_id="u").hits] for text in ("Ann's dog cake", "dog cake")
    ]
    assert scores[0] == pytest.approx(scores[1])


def test_names_cost_a_third_round_trip_once(memory: Memory, trips: Trips) -> None:
    say(memory)
    memory.recall.search("warm up", user_id="nobody")
    before = trips.count
    memory.recall.search("Where is the cake of Ann?", user_id="u")
    assert trips.count - before == 3
    assert trips.of(lambda: memory.recall.search("Where is the dog of Ann?", user_id="u")) == 2
    assert trips.of(lambda: memory.context("What of Ben's dog?", thread_id="new", user_id="u")) == 2


def test_names_of_one_user_mean_nothing_to_another(memory: Memory, embeddings: WordEmbeddings) -> None:
    say(memory)
    memory.recall.search("What is Ann's dog?", user_id="u")
    memory.history.append([HumanMessage("a dog", name="eve")], thread_id="x", user_id="other")
    embeddings.calls.clear()
    memory.recall.search("Which is Ann's dog?", user_id="other")
    memory.recall.search("Where is Ann's dog?", thread_id="x", scope="thread")
    assert embeddings.calls == [["Which is Ann's dog?"], ["Where is Ann's dog?"]]


@pytest.mark.parametrize("name", ["a|b,{c}*", 'x~y:z/"q"', "José María", "李雷", "n" * 200])
def test_an_author_of_any_name_can_be_found_edited_and_deleted(memory: Memory, name: str) -> None:
    memory.history.append(
        [HumanMessage("my red fox", id="1", name=name), HumanMessage("a red fox", id="2")],
        thread_id="t",
        user_id="u",
    )
    assert {hit.message.id for hit in memory.recall.search("red fox", user_id="u").hits} == {"1", "2"}
    memory.history.update([HumanMessage("my blue sea", id="1", name=name)], thread_id="t")
    memory.threads.clone("t", new_thread_id="c")
    memory.threads.transfer("c", user_id="u", to="v")
    (hit, *_) = memory.recall.search("blue sea", user_id="v", top_k=1).hits
    assert hit.message.name == name
    memory.threads.delete("c")
    memory.history.delete(["1"], thread_id="t")
    assert [hit.message.id for hit in memory.recall.search("blue sea red fox", user_id="u").hits] == ["2"]
    assert memory.recall.search("blue sea", user_id="v").hits == []


def test_messages_with_names_are_read_by_role_and_looked_at_by_the_doctor(memory: Memory) -> None:
    say(memory)
    memory.history.append(
        [
            AIMessage("", tool_calls=[{"name": "look up", "args": {}, "id": "call"}]),
            ToolMessage("sunny", tool_call_id="call", name="look up"),
        ],
        thread_id="t",
        user_id="u",
    )
    assert len(memory.history.messages("t", roles=["human"])) == len(CHAT)
    assert [message.text for message in memory.history.messages("t", roles=["tool"])] == ["sunny"]
    assert [finding.level for finding in memory.doctor() if finding.check == "vectors"] == ["ok"]


def test_the_names_of_who_is_deleted_are_forgotten(memory: Memory) -> None:
    say(memory)
    memory.recall.search("What is Ann's dog?", user_id="u")
    known = memory._core.state.room(Authors)
    assert set(known.get("u") or ()) == {"ann", "ben"}
    memory.users.delete("u")
    assert known.get("u") is None
