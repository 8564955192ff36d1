"""A deletion goes on behind its page, and both tell how it ended; questions stand before what cannot be taken back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import pytest

from langchain_workingmem import Memory, RedisConnectionError
from langchain_workingmem.reports import DeletionReport
from langchain_workingmem.studio import deleting
from tests.studio.conftest import Open


def test_a_short_deletion_shows_its_outcome_at_once(lived: Memory, open_studio: Open, raw: Any, prefix: str) -> None:
    lived.files.write("/a.md", "text", resource_id="maya")
    visitor = open_studio(lived, write=True)
    answer = visitor.send("/delete", {"confirm": "maya"}, user="maya")
    assert (answer.url.path, answer.status_code) == ("/deletion", 200)
    assert '<h1><span role="status">Deleted</span></h1>' in answer.text
    assert "No key of Redis names the user any more" in answer.text
    assert "refresh" not in answer.text
    assert (
        dict(re.findall(r"<dt>(\w+)</dt><dd><bdi>(\d+)", answer.text)).items() >= {"threads": "2", "files": "1"}.items()
    )
    assert [key for key in raw.scan_iter(f"{prefix}:*") if b"maya" in key] == []
    assert lived.threads.get("boat") is not None


def test_the_page_follows_a_long_deletion_to_its_end(
    lived: Memory, open_studio: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[Any]()
    gates: dict[str, asyncio.Event] = {}
    began = 0

    async def slow(this: deleting.Deletion, *_: Any) -> None:
        nonlocal began
        began += 1
        this.keys = 5000
        told.append(this)
        for name in ("deleted", "looked", "done"):
            gates[name] = asyncio.Event()
        await gates["deleted"].wait()
        this.tell({"threads": 3}, 0)
        await gates["looked"].wait()
        this.tell({"threads": 3}, 2000)
        await gates["done"].wait()
        this.report = DeletionReport(resource_id="maya", verified=True, threads=3)

    monkeypatch.setattr(deleting, "PATIENCE", 0.01)
    monkeypatch.setattr(deleting.Deletion, "run", slow)
    visitor = open_studio(lived, write=True)

    def step(name: str) -> str:
        assert visitor.client.portal
        visitor.client.portal.call(gates[name].set)
        visitor.client.portal.call(asyncio.sleep, 0)
        return visitor.page("/deletion", user="maya")

    page = visitor.send("/delete", {"confirm": "maya"}, user="maya").text
    assert "Deleting</span></h1>" in page
    assert '<noscript><meta http-equiv="refresh" content="2"></noscript>' in page
    visitor.send("/delete", {"confirm": "maya"}, user="maya")
    assert began == 1
    assert "Deleted; looking at all keys</span></h1>" in step("deleted")
    page = step("looked")
    assert '<progress max="5000" value="2000"' in page
    assert "about 2,000 of 5,000 keys" in page
    page = step("done")
    assert "Deleted</span></h1>" in page
    assert "refresh" not in page
    visitor.send("/delete", {"confirm": "maya"}, user="maya")
    assert began == 2  # the next form begins another one
    for name in ("deleted", "looked", "done"):  # the studio waits for it
        step(name)


@pytest.mark.parametrize(
    ("outcome", "shown"),
    [
        (RedisConnectionError("Redis is away", remedy="start it"), "Redis is away"),
        (DeletionReport(resource_id="maya", verified=False), "Other programs wrote at the same time"),
        (ZeroDivisionError(), "ended with an error"),
    ],
)
def test_a_deletion_that_is_not_finished_says_so(
    lived: Memory, open_studio: Open, monkeypatch: pytest.MonkeyPatch, outcome: Any, shown: str
) -> None:
    def planned(*_: Any, told: Any, **__: Any) -> Any:
        told({"threads": 1}, None)
        if isinstance(outcome, Exception):
            outcome.add_note("the deletion is not finished")
            raise outcome
        return outcome
        yield

    monkeypatch.setattr("langchain_workingmem.users.deletion", planned)
    visitor = open_studio(lived, write=True)
    page = visitor.send("/delete", {"confirm": "maya"}, user="maya").text
    assert "Not everything is deleted</span></h1>" in page
    assert shown in page
    assert ("the deletion is not finished" in page) == isinstance(outcome, RedisConnectionError)
    assert "Delete again" in page


def test_outcomes_are_forgotten_in_time(lived: Memory, open_studio: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleting, "KEPT", 2)
    visitor = open_studio(lived, write=True)
    for name in ("jonas", "x", "y"):
        visitor.send("/delete", {"confirm": name}, user=name)
    assert [visitor.get("/deletion", user=name).status_code for name in ("jonas", "x", "y")] == [404, 200, 200]


def test_what_cannot_be_taken_back_with_one_click_is_asked_before(lived: Memory, open_studio: Open) -> None:
    page = open_studio(lived, write=True).page("/working-memory", user="maya")
    question = re.search(r'<details class="danger"><summary>Clear</summary>(.*?)</details>', page, re.DOTALL)
    assert question
    assert 'value="clear"' in question[1]
    assert page.count('value="clear"') == 1


@pytest.mark.parametrize(("done", "shown"), [("clear", "Cleared."), ("delete", "Deleted."), ("<b>", ""), ("", "")])
def test_a_page_says_what_a_form_has_done(lived: Memory, open_studio: Open, done: str, shown: str) -> None:
    page = open_studio(lived).page("/working-memory", user="maya", done=done)
    found: Mapping[int, str] = dict(enumerate(re.findall(r'<p class="note ok" role="status">(.*?)</p>', page)))
    assert found == ({0: shown} if shown else {})


def test_forms_lead_to_what_they_have_done(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived, write=True)
    cleared = visitor.send("/working-memory", {"action": "clear"}, user="maya")
    assert "Cleared." in cleared.text
    assert "It is empty." in cleared.text
    assert 'value="clear"' not in cleared.text
    gone = visitor.send("/thread/delete", {"confirm": "dog"}, user="maya", thread="dog")
    assert "Deleted." in gone.text
