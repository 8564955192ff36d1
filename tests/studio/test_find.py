"""Finding a message in a conversation, and jumping to it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_workingmem import Memory
from langchain_workingmem.studio import conversations
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.trips import Trips
from tests.helpers.types import Make
from tests.studio.conftest import Open, Visitor

TRIP = {"user": "maya", "thread": "trip"}


def places(page: str) -> list[int]:
    """Return the positions to which a page of hits leads."""
    return [int(one) for one in re.findall(r'#m-(\d+)(?:-old)?"', page)]


def all_places(visitor: Visitor, path: str) -> list[int]:
    """Follow the links to older messages to the end."""
    seen: list[int] = []
    while path:
        page = visitor.client.get(path).text
        seen += places(page)
        older = re.search(r'href="(/find\?[^"]+)" rel="next"', page)
        path = older[1].replace("&amp;", "&") if older else ""
    return seen


def test_words_are_found_with_a_link_to_their_place(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived)
    page = visitor.page("/find", **TRIP, q="booked hut")
    (at,) = places(page)
    assert "<mark>hut</mark> 12 <mark>booked</mark>" in page
    assert f'id="m-{at}"' in visitor.page("/thread", **TRIP, at=str(at))
    assert places(visitor.page("/find", **TRIP, q="booking")) == [at]  # another ending of the word


@pytest.mark.parametrize(
    ("words", "found"), [("degrees", "12 <mark>degrees</mark>"), ("mild", "It is <mark>mild</mark>"), ("BOOK 12", "")]
)
def test_every_message_can_be_looked_at(lived: Memory, open_studio: Open, words: str, found: str) -> None:
    visitor = open_studio(lived)
    page = visitor.page("/find", **TRIP, q=words)
    assert "No message has all these words" in page or words == "BOOK 12"
    page = visitor.page("/find", **TRIP, q=words, every="1")
    assert found in page
    assert len(places(page)) == 1


def test_a_memory_without_recall_is_read_in_parts(
    make_memory: Make, open_studio: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "COMPARED", 4)
    memory = make_memory()
    for number in range(3):
        memory.save_turn([("user", f"red {number}"), ("assistant", "blue")], thread_id="t", resource_id="maya")
    seen = all_places(open_studio(memory), "/find?user=maya&thread=t&q=red")
    assert seen == [4, 2, 0]


def test_a_part_with_more_hits_than_a_page_shows_loses_none(
    make_memory: Make, open_studio: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "FOUND", 2)
    memory = make_memory()
    memory.history.append([("user", f"red {number}") for number in range(5)], thread_id="t", resource_id="maya")
    seen = all_places(open_studio(memory), "/find?user=maya&thread=t&q=red")
    assert seen == [4, 3, 2, 1, 0]


def test_the_index_finds_in_two_round_trips_and_only_in_its_thread(
    make_memory: Make, embeddings: WordEmbeddings, trips: Trips
) -> None:
    memory = make_memory(embeddings=embeddings)
    for thread, owner in (("a", "maya"), ("b", "maya"), ("c", "jonas")):
        long = " ".join(["glacier"] * 900)  # several chunks of one message
        turn = [HumanMessage(f"the glacier of {thread}"), AIMessage(long), HumanMessage("a lake")]
        memory.history.append(turn, thread_id=thread, resource_id=owner)
    trip: Any = memory.threads.get("a")
    state = memory._core.state
    found: Any = None

    def look() -> None:
        nonlocal found
        found = memory._core.run(conversations.by_index(state, trip, "glacier"))

    assert trips.of(look) == 3  # one of them reads where the messages are
    assert [row.seq for row in found] == [1, 0]
    assert {row.thread_id for row in found} == {"a"}
    assert memory._core.run(conversations.by_index(state, trip, "kestrel")) == []
    assert memory._core.run(conversations.by_index(state, trip, "the ! _")) is None  # no word that the index has


@pytest.mark.parametrize("given", ["a2", " #4 ", "4"])
def test_an_id_or_a_position_leads_to_the_message(lived: Memory, open_studio: Open, given: str) -> None:
    answer = open_studio(lived).client.get("/thread", params={**TRIP, "message": given}, follow_redirects=False)
    at = {"a2": 4}.get(given, 4)
    assert answer.headers["location"].endswith(f"at={at}#m-{at}")


def test_an_unknown_id_leads_nowhere(lived: Memory, open_studio: Open) -> None:
    assert open_studio(lived).get("/thread", **TRIP, message="nobody").status_code == 404


def test_the_first_messages_are_one_link_away(make_memory: Make, open_studio: Open) -> None:
    memory = make_memory()
    memory.history.append([("user", f"word {number}") for number in range(9)], thread_id="t", resource_id="maya")
    visitor = open_studio(memory)
    page = visitor.page("/thread", user="maya", thread="t", limit="3")
    first = re.search(r'href="([^"]+)">First<', page)
    assert first
    page = visitor.client.get(f"{first[1].replace('&amp;', '&')}&limit=3").text
    assert re.findall(r"word \d", page) == ["word 0", "word 1", "word 2"]
    assert 'rel="prev"' not in page
    assert "above=2" in page
    assert "data-end" not in page


@pytest.mark.parametrize(
    ("text", "words", "shown"),
    [
        ("one two three", ["two"], [(False, "one "), (True, "two"), (False, " three")]),
        ("nothing", ["x"], [(False, "nothing")]),
        ("", ["x"], []),
        (f"{'a ' * 200}hit", ["hit"], None),
    ],
)
def test_text_around_the_first_word(text: str, words: list[str], shown: list[Any] | None) -> None:
    found = conversations.around(text, words)
    if shown is None:
        assert (found[0], found[-1]) == ((False, "… "), (True, "hit"))
        assert len("".join(piece for _, piece in found)) < 120
    else:
        assert found == shown


def test_a_result_that_a_word_begins_is_found_among_tool_messages(make_memory: Make, open_studio: Open) -> None:
    memory = make_memory()
    call = AIMessage("", tool_calls=[{"name": "look", "args": {"what": "marmot"}, "id": "c"}])
    memory.history.append(
        [HumanMessage("look"), call, ToolMessage("no", tool_call_id="c")], thread_id="t", resource_id="maya"
    )
    assert places(open_studio(memory).page("/find", user="maya", thread="t", q="marmot")) == [1]
