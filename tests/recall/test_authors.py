"""Recall in chats between persons who have names."""

from __future__ import annotations

import pytest
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.trips import Trips

CHAT = [
    ("Ann", "my dog had its birthday"),
    ("Ben Stiller", "ann said so, what a lovely thing for the dog of ann"),
    ("Ben Stiller", "my dog likes the birthday of ann"),
    ("Ann", "we ate cake"),
]
NAMING = {  # what is left of a question without the names: whole ones, and first names
    "What is Ann's dog called?": "What is   dog called?",
    "Who is Ben Stiller?": "Who is  ?",
    "Did Ann see Ben?": "Did   see  ?",
    "Where is Stiller?": "Where is Stiller?",
    "Who is Anna, and what is banned?": "Who is Anna, and what is banned?",
}


def say(memory: Memory, *, user_id: str = "u", thread_id: str = "t") -> None:
    messages = [HumanMessage(text, id=f"{thread_id}{at}", name=name) for at, (name, text) in enumerate(CHAT)]
    memory.history.append(messages, thread_id=thread_id, user_id=user_id)


def test_a_question_that_names_a_person_finds_what_that_person_said(memory: Memory, embeddings: WordEmbeddings) -> None:
    say(memory)
    found = memory.recall.search("my birthday dog, Ann's?", user_id="u", top_k=1)
    assert [hit.message.id for hit in found.hits] == ["t0"]
    assert embeddings.calls[-1] == ["my birthday dog,  ?"]
    assert memory.recall.search("What is Ben's dog?", user_id="u", top_k=1).hits[0].message.name == "Ben Stiller"
    for question, left in NAMING.items():
        memory.recall.search(question, user_id="u")
        assert embeddings.calls[-1] == [left]


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


@pytest.mark.parametrize("name", ['x~y:z/"q"|b,{c}*', "李雷", "Ali"])
def test_an_author_of_any_name_can_be_found_edited_and_deleted(memory: Memory, name: str) -> None:
    memory.history.append(
        [HumanMessage("my red fox", id="1", name=name), HumanMessage("a red fox", id="2")], thread_id="t", user_id="u"
    )
    assert {hit.message.id for hit in memory.recall.search("red fox of Al\u0131", user_id="u").hits} == {"1", "2"}
    memory.history.update([HumanMessage("my blue sea", id="1", name=name)], thread_id="t")
    memory.threads.clone("t", new_thread_id="c")
    memory.threads.transfer("c", user_id="u", to="v")
    (hit, *_) = memory.recall.search("blue sea", user_id="v", top_k=1).hits
    assert hit.message.name == name
    memory.threads.delete("c")
    memory.history.delete(["1"], thread_id="t")
    assert [hit.message.id for hit in memory.recall.search("blue sea red fox", user_id="u").hits] == ["2"]
    assert memory.recall.search("blue sea", user_id="v").hits == []


def test_the_names_of_who_is_deleted_are_forgotten(memory: Memory, embeddings: WordEmbeddings) -> None:
    say(memory)
    memory.recall.search("What is Ann's dog?", user_id="u")
    memory.users.delete("u")
    memory.history.append([HumanMessage("my dog")], thread_id="t", user_id="u")
    memory.recall.search("Which is Ann's dog?", user_id="u")
    assert embeddings.calls[-1] == ["Which is Ann's dog?"]
