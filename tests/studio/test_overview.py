"""The pages of the studio that show more than one thread: users, a timeline, the logs of threads."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from langchain_workingmem import Memory, ObservationOptions, WorkingMemoryOptions
from langchain_workingmem.options import Scope
from tests.helpers.observers import Echo
from tests.helpers.types import Make
from tests.keeping.shown_samples import keep, options, say
from tests.studio.conftest import EVIL, Open, Visitor


def test_users_come_in_pages_with_what_they_have(lived: Memory, open_studio: Open) -> None:
    lived.threads.create(resource_id=EVIL, thread_id="evil")
    visitor = open_studio(lived)
    page = visitor.text("/users")
    assert page.index("jonas") < page.index("maya")
    messages = sum(one.message_count for one in lived.threads.list(resource_id="maya"))
    assert f'maya</bdi></a>\n<span class="facts">2 threads · {messages} messages · ' in page
    assert "1 thread · 0 messages" in page
    assert EVIL not in visitor.page("/users")
    seen, path = list[str](), "/users?limit=1"
    while path:
        page = visitor.client.get(path).text
        seen += re.findall(r'data-item><a href="/\?user=(\w+)', page)
        following = re.search(r'href="(/users\?[^"]+)" rel="next"', page)
        path = unescape(following[1]) if following else ""
    assert seen == ["jonas", "maya"]
    assert 'href="/users"' in visitor.page("/")


def test_a_studio_of_one_user_lists_no_others(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived, resource_id="maya")
    assert visitor.get("/users").status_code == 404
    assert "/users" not in visitor.page("/")
    assert visitor.get("/timeline", user="jonas").status_code == 404
    assert visitor.get("/deletion").status_code == 404


def test_nobody_is_a_page_too(make_memory: Make, open_studio: Open) -> None:
    visitor = open_studio(make_memory())
    assert "Nobody has a thread here" in visitor.page("/users")
    assert "Nothing is known here" in visitor.page("/timeline", user="maya")


# ---------------------------------------------------------------------- a timeline


def events(page: str) -> list[str]:
    return [unescape(text) for text in re.findall(r'class="k-.*?</span> <a href="[^"]*"><bdi>(.*?)</bdi>', page)]


def all_events(visitor: Visitor, limit: int, user: str = "maya") -> list[str]:
    found, path = list[str](), f"/timeline?user={user}&limit={limit}"
    while path:
        page = visitor.client.get(path).text
        here = events(page)
        following = re.search(r'href="(/timeline\?[^"]+)" rel="next"', page)
        assert len(here) == limit or not following
        assert len(found) < 100
        found, path = found + here, unescape(following[1]) if following else ""
    return found


@pytest.mark.parametrize("scope", ["thread", "resource"])
def test_a_timeline_holds_everything_once_in_order_of_time(make_memory: Make, open_studio: Open, scope: Scope) -> None:
    observed = ObservationOptions(model=Echo(), message_tokens=10, keep_tokens=0, background=False, scope=scope)
    memory = make_memory(observations=observed, working_memory=WorkingMemoryOptions())
    ids: Any = {"thread_id": "trip", "resource_id": "maya"}
    memory.threads.create(**ids, title="A trip")
    for text in ("My boat is green", "It is called Kestrel", "Thank you"):
        memory.save_turn([("user", text), ("assistant", f"Noted: {text}.")], **ids)
    memory.observations.observe(**ids)
    memory.working_memory.update("# About\n- boat: Kestrel", resource_id="maya")
    memory.files.write("/.plan/a.md", EVIL, resource_id="maya", by="agent")
    memory.files.write("/.plan/a.md", "b", resource_id="maya")
    memory.threads.create(resource_id="maya", thread_id="empty")
    memory.save_turn([("user", "I am somebody else")], thread_id="other", resource_id="jonas")
    visitor = open_studio(memory)
    every = events(visitor.page("/timeline", user="maya"))
    assert every[:4] == ["empty", "/.plan/a.md", "/.plan/a.md", "revision 1"]
    assert every[4] == every[-1] == "A trip"  # changed, and began
    lines = [one.text for one in memory.observations.get(**ids)]
    assert lines
    assert every[5:-1] == lines[::-1]
    for limit in (1, 3, 100):
        assert all_events(visitor, limit) == every
    chosen = {
        kind: events(visitor.page("/timeline", user="maya", kind=kind)) for kind in ("threads", "files", "nonsense")
    }
    assert chosen == {"threads": ["empty", "A trip", "A trip"], "files": ["/.plan/a.md"] * 2, "nonsense": every}


def test_values_of_one_time_come_once_each_over_pages(make_memory: Make, open_studio: Open) -> None:
    memory = make_memory(working_memory=options())
    say(memory, (1, "I live in Bern, and nuts are a danger"), (2, "I moved to Lisbon"))
    for path, value, message in (("/city", "Bern", 1), ("/allergies/nuts", "nuts", 1), ("/city", "Lisbon", 2)):
        keep(memory, path, value, message)
    keep(memory, "/allergies/nuts", None, 2)
    visitor = open_studio(memory)
    every = events(visitor.page("/timeline", user="ann", kind="values"))
    assert every == ["/allergies/nuts: nothing", "/city: Lisbon", "/allergies/nuts: nuts", "/city: Bern"]
    for limit in (1, 2, 3):
        assert [one for one in all_events(visitor, limit, "ann") if one in every] == every


def test_a_timeline_says_where_more_is_shown(lived: Memory, open_studio: Open) -> None:
    page = open_studio(lived).text("/timeline", user="maya")
    assert 'href="/thread?user=maya&thread=trip"' in page
    assert 'href="/working-memory?user=maya&later=2"' in page


# ---------------------------------------------------------------------- logs of threads


def test_the_page_of_observations_lists_the_threads_that_have_logs(make_memory: Make, open_studio: Open) -> None:
    observed = ObservationOptions(model=Echo(), message_tokens=10, keep_tokens=0, background=False)
    memory, plain = make_memory(observations=observed), make_memory()
    for thread in ("a", "b", "c"):
        for text in ("My boat is green", "Thank you"):
            memory.save_turn([("user", text), ("assistant", f"Noted: {text}.")], thread_id=thread, resource_id="maya")
    for thread in ("a", "c"):
        memory.observations.observe(thread)
    for made in (memory, plain):
        page = open_studio(made).page("/observations", user="maya")
        assert re.findall(r'data-item><a href="/observations\?user=maya&amp;thread=(\w)', page) == ["c", "a"]
    assert "No thread has a log yet" in open_studio(memory).page("/observations", user="jonas")
    assert "Logs of threads" not in open_studio(plain).page("/observations", user="jonas")
