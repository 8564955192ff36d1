"""What the pages of the studio show."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, message_to_dict

from langchain_workingmem import Memory, ObservationOptions, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.importers import header
from langchain_workingmem.models import DeletionReport
from langchain_workingmem.studio import conversations
from langchain_workingmem.studio.app import MOST_BYTES
from tests.helpers.embedded import free_port
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.examples import sample
from tests.helpers.odd_ids import NAMES
from tests.helpers.types import Make
from tests.keeping.keepers import Setting, kept_by
from tests.observations.observers import Observer
from tests.studio.conftest import EVIL, ROOT, Open

TRIP = {"user": "maya", "thread": "trip"}
IDS: Any = {"user_id": "maya", "thread_id": "trip"}
PAGES = [
    ("/", {}),
    ("/users", {}),
    *[(path, {"user": "maya"}) for path in ("/", "/threads", "/working-memory", "/log", "/data")],
    *[(path, TRIP) for path in ("/thread", "/log")],
    *[("/find", {**of, "q": "hut"}) for of in (TRIP, {"user": "maya"})],
    *[("/recall", {**of, "q": "weather in Bern"}) for of in (TRIP, {"user": "maya"})],
    ("/context", {**TRIP, "q": "Is the hut booked?"}),
    ("/context", {**TRIP, "turn": "0"}),
]


def shown(page: str) -> list[str]:
    """Return the texts of the messages of a page."""
    texts = re.findall(r'<div class="text[^"]*" dir="auto">(.*?)</div>', page, re.DOTALL)
    return [re.sub("<[^>]+>", "", text) for text in texts]


def test_no_page_changes_anything(lived: Memory, open_studio: Open, raw: Any, prefix: str) -> None:
    visitor = open_studio(lived, write=True)
    lived.recall.search("warm", user_id="maya")

    def stored() -> dict[bytes, Any]:
        keys = raw.scan_iter(f"{prefix}*")  # reading may change the order of a hash, and so its dump
        return {key: raw.hgetall(key) if raw.type(key) == b"hash" else raw.dump(key) for key in keys}

    before = stored()
    for path, parameters in PAGES:
        visitor.page(path, **parameters)
        assert stored() == before, (path, parameters)


def test_what_was_stored_never_becomes_markup(lived: Memory, open_studio: Open) -> None:
    lived.threads.update("trip", title=EVIL, metadata={EVIL[:20]: EVIL})
    lived.threads.create(user_id=EVIL, thread_id="evil")
    lived.save_turn([HumanMessage(EVIL, name="<b>maya")], **IDS)
    lived.working_memory.update(f"# About\n{EVIL}", user_id="maya")
    visitor, harmful = open_studio(lived), r"<script|<b>maya|\x1b|\u202e|\son\w+=|\sstyle=|<style|javascript:"
    for path, parameters in [*PAGES, ("/find", {**TRIP, "q": "alert quoted"}), ("/recall", {**TRIP, "q": "alert"})]:
        assert not re.search(harmful, visitor.page(path, **parameters)), (path, parameters)


# ---------------------------------------------------------------------- users and threads


def test_threads_are_filtered(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived)
    for filters, found in (
        ({"q": "TRIP a"}, ["trip"]),
        ({"q": "zebra"}, []),
        ({"metadata": "topic=travel"}, ["trip"]),
        ({"metadata": "stars=6"}, []),
        ({"metadata": f"a={'[' * 20_000}"}, []),
    ):
        page = visitor.page("/threads", user="maya", **filters)
        assert re.findall(r'thread=(\w+)"><bdi>', page) == found, filters
    answer = visitor.get("/threads", user="maya", metadata="topic")
    assert answer.status_code == 400
    assert "write key=value" in answer.text


def pages(visitor: Any, path: str, rel: str = "next") -> list[str]:
    """Follow the links to further pages."""
    found: list[str] = []
    while path:
        found.append(visitor.client.get(path).text)
        link = re.search(rf'href="([^"]+)" rel="{rel}"', found[-1])
        path = unescape(link[1]) if link else ""
    return found


def test_threads_and_users_come_in_pages(make_memory: Make, open_studio: Open) -> None:
    memory = make_memory()
    for number in range(7):
        memory.save_turn([("user", "hello")], thread_id=f"t{number}", user_id=f"u{number % 3}")
    visitor = open_studio(memory)
    listed = [re.findall(r"thread=(t\d)", page) for page in pages(visitor, "/threads?limit=3")]
    assert listed == [["t6", "t5", "t4"], ["t3", "t2", "t1"], ["t0"]]
    listed = [re.findall(r'<li><a href="/\?user=(\w+)', page) for page in pages(visitor, "/users?limit=2")]
    assert listed == [["u0", "u2"], ["u1"]]
    assert "3 threads · 3 messages" in visitor.page("/users")


def test_pages_of_a_long_conversation_hold_each_message_once(make_memory: Make, open_studio: Open) -> None:
    memory = make_memory()
    for number in range(12):
        turn = [("user", f"question {number}"), ("assistant", f"answer {number}")]
        memory.save_turn(turn, thread_id="t", user_id="maya")
    parts = [shown(page) for page in pages(open_studio(memory), "/thread?user=maya&thread=t&limit=5", "prev")]
    seen = [text for part in reversed(parts) for text in part]
    assert seen == [f"{what} {number}" for number in range(12) for what in ("question", "answer")]


def test_a_conversation_shows_calls_and_results_of_the_current_branch(lived: Memory, open_studio: Open) -> None:
    page = open_studio(lived).text("/thread", **TRIP)
    assert "It rains." in page
    assert "It is mild." not in page
    call: Any = {"name": "weather", "args": {"city": "Oslo"}, "id": "c9"}
    lived.save_turn([("user", "And Oslo?"), AIMessage("", tool_calls=[call])], **IDS)
    assert re.search(r"weather.*Oslo", open_studio(lived).text("/thread", **TRIP))


@pytest.mark.parametrize(("of", "threads"), [(TRIP, []), ({"user": "maya"}, ["oslo", "trip"])])
def test_words_are_found_with_links_to_their_places(
    lived: Memory, open_studio: Open, of: dict[str, str], threads: list[str]
) -> None:
    lived.save_turn([("user", "A hut near Oslo, booked"), ("assistant", "Yes")], thread_id="oslo", user_id="maya")
    visitor = open_studio(lived)
    page = visitor.page("/find", **of, q="BOOK hut")
    assert "<mark>hut</mark> 12 <mark>book</mark>ed" in page
    assert re.findall(r'<h2><a href="/thread\?user=maya&amp;thread=(\w+)"', page) == threads
    links = re.findall(r'href="(/thread\?[^"]+#m-\d+)"', page)
    assert len(links) == max(1, len(threads))
    for link in links:
        assert f'id="{link.rpartition("#")[2]}"' in visitor.client.get(unescape(link)).text
    for word in ("kestrel", "zebra"):  # of another user, of nobody
        assert "No message has all these words" in visitor.page("/find", **of, q=word)
    many: Any = " ".join(["hut", *["12"] * 19, "kestrel"])
    assert "<mark>hut</mark>" in visitor.page("/find", **TRIP, q=many)  # a search has a number of words


def test_a_search_goes_on_in_older_threads_and_messages_and_loses_nothing(
    make_memory: Make, open_studio: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = make_memory()
    for number in range(5):
        memory.save_turn([("user", f"red {number}"), ("assistant", "blue")], thread_id=f"t{number}", user_id="maya")
        memory.save_turn([("user", f"old {number}"), ("assistant", "blue")], thread_id="deep", user_id="maya")
    for name, part in (("THREADS", 2), ("COMPARED_EACH", 3), ("ROWS", 1), ("COMPARED", 2)):
        monkeypatch.setattr(conversations, name, part)
    visitor = open_studio(memory)
    found = pages(visitor, "/find?user=maya&q=red")
    assert re.findall(r"</mark> (\d)", "".join(found)) == list("43210")
    assert len(found) == 3
    first = visitor.page("/find", user="maya", q="old")
    (older,) = re.findall(r'href="(/find\?[^"]*thread=deep[^"]*below=\d+)"', first)
    found = [first, *pages(visitor, unescape(older))]
    assert re.findall(r"</mark> (\d)", "".join(found)) == list("43210")


@pytest.mark.parametrize("path", ["/", "/users", "/threads", "/recall", "/find", "/data", "/log"])
def test_on_an_empty_database_a_page_says_what_to_do(
    server: EmbeddedRedis, prefix: str, raw: Any, open_studio: Open, path: str
) -> None:
    memory = Memory(server.url, key_prefix=prefix, create_index=False, embeddings=WordEmbeddings())
    visitor = open_studio(memory)  # entering a `with` block would set it up
    before = {*raw.scan_iter(f"{prefix}*")}
    page = visitor.page(path, **({} if path in {"/", "/users", "/threads"} else {"user": "maya", "q": "dog"}))
    assert ("Nothing was observed" if path == "/log" else "othing is stored") in page
    if path in {"/", "/users", "/threads", "/recall"}:
        assert "workingmem chat" in page
        assert f"{prefix}:" in page
    assert {*raw.scan_iter(f"{prefix}*")} == before
    memory.close()


# ---------------------------------------------------------------------- what a model sees


def test_the_context_of_a_stored_question_ends_in_front_of_it(lived: Memory, open_studio: Open) -> None:
    lived.save_turn([("user", "Is hut 12 booked for June?")], thread_id="later", user_id="maya")
    visitor = open_studio(lived)
    (*_, link) = re.findall(r'href="(/context\?[^"]+turn=\d+)"', visitor.page("/thread", **TRIP))
    page = visitor.client.get(unescape(link)).text
    assert "June" not in page
    assert "Is hut 12 booked?" in shown(page)[-1]
    assert "Yes, for July." not in page
    assert visitor.get("/context", **TRIP, turn="99").status_code == 404
    assert visitor.get("/context", **TRIP, turn="4096").status_code == 404  # no question


def test_recall_of_a_turn_finds_what_its_context_holds(lived: Memory, open_studio: Open) -> None:
    for number in range(15):
        turn = [("user", f"hut {number} near the lake of Bern"), ("assistant", f"weather is fine at hut {number}")]
        lived.save_turn(turn, thread_id=f"hut {number % 4}", user_id="maya")
    lived.context("which hut is near the lake?", thread_id="hut", user_id="maya")
    lived.settled()  # the floor of the model is learned in the background
    for question in ("weather in Bern", "which hut is near the lake?"):
        found = lived.context(question, thread_id="trip", user_id="maya").recalled
        page = open_studio(lived).text("/recall", **TRIP, q=question)
        assert shown(page) == [str(hit.message.text) for hit in found]
    silent = open_studio(lived).page("/recall", **TRIP, q="zebra")
    assert "only what is near enough" in silent
    assert "Search without the rules of a turn" in silent


def test_without_recall_the_page_says_what_helps(plain: Memory, open_studio: Open) -> None:
    plain.save_turn([("user", "hello")], thread_id="t", user_id="maya")
    visitor = open_studio(plain)
    assert "--embeddings" in visitor.page("/recall", user="maya")
    assert visitor.get("/recall", user="maya", q="x").status_code == 400


def test_what_memory_has_put_in_stands_apart_from_the_words_of_the_user(lived: Memory, open_studio: Open) -> None:
    lived.save_turn([("user", "The weather in Bern is mild"), ("assistant", "Fine.")], thread_id="old", user_id="maya")
    page = open_studio(lived).text("/context", user="maya", thread="dog", q="Is the weather in Bern mild?")
    block = r'<li class="memory">\s*<p class="head"><b>\w+</b> <bdi>(.*?)</bdi>.*?dir="auto">(.*?)</div>'
    blocks = dict(re.findall(block, page, re.DOTALL))
    assert [name.partition(": ")[2] for name in blocks] == ["recalled from other conversations", "working memory"]
    recalled, known = blocks.values()
    assert "The weather in Bern is mild" in recalled
    assert "dog: Silk" in known
    assert shown(page)[-1] == "Is the weather in Bern mild?"
    context = lived.context("Is the weather in Bern mild?", thread_id="dog", user_id="maya")
    assert context.messages[-2].text == "I see."
    assert "I see." in shown(page)


# ---------------------------------------------------------------------- the log, and sources


@pytest.fixture
def observed(make_memory: Make) -> Memory:
    """A memory with a log and values of a keeper."""
    limits: Any = {"message_tokens": 200, "keep_tokens": 50, "batch_tokens": 200, "background": False}
    memory = make_memory(observations=ObservationOptions(model=Observer(size=2), **limits), **kept_by(Setting()))
    for number in range(8):
        question = HumanMessage(f"city is Oslo{number} {'and so on ' * 20}", id=f"q{number}")
        memory.save_turn([question, AIMessage("Noted.", id=f"a{number}")], thread_id="t", user_id="maya")
    memory.observations.observe("t", user_id="maya")
    memory.working_memory.keep("t", user_id="maya")
    return memory


@pytest.mark.parametrize("thread", [None, "t"])
def test_the_log_shows_its_lines_with_links_to_their_messages(
    observed: Memory, open_studio: Open, thread: str | None
) -> None:
    visitor, of = open_studio(observed), {"user": "maya"} | ({"thread": thread} if thread else {})
    page = visitor.text("/log", **of)
    lines = observed.observations.get(thread_id="t", user_id="maya").observations
    assert lines
    assert all(line.text in page for line in lines)
    links = re.findall(r'href="(/thread\?user=maya&thread=t&message=\w+)"', page)
    assert len(links) >= len(lines)
    there = visitor.client.get(links[0])
    assert there.status_code == 200
    assert f'id="{there.url.fragment}"' in there.text
    assert visitor.get("/thread", user="maya", thread="t", message="nope").status_code == 404


def test_a_line_of_the_log_is_deleted_and_the_log_emptied(observed: Memory, open_studio: Open) -> None:
    def lines() -> list[str]:
        return [one.id for one in observed.observations.get(thread_id="t", user_id="maya")]

    visitor, before, of = open_studio(observed, write=True), lines(), {"user": "maya", "thread": "t"}
    assert "Deleted." in visitor.send("/log", {"action": "delete", "line": before[0]}, **of).text
    assert lines() == before[1:]
    for line in ("other:1", "t:99999", "", "x"):
        assert visitor.send("/log", {"action": "delete", "line": line}, **of).status_code == 404
    assert visitor.send("/log", {"action": "dance"}, **of).status_code == 400
    assert "Cleared." in visitor.send("/log", {"action": "clear"}, **of).text
    assert lines() == []
    assert observed.threads.get("t").message_count == 16  # type: ignore[union-attr]


def test_values_of_a_keeper_are_shown_with_their_sources(observed: Memory, open_studio: Open) -> None:
    visitor = open_studio(observed)
    values = visitor.text("/working-memory", user="maya").split("Where the values come from")[1]
    assert "Oslo7" in values
    (link,) = re.findall(r'href="(/thread\?user=maya&thread=t&message=q7)"', values)
    assert "city is Oslo7" in visitor.client.get(link).text


# ---------------------------------------------------------------------- working memory


def test_working_memory_is_shown_with_the_text_of_a_revision(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived)
    assert "dog: Nougat" not in visitor.page("/working-memory", user="maya")
    page = visitor.page("/working-memory", user="maya", revision="1")
    assert "dog: Nougat" in page.split("Revision 1")[1].split("Revisions")[0]
    assert "- dog: Silk" in page.split("As it is stored")[1]


def test_working_memory_is_edited_cleared_and_reverted(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived, write=True)

    def send(**form: str) -> Any:
        return visitor.send("/working-memory", form, user="maya")

    done = send(action="edit", revision="2", text="# A\r\n- dog: Rex")
    assert "Stored." in done.text  # after a redirect
    assert lived.working_memory.get(user_id="maya").text == "# A\n- dog: Rex"
    late = send(action="edit", revision="2", text="mine")  # refused, and kept in the field
    assert (late.status_code, ">\nmine</textarea>" in late.text) == (409, True)
    assert lived.working_memory.get(user_id="maya").revision == 3
    send(action="clear")
    assert lived.working_memory.get(user_id="maya").is_empty
    send(action="revert", revision="1")
    assert "Nougat" in lived.working_memory.get(user_id="maya").text
    assert [send(action="revert", revision="99").status_code, send(action="dance").status_code] == [404, 400]


@pytest.mark.parametrize(("program", "refused"), [(True, '{"age": "old"}'), (False, "text")])
def test_a_schema_decides_what_an_edit_may_store(
    make_memory: Make, open_studio: Open, program: bool, refused: str
) -> None:
    """Without the program, the studio knows only that it is an object."""
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "additionalProperties": False}
    memory = make_memory(working_memory=WorkingMemoryOptions(schema=schema))
    memory.working_memory.update({"age": 5}, user_id="maya")
    shown = memory if program else make_memory(working_memory=WorkingMemoryOptions(template=""))
    visitor, edit = open_studio(shown, write=True, is_program=program), {"action": "edit", "revision": "1"}
    answer = visitor.send("/working-memory", {**edit, "text": refused}, user="maya")
    assert answer.status_code == 422
    assert refused in unescape(answer.text)
    visitor.send("/working-memory", {**edit, "text": '{"age": 6}'}, user="maya")
    assert memory.working_memory.get(user_id="maya").value == {"age": 6}


def test_working_memory_of_a_thread_and_of_none(make_memory: Make, open_studio: Open) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(scope="thread"))
    memory.save_turn([("user", "hello")], thread_id="t", user_id="maya")
    memory.working_memory.update("- of the thread", thread_id="t", user_id="maya")
    visitor = open_studio(memory)
    assert "of the thread" in visitor.page("/working-memory", user="maya", thread="t")
    assert "open it from the page of a thread" in visitor.page("/working-memory", user="maya")
    assert "no working memory" in open_studio(make_memory()).page("/working-memory", user="maya")


def test_nothing_is_deleted_without_the_id(lived: Memory, open_studio: Open, raw: Any, prefix: str) -> None:
    visitor = open_studio(lived, write=True)
    assert visitor.send("/thread/delete", {"confirm": "dog"}, **TRIP).status_code == 400
    assert visitor.send("/data", {"confirm": "jonas"}, user="maya").status_code == 400
    assert lived.threads.get("trip") is not None
    assert "Deleted." in visitor.send("/thread/delete", {"confirm": "trip"}, **TRIP).text
    assert lived.threads.get("trip") is None
    page = visitor.send("/data", {"confirm": "maya"}, user="maya").text
    assert "No key of Redis names the user any more" in page
    assert "<dt>threads</dt><dd><bdi>1</bdi>" in page
    assert [key for key in raw.scan_iter(f"{prefix}:*") if b"maya" in key] == []
    assert lived.threads.get("boat") is not None


def test_a_deletion_that_leaves_something_says_so(
    lived: Memory, open_studio: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deleted(*_: Any, **__: Any) -> DeletionReport:
        return DeletionReport(user_id="maya", verified=False)

    monkeypatch.setattr(type(lived.users), "delete", deleted)
    page = open_studio(lived, write=True).send("/data", {"confirm": "maya"}, user="maya").text
    assert "Not everything is deleted: other programs wrote at the same time" in page


@pytest.mark.parametrize("name", [*sample(NAMES[::4], 5), "a|b,{c}*", "a\nb", "a/b?c=d&e#f", "..", "."])
def test_every_id_has_its_pages(make_memory: Make, open_studio: Open, name: str) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions())
    memory.save_turn([("user", "hello there")], thread_id=name, user_id=name)
    visitor = open_studio(memory, write=True)
    (link,) = re.findall(r'href="(/thread\?[^"]+)"', visitor.page("/threads", user=name))
    page = visitor.client.get(unescape(link))
    assert page.status_code == 200
    assert "hello there" in page.text
    form = re.search(r'name="of" value="([^"]*)"', visitor.page("/context", user=name, thread=name))
    assert form
    found = visitor.client.get("/context", params={"of": unescape(form[1]), "q": "what?"})
    assert "hello there" in found.text
    deletion = re.search(r"<code><bdi>(.*?)</bdi></code> to confirm", page.text, re.DOTALL)
    assert deletion
    visitor.send("/thread/delete", {"confirm": unescape(deletion[1])}, user=name, thread=name)
    assert memory.threads.get(name) is None


def test_an_address_without_a_page_says_so(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived)
    threads = [{}, {"user": "", "thread": "trip"}, {"thread": "x" * 600}, {"user": "a\0b", "thread": "trip"}]
    addresses = [("/thread", {"user": "maya"} | of) for of in threads]
    for path, of in [*addresses, ("/recall", {"q": "x"}), ("/nothing", {}), ("/static/../app.py", {})]:
        answer = visitor.get(path, **of)
        assert answer.status_code in {400, 404}, (path, of)
        assert "Traceback" not in answer.text
    for number in ("x", "-1", "9" * 40, "1.5", "٣"):  # what is no number is left out
        visitor.page("/thread", **TRIP, below=number, limit=number)


def test_a_form_of_another_kind_or_size_is_refused(lived: Memory, open_studio: Open) -> None:
    client = open_studio(lived, write=True).client
    form = "application/x-www-form-urlencoded"
    for kind, body, status, says in (
        ("multipart/form-data; boundary=x", b"--x--", 415, ""),
        ("application/json", b"{}", 415, ""),
        (form, b"%ff=%ed%a0%80&action=edit&text=%00", 409, ""),
        (form, b"text=" + b"x" * MOST_BYTES, 413, "1,048,576 bytes"),
        (form, b"a=1&" * 11, 413, "10 fields"),
    ):
        answer = client.post("/working-memory?user=maya", content=body, headers={"content-type": kind, "origin": ROOT})
        assert answer.status_code == status
        assert says in answer.text
    assert "Silk" in lived.working_memory.get(user_id="maya").text


def test_a_server_that_is_away_is_one_page(make_memory: Make, open_studio: Open, impatient: None) -> None:
    visitor = open_studio(make_memory(f"redis://127.0.0.1:{free_port()}"))
    for path in ("/", "/thread", "/working-memory", "/data"):
        answer = visitor.get(path, user="maya", thread="t")
        assert answer.status_code == 503, path
        assert "check that it runs" in answer.text


def test_times_are_those_of_the_user(make_memory: Make, open_studio: Open) -> None:
    zones = {"maya": "Pacific/Kiritimati", "jonas": "Mars"}
    memory = make_memory(timezone=lambda ids: zones[ids.user_id])
    said = {"stored_at": "2026-11-01T09:30:00Z", "message": message_to_dict(HumanMessage("Hello", id="m"))}
    memory.users.load([header("maya"), {"kind": "thread", "id": "t"}, {"kind": "message", "thread_id": "t", **said}])
    own = open_studio(memory).text("/thread", user="maya", thread="t")
    assert '<time datetime="2026-11-01T09:30:00+00:00">2026-11-01 23:30</time>' in own
    assert "Times are <b>Pacific/Kiritimati</b>." in own
    assert "Times are <b>UTC</b>." in open_studio(memory).text("/")  # of all users
    assert "Times are <b>UTC</b>." in open_studio(memory).text("/", user="jonas")  # whose zone nobody knows
