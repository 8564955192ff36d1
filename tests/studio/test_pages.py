"""What the pages of the studio show."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, message_to_dict
from pydantic import BaseModel

from langchain_workingmem import (
    HistoryOptions,
    Memory,
    ObservationOptions,
    OptionError,
    RecallOptions,
    RedisReplyError,
    WorkingMemoryOptions,
)
from langchain_workingmem._engine.effects import Plan
from langchain_workingmem.importers import header
from langchain_workingmem.store import RedisMemoryStore
from langchain_workingmem.studio.conversations import as_said, read_slice
from tests.helpers.embedded import free_port
from tests.helpers.examples import sample
from tests.helpers.observers import Echo
from tests.helpers.odd_ids import NAMES
from tests.helpers.trips import Trips
from tests.helpers.types import Make
from tests.studio.conftest import EVIL, ROOT, Open

TRIP = {"user": "maya", "thread": "trip"}
PAGES = [
    ("/", {"user": "maya"}),
    ("/thread", TRIP),
    ("/find", {**TRIP, "q": "hut"}),
    ("/context", {**TRIP, "q": "Is the hut booked?"}),
    ("/context", {**TRIP, "turn": "0"}),
    ("/compare", {**TRIP, "q": "Is the hut booked?"}),
    ("/recall", {"user": "maya", "q": "weather in Bern"}),
    ("/recall", {**TRIP, "q": "weather in Bern"}),
    ("/recall/settings", {**TRIP, "q": "weather in Bern", "b_search": "semantic"}),
    ("/cost", TRIP),
    ("/cost", {"user": "maya"}),
    ("/working-memory", {"user": "maya"}),
    ("/observations", TRIP),
    ("/files", {"user": "maya"}),
    ("/store", {"user": "maya"}),
    ("/data", {"user": "maya"}),
    ("/doctor", {}),
]


def shown(page: str) -> list[str]:
    """Return the texts of the messages of a page."""
    return re.findall(r'<div class="text" dir="auto">(.*?)</div>', page, re.DOTALL)


@pytest.mark.parametrize(("path", "parameters"), PAGES)
def test_no_page_changes_anything(
    lived: Memory, open_studio: Open, raw: Any, prefix: str, path: str, parameters: dict[str, str]
) -> None:
    visitor = open_studio(lived, write=True)
    lived.recall.search("warm", resource_id="maya")

    def stored() -> dict[bytes, bytes]:
        return {key: raw.dump(key) for key in raw.scan_iter(f"{prefix}*")}

    before = stored()
    visitor.page(path, **parameters)
    assert stored() == before


def test_threads_of_a_resource_are_listed_with_what_describes_them(lived: Memory, open_studio: Open) -> None:
    page = open_studio(lived).text("/", user="maya")
    assert "A trip" in page
    chips = re.findall(r'<span class="chip"><bdi>(.*?)</bdi>=(.*?)</span>', page)
    assert sorted(chips) == [("stars", "5"), ("topic", '"travel"')]
    assert page.index("dog") < page.index("A trip")  # the last changed first
    assert "boat" not in page


def test_threads_of_all_resources_come_with_their_owners(lived: Memory, open_studio: Open) -> None:
    page = open_studio(lived).page("/")
    assert all(one in page for one in ("A trip", "boat", "jonas", "maya"))


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"q": "TRIP a"}, {"trip"}),
        ({"q": "do"}, {"dog"}),
        ({"q": "zebra"}, set()),
        ({"metadata": "topic=travel"}, {"trip"}),
        ({"metadata": "stars=5"}, {"trip"}),
        ({"metadata": "stars=6"}, set()),
        ({"order": "created_at"}, {"trip", "dog"}),
    ],
)
def test_threads_are_filtered(lived: Memory, open_studio: Open, filters: dict[str, str], found: set[str]) -> None:
    page = open_studio(lived).page("/", user="maya", **filters)
    assert set(re.findall(r"/thread\?user=maya&amp;thread=(\w+)", page)) == found


def test_a_filter_without_a_value_says_what_helps(lived: Memory, open_studio: Open) -> None:
    answer = open_studio(lived).get("/", user="maya", metadata="topic")
    assert answer.status_code == 400
    assert "write key=value" in answer.text


def test_threads_come_in_pages(make_memory: Make, open_studio: Open) -> None:
    memory = make_memory()
    for number in range(7):
        memory.save_turn([("user", "hello")], thread_id=f"t{number}", resource_id="maya")
    visitor, path = open_studio(memory), "/?user=maya&limit=3"
    seen: list[str] = []
    while path:
        page = visitor.client.get(path).text
        seen += re.findall(r"thread=(t\d)", page)
        following = re.search(r'href="(/\?[^"]+)" rel="next"', page)
        path = f"{following[1].replace('&amp;', '&')}&limit=3" if following else ""
    assert seen == [f"t{number}" for number in range(6, -1, -1)]


def test_a_conversation_shows_calls_with_results_and_superseded_answers(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived)
    page = visitor.page("/thread", **TRIP)
    assert shown(page) == [
        *("How is the weather in Bern?", "It is mild.", "It rains.", "Is hut 12 booked?", "Yes, for July."),
    ]
    superseded = re.findall(r'id="m-(\d+)-old"', page)
    assert len(superseded) == 2  # the call with its result, and the first answer
    assert re.search(r"<b><bdi>weather</bdi></b>.*?Bern.*?12 degrees", page, re.DOTALL)
    without = visitor.page("/thread", **TRIP, branches="0")
    assert "Hide superseded" in page
    assert "Show superseded" in without
    assert "superseded messages" not in visitor.page("/thread", user="maya", thread="dog")
    assert "It is mild." not in without
    assert "It rains." in without


@pytest.mark.parametrize(("path", "parameters"), PAGES)
def test_what_was_stored_never_becomes_markup(
    lived: Memory, open_studio: Open, path: str, parameters: dict[str, str]
) -> None:
    lived.threads.update("trip", title=EVIL, metadata={EVIL[:20]: EVIL})
    lived.save_turn([HumanMessage(EVIL, name="<b>maya")], thread_id="trip", resource_id="maya")
    lived.working_memory.update(f"# About\n{EVIL}", resource_id="maya")
    page = open_studio(lived).page(path, **{**parameters, "q": "alert quoted"} if "q" in parameters else parameters)
    assert "<script>" not in page
    assert "<b>maya" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert not re.search(r"\son\w+=|\sstyle=|<style|javascript:", page)


def test_pages_of_a_long_conversation_hold_each_message_once(make_memory: Make, open_studio: Open) -> None:
    memory = make_memory()
    for number in range(12):
        memory.save_turn(
            [("user", f"question {number}"), ("assistant", f"answer {number}")], thread_id="t", resource_id="maya"
        )
    visitor, path = open_studio(memory), "/thread?user=maya&thread=t&limit=5"
    seen: list[str] = []
    while path:
        page = visitor.client.get(path).text
        seen = [*shown(page), *seen]
        older = re.search(r'href="(/thread\?[^"]+)" rel="prev"', page)
        path = f"{older[1].replace('&amp;', '&')}&limit=5" if older else ""
    assert seen == [f"{what} {number}" for number in range(12) for what in ("question", "answer")]
    assert "question 3" in visitor.page("/thread", user="maya", thread="t", at="6", limit="4")
    around = [visitor.page("/thread", user="maya", thread="t", at=at, limit="4") for at in ("2", "23")]
    assert ["Newer messages" in page for page in around] == [True, False]
    assert shown(visitor.page("/thread", user="maya", thread="t", above="19", limit="2")) == [
        "question 10",
        "answer 10",
    ]


def test_a_slice_keeps_superseded_messages_where_they_were(make_memory: Make, trips: Trips) -> None:
    memory = make_memory()
    ids: Any = {"thread_id": "t", "resource_id": "maya"}
    for number in range(4):
        question = HumanMessage(f"q{number}", id=f"q{number}")
        for version in "ab":
            memory.context([question], **ids)
            memory.save_turn([question, AIMessage(f"a{number}{version}", id=f"a{number}{version}")], **ids)
    state = memory._core.state
    found = [
        memory._core.run(read_slice(state, "t", "maya", limit=3)),
        memory._core.run(read_slice(state, "t", "maya", limit=3, below=6)),
        memory._core.run(read_slice(state, "t", "maya", limit=3, above=4)),
    ]
    texts = [[(str(row.message.text), row.superseded) for row in part.rows] for part in found]
    assert texts[0] == [("a2b", False), ("q3", False), ("a3a", True), ("a3b", False)]
    assert texts[1] == [("a0b", False), ("q1", False), ("a1a", True), ("a1b", False)]
    assert texts[2][0] == ("a1b", False)
    assert [(part.has_older, part.has_newer) for part in found] == [(True, False), (True, True), (True, True)]
    assert trips.of(lambda: memory._core.run(read_slice(state, "t", "maya", limit=3))) == 2
    assert trips.of(lambda: memory._core.run(read_slice(state, "t", "maya", limit=3, superseded=False))) == 1


def test_an_edited_question_stands_beside_its_older_version(make_memory: Make) -> None:
    memory = make_memory()
    ids: Any = {"thread_id": "t", "resource_id": "maya"}
    memory.save_turn([HumanMessage("first words", id="q"), AIMessage("one", id="a")], **ids)
    edited = [HumanMessage("other words", id="q"), AIMessage("two", id="b")]
    memory.context(edited[:1], **ids)
    memory.save_turn(edited, **ids)
    part = memory._core.run(read_slice(memory._core.state, "t", "maya", limit=10))
    current = [str(row.message.text) for row in part.rows if not row.superseded]
    assert current == ["other words", "two"]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_every_version_is_on_one_page(make_memory: Make, limit: int) -> None:
    memory = make_memory()
    ids: Any = {"thread_id": "t", "resource_id": "maya"}
    for number in range(4):
        for version in "abc":
            turn = [HumanMessage(f"q{number}{version}", id=f"q{number}"), AIMessage(f"a{number}{version}")]
            memory.context(turn[:1], **ids)
            memory.save_turn(turn, **ids)
    state = memory._core.state
    whole = memory._core.run(read_slice(state, "t", "maya", limit=100)).rows
    assert {str(row.message.text) for row in whole} >= {f"{what}{n}c" for what in "qa" for n in range(4)}
    backwards: list[Any] = []
    below = None
    while True:
        part = memory._core.run(read_slice(state, "t", "maya", limit=limit, below=below))
        backwards = [*part.rows, *backwards]
        below = part.first
        if not part.has_older:
            break
    forwards: list[Any] = []
    above: int | None = -1
    while above is not None:
        part = memory._core.run(read_slice(state, "t", "maya", limit=limit, above=above))
        forwards += part.rows
        above = part.last if part.has_newer else None
    assert backwards == whole
    assert forwards == whole


def test_a_result_without_its_call_stands_by_itself(make_memory: Make) -> None:
    memory = make_memory()
    call = AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "c1"}])
    messages = [HumanMessage("go"), call, ToolMessage("done", tool_call_id="c1", status="error"), AIMessage("ok")]
    memory.save_turn(messages, thread_id="t", resource_id="maya")
    rows = memory._core.run(read_slice(memory._core.state, "t", "maya", limit=10)).rows
    whole, part = as_said(rows), as_said(rows[2:])
    assert [(one.result, one.is_error) for said in whole for one in said.calls] == [("done", True)]
    assert [said.parts for said in part] == [[("text", "done", 0)], [("text", "ok", 0)]]


def test_content_that_is_no_text_is_shown_by_its_kind(make_memory: Make, open_studio: Open) -> None:
    memory = make_memory()
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    memory.save_turn([HumanMessage([{"type": "text", "text": "look"}, image])], thread_id="t", resource_id="maya")
    page = open_studio(memory).page("/thread", user="maya", thread="t")
    assert 'not fetch: <a href="https://example.com/a.png" rel="noreferrer noopener">' in page
    assert '<img src="http' not in page
    assert "example.com/a.png" in page
    assert "<img src=" not in page.replace('<img src="/static/icon.svg"', "")


def test_a_live_page_is_sent_again_only_when_it_has_changed(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived)
    first = visitor.get("/thread", **TRIP)
    again = visitor.client.get("/thread", params=TRIP, headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.text) == (304, "")
    lived.save_turn([("user", "And the dog?")], thread_id="trip", resource_id="maya")
    changed = visitor.client.get("/thread", params=TRIP, headers={"if-none-match": first.headers["etag"]})
    assert changed.status_code == 200
    assert "And the dog?" in changed.text


# ---------------------------------------------------------------------- inspectors


def test_the_context_is_what_memory_returns_and_its_beginning_is_stable(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived)
    page = visitor.text("/context", **TRIP, q="Is the hut booked?")
    found = lived.context("Is the hut booked?", thread_id="trip", resource_id="maya")
    for message in found.messages[:-1]:
        assert str(message.text) in page
    assert "- dog: Silk" in page
    assert "It is mild." not in "".join(shown(page))  # superseded
    items = re.findall(r'<li data-item tabindex="-1" class="(.*?)">', page)
    history = len(found.messages) - 1
    assert [("stable" in one) for one in items] == [True] * history + [False] * (len(items) - history)


def test_the_log_has_a_card_of_its_own_where_the_conversation_does_not_begin_with_the_user(
    make_memory: Make, open_studio: Open
) -> None:
    observed = ObservationOptions(model=Echo(), message_tokens=10_000, keep_tokens=30)
    memory, ids = make_memory(observations=observed), {"thread_id": "t", "resource_id": "maya"}
    memory.save_turn(
        [
            ("user", "My boat is green"),
            ("assistant", "A fine colour for a boat on the lake."),
            ("assistant", "What is it called?"),
        ],
        **ids,
    )
    memory.save_turn([("user", "Kestrel"), ("assistant", "Good.")], **ids)
    memory.observations.observe(**ids)
    page = open_studio(memory).text("/context", user="maya", thread="t", q="What colour is it?")
    assert shown(page)[1] == "What is it called?"
    card = re.search(r'class="user stable frommemory">\n<p class="head"><b>user</b> <bdi>(.*?)</bdi>', page)
    assert card
    assert card[1] == "observations, a message of its own"
    assert "until the log stands for more of the conversation" in page
    assert "it shows about" not in page


def test_the_page_of_a_long_context_shows_its_newest_part(make_memory: Make, open_studio: Open) -> None:
    memory = make_memory(history=HistoryOptions(last_messages=None))
    messages = [HumanMessage(f"<{number}> {EVIL * (number % 40)}") for number in range(600)]
    memory.history.append([*messages, AIMessage(EVIL * 4000)], thread_id="t", resource_id="maya")
    page = open_studio(memory).page("/context", user="maya", thread="t", q="Hello?")
    assert len(page.encode()) < 300_000
    items, left_out = re.findall(r"newest (\S+) parts. It leaves out (\S+) older", page)[0]
    assert int(items) == page.count("data-item") > 10
    assert int(items) + int(left_out.replace(",", "")) == 602
    assert "Hello?" in page
    assert "&lt;599&gt;" in page


def test_a_block_in_the_system_prompt_that_depends_on_the_question_ends_the_stable_beginning(
    make_memory: Make, embeddings: Any, open_studio: Open
) -> None:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions(placement="system"))
    for thread in ("one", "two"):
        memory.save_turn([("user", "my dog is brown"), ("assistant", "nice")], thread_id=thread, resource_id="maya")
    page = open_studio(memory).page("/context", user="maya", thread="one", q="what is my dog like")
    assert "after your system prompt" in page
    assert "stable" not in "".join(re.findall(r'<li data-item tabindex="-1" class="(.*?)">', page))


def test_recall_says_why_and_what_just_missed(lived: Memory, open_studio: Open) -> None:
    page = open_studio(lived).text("/recall", user="maya", q="weather in Bern", top_k="1")
    hits, missed = page.split("Just missed")
    assert "How is the weather in Bern?" in hits
    assert "similarity +" in hits
    assert "<bdi>weather</bdi>" in hits
    assert "the best 1 are taken" in missed or "it is shown beside a hit" in missed
    assert 'aria-label="similarity ' in hits


def test_recall_of_a_turn_leaves_out_what_its_history_shows(lived: Memory, open_studio: Open) -> None:
    page = open_studio(lived).page("/recall", **TRIP, q="weather in Bern")
    assert "How is the weather in Bern?" not in page.split("Just missed")[0]


def test_recall_of_a_turn_finds_what_its_context_holds(lived: Memory, open_studio: Open) -> None:
    for number in range(15):
        turn = [("user", f"hut {number} near the lake of Bern"), ("assistant", f"weather is fine at hut {number}")]
        lived.save_turn(turn, thread_id=f"hut {number % 4}", resource_id="maya")
    lived.context("which hut is near the lake?", thread_id="hut", resource_id="maya")
    lived.settled()  # the scale of the model is learned in the background
    visitor = open_studio(lived)
    for question in ("weather in Bern", "which hut is near the lake?", "is hut 12 booked"):
        page = visitor.text("/recall", **TRIP, q=question)
        found = lived.context(question, thread_id="trip", resource_id="maya").recalled
        assert shown(page.split("Just missed")[0]) == [str(hit.message.text) for hit in found]


def test_a_message_can_be_asked_about(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived)
    link = re.search(r'href="(/recall\?[^"]+about=0)"', visitor.page("/thread", **TRIP))
    assert link
    assert "Type the question" in visitor.client.get(link[1].replace("&amp;", "&")).text
    asked = {"user": "maya", "q": "weather in Bern", "of_thread": "trip"}

    def answer(at: int) -> str:
        page = visitor.text("/recall", **asked, about=str(at))
        return page.split("The message that you ask about")[1].split("<h2>Recalled")[0]

    assert "How is the weather in Bern?" in answer(0)
    assert "superseded messages are not searched" in answer(3)
    assert "superseded messages are not searched" in answer(99)
    lived.history.append(
        [AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "c9"}])], thread_id="trip", resource_id="maya"
    )
    lived.history.append([ToolMessage("done", tool_call_id="c9")], thread_id="trip", resource_id="maya")
    last = lived.history.page("trip", descending=True, limit=1).items[0].seq
    assert "Messages of this role are not searched" in answer(last)
    foreign = visitor.get("/recall", **{**asked, "of_thread": "boat"}, about="0")
    assert (foreign.status_code, "Kestrel" in foreign.text) == (404, False)


def test_without_recall_the_inspector_says_what_helps(plain: Memory, open_studio: Open) -> None:
    plain.save_turn([("user", "hello")], thread_id="t", resource_id="maya")
    visitor = open_studio(plain)
    assert "--embeddings" in visitor.page("/recall", user="maya")
    assert visitor.get("/recall", user="maya", q="x").status_code == 400


# ---------------------------------------------------------------------- documents


def test_working_memory_is_shown_with_the_change_between_any_two_revisions(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived)
    page = visitor.page("/working-memory", user="maya")
    assert "<del>-- dog: Nougat</del>" in page
    assert "<ins>+- dog: Silk</ins>" in page
    lived.working_memory.update("# About\n- dog: Rex\n", resource_id="maya")
    page = visitor.page("/working-memory", user="maya", earlier="1", later="3")
    assert "<ins>+- dog: Rex</ins>" in page
    assert "Silk" not in page.split("Revision 1 → 3")[1].split("Revisions")[0]


def test_an_edit_is_stored_and_a_stale_one_is_refused_and_kept(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived, write=True)
    done = visitor.send(
        "/working-memory", {"action": "edit", "revision": "2", "text": "# A\r\n- dog: Rex"}, user="maya"
    )
    assert done.status_code == 200  # after a redirect
    assert lived.working_memory.get(resource_id="maya").text == "# A\n- dog: Rex"
    late = visitor.send("/working-memory", {"action": "edit", "revision": "2", "text": "mine"}, user="maya")
    assert late.status_code == 409
    assert ">\nmine</textarea>" in late.text
    assert lived.working_memory.get(resource_id="maya").revision == 3


def test_working_memory_is_cleared_and_reverted(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived, write=True)
    visitor.send("/working-memory", {"action": "clear"}, user="maya")
    assert lived.working_memory.get(resource_id="maya").is_empty
    visitor.send("/working-memory", {"action": "revert", "revision": "1"}, user="maya")
    assert "Nougat" in lived.working_memory.get(resource_id="maya").text
    assert visitor.send("/working-memory", {"action": "revert", "revision": "99"}, user="maya").status_code == 404
    assert visitor.send("/working-memory", {"action": "dance"}, user="maya").status_code == 400


def test_a_schema_decides_what_an_edit_may_store(make_memory: Make, open_studio: Open) -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "additionalProperties": False}
    memory = make_memory(working_memory=WorkingMemoryOptions(schema=schema))
    memory.working_memory.update({"age": 5}, resource_id="maya")
    visitor = open_studio(memory, write=True, is_program=True)
    refused = visitor.send(
        "/working-memory", {"action": "edit", "revision": "1", "text": '{"age": "old"}'}, user="maya"
    )
    assert refused.status_code == 422
    assert "&#34;old&#34;" in refused.text
    visitor.send("/working-memory", {"action": "edit", "revision": "1", "text": '{"age": 6}'}, user="maya")
    assert memory.working_memory.get(resource_id="maya").value == {"age": 6}


class Dog(BaseModel):
    name: str = ""


class Person(BaseModel):
    city: str = ""
    dog: Dog = Dog()


def test_fields_that_the_schema_ignores_are_named(make_memory: Make, open_studio: Open) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(schema=Person))
    visitor = open_studio(memory, write=True, is_program=True)
    text = '{"city": "Bern", "mood": "good", "dog": {"name": "Rex", "<b>": 4}}'
    done = visitor.send("/working-memory", {"action": "edit", "revision": "0", "text": text}, user="maya")
    assert done.status_code == 200
    said = "Stored. The schema has no 'mood', 'dog.<b>', so nothing was stored of it; its fields are city, dog."
    assert said in unescape(done.text)
    assert "'dog.<b>" not in done.text
    assert memory.working_memory.get(resource_id="maya").value == Person(city="Bern", dog=Dog(name="Rex"))
    text = '{"city": "Oslo"}'
    done = visitor.send("/working-memory", {"action": "edit", "revision": "1", "text": text}, user="maya")
    assert "The schema has no" not in done.text


def test_without_the_program_an_object_stays_an_object(make_memory: Make, open_studio: Open) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(schema={"type": "object"}))
    memory.working_memory.update({"age": 5}, resource_id="maya")
    other = make_memory(working_memory=WorkingMemoryOptions(template=""))
    visitor = open_studio(other, write=True)
    edit = {"action": "edit", "revision": "1"}
    assert visitor.send("/working-memory", {**edit, "text": "text"}, user="maya").status_code == 422
    visitor.send("/working-memory", {**edit, "text": '{"age": 6}'}, user="maya")
    assert memory.working_memory.get(resource_id="maya").value == {"age": 6}


def test_working_memory_of_a_thread_and_of_none(make_memory: Make, open_studio: Open) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(scope="thread"))
    memory.save_turn([("user", "hello")], thread_id="t", resource_id="maya")
    memory.working_memory.update("- of the thread", thread_id="t", resource_id="maya")
    visitor = open_studio(memory)
    assert "of the thread" in visitor.page("/working-memory", user="maya", thread="t")
    assert "open it from the page of a thread" in visitor.page("/working-memory", user="maya")
    off = open_studio(make_memory())
    assert "no working memory" in off.page("/working-memory", user="maya")


@pytest.fixture
def observed(make_memory: Make) -> Memory:
    options = ObservationOptions(model=Echo(), message_tokens=60, keep_tokens=15, background=False)
    memory = make_memory(observations=options)
    for text in ("I am allergic to nuts, so keep that in mind, please.", "Hut 12 is booked for July.", "Thank you!"):
        memory.save_turn(
            [("user", text), ("assistant", "All right, I will do that.")], thread_id="t", resource_id="maya"
        )
    memory.observations.observe("t")
    return memory


def test_observations_lead_to_their_sources(observed: Memory, open_studio: Open) -> None:
    visitor = open_studio(observed)
    page = visitor.page("/observations", user="maya", thread="t")
    log = observed.observations.get(thread_id="t")
    assert len(log) > 1
    assert all(one.id in page for one in log)
    sources = visitor.page("/observations", user="maya", thread="t", id=log.observations[0].id)
    assert "allergic to nuts" in sources.split('class="sources"')[1]
    assert "belong to each thread" in visitor.page("/observations", user="jonas")
    assert visitor.get("/observations", user="maya", thread="t", id="zzz").status_code == 404


def test_observations_are_deleted(observed: Memory, open_studio: Open) -> None:
    visitor = open_studio(observed, write=True)
    first = observed.observations.get(thread_id="t").observations[0]
    where = {"user": "maya", "thread": "t"}
    visitor.send("/observations", {"action": "delete", "id": first.id}, **where)
    assert first.id not in {one.id for one in observed.observations.get(thread_id="t")}
    visitor.send("/observations", {"action": "clear"}, **where)
    assert not observed.observations.get(thread_id="t")
    assert visitor.send("/observations", {"action": "dance"}, **where).status_code == 409


# ---------------------------------------------------------------------- upkeep


def test_items_of_a_store_are_shown_and_deleted(
    lived: Memory, make_store: Callable[..., RedisMemoryStore], open_studio: Open
) -> None:
    store = make_store()
    store.put(("memories", "maya"), "dog\n1", {"text": EVIL})
    store.put(("memories", "jonas"), "boat", {"text": "Kestrel"})
    visitor = open_studio(lived, write=True)
    assert "memories / jonas" in visitor.page("/store", user="maya")
    where = {"user": "maya", "namespace": json.dumps(["memories", "maya"])}
    page = visitor.page("/store", **where)
    assert "alert(" in page
    assert "<script>" not in page
    visitor.send("/store/delete", {}, **where, key="dog\n1")
    assert store.get(("memories", "maya"), "dog\n1") is None
    assert store.get(("memories", "jonas"), "boat") is not None
    assert visitor.get("/store", user="maya", namespace="[").status_code == 404


def test_an_export_is_imported_elsewhere(lived: Memory, make_memory: Make, open_studio: Open, prefix: str) -> None:
    answer = open_studio(lived).get("/export", user="maya")
    assert "attachment" in answer.headers["content-disposition"]
    other = make_memory(key_prefix=f"{prefix}x", working_memory=WorkingMemoryOptions())
    report = other.import_resource(json.loads(line) for line in answer.text.splitlines())
    assert (report.threads, report.resource_id) == (2, "maya")
    assert other.history.messages("trip") == lived.history.messages("trip")
    other.delete_resource("maya")


def test_an_export_that_fails_in_its_middle_is_recognised(
    lived: Memory, make_memory: Make, open_studio: Open, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> Plan[None]:
        yield from ()
        raise RedisReplyError("LOADING")

    monkeypatch.setattr("langchain_workingmem.users.store_items.export", failing)
    visitor: Any = open_studio(lived)
    visitor.client._transport.raise_server_exceptions = False
    lines = visitor.get("/export", user="maya").text.splitlines()
    if not lines:
        pytest.skip("the test client of older versions of Starlette shows nothing of a response that fails")
    assert len(lines) > 5
    other = make_memory(key_prefix=f"{prefix}x")
    with pytest.raises(OptionError, match="the end of the archive"):
        other.import_resource(map(json.loads, lines))


def test_nothing_is_deleted_without_the_id(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived, write=True)
    assert visitor.send("/thread/delete", {"confirm": "dog"}, **TRIP).status_code == 400
    assert visitor.send("/delete", {"confirm": "jonas"}, user="maya").status_code == 400
    assert lived.threads.get("trip") is not None
    assert visitor.send("/thread/delete", {"confirm": "trip"}, **TRIP).status_code == 200
    assert lived.threads.get("trip") is None
    assert "No key of Redis names the user" in visitor.send("/delete", {"confirm": "maya"}, user="maya").text
    assert lived.threads.get("dog") is None
    assert lived.threads.get("boat") is not None


def test_the_doctor_is_a_page(lived: Memory, open_studio: Open) -> None:
    page = open_studio(lived, reword=lambda text: f"REWORDED {text}").page("/doctor")
    assert "Doctor: " in page
    assert "vectors index" in page


# ---------------------------------------------------------------------- odd values


@pytest.mark.parametrize("name", [*sample(NAMES[::4], 5), "a|b,{c}*", "a\nb", "a/b?c=d&e#f", "..", "."])
def test_every_id_has_its_pages(make_memory: Make, open_studio: Open, name: str) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions())
    memory.save_turn([("user", "hello there")], thread_id=name, resource_id=name)
    visitor = open_studio(memory, write=True)
    links = re.findall(r'href="(/thread\?[^"]+)"', visitor.page("/", user=name))
    assert len(links) == 1
    page = visitor.client.get(links[0].replace("&amp;", "&"))
    assert page.status_code == 200
    assert "hello there" in page.text
    form = re.search(r'name="of" value="([^"]*)"', visitor.page("/context", user=name, thread=name))
    assert form
    found = visitor.client.get("/context", params={"of": form[1].replace("&amp;", "&"), "q": "what?"})
    assert "hello there" in found.text
    deletion = re.search(r"<code><bdi>(.*?)</bdi></code> to confirm", page.text, re.DOTALL)
    assert deletion
    typed = deletion[1].replace("&lt;", "<").replace("&gt;", ">").replace("&#34;", '"').replace("&#39;", "'")
    visitor.send("/thread/delete", {"confirm": typed.replace("&amp;", "&")}, user=name, thread=name)
    assert memory.threads.get(name) is None


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("/thread", {"user": "maya"}),
        ("/thread", {"user": "", "thread": "trip"}),
        ("/thread", {"user": "maya", "thread": ""}),
        ("/thread", {"user": "maya", "thread": "x" * 600}),
        ("/thread", {"user": "a\0b", "thread": "trip"}),
        ("/recall", {"q": "x"}),
        ("/nothing", {}),
        ("/static/../app.py", {}),
    ],
)
def test_an_address_without_a_page_says_so(
    lived: Memory, open_studio: Open, path: str, parameters: dict[str, str]
) -> None:
    answer = open_studio(lived).get(path, **parameters)
    assert answer.status_code in {400, 404}
    assert "Traceback" not in answer.text


def test_numbers_that_are_none_are_left_out(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived)
    for name in ("at", "below", "above", "limit"):
        for value in ("x", "-1", "9" * 40, "1.5", "٣"):
            visitor.page("/thread", **TRIP, **{name: value})
    visitor.page("/working-memory", user="maya", earlier="x", later="-1")
    visitor.page("/store", user="maya", namespace='["a"]', offset="²")


def test_calls_with_one_id_keep_their_order_and_wrong_ones_are_shown(make_memory: Make, open_studio: Open) -> None:
    memory = make_memory()
    calls: Any = [{"name": name, "args": {}, "id": "same"} for name in ("one", "two")]
    results = [ToolMessage(f"result {number}", tool_call_id="same") for number in (1, 2)]
    wrong: Any = [{"name": "broken", "args": "{", "id": "w", "error": "no JSON", "type": "invalid_tool_call"}]
    turn = [HumanMessage("go"), AIMessage("", tool_calls=calls), *results, AIMessage("", invalid_tool_calls=wrong)]
    memory.history.append(turn, thread_id="t", resource_id="maya")
    rows = memory._core.run(read_slice(memory._core.state, "t", "maya", limit=10)).rows
    found = [(call.name, call.result) for said in as_said(rows) for call in said.calls]
    assert found == [("one", "result 1"), ("two", "result 2"), ("broken", "no JSON")]
    assert "[nothing]" not in open_studio(memory).page("/thread", user="maya", thread="t")


def test_hidden_characters_cost_no_time(make_memory: Make, open_studio: Open) -> None:
    memory = make_memory()
    memory.save_turn([("user", "\u200b\x01" * 500_000)], thread_id="t", resource_id="maya")
    page = open_studio(memory).page("/thread", user="maya", thread="t")
    assert len(page) < 500_000  # what is cut is not made visible before
    assert "more]" in page


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"content-type": "multipart/form-data; boundary=x"}, b"--x--", 415),
        ({"content-type": "application/json"}, b"{}", 415),
        ({"content-type": "application/x-www-form-urlencoded"}, b"%ff=%ed%a0%80&action=edit&text=%00", 409),
    ],
)
def test_a_form_of_another_kind_is_refused(
    lived: Memory, open_studio: Open, headers: dict[str, str], body: bytes, status: int
) -> None:
    client = open_studio(lived, write=True).client
    answer = client.post("/working-memory?user=maya", content=body, headers={**headers, "origin": ROOT})
    assert answer.status_code == status
    assert "Silk" in lived.working_memory.get(resource_id="maya").text


def test_metadata_of_any_depth_is_a_filter(lived: Memory, open_studio: Open) -> None:
    assert open_studio(lived).get("/", user="maya", metadata=f"a={'[' * 20_000}").status_code in {200, 400}


def test_a_server_that_is_away_is_one_page(make_memory: Make, open_studio: Open, impatient: None) -> None:
    visitor = open_studio(make_memory(f"redis://127.0.0.1:{free_port()}"))
    for path in ("/", "/thread", "/working-memory", "/observations", "/store", "/data"):
        answer = visitor.get(path, user="maya", thread="t")
        assert answer.status_code == 503, path
        assert "check that it runs" in answer.text


def test_a_label_that_no_namespace_can_have_is_no_error(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived, resource_id="a.b", namespaces=[("memories", "{user_id}")])
    assert "No item is here" in visitor.page("/store")


# ---------------------------------------------------------------------- time zones


def test_times_are_those_of_the_user_or_of_the_browser(make_memory: Make, open_studio: Open) -> None:
    zones = {"maya": "Pacific/Kiritimati"}
    memory = make_memory(timezone=lambda ids: zones[ids.resource_id])
    said = {"stored_at": "2026-11-01T09:30:00Z", "message": message_to_dict(HumanMessage("Hello", id="m"))}
    memory.users.load([header("maya"), {"kind": "thread", "id": "t"}, {"kind": "message", "thread_id": "t", **said}])
    visitor, where = open_studio(memory), {"user": "maya", "thread": "t"}
    own = visitor.text("/thread", **where)
    assert '<time datetime="2026-11-01T09:30:00+00:00">2026-11-01 23:30</time>' in own
    assert "Times are <b>Pacific/Kiritimati</b>." in own
    assert "Times are <b>UTC</b>." in visitor.text("/")  # of all users
    # the form asks for the same page in a zone, and the browser keeps it
    here = re.findall(r'name="of" value="([^"]*)"><label>Time zone', own)
    chosen = visitor.text("/thread", of=here[0], zone="America/Los_Angeles")
    assert ">2026-11-01 01:30</time>" in chosen
    assert ">2026-11-01 01:30</time>" in visitor.text("/thread", **where)
    for page in (visitor.text("/thread", **where), visitor.text("/")):
        assert "Times are <b>America/Los_Angeles</b>." in page
        assert 'name="zone" value="America/Los_Angeles"' in page
    assert "2026-11-01 23:30" in visitor.text("/thread", of=here[0], zone="")  # back to that of the user
    assert "2026-11-01 23:30" in visitor.text("/thread", **where)
    refused = visitor.get("/thread", **where, zone="Mars")
    assert (refused.status_code, "Mars" in refused.text, "set-cookie" in refused.headers) == (400, True, False)


def test_a_zone_that_no_one_knows_hides_no_page(make_memory: Make, open_studio: Open) -> None:
    visitor = open_studio(make_memory(timezone=lambda _: "Mars"))
    visitor.client.cookies.set("workingmem-zone", "Venus")
    assert "Times are <b>UTC</b>." in visitor.text("/", user="maya")
